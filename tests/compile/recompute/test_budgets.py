"""Recomputation in compiled steps: policies, budgets, the same bits, less memory."""

import itertools
import random
import re

import numpy as np
import pytest
from by_loops import kernels_of

import weft
from weft import nn, optim
from weft.compile.cost.machine import Machine
from weft.compile.passes.recompute import BackwardRuns, recompute
from weft.compile.pipeline import run as run_passes
from weft.compile.recompute.budget import Budget
from weft.compile.recompute.draft import Draft
from weft.compile.recompute.planner import Planner
from weft.compile.recompute.policies import memory_of
from weft.compile.recompute.segments import runs_of
from weft.errors import AllocationError, ArgumentError, DTypeError
from weft.graph import parse_graph, verify
from weft.graph.capture import capture
from weft.utils.checkpoint import checkpoint

ROOF = Machine(1, ((1 << 16, 1e10), (1 << 27, 1e10)), 1e11)
POLICIES = ("keep", "recompute", "selective", "sqrt")


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        return x + self.drop(self.wide(self.norm(x)))


def blocks(depth=3, width=16, rows=64):
    model = nn.Sequential(*[Block(width) for _ in range(depth)])
    return model, weft.randn(rows, width)


def convolutions(depth=3, width=4):
    body = [
        nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width),
                      nn.ReLU())
        for _ in range(depth)
    ]  # fmt: skip
    return nn.Sequential(*body), weft.randn(2, width, 6, 6)


def attention(width=16):
    layer = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.1, batch_first=True)
    return nn.Sequential(layer), weft.randn(3, 5, width)


MODELS = {"blocks": blocks, "convolutions": convolutions, "attention": attention}


def training(make, memory=None, **options):
    """A compiled step of a model with Adam."""
    weft.manual_seed(0)
    model, x = make(**options)
    optimizer = optim.Adam(model.parameters())

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, weft.compile(step, memory=memory), x


def after(make, memory=None, steps=3, **options):
    """Everything that a few steps leave behind, and the compiled step."""
    model, optimizer, step, x = training(make, memory, **options)
    losses = [step(x).item() for _ in range(steps)]
    found = {"losses": np.array(losses)}
    for name, value in model.state_dict().items():
        found[name] = value.numpy().copy()
    for name, p in model.named_parameters():
        found[f"{name}.grad"] = p.grad.numpy().copy()
        for key, value in optimizer.state[p].items():
            found[f"{name}.{key}"] = np.array(value)
    found["random"] = np.array(weft.rand(3))
    return found, step


def arena(step):
    return instance_of(step).arena.nbytes


def instance_of(step):
    (instance,) = step.latest.program.executors.values()
    return instance


def copies(step):
    return [n for n in step.latest.program.lowered.graph.nodes if n.role.is_copy]


def same(a, b):
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert np.array_equal(value, b[name]), name


# -- the pass


def test_golden():
    text = """graph f(%x: float32[4]) {
      %a: float32[4] = exp(%x)
      %b: float32[4] = sin(%a)
      %c: float32[4] = tanh(%b)
      %cg: float32[4] = mul(%c, 2) gradient of %c
      %d: float32[4] = cos(%a) gradient of %b
      %bg: float32[4] = mul(%cg, %d) gradient of %b
      %ag: float32[4] = mul(%bg, %a) gradient of %a
      return %c, %ag
    }"""
    made = recompute(parse_graph(text), lambda node: node.op.name == "tanh")
    verify(made)
    assert str(made).splitlines()[1:-1] == [
        "  %a: float32[4] = exp(%x)",
        "  %b: float32[4] = sin(%a)",
        "  %c: float32[4] = tanh(%b)",
        "  %cg: float32[4] = mul(%c, 2) gradient of %c",
        "  %a/again: float32[4] = exp(%x) after %cg recomputes %a",
        "  %d/again: float32[4] = cos(%a/again) gradient of %b recomputes %d",
        "  %bg: float32[4] = mul(%cg, %d/again) gradient of %b",
        "  %ag: float32[4] = mul(%bg, %a/again) gradient of %a",
        "  return %c, %ag",
    ]


def test_nothing_to_do():
    g = capture(lambda x: x.exp().sin(), weft.ones(3)).graph
    assert recompute(g, lambda node: False) is g  # no gradients
    g = parse_graph("""graph f(%x: float32[4]) {
      %a: float32[4] = exp(%x)
      %g: float32[4] = mul(%a, 2) gradient of %a
      return %g
    }""")
    assert recompute(g, lambda node: True) is g
    assert len(recompute(g, lambda node: False)) == len(g)  # in the copy's place


def test_names_say_nothing():
    g = parse_graph("""graph f(%x: float32[4]) {
      %a: float32[4] = exp(%x)
      %grad/a/g: float32[4] = mul(%a, 2)
      %a/again: float32[4] = exp(%x)
      return %grad/a/g, %a/again
    }""")
    assert recompute(g, lambda node: False) is g
    assert not BackwardRuns(g).of
    assert not any(node.role.is_copy for node in g.nodes)


def test_a_copy_is_copied_as_what_it_copies():
    g = parse_graph("""graph f(%x: float32[4]) {
      %a: float32[4] = exp(%x)
      %ag: float32[4] = mul(%a, 2) gradient of %a
      %b: float32[4] = sin(%ag)
      %again: float32[4] = exp(%x) recomputes %a
      %c: float32[4] = mul(%b, %again)
      %cg: float32[4] = mul(%c, %again) gradient of %c
      return %cg, %c
    }""")
    made = recompute(g, lambda node: node.name != "again")
    verify(made)
    copies = [n.name for n in made.nodes if n.role.recomputes == "a"]
    assert copies == ["again", "again/again"]


def test_turns():
    g = parse_graph("""graph f(%x: float32[4]) {
      %a: float32[4] = neg(%x)
      %b: float32[4] = exp(%a)
      %mask: bool[4] = gt(%x, 0) gradient of %a
      %bg: float32[4] = mul(%b, 2) gradient of %b
      %ag: float32[4] = where(%mask, %bg, 0) gradient
      return %ag
    }""")
    turns = BackwardRuns(g).of
    assert {node.name for node in turns} == {"bg", "ag"}


def accumulating(memory):
    """Two forward and backward runs before one update."""
    weft.manual_seed(0)
    model, x = blocks(depth=4, rows=128)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        for part in x.chunk(2):
            model(part).square().mean().backward()
        optimizer.step()

    compiled = weft.compile(step, memory=memory)
    for _ in range(2):
        compiled(x)
    return {k: v.numpy().copy() for k, v in model.state_dict().items()}, compiled


def test_two_backward_runs_each_compute_again():
    want, plain = accumulating(None)
    captured = plain.latest.captured
    own = {c.variable for c in captured.cells.values() if c.has_memory}
    budget = Budget(run_passes(captured.graph), own)
    assert len(budget.planners) == 2
    got, step = accumulating(total(plain) - budget.all.needs + budget.least.needs)
    same(want, got)
    assert arena(step) < arena(plain) / 2


def two_players(memory):
    """Two models that train in one step, whose result can be differentiated."""
    weft.manual_seed(0)
    make = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 16))
    judge = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 1))
    first, second = (optim.Adam(m.parameters()) for m in (judge, make))
    noise, real = weft.randn(128, 8), weft.randn(128, 16)

    def step(noise, real):
        first.zero_grad()
        fake = make(noise)
        loss = (judge(real) - 1).square().mean() + judge(fake.detach()).square().mean()
        loss.backward()
        first.step()
        second.zero_grad()
        other = (judge(fake) - 1).square().mean()
        other.backward()
        second.step()
        return loss + other

    compiled = weft.compile(step, memory=memory)
    losses = [compiled(noise, real).item() for _ in range(3)]
    tensors = {
        **make.state_dict(),
        **{f"j{k}": v for k, v in judge.state_dict().items()},
    }
    found = {k: v.numpy().copy() for k, v in tensors.items()}
    return {"losses": np.array(losses), **found}, compiled


def test_two_players():
    want, plain = two_players(None)
    got, step = two_players("selective")
    same(want, got)
    assert copies(step)
    assert arena(step) < arena(plain)


# -- policies


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "memory", ["recompute", "selective", "sqrt", {"add"}, lambda r: r.nbytes < 900]
)
def test_the_same_bits_under_every_policy(name, memory):
    want, plain = after(MODELS[name])
    got, step = after(MODELS[name], memory)
    same(want, got)
    assert not copies(plain)
    assert copies(step)


def tokens(width=16):
    """As many rows as columns, so that shapes of unlike values agree."""
    model = weft.models.GPT(7, context=8, width=width, heads=2, layers=1, dropout=0.1)
    return nn.Sequential(model), weft.randint(0, 7, (2, 8))


def encoder():
    """Attention, whose routine has two results."""
    model = weft.models.EncoderClassifier(7, 3, width=16, heads=2, layers=2)
    return nn.Sequential(model), weft.randint(0, 7, (4, 12))


def few_rows(times, width=256):
    """A weight that products read so many times, with rows for dot products."""
    layer = nn.Linear(width, width)
    return nn.Sequential(*[nn.Sequential(layer, nn.GELU())] * times), weft.randn(
        8, width
    )


@pytest.mark.parametrize("make", [tokens, encoder])
@pytest.mark.parametrize("seed", [0, 2])
def test_the_same_bits_whatever_is_kept(make, seed):
    chance = random.Random(seed)
    want, _ = after(make, steps=2)
    got, step = after(make, lambda result: chance.random() < 0.5, steps=2)
    same(want, got)
    assert copies(step)


@pytest.mark.parametrize("times", [2, 3, 4])
def test_a_weight_is_packed_or_not_whatever_is_kept(times):
    want, _ = after(few_rows, times=times, steps=2)
    got, step = after(few_rows, "recompute", times=times, steps=2)
    same(want, got)
    products = [n.op.name for n in copies(step)].count("matmul")
    assert products == times  # with them a weight would be read OFTEN enough


SUM = "  %s: float32[8] = sum(%g, dim=(0, 2, 3), keepdim=False)\n"
COPY = """  %a/again: float32[2, 2, 16, 16] = relu(%y) after %g recomputes %a
  %v: float32[2, 8, 8, 8] = reshape(%a/again, shape=(2, 8, 8, 8))
  %h: float32[2, 8, 8, 8] = mul(%g, %v)
"""


@pytest.mark.parametrize("lines", [SUM + COPY, COPY + SUM], ids=["late", "early"])
def test_what_is_computed_again_leaves_the_order_of_sums(lines):
    """Loops over (2, 8, 8, 8) have room for as many elements of another shape, which
    would keep the last two axes from being one."""
    head = """graph f(%x: float32[2, 8, 8, 8], %y: float32[2, 2, 16, 16]) {
      %g: float32[2, 8, 8, 8] = exp(%x)
    """
    weft.manual_seed(0)
    given = [weft.randn(2, 8, 8, 8).numpy(), weft.randn(2, 2, 16, 16).numpy()]
    plain = kernels_of(parse_graph(f"{head}{SUM}return %s\n}}"))
    mixed = kernels_of(parse_graph(f"{head}{lines}return %s, %h\n}}"))
    (want,), _ = plain.run_named(given, {})
    (got, product), _ = mixed.run_named(given, {})
    assert np.array_equal(got, want)
    x, y = given
    expected = np.exp(x) * np.maximum(y, 0).reshape(x.shape)
    np.testing.assert_allclose(product, expected, rtol=1e-6)


def test_a_policy_is_asked_once_for_a_value():
    g = parse_graph("""graph f(%x: float32[4]) {
      %a: float32[4] = exp(%x)
      %v: float32[2, 2] = reshape(%a, shape=(2, 2))
      %c: float32[2, 2] = sin(%v)
      %cg: float32[2, 2] = mul(%c, %v) gradient of %c
      return %cg
    }""")
    asked = []
    recompute(g, lambda node: asked.append(node.name))
    assert sorted(asked) == ["a", "c"]


def test_selective_keeps_products():
    _, step = after(blocks, "selective")
    again = {n.op.name for n in copies(step)}
    assert "matmul" not in again
    assert "erf" in again
    assert arena(step) < 0.6 * arena(after(blocks)[1])


def test_recompute_computes_each_value_once_more():
    _, step = after(blocks, "recompute")
    names = [n.name for n in copies(step)]
    assert len(names) == len(set(names))
    assert "matmul" in {n.op.name for n in copies(step)}


def test_sqrt_needs_less_than_a_third_of_a_deep_model():
    budget = chain(25)
    graph = memory_of("sqrt").adapting(None)(budget.all.graph, budget.in_place)
    assert Draft(graph, budget.in_place).arena < budget.all.arena / 3


def test_pooling_indices_are_kept_so_state_is_in_place():
    def pooled():
        layers = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
        return nn.Sequential(*layers), weft.randn(2, 1, 10, 10)

    want, _ = after(pooled)
    got, step = after(pooled, "recompute")
    same(want, got)
    assert copies(step)
    assert not [n for n in copies(step) if n.dtype is weft.int64]
    state = {v.name for v in step.latest.program.plan.layout.state}
    assert {"0.weight", "0.weight.grad"} <= state


def test_a_function_sees_operators_and_sizes():
    seen = []

    def keep(result):
        seen.append(result)
        return result.op == "matmul"

    _, step = after(blocks, keep, depth=1)
    assert "matmul" not in {n.op.name for n in copies(step)}
    wide = [r for r in seen if r.op == "matmul" and r.shape == (64, 32)]
    assert wide[0].nbytes == 64 * 32 * 4
    assert wide[0].dtype is weft.float32


def test_explain_says_what_is_computed_again():
    _, step = after(blocks, "selective", steps=1)
    program = step.explain().program
    again = {one.operator: one for one in program.again}
    assert "matmul" not in again
    assert again["erf"].nbytes == sum(
        4 * int(np.prod(n.shape)) for n in copies(step) if n.op.name == "erf"
    )
    assert "computed again for backward" in str(step.explain())
    assert "Computed again for backward" in step.explain().html(code=False)
    assert not after(blocks, steps=1)[1].explain().program.again


def test_without_gradients_nothing_changes():
    f = weft.compile(lambda x: x.exp().sin(), memory="recompute")
    assert f(weft.ones(3)).shape == (3,)
    assert not copies(f)


# -- budgets


@pytest.mark.parametrize("name", MODELS)
def test_budgets_from_least_to_most(name):
    want, plain = after(MODELS[name])
    captured = plain.latest.captured
    own = {c.variable for c in captured.cells.values() if c.has_memory}
    budget = Budget(run_passes(captured.graph), own)
    least, most = budget.least.needs, budget.all.needs
    assert least < most
    fixed = total(plain) - most
    for part in (0.0, 0.5, 1.0):
        limit = fixed + round(least + part * (most - least))
        got, step = after(MODELS[name], limit)
        same(want, got)
        assert total(step) <= limit
        assert bool(copies(step)) == (part < 1.0)


def total(step):
    """All the memory of a compiled step, counted from what is really there."""
    entry = step.latest
    instance = instance_of(step)
    state = sum(c.get().nbytes for c in entry.cells.values() if c.has_memory)
    given = sum(int(np.prod(n.shape)) * 4 for n in entry.captured.graph.inputs)
    constants = {
        id(n.params["value"]): n.params["value"].nbytes
        for n in entry.captured.graph.nodes if n.op.name == "constant"
    }  # fmt: skip
    fresh = sum(
        int(np.prod(shape)) * kind.itemsize for _, shape, kind in instance.fresh
    )
    memory = (
        instance.arena.nbytes + instance.jobs.memory.nbytes + instance.jobs.data.nbytes
    )
    return state + given + memory + fresh + sum(constants.values())


def test_a_budget_of_everything_recomputes_nothing():
    _, step = after(blocks, "1GB")
    assert not copies(step)


def test_an_impossible_budget_names_the_smallest():
    with pytest.raises(AllocationError, match=r"cannot run within 20\.0 kB") as error:
        after(blocks, "20kB", steps=1)
    least = int(
        re.search(r"\(([\d,]+) bytes\): ", str(error.value))[1].replace(",", "")
    )
    _, step = after(blocks, least, steps=1)
    assert total(step) <= least
    with pytest.raises(AllocationError, match="The smallest budget is"):
        after(blocks, least - 64, steps=1)


def test_with_a_budget_each_size_is_planned_for():
    _, _, step, _ = training(blocks, "3MB")
    for rows in (8, 16, 24):
        step(weft.ones(rows, 16))
    assert len(step.compiles) == 3


@pytest.mark.parametrize(
    ("memory", "error", "text"),
    [
        ("lots", ArgumentError, "expected memory to be a size such as '512MB', one of"),
        ("5 XB", ArgumentError, "'xb' in '5 XB' is no unit of memory"),
        ("-5MB", ArgumentError, "expected more than 0 bytes, got '-5MB'"),
        (-5, ArgumentError, "expected more than 0 bytes, got -5"),
        (0, ArgumentError, "expected more than 0 bytes, got 0"),
        (True, DTypeError, "expected a number of bytes or a text"),
        ({"matmull"}, ArgumentError, "no operator is named 'matmull'; did you mean"),
    ],
)
def test_nonsense(memory, error, text):
    with pytest.raises(error, match=re.escape(text)):
        weft.compile(lambda x: x, memory=memory)


def test_what_memory_can_be():
    assert memory_of(None).policy == "keep"
    assert [memory_of(p).policy for p in POLICIES] == list(POLICIES)
    assert memory_of(4096).limit == 4096
    assert memory_of("1.5 GiB").limit == 3 << 29
    assert "conv_bias" in memory_of(["conv"]).policy.names


# -- the planner


def chain(depth, rows=512, width=32):
    weft.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(depth)]
    model, x = nn.Sequential(*layers), weft.randn(rows, width)

    def step():
        loss = model(x).square().mean()
        loss.backward()
        return loss

    captured = capture(step)
    own = {c.variable for c in captured.cells.values() if c.has_memory}
    return Budget(run_passes(captured.graph), own, ROOF)


def test_plans_of_a_small_chain_are_the_best_there_are():
    """Every choice of values to keep, by the same model."""
    budget = chain(4)
    (run,) = runs_of(budget.all, ROOF)
    planner = Planner(run)
    values = list(run.values)
    assert len(values) <= 12
    every = []
    for count in range(len(values) + 1):
        for kept in itertools.combinations(values, count):
            every.append((frozenset(kept), modelled(run, frozenset(kept))))
    goals = np.linspace(planner.least, planner.most, 200).astype(int)
    choices = [planner.best(int(goal)) for goal in goals]
    found = [
        modelled(run, frozenset(run.values.keys() - c.dropped)) for c in choices if c
    ]
    smallest = min(peak for _, peak in found)
    assert smallest <= 1.1 * min(peak for _, (_, peak) in every)
    for limit in np.linspace(smallest, max(peak for _, peak in found), 9):
        best = min(t for _, (t, peak) in every if peak <= limit)
        assert min(t for t, peak in found if peak <= limit) <= 1.1 * best


def modelled(run, kept):
    """Seconds and most bytes if just some values are kept, step by step."""
    again, order = {}, {n: k for k, n in enumerate(run.values)}
    reads = sorted(
        (v.first, k, v.node) for k, v in enumerate(run.values.values()) if v.first >= 0
    )

    def compute(node, now):
        if node in kept or node in again:
            return
        again[node] = now
        for need in sorted(run.values[node].needs, key=order.get):
            compute(need, now)

    for now, _, node in reads:
        compute(node, now)
    took = sum(run.values[n].seconds for n in again)
    peak = 0
    first = min((now for now, _, _ in reads), default=0)
    for now in range(first, len(run.rest)):
        live = run.bytes_of(n for n in kept if run.values[n].last >= now)
        live += run.bytes_of(
            n for n, at in again.items() if at <= now <= max(at, run.values[n].last)
        )
        held = [
            n for n in kept if run.values[n].last < now and needed(run, kept, n, now)
        ]
        peak = max(peak, live + run.bytes_of(held) + int(run.rest[now]))
    return took, peak


def needed(run, kept, node, now):
    """Whether what is computed again from now on starts from a value."""
    return any(
        node in v.needs
        and v.node not in kept
        and (v.first >= now or needed(run, kept, v.node, now))
        for v in run.values.values()
    )


def test_more_budget_never_takes_longer():
    budget = chain(8)
    (planner,) = [Planner(run) for run in runs_of(budget.all, ROOF)]
    limits = np.linspace(planner.least, planner.most, 12).astype(int)
    times = [planner.best(int(n)).seconds for n in limits]
    assert all(a >= b - 1e-9 for a, b in itertools.pairwise(times))
    assert times[-1] == 0
    assert planner.best(planner.least // 2) is None


# -- checkpoints inside


def checkpointed(policy, depth=4, nested=False):
    def make():
        weft.manual_seed(0)
        blocks = [Block(16) for _ in range(depth)]
        model = nn.Sequential(*blocks)

        def run(x):
            for block in blocks:
                if policy == "off":
                    x = block(x)
                else:
                    x = checkpoint(block, x, policy=policy)
            return x

        model.forward = (
            (lambda x: checkpoint(run, x, policy="selective")) if nested else run
        )
        return model, weft.randn(64, 16)

    return make


@pytest.mark.parametrize(
    "policy", [None, "selective", {"erf"}, lambda result: result.op == "matmul"]
)
def test_checkpoints_inside_obey_their_policy(policy):
    want, plain = after(checkpointed("off"))
    got, step = after(checkpointed(policy))
    same(want, got)
    again = {n.op.name for n in copies(step)}
    assert "mul" in again
    if policy is None:
        assert "matmul" in again
    elif policy == {"erf"}:
        assert "erf" not in again
    else:
        assert "matmul" not in again
    assert arena(step) < arena(plain)


def test_checkpoints_that_keep_everything_change_nothing():
    _, step = after(checkpointed("keep"))
    assert not copies(step)


def test_a_blocks_arguments_are_kept():
    _, step = after(checkpointed(None))
    regions = {n.role.region for n in copies(step)}
    assert regions >= {(0,), (1,), (2,), (3,)}
    sums = [n for n in copies(step) if n.op.name == "add" and n.module.isdigit()]
    assert not sums  # residual sums leave their blocks


def test_nested_checkpoints():
    want, _ = after(checkpointed("off"))
    got, step = after(checkpointed(None, nested=True))
    same(want, got)
    assert "matmul" in {n.op.name for n in copies(step)}


def test_checkpoints_are_planned_for():
    _, _, step, x = training(checkpointed("off"))
    _, _, lean, _ = training(checkpointed(None))
    assert weft.plan(lean, x).peak < weft.plan(step, x).peak
