"""Pooling, resampling, sorting and running extremes as kernels, against NumPy's
evaluation: odd sizes, ties, NaN, any number of threads, and gradients."""

import numpy as np
import pytest
from by_loops import by_loops, compiled, outputs, run, same_for_threads, whole

import weft
from weft.compile.loop.ir import Buffer, For, Kernel, Let, Load, Store
from weft.compile.loop.verify import verify_kernel
from weft.core.op import find_op
from weft.core.size import Scope
from weft.core.tensor import Tensor
from weft.graph.ir import GraphError
from weft.nn import functional as F
from weft.ops.resample import Lists, Taps

RNG = np.random.default_rng(3)


def floats(*shape, dtype=np.float32):
    return Tensor(RNG.normal(size=shape).astype(dtype))


def rough(*shape, dtype="float32"):
    """Numbers with ties, both zeros, infinities and NaN among them."""
    array = np.round(RNG.normal(size=shape) * 4)
    if dtype == "bool":
        return Tensor(array > 0)
    signed = array.astype(np.int64) if dtype == "uint8" else array
    array = signed.astype(dtype)
    if array.dtype.kind == "f":
        for odd in (np.nan, -np.nan, np.inf, -np.inf, -0.0):
            array[RNG.uniform(size=shape) < 0.05] = odd
    return Tensor(array)


# -- sorting

DTYPES = ["float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8",
          "bool"]  # fmt: skip


def orders(x):
    """Both ways, along the middle and along an outer axis."""
    return x.argsort(1), x.argsort(1, True), x.argsort(0), x.argsort(0, True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 7, 128, 129, 4099])
def test_order_is_numpys(size, dtype):
    x = rough(2, size, 3, dtype=dtype)
    native = compiled(orders, x)
    assert whole(native)
    for a, b in zip(same_for_threads(native, x), outputs(orders, x), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("size", [5, 129])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64"])
def test_order_by_loops(dtype, size):
    x = rough(2, size, dtype=dtype)
    native = compiled(lambda x: x.argsort(1), x)
    np.testing.assert_array_equal(by_loops(native, x)[0], x.argsort(1).numpy())


def test_all_bits_of_a_key_count():
    """Neighbouring numbers, and the largest and the smallest there are."""
    info = np.finfo(np.float32)
    near = np.nextafter(np.float32(1), np.float32([2, 0]))
    ends = [info.max, info.min, info.smallest_subnormal, -info.smallest_subnormal]
    row = np.array([*near, *ends, 1, 0, -0.0, 3e-5, 7e9] * 20, np.float32)
    for array in (row, np.r_[np.arange(-9, 9) << 59, 1 << 62, [5] * 200], row[::-1]):
        x = Tensor(RNG.permutation(array))
        got = run(compiled(lambda x: x.argsort(0), x), x)[0]
        np.testing.assert_array_equal(got, x.argsort(0).numpy())


def test_sorting_open_sizes():
    function = weft.compile(lambda x: (x.sort(1), x.argsort(0)), dynamic=True)
    for shape in ((3, 5), (2, 300), (400, 2), (1, 1)):
        x = rough(*shape)
        (values, indices), other = function(x)
        np.testing.assert_array_equal(values.numpy(), x.sort(1)[0].numpy())
        np.testing.assert_array_equal(indices.numpy(), x.sort(1)[1].numpy())
        np.testing.assert_array_equal(other.numpy(), x.argsort(0).numpy())
    assert len(function.compiles) <= 2


def test_nothing_to_sort():
    for shape in ((0, 3), (3, 0)):
        x = floats(*shape)
        assert weft.compile(lambda x: x.sort(1)[0])(x).shape == shape


# -- everything else


def total(y):
    return (y * y * y).sum()


def gradient(fn):
    def program(x, *more):
        x = x.detach().requires_grad_()
        total(fn(x, *more)).backward()
        return x.grad

    return program


IMAGES = {
    "avg": lambda x: F.avg_pool2d(x, 2),
    "avg padded": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "avg inner": lambda x: F.avg_pool2d(x, 3, 2, 1, True, False),
    "avg divided": lambda x: F.avg_pool2d(x, 2, 1, divisor_override=3),
    "avg wide": lambda x: F.avg_pool2d(x, (1, 17), (1, 2)),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, (4, 5)),
    "adaptive up": lambda x: F.adaptive_avg_pool2d(x, (9, 40)),
    "global": lambda x: F.adaptive_avg_pool2d(x, 1),
    "area": lambda x: F.interpolate(x, size=(3, 50), mode="area"),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "nearest exact": lambda x: F.interpolate(x, size=(5, 31), mode="nearest-exact"),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "aligned": lambda x: F.interpolate(x, (4, 33), None, "bilinear", True),
    "bicubic": lambda x: F.interpolate(x, scale_factor=1.7, mode="bicubic"),
    "largest": lambda x: F.max_pool2d(x, 2),
    "largest padded": lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
    "largest wide": lambda x: F.max_pool2d(x, 5, 1, 2),
    "largest spread": lambda x: F.max_pool2d(x, (2, 9), (1, 3), (1, 4), (1, 2)),
    "largest shared": lambda x: F.adaptive_max_pool2d(x, (3, 8)),
    "largest of all": lambda x: F.adaptive_max_pool2d(x, 1),
}


@pytest.mark.parametrize("width", [20, 67])
@pytest.mark.parametrize("name", IMAGES)
def test_images(name, width):
    x = floats(2, 3, 7, width)
    for program in (IMAGES[name], gradient(IMAGES[name])):
        native = compiled(program, x)
        assert whole(native)
        want = outputs(program, x)
        for a, b in zip(same_for_threads(native, x), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
        if width == 20:
            for a, b in zip(by_loops(native, x), want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [n for n in IMAGES if n.startswith("largest")])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_places_of_the_largest(name, dtype):
    x = rough(2, 3, 7, 21, dtype=dtype)
    fn = IMAGES[name]
    np.testing.assert_array_equal(run(compiled(fn, x), x)[0], fn(x).numpy())


def test_taps_that_are_not_there_count_for_nothing():
    """Infinities next to a window do not get into it."""
    array = np.ones((1, 1, 1, 24), np.float32)
    array[..., [0, 13]] = np.inf, np.nan
    x = Tensor(array)
    for name in ("avg wide", "adaptive up", "bicubic", "avg inner"):
        fn = IMAGES[name]
        np.testing.assert_allclose(run(compiled(fn, x), x)[0], fn(x).numpy(), 1e-6)


LINES = {
    "topk": (lambda x: tuple(x.topk(min(3, x.shape[1]))), False),
    "topk many": (lambda x: tuple(x.topk(min(20, x.shape[1]), sorted=True)), False),
    "topk most": (lambda x: tuple(x.topk(x.shape[1])), False),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), True),
    "smallest": (lambda x: tuple(x.topk(1, 0, largest=False)), False),
    "kthvalue": (lambda x: tuple(x.kthvalue(1 + x.shape[1] // 2)), False),
    "median": (lambda x: (x.median(), *x.nanmedian(1)), False),
    "quantile": (lambda x: weft.nanquantile(x, 0.25, 1), False),
    "sort": (lambda x: x.sort(1)[0], True),
    "cummax": (lambda x: x.cummax(1)[0], True),
    "cummin": (lambda x: x.cummin(0)[0], True),
    "running places": (lambda x: (x.cummax(0)[1], x.cummin(1)[1]), False),
}


@pytest.mark.parametrize("size", [1, 65, 300])
@pytest.mark.parametrize("name", LINES)
def test_lines(name, size):
    fn, differentiable = LINES[name]
    for x in (rough(5, size), floats(5, size, dtype=np.float64)):
        native = compiled(fn, x)
        assert whole(native)
        for a, b in zip(same_for_threads(native, x), outputs(fn, x), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    if differentiable:
        native = compiled(gradient(fn), x)
        assert whole(native)
        want = gradient(fn)(x).numpy()
        np.testing.assert_allclose(same_for_threads(native, x)[0], want, rtol=1e-12)


@pytest.mark.parametrize("reduce", ["prod", "amax", "amin", "mean", "sum"])
@pytest.mark.parametrize("size", [1, 70])
def test_combined(reduce, size):
    def fn(x, index, src):
        return x.scatter_reduce(1, index, src, reduce), x.scatter_reduce(
            1, index, src, reduce, include_self=False
        )

    x, src = rough(4, size), rough(4, 2 * size)
    index = Tensor(RNG.integers(0, size, (4, 2 * size)))
    native = compiled(fn, x, index, src)
    assert whole(native)
    got = same_for_threads(native, x, index, src)
    for a, b in zip(got, outputs(fn, x, index, src), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


# -- lists of taps


def test_windows_are_recognised():
    rows = np.repeat(np.arange(4), 3)
    cols = rows * 2 + np.tile(np.arange(3), 4) - 1
    keep = (cols >= 0) & (cols < 7)
    size, ones = (4, 7), np.ones(keep.sum())
    assert Lists(Taps(size, rows[keep], cols[keep], ones)).windows == (2, 3, 1)
    moved = cols.copy()
    moved[4] += 1
    keep &= moved < 7
    assert Lists(Taps(size, rows[keep], moved[keep], ones)).windows is None


def test_lists_are_looked_at():
    """An index beyond the input is found before there is a kernel."""
    taps = Taps((2, 4), np.array([0, 1]), np.array([0, 9]), np.ones(2))
    with pytest.raises(GraphError, match="beyond 4"):
        compiled(lambda x: find_op("resample")(x, taps=taps, dim=0), floats(4))


def test_listed_indices_need_a_limit():
    scope = Scope()
    n, w, i = scope.symbol("n"), scope.symbol("w"), scope.symbol("i")
    x, y = Buffer("x", (n,), weft.float32), Buffer("y", (3,), weft.float32)
    table = Buffer("t", (3,), weft.int64)
    body = [Let("w", Load(table, (i,)), n, sure=True), Store(y, (i,), Load(x, (w,)))]
    loops = [For("i", 3, body)]
    with pytest.raises(GraphError, match="is an index below n"):
        verify_kernel(Kernel("k", (x, y, table), (), (), loops, scope))
    kernel = Kernel("k", (x, y, table), (), (), loops, scope, (), (n,))
    verify_kernel(kernel)
    assert not kernel.checks
    assert "w = t[i] below n" in str(kernel)


# -- searching


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("size", [1, 7, 8, 4095, 4096])
def test_searching(size, right):
    for dtype in ("float32", "int16"):
        edges = Tensor(np.sort(rough(size, dtype=dtype).numpy()))
        values = rough(3, 40, dtype=dtype)
        fn = lambda e, v, r=right: weft.searchsorted(e, v, right=r)
        native = compiled(fn, edges, values)
        assert whole(native)
        got = same_for_threads(native, edges, values)[0]
        side = "right" if right else "left"
        want = np.searchsorted(edges.numpy(), values.numpy(), side)
        np.testing.assert_array_equal(got, want)
        if size < 10:
            np.testing.assert_array_equal(by_loops(native, edges, values)[0], want)


def test_searching_rows_of_open_sizes():
    function = weft.compile(lambda e, v: weft.searchsorted(e, v), dynamic=True)
    for n in (3, 9, 64):
        edges, values = floats(4, n).sort(1)[0], floats(4, 2 * n)
        want = weft.searchsorted(edges, values).numpy()
        np.testing.assert_array_equal(function(edges, values).numpy(), want)


def test_buckets_keep_whole_numbers_apart():
    edges = Tensor(np.array([2**24, 2**24 + 1, 2**24 + 3]))
    values = Tensor(np.array([2.0**24 + 1, 2.0**24 + 2], np.float64))
    assert weft.bucketize(values, edges).tolist() == [1, 2]


# -- series


@pytest.mark.parametrize("order", [1, 2, 5])
def test_derivatives_of_digamma(order):
    ends = [0.0, -0.0, -1.0, np.inf, np.nan, 1e-3, 300.0]
    x = Tensor(np.r_[RNG.uniform(-4, 9, 50), ends])
    fn = lambda x: weft.polygamma(order, x)
    native = compiled(fn, x)
    assert whole(native)
    with np.errstate(all="ignore"):
        want = fn(x).numpy()
    np.testing.assert_allclose(same_for_threads(native, x)[0], want, rtol=2e-13)


# -- open sizes

OPEN = {
    **{k: IMAGES[k] for k in ("avg", "avg padded", "adaptive", "global", "area")},
    **{k: IMAGES[k] for k in ("nearest exact", "bilinear", "largest", "largest wide")},
    "largest shared": IMAGES["largest shared"],
    "grid": lambda x: F.grid_sample(x, weft.full((x.shape[0], 2, 3, 2), 0.3)),
    "topk": lambda x: x.flatten(1).topk(4)[0],
    "logcumsumexp": lambda x: x.flatten(1).logcumsumexp(1),
    "cummax": lambda x: x.flatten(1).cummax(1)[1],
}


@pytest.mark.parametrize("name", OPEN)
def test_open_sizes(name):
    """Images of several sizes, one after the other and back again."""
    fn = OPEN[name]
    function = weft.compile(fn, dynamic=True)
    for shape in ((2, 3, 9, 20), (3, 3, 9, 20), (2, 3, 12, 17), (3, 3, 9, 20)):
        x = floats(*shape)
        np.testing.assert_allclose(function(x).numpy(), fn(x).numpy(), 1e-5, 1e-5)
