"""Checkpointed functions: the same bits, less memory, one more forward run."""

import contextlib
import gc
import math
import tracemalloc

import numpy as np
import pytest

import weft
from weft import nn
from weft.autograd import grad, gradgradcheck
from weft.errors import ArgumentError, AutogradError, DTypeError
from weft.testing import count_ops
from weft.utils.checkpoint import checkpoint, checkpoint_sequential

POLICIES = [
    None, "recompute", "keep", "selective", {"matmul", "mul"}, lambda r: r.nbytes < 99,
]  # fmt: skip
NAMES = ["none", "recompute", "keep", "selective", "names", "function"]


def block(width=8):
    return nn.Sequential(
        nn.Linear(width, width), nn.BatchNorm1d(width), nn.GELU(), nn.Dropout(0.3)
    )


def chain(count, make=block):
    weft.manual_seed(1)
    return nn.Sequential(*[make() for _ in range(count)])


def bits(*tensors):
    return [t.detach().numpy().tobytes() for t in tensors]


def trained(run, make=lambda: chain(6)):
    """Everything that a step leaves behind: gradients, buffers, random state."""
    model = make()
    weft.manual_seed(5)
    x = weft.randn(4, 8, requires_grad=True)
    y = run(model, x)
    (y * y).sum().backward()
    left = [y, x.grad, *[p.grad for p in model.parameters()], *model.buffers()]
    return bits(*left, weft.rand(3))


def inside(fn, x, **options):
    """Output and gradient of a function, plain and checkpointed."""
    found = []
    for call in (fn, lambda x: checkpoint(fn, x, **options)):
        leaf = weft.tensor(x, requires_grad=True)
        y = call(leaf)
        y.sum().backward()
        found.append(bits(y, leaf.grad))
    return found


# -- the same gradients


@pytest.mark.parametrize("policy", POLICIES, ids=NAMES)
@pytest.mark.parametrize("segments", [1, 2, "sqrt", None, 6])
def test_chain_gives_the_same_bits(policy, segments):
    plain = trained(lambda m, x: m(x))
    again = trained(lambda m, x: checkpoint_sequential(m, segments, x, policy=policy))
    assert again == plain


@pytest.mark.parametrize("policy", POLICIES, ids=NAMES)
def test_whole_model_in_one_segment_gives_the_same_bits(policy):
    plain = trained(lambda m, x: m(x))
    assert trained(lambda m, x: checkpoint(m, x, policy=policy)) == plain


def test_nested_segments_give_the_same_bits():
    def nested(m, x):
        halves = [nn.Sequential(*list(m)[:3]), nn.Sequential(*list(m)[3:])]
        for half in halves:
            x = checkpoint(lambda x, h=half: checkpoint_sequential(h, 3, x), x)
        return x

    assert trained(nested) == trained(lambda m, x: m(x))


def test_three_levels_of_scalars():
    def deep(x, levels):
        if not levels:
            return (x * x).sin() * x.exp()
        return checkpoint(deep, checkpoint(deep, x, levels - 1) * x, levels - 1)

    def plain(x, levels):
        if not levels:
            return (x * x).sin() * x.exp()
        return plain(plain(x, levels - 1) * x, levels - 1)

    values = []
    for fn in (plain, deep):
        x = weft.tensor(0.3, dtype=weft.float64, requires_grad=True)
        values.append(bits(*grad(fn(x, 3), x)))
    assert values[0] == values[1]


def test_several_outputs_in_containers():
    def fn(x, *, scale):
        h = (x * scale).tanh()
        return {"a": h.exp(), "b": [h, (h * h).sum()], "n": 3, "none": None}

    found = []
    for call in (fn, lambda x, **k: checkpoint(fn, x, **k)):
        x = weft.linspace(-1, 1, 6).requires_grad_()
        out = call(x, scale=2.0)
        (out["a"].sum() + out["b"][0].sum() * 3 + out["b"][1] * out["n"]).backward()
        found.append(bits(x.grad))
    assert found[0] == found[1]
    assert out["none"] is None


def test_other_arguments_pass_through():
    def fn(x, name, pair, *, flag, extra=None):
        assert (name, flag, extra) == ("a", True, None)
        return pair[0] * x.exp() + pair[1]["w"]

    x = weft.ones(3, requires_grad=True)
    w = weft.full((3,), 2.0, requires_grad=True)
    y = checkpoint(fn, x, "a", (weft.full((3,), 4.0), {"w": w}), flag=True)
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 4 * math.e, rtol=1e-6)
    np.testing.assert_array_equal(w.grad.numpy(), 1)


def test_closed_over_parameters_get_gradients():
    w = nn.Parameter(weft.ones(3))
    x = weft.ones(3)  # no tensor among the arguments wants a gradient
    checkpoint(lambda x: (x * w).exp().sin(), x).sum().backward()
    expected = math.cos(math.e) * math.e
    np.testing.assert_allclose(w.grad.numpy(), expected, rtol=1e-6)


def test_closed_over_intermediates_get_gradients():
    x = weft.ones(3, requires_grad=True)
    h = x * 2
    checkpoint(lambda a: (a * h).exp(), x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 4 * math.exp(2), rtol=1e-6)


def test_in_place_on_inner_tensors():
    def fn(x):
        h = x * 2
        h.add_(1)
        y = h.sin()
        y.mul_(x)
        y[0] = 3.0
        return (y * y).sigmoid()

    first, second = inside(fn, [0.1, 0.2, 0.3])
    assert first == second


def test_in_place_on_an_argument():
    def fn(x):
        x.mul_(2)
        return (x * x).exp()

    found = []
    for call in (fn, lambda x: checkpoint(fn, x)):
        x = weft.tensor([0.1, 0.2], requires_grad=True)
        y = call(x * 1)
        (g,) = grad(y.sum(), x)
        found.append(bits(g))
    assert found[0] == found[1]


def test_buffer_among_the_arguments_is_changed_once():
    mean, var = weft.zeros(2), weft.ones(2)
    x = weft.tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True)
    F = nn.functional
    y = checkpoint(F.batch_norm, x, mean, var, training=True)
    after = bits(mean, var)
    y.exp().sum().backward()
    assert bits(mean, var) == after
    np.testing.assert_allclose(mean.numpy(), [0.2, 0.35], rtol=1e-6)


def test_running_statistics_move_once():
    norm = nn.BatchNorm1d(8)
    x = weft.randn(4, 8, requires_grad=True)
    checkpoint(lambda x: norm(x).tanh(), x).sum().backward()
    assert int(norm.num_batches_tracked) == 1
    batch = x.detach().numpy().mean(0)
    np.testing.assert_allclose(norm.running_mean.numpy(), 0.1 * batch, rtol=1e-4)


@pytest.mark.parametrize("own", [False, True], ids=["default", "own generator"])
def test_dropout_masks_are_the_same(own):
    generator = weft.Generator().manual_seed(3) if own else None

    def fn(x):
        mask = (weft.rand(x.shape, generator=generator) < 0.5).float()
        return (x * mask).exp() * mask

    x = weft.ones(64, requires_grad=True)
    y = checkpoint(fn, x)
    before = weft.get_rng_state()
    y.sum().backward()
    assert weft.equal(weft.get_rng_state(), before)
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())


def test_without_preserving_other_numbers_are_drawn():
    x = weft.ones(64, requires_grad=True)

    def fn(x):
        return (x * (weft.rand(64) < 0.5).float()).exp()

    y = checkpoint(fn, x, preserve_rng_state=False)
    y.sum().backward()
    drawn = (y.detach() > 1).numpy()
    assert (drawn != (x.grad != 0).numpy()).any()


# -- the ways to ask


def test_higher_orders():
    def fn(x):
        h = checkpoint(lambda x: (x * x).tanh() * x, x)
        return checkpoint(lambda h: h.exp() * h, h)

    x = weft.tensor([0.2, -0.4, 0.7], dtype=weft.float64, requires_grad=True)
    assert weft.autograd.gradcheck(fn, (x,))
    assert gradgradcheck(fn, (x,))

    def plain(x):
        h = (x * x).tanh() * x
        return h.exp() * h

    found = []
    for call in (fn, plain):
        (g,) = grad(call(x).sum(), x, create_graph=True)
        (gg,) = grad((g * g).sum(), x, create_graph=True)
        found.append(bits(*grad(gg.sum(), x)))
    assert found[0] == found[1]


def test_retained_graph_can_be_used_again():
    x = weft.tensor([0.5, 1.5], requires_grad=True)
    y = checkpoint(lambda x: x.exp().sin(), x).sum()
    y.backward(retain_graph=True)
    first = x.grad.clone()
    y.backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * first.numpy())
    with pytest.raises(AutogradError, match="already freed"):
        y.backward()


def test_grad_of_some_inputs_leaves_nothing_behind():
    a, b = (weft.full((4,), v, requires_grad=True) for v in (0.5, 2.0))
    y = checkpoint(lambda a, b: (a * b).exp() + (b * b).exp(), a, b)
    (g,) = grad(y.sum(), a, retain_graph=True)
    np.testing.assert_allclose(g.numpy(), 2 * math.e, rtol=1e-6)
    segment = next(
        n.saved.segment
        for n in weft.core.tape.reach([y._node])
        if type(n).__name__ == "DeferredNode"
    )
    assert segment.filled is None


def test_modes_inside():
    def fn(x):
        with weft.no_grad():
            scale = (x * x).sum()
        return (x * scale).exp()

    first, second = inside(fn, [0.1, 0.2])
    assert first == second


def test_without_recording_it_is_a_call():
    x = weft.ones(2, requires_grad=True)
    with weft.no_grad(), count_ops() as counts:
        y = checkpoint(lambda x: x.exp(), x)
    assert y._node is None
    assert counts["exp"] == 1


def test_hooks_run_once():
    seen = []

    def fn(x):
        h = x.exp()
        h.register_hook(lambda g: seen.append("inner") or g * 2)
        return h.sin()

    x = weft.tensor([0.3], requires_grad=True)
    x.register_hook(lambda g: seen.append("leaf"))
    y = checkpoint(fn, x)
    y.register_hook(lambda g: seen.append("out"))
    y.sum().backward()
    assert seen == ["out", "inner", "leaf"]
    value = 2 * math.cos(math.exp(0.3)) * math.exp(0.3)
    np.testing.assert_allclose(x.grad.numpy(), [value], rtol=1e-5)


def test_retained_gradients_inside():
    held = []

    def fn(x):
        h = x.exp()
        if not held:
            h.retain_grad()
            held.append(h)
        return h * h

    x = weft.tensor([0.5], requires_grad=True)
    checkpoint(fn, x).sum().backward()
    np.testing.assert_allclose(held[0].grad.numpy(), [2 * math.exp(0.5)], rtol=1e-6)


def test_custom_functions_inside():
    class Cube(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            square = x * x
            ctx.save_for_backward(x, square)
            return square * x

        @staticmethod
        def backward(ctx, g):
            _x, square = ctx.saved_tensors
            return 3 * g * square

    x = weft.tensor([2.0, 3.0], requires_grad=True)
    y = checkpoint(lambda x: Cube.apply(Cube.apply(x * 1)), x)
    y.sum().backward(retain_graph=True)
    np.testing.assert_array_equal(x.grad.numpy(), 9 * np.array([2.0, 3.0]) ** 8)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), 18 * np.array([2.0, 3.0]) ** 8)


def test_operators_with_several_outputs():
    def fn(x):
        values, _ = (x * 2).sort()
        q, r = weft.linalg.qr(x.outer(x) + weft.eye(3))
        return values.exp().sum() + (q * q.exp()).sum() + r.tanh().sum()

    first, second = inside(fn, [0.3, 0.1, 0.2])
    assert first == second


def test_under_transforms():
    def fn(x):
        return checkpoint(lambda x: x.exp().sin() * x, x).sum()

    def plain(x):
        return (x.exp().sin() * x).sum()

    x = weft.tensor([0.1, 0.5, 0.9])
    for transform in (weft.func.grad, weft.func.jacrev, weft.func.hessian):
        assert bits(transform(fn)(x)) == bits(transform(plain)(x))
    rows = weft.stack([x, x * 2])
    for transform in (weft.func.vmap, lambda f: weft.func.vmap(weft.func.grad(f))):
        np.testing.assert_allclose(
            transform(fn)(rows).numpy(), transform(plain)(rows).numpy(), rtol=1e-6
        )
    leaf = rows.clone().requires_grad_()
    weft.func.vmap(fn)(leaf).sum().backward()
    expected = grad(plain(other := rows.clone().requires_grad_()), other)[0]
    np.testing.assert_allclose(leaf.grad.numpy(), expected.numpy(), rtol=1e-6)
    assert bits(weft.func.jvp(fn, (x,), (x,))[1]) == bits(
        weft.func.jvp(plain, (x,), (x,))[1]
    )


def test_captured_compiled_and_static():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))

    def step(x):
        model.zero_grad()
        loss = (checkpoint_sequential(model, 2, x) ** 2).sum()
        loss.backward()
        return loss

    x = weft.randn(3, 4)
    loss = step(x)
    expected = [p.grad.numpy().copy() for p in model.parameters()]
    for run in (weft.graph.capture(step, x), weft.compile(step)):
        got = run(x)
        np.testing.assert_allclose(float(got), float(loss), rtol=1e-5)
        for p, g in zip(model.parameters(), expected, strict=True):
            np.testing.assert_allclose(p.grad.numpy(), g, rtol=1e-4, atol=1e-6)
    with weft.static.Graph().as_default():
        given = weft.static.placeholder(weft.float32, (3, 4))
        loss = (checkpoint(model, given) ** 2).sum()
        (dx,) = weft.static.gradients(loss, [given])
        with weft.static.Session() as session:
            session.run(weft.static.global_variables_initializer())
            got = session.run(dx, {given: x.numpy()})
    leaf = x.clone().requires_grad_()
    (model(leaf) ** 2).sum().backward()
    np.testing.assert_allclose(got, leaf.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_contexts_around_both_runs():
    seen = []

    class Note:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            seen.append(self.name)

        def __exit__(self, *error):
            pass

    x = weft.ones(2, requires_grad=True)
    y = checkpoint(
        lambda x: x.exp(), x, context_fn=lambda: (Note("one"), Note("two")),
        use_reentrant=False,
    )  # fmt: skip
    y.sum().backward()
    assert seen == ["one", "two"]


# -- what goes wrong


def test_a_function_that_does_something_else_is_named():
    calls = []

    def fn(x):
        calls.append(1)
        h = x.exp()
        return h.sin() if len(calls) == 1 else h.cos()

    y = checkpoint(fn, weft.ones(2, requires_grad=True))
    with pytest.raises(AutogradError, match="operator 1 of 2 was 'sin'") as caught:
        y.sum().backward()
    text = str(caught.value)
    assert "is 'cos'" in text
    assert "first run at" in text
    assert "second run at" in text
    assert text.count("test_recomputation.py") >= 2


def test_more_and_fewer_operators_are_named():
    for first, second in ((3, 2), (2, 3)):
        turns = iter((first, second))

        def fn(x, turns=turns):
            for _ in range(next(turns)):
                x = x.exp()
            return x

        y = checkpoint(fn, weft.zeros(2, requires_grad=True))
        with pytest.raises(AutogradError, match=r"operator 2 of .* none"):
            y.sum().backward()


def test_another_shape_is_named_unless_not_asked_for():
    for check in ("default", "none"):
        turns = iter((2, 3))

        def fn(x, turns=turns):
            return (x.reshape(1).expand(next(turns)) * 2).exp().sum()

        x = weft.tensor(0.5, requires_grad=True)
        y = checkpoint(fn, x, determinism_check=check)
        if check == "default":
            with pytest.raises(AutogradError, match=r"float32\[2\]"):
                y.backward()


def test_changed_parameters_are_refused():
    w = nn.Parameter(weft.ones(2))
    y = checkpoint(lambda x: (x + w).exp(), weft.ones(2, requires_grad=True))
    with weft.no_grad():
        w.add_(1)
    with pytest.raises(AutogradError, match="changed in place by 'add_'"):
        y.sum().backward()


def test_changed_arguments_are_refused():
    x = weft.ones(2, requires_grad=True)
    h = x * 1
    y = checkpoint(lambda h: h.sin().exp(), h)
    h.mul_(2)
    with pytest.raises(AutogradError, match="changed in place by 'mul_'"):
        y.sum().backward()


def test_saved_and_then_changed_is_an_error_as_without():
    def fn(x):
        h = x * 1
        y = h.sin()
        h.add_(1)
        return y

    for call in (fn, lambda x: checkpoint(fn, x)):
        with pytest.raises(AutogradError, match="saved for its gradient was changed"):
            call(weft.ones(2, requires_grad=True)).sum().backward()


def test_exceptions_pass_and_leave_nothing_behind():
    state = weft.get_rng_state()
    calls = []

    def fn(x):
        weft.rand(3)
        calls.append(1)
        if len(calls) != 2:
            raise KeyError("inside")
        return x.exp()

    x = weft.ones(2, requires_grad=True)
    with pytest.raises(KeyError):
        checkpoint(fn, x)
    y = checkpoint(fn, x)
    state = weft.get_rng_state()
    with pytest.raises(KeyError):
        y.sum().backward()
    assert weft.equal(weft.get_rng_state(), state)
    mode = weft.core.mode.mode
    assert mode.recording
    assert mode.changes is mode.draws is mode.evaluator is None
    assert mode.state == weft.core.mode.RECORDING


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"policy": "some"}, ArgumentError, "expected a policy"),
        ({"policy": 3}, ArgumentError, "expected a policy"),
        ({"policy": "sqrt"}, ArgumentError, "use checkpoint_sequential"),
        ({"policy": {"matmull"}}, ArgumentError, "did you mean 'matmul'"),
        ({"determinism_check": "all"}, ArgumentError, "determinism_check"),
    ],
)
def test_mistakes(options, error, text):
    with pytest.raises(error, match=text):
        checkpoint(lambda x: x, weft.ones(1, requires_grad=True), **options)


def test_mistakes_of_sequences():
    x = weft.ones(1)
    with pytest.raises(ArgumentError, match="from 1 to 2"):
        checkpoint_sequential([weft.exp, weft.sin], 3, x)
    with pytest.raises(ArgumentError, match="no functions"):
        checkpoint_sequential([], 1, x)
    with pytest.raises(DTypeError, match="number of segments"):
        checkpoint_sequential([weft.exp], 1.5, x)


# -- what it costs


def test_each_segment_runs_twice():
    layers = [weft.tanh] * 64
    x = weft.linspace(0, 1, 5).requires_grad_()
    with count_ops() as counts:
        y = checkpoint_sequential(layers, "sqrt", x)
        assert counts["tanh"] == 64
        y.sum().backward()
    assert counts["tanh"] == 64 + 56  # eight segments, the last of which is kept
    with count_ops() as counts:
        checkpoint(nn.Sequential(*[nn.Tanh()] * 8), x).sum().backward()
    assert counts["tanh"] == 16


def test_selective_runs_products_once():
    def make():
        return nn.Sequential(
            nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2)
        )

    model = nn.Sequential(make(), make(), nn.Flatten(), nn.Linear(8, 3))
    x = weft.randn(2, 2, 8, 8, requires_grad=True)
    counts = {}
    for name, call in {
        "plain": model,
        "recompute": lambda x: checkpoint(model, x),
        "selective": lambda x: checkpoint(model, x, policy="selective"),
        "names": lambda x: checkpoint(model, x, policy={"conv", "matmul"}),
    }.items():
        with count_ops() as seen:
            call(x).exp().sum().backward()
        counts[name] = seen
    conv = "conv_bias"
    assert counts["recompute"][conv] == counts["plain"][conv] + 2 == 4
    assert counts["recompute"]["rsqrt"] == counts["plain"]["rsqrt"] + 2
    for kept in ("selective", "names"):
        assert counts[kept][conv] == counts["plain"][conv]
        assert counts[kept]["matmul"] == counts["plain"]["matmul"]
        assert counts[kept]["rsqrt"] == counts["recompute"]["rsqrt"]
        assert counts[kept]["relu"] == counts["recompute"]["relu"]


def test_kept_results_that_change_in_place_are_computed_again():
    w = weft.randn(4, 4, requires_grad=True)

    def fn(x):
        h = x @ w
        h.add_(1)
        return (h @ w).exp()

    first, second = inside(fn, np.ones((2, 4), np.float32).tolist(), policy={"matmul"})
    assert first == second


SIZE = 1 << 17  # elements of an activation; its bytes are four times that


def peak(run):
    """The most bytes that a run needs above what was there, and what it leaves."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        run()
        now, most = tracemalloc.get_traced_memory()
        return (most - before) / (4 * SIZE), (now - before) / (4 * SIZE)
    finally:
        tracemalloc.stop()


def test_peak_of_a_chain_falls_to_about_twice_the_root():
    x = weft.linspace(0, 1, SIZE).requires_grad_()
    layers = [weft.tanh] * 64
    everything, _ = peak(lambda: nn.Sequential(*[nn.Tanh()] * 64)(x).sum().backward())
    root, left = peak(lambda: checkpoint_sequential(layers, "sqrt", x).sum().backward())
    assert everything > 64
    assert root < 2 * 8 + 6
    assert left < 0.5  # the gradient is where it was


def test_nesting_needs_less_than_one_level():
    x = weft.linspace(0, 1, SIZE).requires_grad_()

    def part(x, depth):
        if not depth:
            return x.tanh()
        for _ in range(4):
            x = checkpoint(part, x, depth - 1) if depth > 1 else part(x, depth - 1)
        return x

    x.grad = weft.zeros(SIZE)
    most, _ = peak(lambda: part(x, 3).sum().backward())
    assert most < 4 + 4 + 4 + 5  # values kept at each of three levels, not 64


def test_values_are_dropped_as_they_are_used():
    x = weft.linspace(0, 1, SIZE).requires_grad_()
    x.grad = weft.zeros(SIZE)
    live = []

    def layer(h):
        h = h.tanh()
        h.register_hook(lambda g: live.append(tracemalloc.get_traced_memory()[0]))
        return h

    def run():
        checkpoint(nn.Sequential(*[_Call(layer)] * 12), x).sum().backward()

    peak(run)
    steps = np.diff(live[1:]) / (4 * SIZE)
    assert len(live) == 12
    assert (steps < -0.9).all()


class _Call(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return self.fn(x)


def test_nothing_is_left_to_the_cycle_collector():
    x = weft.linspace(0, 1, SIZE).requires_grad_()
    x.grad = weft.zeros(SIZE)

    def change(x):
        x.mul_(2)
        return x.exp()

    gc.disable()
    try:
        for fn in (weft.tanh, lambda x: (x * 2).exp(), lambda x: change(x * 1)):
            for policy in (None, "selective", {"exp"}):
                _, left = peak(lambda f=fn, p=policy: checkpoint(f, x, policy=p))
                assert left < 0.5
        _, left = peak(lambda: checkpoint(change, x * 1))
        assert left < 0.5
    finally:
        gc.enable()


def watchers():
    return {
        "nobody": contextlib.nullcontext,
        "observer": lambda: weft.core.mode.observe(lambda *given: None),
        "anomaly": weft.autograd.detect_anomaly,
        "memory": weft.memory.record,
        "count": count_ops,
    }


@pytest.mark.parametrize("second", watchers())
@pytest.mark.parametrize("first", watchers())
@pytest.mark.parametrize("policy", [None, "selective"])
def test_watching_one_of_the_runs_changes_nothing(first, second, policy, monkeypatch):
    row = weft.linspace(0.1, 1, 512).requires_grad_()

    def fn(x):
        h = (x * row).softmax(-1) + x.sum()
        return checkpoint(lambda h: (h / row).exp().log_softmax(-1), h)

    def run(call, first=contextlib.nullcontext, second=contextlib.nullcontext):
        x = weft.linspace(-3, 3, 64 * 512).reshape(64, 512).requires_grad_()
        with first():
            y = call(x)
        with second():
            y.square().sum().backward()
        return bits(x.grad)

    for kernels in (False, True):
        monkeypatch.setattr(weft.config, "eager_kernels", kernels)
        way = watchers()[first], watchers()[second]
        got = run(lambda x: checkpoint(fn, x, policy=policy), *way)
        assert got == run(fn)
        assert weft.core.mode.mode.state == weft.core.mode.RECORDING
    assert "measured" not in vars(weft.core.mode.mode)
