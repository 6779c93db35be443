"""What follows products, what runs side by side, and what takes another's place."""

import numpy as np
import pytest
from by_loops import kernels_of

import weft
from weft import graph as G
from weft import nn, optim
from weft.compile.loop.depend import accesses
from weft.compile.pipeline import run as run_passes
from weft.compile.program.steps import LibraryCall, Order
from weft.graph.interpret import Program
from weft.nn import functional as F
from weft.ops.conv import conv_input_grad_op, conv_op, conv_weight_grad_op
from weft.runtime.cpu import pool

RNG = np.random.default_rng(5)


def floats(*shape, dtype=np.float32):
    return weft.tensor(RNG.normal(size=shape).astype(dtype))


def prepared(fn, *args, in_place=False):
    """A function as a native program, with its variables' arrays and its feeds."""
    captured = G.capture(fn, *args)
    graph = run_passes(captured.graph)
    own = {c.variable for c in captured.cells.values() if c.has_memory}
    native = kernels_of(graph, in_place=own if in_place else ())
    store = {v: captured.cells[v.name].get() for v in native.reads}
    return native, [a.numpy() for a in args if isinstance(a, weft.Tensor)], store


def kinds(native):
    """What the steps are: products, those that are followed, kernels, calls."""
    found = []
    for step in native.lowered.steps:
        if isinstance(step, LibraryCall):
            found.append("followed" if step.epilogue else "product")
        else:
            found.append("kernel" if hasattr(step, "kernel") else step.op.name)
    return found


def agrees(native, feeds, store, atol=2e-5):
    want, _ = Program(native.lowered.graph, native.lowered.graph.outputs).run(
        feeds, store
    )
    got, _ = native.run_named(feeds, store)
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=atol)
    return got


# -- epilogues


def same_for_all_threads(native, feeds, store):
    """Results that agree with the interpreter's, and are the same on each thread."""
    first = agrees(native, feeds, store)
    before = pool.get_num_threads()
    try:
        for threads in (1, 2, 3):
            pool.set_num_threads(threads)
            native.executors.clear()
            for a, b in zip(first, native.run_named(feeds, store)[0], strict=True):
                np.testing.assert_array_equal(a, b)
    finally:
        pool.set_num_threads(before)


FOLLOWED = {
    "bias": lambda x, w, b: x @ w + b,
    "gelu": lambda x, w, b: F.gelu(x @ w + b, approximate="tanh"),
    "residual": lambda x, w, b: (x @ w + b).relu() + x @ w * 0 + b,
    "softmax": lambda x, w, b: F.softmax((x @ w) * 0.1, -1),
    "norm": lambda x, w, b: F.layer_norm(x @ w + b, (w.shape[-1],)),
    "both": lambda x, w, b: (x @ w, (x @ w).exp()),
    "sums": lambda x, w, b: ((x @ w) ** 2).sum(-1),
    "heads": lambda x, w, b: ((x @ w).reshape(*x.shape[:-1], -1, 2) * 3).sum(-1),
}


@pytest.mark.parametrize(
    "shape", [(1, 5, 2), (33, 7, 34), (65, 300, 1026), (3, 600, 8)]
)
@pytest.mark.parametrize("name", FOLLOWED)
def test_kernels_follow_products(name, shape):
    m, k, n = shape
    args = floats(m, k), floats(k, n) * k**-0.5, floats(n)
    native, feeds, store = prepared(FOLLOWED[name], *args)
    assert "followed" in kinds(native)
    same_for_all_threads(native, feeds, store)


def test_stacks_of_matrices_are_followed_in_their_rows():
    mask = floats(6, 6) > 0

    def attend(q, k, v):
        scores = weft.where(mask, q @ k.transpose(-2, -1), -1e9)
        return F.softmax(scores, -1) @ v

    args = [floats(2, 3, 6, 4) for _ in range(3)]
    native, feeds, store = prepared(attend, *args)
    assert kinds(native)[:1] == ["followed"]
    agrees(native, feeds, store)
    turned = [a.permute(0, 2, 1, 3) for a in (floats(2, 6, 3, 4) for _ in range(3))]
    native, feeds, store = prepared(attend, *turned)
    agrees(native, [np.ascontiguousarray(f) for f in feeds], store)


def test_what_needs_other_rows_does_not_follow():
    for fn in (
        lambda x, w: (x @ w).flip(0) + 1,
        lambda x, w: (x @ w).cumsum(0),
        lambda x, w: (x @ w)[:2] * 2,
    ):
        native, feeds, store = prepared(fn, floats(5, 4), floats(4, 5))
        assert "followed" not in kinds(native)
        agrees(native, feeds, store)


# x, w, padding, stride, groups: each kind of tasks, with borders of images inside them
CONVOLUTIONS = {
    "windows": ((3, 5, 11, 13), (20, 5, 3, 3), 1, 2, 1),
    "tiles": ((5, 17, 9, 11), (40, 17, 3, 3), 1, 1, 1),
    "wide tiles": ((1, 16, 3, 300), (18, 16, 3, 3), 1, 1, 1),
    "groups of tiles": ((2, 32, 15, 7), (64, 16, 3, 3), 1, 1, 2),
    "few channels": ((2, 6, 19, 18), (6, 1, 3, 3), 1, 1, 6),
    "product": ((2, 9, 14, 14), (21, 9, 1, 1), 0, 1, 1),
    "lines": ((2, 3, 700), (10, 3, 5), 2, 1, 1),
}
AFTER = {
    "norm": lambda y, s, r: (y * s + s.exp()).relu(),
    "silu": lambda y, s, r: F.silu(y - s),
    "residual": lambda y, s, r: (y * s + r).relu(),
    "kept": lambda y, s, r: (y, y * 2 + 1),
}


def convolved(name):
    """A convolution of a case, its options, and its operands."""
    x, w, padding, stride, groups = CONVOLUTIONS[name]
    spatial = len(x) - 2
    options = {
        "stride": (stride,) * spatial,
        "padding": ((padding, padding),) * spatial,
        "dilation": (1,) * spatial,
        "groups": groups,
    }
    return options, floats(*x), floats(*w) * np.prod(w[1:]).item() ** -0.5


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_kernels_follow_convolutions(name, after):
    options, x, w = convolved(name)

    def fn(x, w, s, r):
        return AFTER[after](conv_op(x, w, **options), s, r)

    like = conv_op(x, w, **options)
    scale = floats(like.shape[1], *(1,) * (like.ndim - 2))
    native, feeds, store = prepared(fn, x, w, scale, floats(*like.shape))
    assert kinds(native)[-1] == "followed"
    same_for_all_threads(native, feeds, store)


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("name", [n for n in CONVOLUTIONS if n != "windows"])
def test_kernels_follow_gradients_of_images(name, after):
    options, x, w = convolved(name)
    y = floats(*conv_op(x, w, **options).shape)

    def fn(y, w, s, r):
        grad = conv_input_grad_op(y, w, size=x.shape[2:], **options)
        return AFTER[after](grad, s, r)

    scale = floats(x.shape[1], *(1,) * (x.ndim - 2))
    native, feeds, store = prepared(fn, y, w, scale, floats(*x.shape))
    assert kinds(native)[-1] == "followed"
    same_for_all_threads(native, feeds, store)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_updates_follow_gradients_of_weights(name):
    options, x, w = convolved(name)
    y = floats(*conv_op(x, w, **options).shape)

    def fn(x, y, w, m):
        grad = conv_weight_grad_op(x, y, size=w.shape[2:], **options)
        moment = m + grad * 0.01
        return moment, w - moment * 0.1

    native, feeds, store = prepared(fn, x, y, w, floats(*w.shape))
    assert kinds(native) == ["followed"]
    same_for_all_threads(native, feeds, store)


def test_what_follows_a_convolution_needs_no_whole_rows_and_no_phases():
    options, x, w = convolved("windows")
    y = conv_op(x, w, **options)
    for fn, args in (
        (
            lambda y, w: conv_input_grad_op(y, w, size=x.shape[2:], **options) + 1,
            (y, w),
        ),
        (lambda x, w: conv_op(x, w, **options).exp().sum((2, 3)), (x, w)),
        (lambda x, w: conv_op(x, w, **options).flip(0) + 1, (x, w)),
    ):
        native, feeds, store = prepared(fn, *args)
        agrees(native, feeds, store, atol=1e-4)
        steps = native.plan.layout.steps
        assert not any(s.epilogue for s in steps if isinstance(s, LibraryCall))


def test_a_convolution_of_any_batch_is_followed():
    options, x, w = convolved("tiles")

    @weft.compile
    def fn(x, w):
        return (conv_op(x, w, **options) * 2 + 1).relu()

    for batch in (5, 2, 3, 7):
        part = floats(batch, *x.shape[1:])
        want = (conv_op(part, w, **options) * 2 + 1).relu()
        np.testing.assert_allclose(fn(part, w).numpy(), want.numpy(), atol=1e-5)


def test_a_product_lies_where_its_follower_writes():
    native, feeds, store = prepared(
        lambda x, w: ((x @ w).exp() @ w).sum(), floats(64, 64), floats(64, 64)
    )
    agrees(native, feeds, store, atol=1.0)
    (product, *_) = [s for s in native.lowered.steps if isinstance(s, LibraryCall)]
    assert native.lowered.aliasing.joint[product.node] in product.epilogue.made
    assert product.node not in native.plan.layout.layout.offsets


# -- side by side


def test_independent_launches_are_one_wave():
    w = [floats(16, 16) for _ in range(3)]
    native, feeds, store = prepared(lambda x: tuple(x @ a for a in w), floats(8, 16))
    agrees(native, feeds, store)
    assert native.plan.layout.order.waves == [0, 0, 0]
    assert len(native.plan.executable.gangs) == 2  # addresses are filled in first


@pytest.mark.parametrize(("size", "grain"), [(128, 1), (16, None)])
def test_a_small_launch_beside_a_product_leaves_it_its_threads(size, grain):
    native, feeds, store = prepared(
        lambda x, y: (x @ x, y.exp()), floats(size, size), floats(8)
    )
    agrees(native, feeds, store, atol=1e-2)
    assert native.plan.layout.order.waves == [0, 0]
    gang = native.plan.executable.gangs[-1]
    count, found = gang[4:6]
    assert found == (grain or count)  # a small one stays on this thread


@pytest.fixture(params=[1, 2])
def threads(request):
    before = pool.get_num_threads()
    pool.set_num_threads(request.param)
    yield request.param
    pool.set_num_threads(before)


def test_few_rows_are_followed_by_whole_ones_on_one_thread(threads):
    x, w = floats(128, 1024), floats(1024, 768)
    program = prepared(lambda x, w: F.layer_norm(x @ w, (768,)), x, w)
    agrees(*program, atol=1e-3)
    first, *rest = program[0].plan.layout.launches
    assert bool(rest) == (threads > 1)  # B would be packed by each
    assert (first.epilogue is None) == (threads > 1)


LARGE = {
    "convolution": (lambda x, w: F.conv2d(x, w), (1, 4, 24, 24), (8, 4, 3, 3)),
    "sum": (lambda x, w: (x + w).sum(1), (512, 512), (512,)),
}


@pytest.mark.parametrize("kind", LARGE)
def test_what_is_large_is_shared_out_beside_what_is_small(kind):
    """A launch that threads would share alone is theirs beside others too."""
    large, *shapes = LARGE[kind]
    args = [floats(*shape) for shape in (*shapes, (3,))]
    native, feeds, store = prepared(lambda x, w, v: (large(x, w), v * 2), *args)
    agrees(native, feeds, store, atol=1e-3)
    assert native.plan.layout.order.waves == [0, 0]
    count, grain = native.plan.executable.gangs[-1, 4:6].tolist()
    assert count > grain


def test_many_updates_are_one_launch():
    model = nn.Sequential(*[nn.Linear(9, 9) for _ in range(5)])
    optimizer = optim.AdamW(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    step(weft.ones(4, 9))  # moments exist
    native, feeds, store = prepared(step, weft.ones(4, 9), in_place=True)
    agrees(native, feeds, {v: a.copy() for v, a in store.items()})
    waves = native.plan.layout.order.waves
    assert max(waves.count(w) for w in waves) >= 10


# -- places


def test_results_take_the_place_of_what_is_read_last():
    def chain(x):
        for _ in range(4):
            x = F.softmax(x, 1)
            x = x - x.sum(0, keepdim=True)
        return x.sum()

    native, feeds, store = prepared(chain, floats(32, 128))
    agrees(native, feeds, store)
    assert native.lowered.aliasing.over
    layout = native.plan.layout.layout
    assert layout.nbytes < 2.1 * 32 * 128 * 4
    layout.verify()


def train(in_place, steps=4, batch=8):
    weft.manual_seed(0)
    model = nn.Sequential(
        nn.Embedding(7, 12), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 3)
    )
    optimizer = optim.AdamW(model.parameters(), lr=0.05)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    x, y = weft.arange(batch) % 7, weft.arange(batch) % 3
    for _ in range(2):  # gradients and moments exist
        step(x, y)
    return model, optimizer, prepared(step, x, y, in_place=in_place)


def test_new_state_is_written_over_the_old():
    _, _, (plain, feeds, store) = train(False)
    _, _, (native, _, held) = train(True)
    store = {v.name: a.copy() for v, a in store.items()}
    held = {v: a.copy() for v, a in held.items()}
    variables = {v: store[v.name] for v in plain.reads}
    for _ in range(3):
        want, changed = plain.run_named(feeds, variables)
        for variable, array in changed.items():
            variables[variable] = array.copy()
        got, left = native.run_named(feeds, held)
        np.testing.assert_array_equal(want[0], got[0])
        for variable, array in left.items():
            held[variable] = array.copy()
        now = {variable.name: array for variable, array in held.items()}
        for variable, array in variables.items():
            np.testing.assert_array_equal(now[variable.name], array)
    big = [v for v in native.lowered.aliasing.state if v.type.shape]
    assert len(big) >= 15  # five parameters, their gradients and two moments each


@pytest.mark.parametrize("rows", [12, 6])
def test_positions_that_are_in_range_cannot_fail(rows):
    """The gradient of a table of positions is made last; state is in place before."""
    table, layer = nn.Embedding(12, 4), nn.Linear(4, 4)

    def step(x):
        table.weight.grad = layer.weight.grad = layer.bias.grad = None
        layer(x + table(weft.arange(x.shape[0]))).square().sum().backward()

    native, *_ = prepared(step, weft.ones(rows, 4), in_place=True)
    assert len(native.lowered.aliasing.state) == 3
    assert Order(native.lowered.steps, native.lowered.graph).safe == 0


def test_a_failed_run_leaves_state_as_it_was():
    _, _, (native, (x, y), held) = train(True)
    held = {v: a.copy() for v, a in held.items()}
    before = {v: a.copy() for v, a in held.items()}
    bad = x.copy()
    bad[3] = 7
    with pytest.raises(IndexError, match="7"):
        native.run_named([bad, y], held)
    for variable, array in before.items():
        np.testing.assert_array_equal(held[variable], array)
    native.run_named([x, y], held)  # and can go on


def test_state_that_cannot_be_written_in_place_is_given_back():
    w = floats(6, 6)
    w.requires_grad_()
    optimizer = optim.SGD([w], lr=0.5)

    def step(x):
        optimizer.zero_grad()
        loss = (x @ w).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    step(floats(2, 6))
    native, (x,), held = prepared(step, floats(2, 6), in_place=True)
    (name,) = [
        v
        for v in native.reads
        if v.type.shape == (6, 6) and v in native.lowered.aliasing.state
    ][:1]
    array = held[name].copy()
    held = {v: a.copy() for v, a in held.items()}
    native.run_named([x], held)
    want = held[name].copy()
    assert not np.array_equal(want, array)
    turned = np.ascontiguousarray(array.T).T
    _, left = native.run_named([x], {**held, name: turned})
    np.testing.assert_array_equal(turned, array)
    np.testing.assert_array_equal(left[name], want)
    fixed = array.copy()
    fixed.flags.writeable = False
    _, left = native.run_named([x], {**held, name: fixed})
    np.testing.assert_array_equal(left[name], want)


@pytest.mark.parametrize(
    "index", [(slice(None), 3), (2,), (slice(1, 4), slice(0, 5, 2))]
)
def test_a_part_of_state_is_written_where_it_is(index):
    cache = floats(5, 6, 64)
    value = floats(*cache[index].shape)

    def step(x):
        cache[index] = x * 2
        return cache.sum()

    native, (x,), held = prepared(step, value, in_place=True)
    (variable,) = held
    assert variable in native.lowered.aliasing.state
    (launch,) = [s for s in native.lowered.steps if s.kernel.shared]
    (pair,) = launch.kernel.shared
    used = {name for name, _, _ in accesses(launch.kernel.body, {})}
    assert used.isdisjoint(pair[:1]), "the rest is left as it is"
    before = cache.numpy().copy()
    want = before.copy()
    want[index] = x * 2
    held = {variable: before.copy()}
    (total,), left = native.run_named([x], held)
    np.testing.assert_array_equal(held[variable], want)
    np.testing.assert_allclose(total, want.sum(), rtol=1e-5)
    turned = np.ascontiguousarray(before.transpose(2, 0, 1)).transpose(1, 2, 0)
    fixed = before.copy()
    fixed.flags.writeable = False
    for other in (turned, fixed):  # it cannot be written to: it is given back
        _, left = native.run_named([x], {variable: other})
        np.testing.assert_array_equal(left[variable], want)
        np.testing.assert_array_equal(other, before)


def test_rows_of_state_are_written_where_they_are():
    cache = floats(5, 6, 64)

    def step(x, at):
        cache[:, at] = x
        return cache.sum()

    native, (x, at), held = prepared(
        step, floats(5, 2, 64), weft.tensor([4, -5]), in_place=True
    )
    (variable,) = held
    assert variable in native.lowered.aliasing.state
    before = cache.numpy().copy()
    held = {variable: before.copy()}
    with pytest.raises(IndexError, match="index 6 at position"):
        native.run_named([x, np.array([1, 6])], held)
    np.testing.assert_array_equal(held[variable], before)
    native.run_named([x, at], held)
    before[:, [4, 1]] = x
    np.testing.assert_array_equal(held[variable], before)


def test_an_argument_may_be_the_state_itself():
    w = floats(2, 6)

    def step(x):
        total = (x * w).sum()
        w.sub_(x * 0.5)
        return total, (x * 2).sum(0)

    native, _, held = prepared(step, floats(2, 6), in_place=True)
    assert native.lowered.aliasing.state
    ((variable, array),) = held.items()
    array = array.copy()
    other = array.copy()
    got, _ = native.run_named([array], {variable: array})
    want, _ = native.run_named([other.copy()], {variable: other})
    np.testing.assert_array_equal(array, other)
    for a, b in zip(want, got, strict=True):
        np.testing.assert_array_equal(a, b)


def test_gradients_are_written_where_nobody_else_looks():
    model = nn.Linear(4, 4)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @weft.compile
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    x = floats(3, 4)
    for _ in range(2):
        step(x)
    first = model.weight.grad.numpy().ctypes.data
    step(x)
    assert model.weight.grad.numpy().ctypes.data == first
    held = model.weight.grad
    before = held.numpy().copy()
    step(x)
    assert model.weight.grad is not held
    np.testing.assert_array_equal(held.numpy(), before)
    view = model.weight.grad.numpy()[1:]
    before = view.copy()
    step(x)
    np.testing.assert_array_equal(view, before)


# -- operands that are packed once


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_operand_of_many_products_is_packed_once(turned, dtype):
    for rows, k, n in [(5, 7, 3), (32, 40, 70), (9, 300, 600), (2, 64, 33)]:
        w = floats(n, k, dtype=dtype) if turned else floats(k, n, dtype=dtype)

        def products(*xs):
            right = w.T if turned else w  # noqa: B023  called in this iteration
            return tuple(x @ right for x in xs)

        xs = [floats(rows, k, dtype=dtype) for _ in range(5)]
        native, feeds, store = prepared(products, *xs)
        assert sum(step.node.op.name == "pack" for step in native.lowered.steps) == 1
        got, _ = native.run_named(feeds, store)
        alone, feeds, store = prepared(lambda x: products(x)[0], xs[0])
        (one,), _ = alone.run_named(feeds[:1], store)
        if turned:  # alone, a few rows are dot products
            want = xs[0].numpy().astype(np.float64) @ w.numpy().T
            scale = np.abs(xs[0].numpy()) @ np.abs(w.numpy().T)
            for found in (got[0], one):
                assert (np.abs(found - want) <= 4 * np.finfo(dtype).eps * scale).all()
        else:
            np.testing.assert_array_equal(got[0], one)
        for x, y in zip(xs, got, strict=True):
            want = x.numpy().astype(float) @ (w.T if turned else w).numpy().astype(
                float
            )
            np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)


def test_state_is_written_in_place_behind_a_pooling():
    """Its gradient looks up indices that forward has looked up already."""
    weft.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.Flatten())
    optimizer = weft.optim.Adam(model.parameters())

    @weft.compile
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    step(weft.randn(2, 1, 8, 8))
    state = {variable.name for variable in step.latest.program.plan.layout.state}
    assert {"0.weight", "0.weight.grad", "0.bias", "0.bias.grad"} <= state
