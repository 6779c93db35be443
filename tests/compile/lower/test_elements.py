"""Kernels that read and write at indices from values: lookups, joins, scatters, scans,
random numbers. Against NumPy's evaluation, for any number of threads."""

import numpy as np
import pytest
from by_loops import by_loops, compiled, kernels_of, run

import weft
from weft.compile import passes
from weft.compile.loop.ir import Buffer, For, Kernel, Let, Load, Position, Store
from weft.compile.loop.verify import verify_kernel
from weft.compile.program.steps import KernelLaunch
from weft.core.size import Scope, smaller
from weft.core.tensor import Tensor
from weft.errors import OutOfRangeError
from weft.graph.ir import GraphError
from weft.nn import functional as F
from weft.ops.cumulative import linear_scan
from weft.ops.gathering import scatter_add_op
from weft.ops.index import add_at, put_op, take_op
from weft.ops.random import uniform_op
from weft.ops.slicing import place_op

RNG = np.random.default_rng(5)


def floats(*shape, dtype=np.float32):
    return Tensor(RNG.normal(size=shape).astype(dtype))


def ids(size, *shape, low=0, dtype=np.int64):
    return Tensor(RNG.integers(low, size, shape).astype(dtype))


def holes(x):
    """With NaNs and equal elements here and there."""
    array = x.numpy().copy()
    array[RNG.uniform(size=array.shape) < 0.05] = np.nan
    array[RNG.uniform(size=array.shape) < 0.3] = 1
    return Tensor(array)


def pieces(x, y):
    return weft.cat([x, y * 2, x[:, :1]], 1) + 1, weft.cat([x, x + 1], 0) * 2


def shifted(x, y):
    return F.pad(x, (1, 2)) * y.sum(), x.detach().flip(1).cumsum(1)


def placed(x):
    """The derivative of slices: zeros around, and between, elements."""
    n = x.shape[0]
    every = place_op(x, shape=(2 * n + 1, 3), index=(slice(1, 2 * n, 2),))
    turned = place_op(x, shape=(n + 2, 3), index=(slice(n, 0, -1),))
    row = place_op(x, shape=(2, n, 3), index=(1,))
    return every, turned * 2, row


PROGRAMS = {
    "take": (lambda x, i: x[i] * 2, lambda n: (floats(n, 7), ids(n, 3, 5, low=-n))),
    "take int32": (
        lambda x, i: x[i] * 2,
        lambda n: (floats(n, 7), ids(n, 6, dtype=np.int32)),
    ),
    "take 1-d": (lambda x, i: x[i] + 1, lambda n: (floats(n), ids(n, 2 * n))),
    "take of a view": (lambda x, i: x.t()[i], lambda n: (floats(3, n), ids(n, 4))),
    "gather": (lambda x, i: x.gather(1, i) - 1, lambda n: (floats(4, n), ids(n, 4, 9))),
    "gather 0": (lambda x, i: x.gather(0, i), lambda n: (floats(n, 5), ids(n, 3, 5))),
    "gather a row": (
        lambda x, i: (x.gather(1, i), x.sum(1)),
        lambda n: (floats(4, n), ids(n, 4, 1)),
    ),
    "add_at": (
        lambda x, i: add_at(x, i, size=11) + 1,
        lambda n: (floats(n, 3, 20), ids(11, n, 3, low=-11)),
    ),
    "add_at narrow": (
        lambda x, i: add_at(x, i, size=5),
        lambda n: (floats(n, 2), ids(5, n)),
    ),
    "put": (
        lambda x, i, v: put_op(x, i, v, axis=0),
        lambda n: (floats(n, 18), ids(n, 6), floats(6, 18)),
    ),
    "scatter_add": (
        lambda x, i, s: scatter_add_op(x, i, s, dim=1),
        lambda n: (floats(4, 3), ids(3, 4, n), floats(4, n)),
    ),
    "scatter_add 0": (
        lambda x, i, s: scatter_add_op(x, i, s, dim=0),
        lambda n: (floats(n, 6), ids(n, 9, 5), floats(9, 5)),
    ),
    "scatter one": (
        lambda x, i, s: x.scatter(1, i, s) * 2,
        lambda n: (floats(5, n), ids(n, 5, 1), floats(5, 1)),
    ),
    "cat": (pieces, lambda n: (floats(3, n), floats(3, 5))),
    "pad": (shifted, lambda n: (floats(3, n), floats(4))),
    "strided": (placed, lambda n: (floats(n, 3),)),
    "scans": (
        lambda x, a: (x.cumsum(0), x.cumsum(1), x.cumprod(1), linear_scan(a, x, dim=0)),
        lambda n: (floats(4, n), floats(4, n)),
    ),
    "places": (
        lambda x: (x.argmax(1), x.argmin(0), (x * 2).argmax(), weft.isnan(x).argmax(1)),
        lambda n: (holes(floats(5, n)),),
    ),
    "pooling": (
        lambda x: (
            F.max_pool1d(x, 2, 2, ceil_mode=True),
            F.max_pool1d(x, 3, 1, padding=1) + 1,
            F.max_pool2d(x.reshape(1, 2, 3, -1), 3, 2, 1),
            F.max_pool2d(x.reshape(1, 2, 3, -1), 2, 1, 1, 2),
        ),
        lambda n: (holes(floats(2, 3, n + 2)),),
    ),
    "windows": (
        lambda x: (
            F.unfold(x, 3, dilation=2, padding=2, stride=(1, 2)) + 1,
            F.fold(F.unfold(x, 2, padding=1) * 2, (5, x.shape[3]), 2, padding=1),
            F.fold(F.unfold(x, 2, stride=2) * 2, (5, x.shape[3]), 2, stride=2),
        ),
        lambda n: (floats(2, 2, 5, n + 1),),
    ),
    "diagonal": (
        lambda x: (x.diagonal(1) * 2, x.diagonal(-1) + 1, x.prod(1)),
        lambda n: (floats(n + 2, n + 2),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("size", [1, 3, 17, 65])
@pytest.mark.parametrize("name", PROGRAMS)
def test_any_size_and_any_threads(name, size):
    fn, make = PROGRAMS[name]
    args = make(size)
    native = compiled(fn, *args)
    assert not native.lowered.refused
    assert all(isinstance(step, KernelLaunch) for step in native.lowered.steps)
    want = fn(*args)
    want = [t.numpy() for t in (want if isinstance(want, tuple) else (want,))]
    before = weft.get_num_threads()
    try:
        for threads in (1, 2, 3):
            weft.set_num_threads(threads)
            got = run(native, *args)
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)
            if threads == 1:
                first = got
            for a, b in zip(got, first, strict=True):
                np.testing.assert_array_equal(a, b)
    finally:
        weft.set_num_threads(before)
    if size <= 17:
        for a, b in zip(by_loops(native, *args), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", ["take", "gather", "cat", "pad", "scans", "strided"])
def test_symbolic_sizes(name):
    fn, make = PROGRAMS[name]
    function = weft.compile(fn, dynamic=True)
    for size in (5, 3, 8, 64, 65):
        args = make(size)
        got, want = function(*args), fn(*args)
        pairs = zip(*[v if isinstance(v, tuple) else (v,) for v in (got, want)],
                    strict=True)  # fmt: skip
        for a, b in pairs:
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-6, atol=2e-6)


# -- indices out of range


BAD = {
    "take": (lambda x, i: take_op(x, i) * 2, (4, 3), [1, -5]),
    "gather": (lambda x, i: x.gather(1, i.reshape(1, 2)), (1, 4), [0, -1]),
    "add_at": (lambda x, i: add_at(x, i, size=4), (2, 16), [3, 4]),
    "put": (lambda x, i: put_op(x, i, x[:2], axis=0), (4, 3), [0, 7]),
    "scatter": (
        lambda x, i: x.scatter(1, i.reshape(1, 2), x[:, :2] * 1),
        (1, 4),
        [3, 9],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_indices_raise_the_eager_error(name):
    fn, shape, index = BAD[name]
    x, bad = floats(*shape), Tensor(np.array(index))
    native = compiled(fn, x, bad)
    assert all(isinstance(step, KernelLaunch) for step in native.lowered.steps)
    with pytest.raises(OutOfRangeError) as eager:
        fn(x, bad)
    with pytest.raises(IndexError) as error:
        run(native, x, bad)
    assert str(eager.value).partition("\n")[0] == str(error.value).partition("\n")[0]
    assert __file__ in str(error.value)
    good = Tensor(np.zeros(2, np.int64))
    np.testing.assert_allclose(run(native, x, good)[0], fn(x, good).numpy(), 1e-6)


def test_a_failed_step_changes_no_parameter():
    table = weft.nn.Embedding(6, 4)
    optimizer = weft.optim.SGD(table.parameters(), lr=0.5)

    @weft.compile
    def step(i):
        optimizer.zero_grad()
        loss = (table(i) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss

    step(Tensor(np.array([0, 1])))
    before = table.weight.detach().numpy().copy()
    with pytest.raises(OutOfRangeError, match="index 6 at position"):
        step(Tensor(np.array([2, 6])))
    np.testing.assert_array_equal(table.weight.detach().numpy(), before)
    step(Tensor(np.array([2, 5])))
    assert (table.weight.detach().numpy() != before).any()


@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_every_index_of_a_loop_that_only_moves_is_checked(dtype):
    x = Tensor(RNG.integers(0, 2, (3, 7)).astype(dtype))
    index = RNG.integers(0, 7, (3, 19))
    native = compiled(lambda x, i: x.gather(1, i), x, Tensor(index))
    (found,) = run(native, x, Tensor(index))
    np.testing.assert_array_equal(found, np.take_along_axis(x.numpy(), index, 1))
    for place in np.ndindex(*index.shape):
        bad = index.copy()
        bad[place] = RNG.choice([7, -8, 2**62, -(2**63)])
        with pytest.raises(OutOfRangeError, match=f"index {bad[place]} at position"):
            run(native, x, Tensor(bad))


def test_empty_tables_are_refused_as_eagerly():
    fn = weft.compile(lambda x, i: x[i] * 2, dynamic=True)
    fn(floats(3, 2), ids(3, 4))
    assert fn(floats(0, 2), ids(1, 0)).shape == (0, 2)
    with pytest.raises(IndexError, match="index 0"):
        fn(floats(0, 2), ids(1, 4))


# -- loops are split at bounds


def test_joined_elements_need_no_clamping():
    native = compiled(lambda x, y: weft.cat([x, y], 1) * 2, floats(3, 4), floats(3, 5))
    (step,) = native.lowered.steps
    text = str(step.kernel)
    assert "?" not in text
    assert "max(" not in text
    assert text.count("for ") == 2


# -- random numbers


@pytest.mark.parametrize("shape", [(), (1,), (4097,), (3, 5), (2, 3, 7), (64, 64)])
def test_random_bits_are_those_of_numpy(shape):
    def draw():
        return (
            weft.rand(shape), weft.rand(shape, dtype=weft.float64),
            weft.randint(-3, 1000, shape), weft.randint(-(2**62), 2**62, shape),
        )  # fmt: skip

    weft.manual_seed(3)
    want = draw()
    weft.manual_seed(3)
    for a, b in zip(weft.compile(draw)(), want, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal_numbers(dtype):
    def draw():
        return weft.randn(100, 101, dtype=getattr(weft, dtype))

    weft.manual_seed(11)
    want = draw().numpy()
    weft.manual_seed(11)
    got = weft.compile(draw)().numpy()
    np.testing.assert_array_max_ulp(got, want, maxulp=3)


def test_dropout_is_the_same_compiled():
    def program(x):
        return F.dropout(F.dropout(x * 2, 0.3) + 1, 0.5)

    x = floats(33, 65)
    weft.manual_seed(1)
    want = program(x).numpy()
    weft.manual_seed(1)
    function = weft.compile(program)
    np.testing.assert_allclose(function(x).numpy(), want, rtol=1e-6)
    assert (function(x).numpy() != want).any()


# -- what is fused


def test_dropout_is_part_of_what_comes_before():
    def program(x, seed, counter):
        keep = uniform_op(seed, counter + 5, shape=x.shape, dtype=weft.float32) >= 0.25
        return (x * 2 + 1) * keep.to(x.dtype)

    args = floats(9, 21), Tensor(np.array(7)), Tensor(np.array(2**33))
    native = compiled(program, *args)
    assert len(native.lowered.steps) == 1
    np.testing.assert_allclose(run(native, *args)[0], program(*args).numpy(), 1e-6)


def test_cross_entropy_never_stores_log_probabilities():
    x, target = floats(6, 50), ids(50, 6)
    graph = weft.graph.capture(F.cross_entropy, x, target).graph
    native = kernels_of(passes.sink_checks(graph))  # what is checked stands aside
    assert all(n.shape != (6, 50) for s in native.lowered.steps for n in s.made)
    want = F.cross_entropy(x, target).item()
    np.testing.assert_allclose(run(native, x, target)[0], want, rtol=1e-6)


@pytest.mark.parametrize("shape", [(5, 9), (2, 7, 3, 4)])
def test_cross_entropy_and_its_gradient(shape):
    def program(x, t):
        x = x.detach().requires_grad_()
        loss = F.cross_entropy(x, t, ignore_index=2, label_smoothing=0.1)
        loss.backward()
        return loss.detach(), x.grad

    x, target = floats(*shape), ids(shape[1], shape[0], *shape[2:])
    native = compiled(program, x, target)
    for a, b in zip(run(native, x, target), program(x, target), strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-5, atol=1e-7)


# -- proofs


def test_bounds_are_proven_on_both_sides():
    """A block's first element, moved down by one, would lie in front of the buffer."""
    scope = Scope()
    n, block, i = scope.symbol("n"), scope.symbol("block"), scope.symbol("i")
    x, y = (Buffer(name, (n,), weft.float32) for name in "xy")
    extent = smaller(n - block * 64, 64)
    at = block * 64 + i

    def kernel(offset):
        store = Store(y, (at,), Load(x, (at + offset,)))
        blocks = (n + 63) // 64
        loops = (("block", blocks),)
        return Kernel("moved", (x, y), (), loops, [For("i", extent, [store])], scope)

    verify_kernel(kernel(0))
    for offset in (-1, 1):
        with pytest.raises(GraphError, match="may be outside"):
            verify_kernel(kernel(offset))


def test_indices_below_nothing_are_refused():
    x, y = Buffer("x", (0,), weft.float32), Buffer("y", (3,), weft.float32)
    scope = Scope()
    w, i = scope.symbol("w"), scope.symbol("i")
    body = [Let("w", Position(i, weft.int64), 0), Store(y, (i,), Load(x, (w,)))]
    kernel = Kernel("empty", (x, y), (), (), [For("i", 3, body)], scope)
    with pytest.raises(GraphError, match="is an index below 0"):
        verify_kernel(kernel)
