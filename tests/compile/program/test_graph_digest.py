"""Graphs with one cache key compile to one program, whatever their nodes are called."""

import random
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import nn, optim
from weft.compile.frontend.specialization import adapting
from weft.compile.loop.text import print_kernel
from weft.compile.program.graph_digest import digest
from weft.compile.program.program import compiled
from weft.compile.targets.cpu import executable as scripts
from weft.graph import parse_graph, print_graph, verify
from weft.graph.custom import moved
from weft.graph.ir import FORWARD, INPUT, Graph, Node, Role
from weft.utils.checkpoint import checkpoint

F = nn.functional


def training_step():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    rule = optim.Adam(model.parameters(), lr=0.01)

    def step(x, y):
        rule.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        rule.step()
        return loss

    return weft.graph.capture(step, weft.ones(4, 8), weft.tensor([0, 1, 2, 3])).graph


def twice():
    return weft.graph.capture(
        lambda x: ((x.exp() + 1).sum(0), (x.exp() * x.tanh()).mean(1), x.T),
        weft.ones(6, 5),
    ).graph


def rebuilt(graph, name, role=lambda k, node: node.role):
    """The graph with other names and roles, which functions of a node's place give."""
    called, taken = {}, set()
    for k, node in enumerate(graph.nodes):
        new = name(k, node.name)
        while new in taken:
            new += "_"
        taken.add(new)
        called[node.name] = new

    def of(old):  # a node that is gone is called otherwise too
        return called.setdefault(old, f"gone/{len(called)}") if old else old

    made = {}
    for k, node in enumerate(graph.nodes):
        new, has = moved(node, made), role(k, node)
        has = has._replace(gradient=of(has.gradient), recomputes=of(has.recomputes))
        fields = (new.op, new.inputs, new.params, new.type, called[node.name])
        where = (new.after, new.module, new.code, new.lasti)
        made[node] = Node(*fields, *where, has)
    ends = [[made[n] for n in some] for some in (graph.outputs, graph.inputs)]
    return Graph(graph.name, list(made.values()), ends[0], graph.sizes, ends[1])


def program(made):
    """What a graph compiles to: its kernels' text, and its steps as bytes."""
    kernels = [print_kernel(kernel) for kernel in made.lowered.kernels.values()]
    return kernels, scripts.to_bytes(made.executor({}).executable)


def copies(made):
    return sum(node.role.is_copy for node in made.lowered.graph.nodes)


def some_names(seed):
    chance = random.Random(seed)
    parts = ["grad", "again", "checkpoint0", "x", "mul", "grad_1", "again_2", "anomaly"]
    return lambda k, old: "/".join(chance.choices(parts, k=3))


NAMES = {
    "the same": lambda k, old: old,
    "numbers": lambda k, old: f"n{k}",
    "inside something": lambda k, old: f"block/{old}",
    "no gradients": lambda k, old: old.replace("grad", "step"),
    "all gradients": lambda k, old: f"grad/{old}",
    "copies": lambda k, old: f"{old}/again",
    "copies of each other": lambda k, old: "same" + "/again" * k,
    "backwards": lambda k, old: f"{10**6 - k}",
    **{f"chance {seed}": some_names(seed) for seed in range(4)},
}


@pytest.mark.parametrize("make", [training_step, twice])
def test_one_key_is_one_program(make, tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    weft.manual_seed(0)
    graph = make()
    want = compiled(graph, kept=True)
    assert want.key
    for name, rule in NAMES.items():
        other = compiled(rebuilt(graph, rule), kept=True)
        assert other.key == want.key, name
        assert program(other) == program(want), name


# -- random programs

SIDE = 64  # as many elements as make it worth it to compute some of them again
OPERATIONS = {
    "relu": lambda a, b: a.relu(),
    "tanh": lambda a, b: a.tanh(),
    "gelu": lambda a, b: F.gelu(a),
    "add": lambda a, b: a + b * 0.5,
    "mul": lambda a, b: a * b,
    "less": lambda a, b: a - a.mean(1, keepdim=True),
    "softmax": lambda a, b: a.softmax(-1),
    "matmul": lambda a, b: a @ b,
    "transposed": lambda a, b: a.T + b,
}
POLICIES = (None, "recompute", "selective", {"matmul", "tanh"})

lines = st.tuples(
    st.sampled_from(sorted(OPERATIONS)), st.integers(0, 3), st.integers(0, 3),
    st.sampled_from(POLICIES), st.booleans(),
)  # fmt: skip
programs = st.lists(lines, min_size=2, max_size=6)


def step_of(program):
    """The captured gradient of a program; some of its lines are checkpointed, perhaps
    inside another one that is."""

    def line(name, policy, nested):
        fn = OPERATIONS[name]
        if policy is None:
            return fn
        inner = partial(checkpoint, lambda a, b: fn(a, b).sin(), policy=policy)
        if not nested:
            return inner
        return partial(checkpoint, lambda a, b: inner(a.cos(), b))

    def loss(x, w):
        values = [w, x]
        for name, a, b, policy, nested in program:
            given = values[-1 - a % len(values)], values[-1 - b % len(values)]
            values.append(line(name, policy, nested)(*given))
        return values[-1].sum()

    def step(x, w):
        return weft.func.grad(loss, argnums=(0, 1))(x, w)

    return weft.graph.capture(step, weft.ones(SIDE, SIDE), weft.ones(SIDE, SIDE))


words = st.text(st.sampled_from("grad/again_checkpoint0 %é"), min_size=1, max_size=20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One cache for all examples: the kernels' code is compiled once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@settings(max_examples=30, deadline=None)
@given(programs, st.data())
def test_random_programs_under_random_names(folder, lines, data):
    captured = step_of(lines)
    graph = captured.graph
    verify(graph)
    count = len(graph.nodes)
    called = data.draw(st.lists(words, min_size=count, max_size=count))
    other = rebuilt(graph, lambda k, old: called[k])
    verify(other)
    one, two = (
        compiled(g, kept=True, recompute=adapting(captured, None))
        for g in (graph, other)
    )
    assert one.key == two.key != ""
    assert program(one) == program(two)
    text = print_graph(other)
    again = parse_graph(text)
    assert print_graph(again) == text
    assert [n.role for n in again.nodes] == [n.role for n in other.nodes]
    assert digest(again) == digest(graph)


@settings(max_examples=30, deadline=None)
@given(programs, st.data())
def test_another_role_is_another_key(lines, data):
    graph = step_of(lines).graph
    places = [k for k, n in enumerate(graph.nodes) if n.op is not INPUT]
    place = data.draw(st.sampled_from(places))
    names = [None, "", "gone", *[n.name for n in graph.nodes if n.op is not INPUT]]
    some = st.sampled_from(names)
    regions = st.lists(st.integers(0, 3), max_size=2, unique=True).map(tuple)
    copied = some.filter(lambda name: name != "")
    role = data.draw(st.builds(Role, some, copied, regions))
    other = rebuilt(
        graph, lambda k, old: old, lambda k, node: role if k == place else node.role
    )
    same = role == graph.nodes[place].role
    assert (digest(other) == digest(graph)) is same


def test_what_roles_decide():
    """Without its roles, a step has another key, and a program that copies nothing."""
    lines = [("matmul", 0, 0, None, False), ("gelu", 0, 0, None, False)]
    graph = step_of([*lines, ("matmul", 0, 0, None, False)]).graph
    plain = rebuilt(graph, lambda k, old: old, lambda k, node: FORWARD)
    one, two = compiled(graph, kept=True), compiled(plain, kept=True)
    assert one.key != two.key
    assert copies(one)
    assert not copies(two)


def test_a_region_decides():
    """Two programs that differ in what is checkpointed, to one policy."""
    lines = [("tanh", 0, 0, "recompute", False), ("gelu", 0, 0, None, False)]
    captured = step_of(lines)
    adapt = adapting(captured, None)
    wider = rebuilt(
        captured.graph,
        lambda k, old: old,
        lambda k, node: (
            node.role if node.op is INPUT else node.role._replace(region=(0,))
        ),
    )
    one, two = (
        compiled(captured.graph, kept=True, recompute=adapt),
        compiled(wider, kept=True, recompute=adapt),
    )
    assert one.key != two.key
    assert copies(one) < copies(two)
