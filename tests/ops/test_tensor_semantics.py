"""Edges of tensor functions: empties, NaN, ties, complex numbers, broadcasting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft

NAN, INF = math.nan, math.inf


def close(x: weft.Tensor, expected: Any, tol: float = 1e-6) -> None:
    np.testing.assert_allclose(x.detach().numpy(), expected, rtol=tol, atol=tol)


# -- empty and single elements


def test_empty_reductions() -> None:
    e = weft.zeros(0, 3)
    assert e.sum().item() == 0
    assert e.prod().item() == 1
    assert e.sum(0).tolist() == [0, 0, 0]
    assert e.prod(0).tolist() == [1, 1, 1]
    assert e.sum(1).shape == (0,)
    assert math.isnan(e.mean().item())
    assert e.mean(0).isnan().all()
    assert not e.any()
    assert e.all()
    assert e.amax(1).shape == (0,)
    assert e.logsumexp(0).tolist() == [-INF] * 3
    assert e.norm().item() == 0
    assert e.cumsum(0).shape == (0, 3)
    assert e.sort(0).values.shape == (0, 3)
    assert math.isnan(e.median().item())


def test_spread_of_one_element_is_nan() -> None:
    """Silently: a warning would fail the test."""
    assert math.isnan(weft.tensor([3.0]).std().item())
    assert math.isnan(weft.tensor([3.0]).var().item())
    assert weft.tensor([3.0]).var(unbiased=False).item() == 0
    assert weft.tensor([1.0, 2.0]).var(correction=2).item() == INF


def test_0d_tensors_have_one_imaginary_dimension() -> None:
    s = weft.tensor(4.0)
    for dim in (0, -1):
        assert s.sum(dim).item() == 4
        assert s.max(dim).values.item() == 4
        assert s.max(dim).indices.item() == 0
        assert s.argmax(dim).item() == 0
        assert s.cumsum(dim).item() == 4
        assert s.sort(dim).values.item() == 4
        assert s.softmax(dim).item() == 1
        assert s.squeeze(dim).shape == ()
    assert s.flatten().shape == (1,)
    assert s.reshape(1, 1).shape == (1, 1)
    assert s.topk(1).values.shape == ()


# -- NaN


def test_nan_wins() -> None:
    x = weft.tensor([[1.0, NAN, 3.0], [NAN, NAN, 0.0], [2.0, 5.0, 4.0]])
    for f in (weft.amax, weft.amin):
        got = f(x, 1)
        assert got.isnan().tolist() == [True, True, False]
    assert x.argmax(1).tolist() == [1, 0, 1]
    assert x.argmin(1).tolist() == [1, 0, 0]
    assert x.max(1).indices.tolist() == [1, 0, 1]
    assert math.isnan(x.max().item())
    assert x.median(1).values.isnan().tolist() == [True, True, False]
    assert x.quantile(0.5, 1).isnan().tolist() == [True, True, False]
    close(x.nanmedian(1).values, [1, 0, 4])
    close(x.nanquantile(0.5, 1), [2, 0, 4])
    close(x.nanmean(1), [2, 0, 11 / 3])
    assert x.cummax(1).values.isnan().tolist() == [
        [False, True, True], [True, True, True], [False, False, False],
    ]  # fmt: skip


def test_nan_is_sorted_last() -> None:
    x = weft.tensor([NAN, 2.0, -INF, 1.0])
    assert x.sort().indices.tolist() == [2, 3, 1, 0]
    assert x.sort(descending=True).indices.tolist() == [0, 1, 3, 2]
    assert x.topk(2).indices.tolist() == [0, 1]


def test_element_wise_nan() -> None:
    x, y = weft.tensor([NAN, 1.0]), weft.tensor([0.0, NAN])
    assert weft.maximum(x, y).isnan().all()
    assert weft.fmax(x, y).tolist() == [0, 1]
    assert weft.fmin(x, y).tolist() == [0, 1]
    assert x.clamp(0, 0.5).isnan().tolist() == [True, False]
    assert weft.clamp(weft.tensor([1.0]), NAN).isnan().all()
    assert weft.sign(x).tolist() == [0, 1]
    assert (x == x).tolist() == [False, True]
    assert weft.isclose(x, x, equal_nan=True).all()
    assert weft.nan_to_num(weft.tensor([NAN, INF]), posinf=9.0).tolist() == [0, 9]


def test_ties_choose_the_first() -> None:
    x = weft.tensor([3, 5, 5, 1, 1])
    assert x.argmax().item() == 1
    assert x.argmin().item() == 3
    assert x.max(0).indices.item() == 1
    assert x.sort().indices.tolist() == [3, 4, 0, 1, 2]
    assert x.sort(descending=True).indices.tolist() == [1, 2, 0, 3, 4]
    assert x.cummax(0).indices.tolist() == [0, 1, 2, 2, 2]


# -- gradients at kinks


@pytest.mark.parametrize(
    ("function", "at", "expected"),
    [
        (lambda x: x.clamp(0, 1), [-1.0, 0.0, 0.5, 1.0, 2.0], [0, 1, 1, 1, 0]),
        (lambda x: x.clamp(min=0), [-1.0, 0.0, 1.0], [0, 1, 1]),
        (lambda x: x.abs(), [-2.0, 0.0, 2.0], [-1, 0, 1]),
        (lambda x: weft.maximum(x, weft.zeros(3)), [-1.0, 0.0, 1.0], [0, 0.5, 1]),
        (lambda x: x.amax(), [1.0, 3.0, 3.0], [0, 0.5, 0.5]),
        (lambda x: x.max(0).values, [1.0, 3.0, 3.0], [0, 1, 0]),
        (lambda x: x.norm(), [0.0, 0.0], [0, 0]),
        (lambda x: x**2, [0.0, 3.0], [0, 6]),
        (lambda x: x**0, [0.0, 3.0], [0, 0]),
        (lambda x: x.prod(), [0.0, 3.0, 2.0], [6, 0, 0]),
        (lambda x: x.prod(), [0.0, 0.0, 2.0], [0, 0, 0]),
        (lambda x: x.cumprod(0), [2.0, 0.0, 3.0], [1, 2 + 6, 0]),
        (lambda x: weft.where(x > 0, x.log(), 0), [0.0, 2.0], [0, 0.5]),
        (lambda x: weft.xlogy(x, x), [0.0, 1.0], [0, 1]),
        (lambda x: x.sinc(), [0.0, 1.0], [0, -1]),
        (lambda x: x.floor() + x.round(), [0.3, 1.7], [0, 0]),
    ],
)
def test_gradients_at_kinks(function: Any, at: list, expected: list) -> None:
    x = weft.tensor(at, dtype=weft.float64, requires_grad=True)
    function(x).sum().backward()
    close(x.grad, expected)


# -- integers


def test_integer_arithmetic() -> None:
    x = weft.tensor([7, -7])
    assert (x // 2).tolist() == [3, -4]
    assert (x % 3).tolist() == [1, 2]
    assert weft.fmod(x, 3).tolist() == [1, -1]
    assert weft.div(x, 2, rounding_mode="trunc").tolist() == [3, -3]
    assert (x / 0).tolist() == [INF, -INF]
    assert (weft.tensor([5.0]) // 0.0).tolist() == [INF]
    assert (x << 1).tolist() == [14, -14]
    assert weft.tensor([-128], dtype=weft.int8).abs().tolist() == [-128]
    assert weft.tensor([2**62]).mul(2).tolist() == [-(2**63)]


def test_boolean_arithmetic() -> None:
    b = weft.tensor([True, False])
    assert (b + b).tolist() == [True, False]
    assert (b + b).dtype is weft.bool
    assert (b * b).dtype is weft.bool
    assert (b + 1).tolist() == [2, 1]
    assert (b / 2).tolist() == [0.5, 0]
    assert (b & ~b).tolist() == [False, False]
    assert b.sum().item() == 1
    assert weft.add(b, b, alpha=5).tolist() == [True, False]


# -- complex numbers


def test_complex_numbers() -> None:
    c = weft.tensor([3 + 4j, -1j])
    assert c.abs().tolist() == [5, 1]
    assert c.abs().dtype is weft.float32
    close(c.angle(), np.angle([3 + 4j, -1j]))
    assert c.conj().tolist() == [3 - 4j, 1j]
    assert (c * c.conj()).real.tolist() == [25, 1]
    close(c.sigmoid(), 1 / (1 + np.exp(-np.array([3 + 4j, -1j]))))
    close(weft.polar(c.abs(), c.angle()), c.numpy())
    assert weft.equal(weft.view_as_complex(weft.view_as_real(c)), c)
    assert c.mean().item() == 1.5 + 1.5j
    assert c.sgn().tolist() == pytest.approx([0.6 + 0.8j, -1j])


def test_complex_gradient_points_uphill() -> None:
    z = weft.tensor([3 + 4j], dtype=weft.complex128, requires_grad=True)
    z.abs().sum().backward()
    close(z.grad, [0.6 + 0.8j])


# -- signatures


def test_dims_as_pytorch_takes_them() -> None:
    x = weft.arange(24.0).reshape(2, 3, 4)
    assert x.sum(()).item() == x.sum().item()
    assert x.sum([0, 2]).shape == (3,)
    assert x.var(1, False).shape == (2, 4)
    assert x.var(False).item() == x.var(unbiased=False).item()
    assert x.std((0, -1), keepdim=True).shape == (1, 3, 1)
    assert x.permute(dims=(2, 0, 1)).shape == (4, 2, 3)
    assert x.reshape(shape=(6, 4)).shape == (6, 4)
    assert x.flip(dims=(0,)).shape == x.shape
    assert x.expand(size=(5, 2, 3, 4)).shape == (5, 2, 3, 4)
    assert weft.zeros(size=(2, 3)).shape == (2, 3)
    assert weft.arange(end=3).tolist() == [0, 1, 2]
    assert [p.shape for p in weft.split(x, split_size_or_sections=2, dim=2)] == [
        (2, 3, 2), (2, 3, 2),
    ]  # fmt: skip


def test_results_have_names() -> None:
    x = weft.tensor([3.0, 1.0])
    for result in (x.max(0), x.sort(), x.topk(1), x.kthvalue(1), x.median(0)):
        assert result.values is result[0]
        assert result.indices is result[1]


# -- broadcasting, against NumPy


SHAPES = st.lists(st.integers(1, 3), max_size=3).map(tuple)


@st.composite
def broadcastable(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that broadcast: one axis list with sizes dropped to 1, then cut."""
    full = draw(st.lists(st.integers(0, 3), max_size=3))
    pair = []
    for _ in range(2):
        sizes = [1 if draw(st.booleans()) and draw(st.booleans()) else n for n in full]
        pair.append(tuple(sizes[draw(st.integers(0, len(full))) :]))
    return pair[0], pair[1]


OPERATIONS = {
    "add": (weft.add, np.add), "sub": (weft.sub, np.subtract),
    "mul": (weft.mul, np.multiply), "div": (weft.div, np.divide),
    "maximum": (weft.maximum, np.maximum), "atan2": (weft.atan2, np.arctan2),
    "pow": (weft.pow, np.power),
}  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(broadcastable(), st.sampled_from(sorted(OPERATIONS)), st.integers(0, 99))
def test_broadcasting(shapes: Any, name: str, seed: int) -> None:
    ours, theirs = OPERATIONS[name]
    rng = np.random.default_rng(seed)
    a, b = (rng.uniform(0.5, 2, s) for s in shapes)
    x, y = (weft.tensor(v, requires_grad=True) for v in (a, b))
    out = ours(x, y)
    expected = theirs(a, b)
    assert out.shape == expected.shape
    np.testing.assert_allclose(out.detach().numpy(), expected, rtol=1e-14)
    out.sum().backward()
    assert x.grad.shape == a.shape
    assert y.grad.shape == b.shape


@settings(max_examples=40, deadline=None)
@given(SHAPES, SHAPES)
def test_shapes_that_do_not_broadcast_are_refused(a: Any, b: Any) -> None:
    try:
        expected = np.broadcast_shapes(a, b)
    except ValueError:
        with pytest.raises(ValueError, match="add: cannot broadcast"):
            weft.ones(a) + weft.ones(b)
    else:
        assert (weft.ones(a) + weft.ones(b)).shape == expected


# -- additions made of others


def test_scatter_reduce_by_hand() -> None:
    x = weft.tensor([10.0, 20.0, 30.0])
    ids, src = weft.tensor([0, 0, 2]), weft.tensor([1.0, 2.0, 40.0])
    expected = {
        "sum": [13, 20, 70], "prod": [20, 20, 1200], "amax": [10, 20, 40],
        "amin": [1, 20, 30], "mean": [13 / 3, 20, 35],
    }  # fmt: skip
    alone = {
        "sum": [3, 20, 40], "prod": [2, 20, 40], "amax": [2, 20, 40],
        "amin": [1, 20, 40], "mean": [1.5, 20, 40],
    }  # fmt: skip
    for reduce, values in expected.items():
        close(x.scatter_reduce(0, ids, src, reduce), values)
        close(x.scatter_reduce(0, ids, src, reduce, include_self=False), alone[reduce])


@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin", "mean"])
def test_scatter_reduce_gradients(reduce: str) -> None:
    ids = weft.tensor([[0, 0, 1], [2, 1, 1]])
    rng = np.random.default_rng(0)
    x, src = (
        weft.tensor(rng.permutation(6).reshape(2, 3) + 0.5, requires_grad=True)
        for _ in range(2)
    )

    def program(x: Any, src: Any) -> Any:
        return x.scatter_reduce(1, ids, src * 1.25, reduce)

    assert weft.autograd.gradcheck(program, (x, src))
    assert weft.autograd.gradgradcheck(program, (x, src))


def test_products_of_groups_with_zeros() -> None:
    x = weft.ones(2, dtype=weft.float64, requires_grad=True)
    src = weft.tensor([0.0, 3.0, 2.0], dtype=weft.float64, requires_grad=True)
    ids = weft.tensor([0, 0, 1])
    x.scatter_reduce(0, ids, src, "prod").sum().backward()
    close(x.grad, [0, 2])
    close(src.grad, [3, 0, 1])


def test_statistics_against_numpy() -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(size=(3, 6))
    x = weft.tensor(a)
    close(weft.cov(x), np.cov(a), 1e-12)
    close(weft.corrcoef(x), np.corrcoef(a), 1e-12)
    close(weft.trapezoid(x), np.trapezoid(a), 1e-12)
    close(weft.logcumsumexp(x, 1), np.log(np.cumsum(np.exp(a), 1)), 1e-12)
    close(weft.histc(x, 5, -1, 1), np.histogram(a, 5, (-1, 1))[0])
    differences = np.linalg.norm(a[:, None] - a[None], axis=-1)
    close(weft.cdist(x, x), differences, 1e-12)
    for q in (0.0, 0.3, 1.0):
        for how in ("linear", "lower", "higher", "midpoint"):
            close(
                x.quantile(q, 1, interpolation=how),
                np.quantile(a, q, axis=1, method=how), 1e-12,
            )  # fmt: skip
    close(
        x.quantile(weft.tensor([0.1, 0.6]), 0), np.quantile(a, [0.1, 0.6], axis=0), 1e-6
    )


def test_unique_consecutive_and_mode() -> None:
    x = weft.tensor([1, 1, 2, 2, 2, 1])
    values, inverse, counts = weft.unique_consecutive(
        x, return_inverse=True, return_counts=True
    )
    assert values.tolist() == [1, 2, 1]
    assert inverse.tolist() == [0, 0, 1, 1, 1, 2]
    assert counts.tolist() == [2, 3, 1]
    assert x.mode().values.item() == 1  # three of each: the smaller
    rows = weft.tensor([[1, 2], [1, 2], [3, 4]])
    assert weft.unique_consecutive(rows, dim=0).tolist() == [[1, 2], [3, 4]]
    assert weft.unique_consecutive(weft.zeros(0)).shape == (0,)


# -- the class as a constructor


def test_the_class_makes_tensors_as_pytorch_does():
    assert weft.Tensor().shape == (0,)
    assert weft.Tensor(2, 3).shape == (2, 3)
    assert weft.Tensor(np.int64(4)).shape == (4,)
    assert weft.Tensor(2, 0).dtype is weft.float32
    assert not weft.Tensor(2, 3).requires_grad
    assert weft.Tensor([1, 2]).tolist() == weft.Tensor((1, 2)).tolist() == [1.0, 2.0]
    assert weft.Tensor([[1, 2]]).dtype is weft.float32
    assert weft.Tensor(range(3)).tolist() == [0.0, 1.0, 2.0]
    weft.set_default_dtype(weft.float64)
    try:
        assert weft.Tensor(2).dtype is weft.Tensor([1]).dtype is weft.float64
    finally:
        weft.set_default_dtype(weft.float32)


def test_the_class_shares_arrays_and_tensors():
    array = np.zeros(2, np.int64)
    weft.Tensor(array)[0] = 3
    assert array.tolist() == [3, 0]
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    y = weft.Tensor(x * 1)
    (y * y).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]
    base = weft.tensor([1.0, 2.0])
    view = weft.Tensor(base)
    w = weft.ones(2, requires_grad=True)
    base.mul_(w)  # a view follows its base's history
    view.sum().backward()
    assert w.grad.tolist() == [1.0, 2.0]


def test_subclasses_are_made_alike():
    class Image(weft.Tensor):
        pass

    for made in (Image(2, 3), Image([1.0]), Image(np.ones(2)), Image(weft.ones(2))):
        assert type(made) is Image
        assert made.numel() == (made + 0).numel()


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ((3.5,), TypeError, r"expected sizes \(ints\).*got \(float\).*weft\.tensor"),
        ((True,), TypeError, r"got \(bool\)"),
        ((np.float32(2),), TypeError, r"got \(float32\)"),
        ((2, [3]), TypeError, r"got \(int, list\)"),
        (([2], 3), TypeError, r"got \(list, int\)"),
        ((np.ones(2), None), TypeError, r"got \(ndarray, NoneType\)"),
        ((2, -1), RuntimeError, r"sizes of 0 and more, got \(2, -1\)"),
        (("a",), TypeError, "expected numbers, got str"),
    ],
)
def test_what_the_class_refuses(given, error, text):
    with pytest.raises(error, match=text):
        weft.Tensor(*given)


def test_tracers_are_not_looked_at():
    with pytest.raises(TypeError, match="in host memory, got a Batched"):
        weft.func.vmap(weft.Tensor)(weft.ones(2, 3))
    with pytest.raises(TypeError, match="in host memory, got a Symbol"):
        weft.compile(weft.Tensor)(weft.ones(2))


# -- data


def test_data_is_exchanged():
    x = weft.ones(2, requires_grad=True)
    value = weft.tensor([3.0, 4.0, 5.0], dtype=weft.float64)
    x.data = value
    assert (x.shape, x.dtype, x.requires_grad, x.is_leaf) == (
        (3,),
        weft.float64,
        True,
        True,
    )
    value[0] = 7
    (x * x).sum().backward()
    assert x.grad.tolist() == [14.0, 8.0, 10.0]
    x.data -= 1
    assert value.tolist() == [6.0, 3.0, 4.0]


def test_a_saved_value_whose_data_is_exchanged_is_noticed():
    x = weft.ones(2, requires_grad=True)
    y = (x * x).sum()
    x.data = weft.zeros(2)
    with pytest.raises(RuntimeError, match="data"):
        y.backward()


def test_data_that_does_not_fit_is_refused():
    x = weft.ones(2, requires_grad=True)
    with pytest.raises(TypeError, match="data: expected a tensor, got list"):
        x.data = [1.0]
    with pytest.raises(TypeError, match="cannot hold int64"):
        x.data = weft.tensor([1])

    def exchange(a):
        a.data = a + 1
        return a

    for run in (weft.func.vmap(exchange), weft.compile(exchange)):
        with pytest.raises(RuntimeError, match="cannot be exchanged inside"):
            run(weft.ones(2))


ORDERS = {
    "sort": lambda x: x.sort(0),
    "sort down": lambda x: x.sort(0, descending=True),
    "argsort": lambda x: x.argsort(0),
    "msort": weft.msort,
    "topk": lambda x: x.topk(2, 0),
    "kthvalue": lambda x: x.kthvalue(2, 0),
    "median": lambda x: x.median(0),
    "nanmedian": lambda x: x.nanmedian(0),
    "cummax": lambda x: x.cummax(0),
    "argmax": lambda x: x.argmax(0),
    "argmin": lambda x: x.argmin(0),
    "amax": lambda x: x.amax(0),
    "maximum": lambda x: weft.maximum(x, x.flip(0)),
    "fmax": lambda x: weft.fmax(x, x.flip(0)),
    "searchsorted": lambda x: weft.searchsorted(x.T.sort(1)[0], x.T.contiguous()),
    "bucketize": lambda x: weft.bucketize(x, weft.tensor([0, 1], dtype=x.dtype)),
    "unique": weft.unique,
    "mode": lambda x: x.mode(0),
    "max_pool1d": lambda x: weft.nn.functional.max_pool1d(x[None], 2),
    "clamp": lambda x: x.clamp(0, 1),
}


@pytest.mark.parametrize("dtype", [weft.bfloat16, weft.float16, weft.float64])
@pytest.mark.parametrize("name", ORDERS)
def test_nan_has_its_place_in_every_order(name, dtype):
    """Numbers that all types have are ordered alike, and NaN is."""
    nan = float("nan")
    x = weft.tensor(
        [[nan, 1.0, 5.0], [2.0, nan, -1.0], [nan, 3.0, nan], [0.0, nan, 2.0]]
    )
    want, got = (weft.tree_flatten(ORDERS[name](y))[0] for y in (x, x.to(dtype)))
    for a, b in zip(want, got, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.to(a.dtype).numpy())


def test_linspace_counts_each_half_from_its_end_and_rounds_once():
    """The bits are PyTorch's: interpolation divides by differences of neighbours."""
    for dtype in (weft.float32, weft.float64):
        x = weft.linspace(0, 1, 7, dtype=dtype).numpy()
        step = x.dtype.type(1) / x.dtype.type(6)
        exact = [
            0,
            step,
            2 * step,
            *(1 - k * np.longdouble(step) for k in (3, 2, 1, 0)),
        ]
        np.testing.assert_array_equal(x, np.array(exact, np.longdouble).astype(x.dtype))
    down = weft.linspace(3, -7, 7, dtype=weft.int64).tolist()
    assert down == [3, 1, 0, -1, -3, -5, -7]
    bounds = -0.0663694143295288, 1.0663694143295288  # of integers: 0 and 1
    assert weft.linspace(*bounds, 4, dtype=weft.int64).tolist() == [0, 0, 0, 1]
    half = weft.linspace(0, 1, 7, dtype=weft.float16).tolist()
    assert half[1:4] == [0.1666259765625, 0.333251953125, 0.5]
    assert weft.linspace(2, 5, 1).tolist() == [2.0]
    assert weft.linspace(2, 5, 0).shape == (0,)


def test_cdata_tells_tensors_apart():
    x = weft.ones(2)
    assert x._cdata == x._cdata
    assert x._cdata != x.clone()._cdata
