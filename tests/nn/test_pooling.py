"""Pooling: values by plain loops, derivatives by differences, and mistakes."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest

import weft
from weft.autograd import gradcheck, gradgradcheck
from weft.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError
from weft.func import grad, vmap
from weft.nn import functional as F

MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
LP = {1: F.lp_pool1d, 2: F.lp_pool2d, 3: F.lp_pool3d}
UNPOOL = {1: F.max_unpool1d, 2: F.max_unpool2d, 3: F.max_unpool3d}
ADAPTIVE_MAX = {
    1: F.adaptive_max_pool1d,
    2: F.adaptive_max_pool2d,
    3: F.adaptive_max_pool3d,
}
ADAPTIVE_AVG = {
    1: F.adaptive_avg_pool1d,
    2: F.adaptive_avg_pool2d,
    3: F.adaptive_avg_pool3d,
}
SIZES = {1: (8,), 2: (5, 6), 3: (4, 3, 5)}
NAN = float("nan")


def uniform(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).uniform(-2, 2, shape)


def distinct(*shape: int) -> np.ndarray:
    """Elements far enough apart that a small step keeps their order."""
    count = math.prod(shape)
    order = np.random.default_rng(sum(shape)).permutation(count)
    return (order / count).reshape(shape)


def count(size: int, k: int, s: int, p: int, ceil: bool) -> int:
    """Windows that start inside the input or the padding before it, and fit."""
    found = 0
    while True:
        start = found * s - p
        fits = start + k <= size + p
        if not (fits or (ceil and start < size and start - s + k < size + p)):
            return found
        found += 1


def windows(size: tuple[int, ...], k: int, s: int, p: int, ceil: bool) -> Any:
    """(output place, first and last + 1 of each dimension, in padded terms)."""
    counts = [count(n, k, s, p, ceil) for n in size]
    for at in np.ndindex(*counts):
        yield at, [(a * s - p, a * s - p + k) for a in at]


def pooled(x: Any, k: int, s: int, p: int, ceil: bool, what: Any) -> Any:
    size = x.shape[2:]
    counts = [count(n, k, s, p, ceil) for n in size]
    out = np.zeros((*x.shape[:2], *counts))
    for at, edges in windows(size, k, s, p, ceil):
        inner = tuple(
            slice(max(a, 0), min(b, n)) for (a, b), n in zip(edges, size, strict=True)
        )
        full = math.prod(
            min(b, n + p) - a for (a, b), n in zip(edges, size, strict=True)
        )
        for n, c in np.ndindex(*x.shape[:2]):
            out[(n, c, *at)] = what(x[(n, c, *inner)], full)
    return out


WINDOWS = list(itertools.product([2, 3], [1, 2, 3], [0, 1], [False, True]))


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize(("k", "s", "p", "ceil"), WINDOWS)
def test_pools_are_the_loops(spatial, k, s, p, ceil):
    x = uniform(2, 2, *SIZES[spatial])
    t = weft.tensor(x)
    most = pooled(x, k, s, p, ceil, lambda part, full: part.max())
    got = MAX[spatial](t, k, s, p, ceil_mode=ceil)
    np.testing.assert_array_equal(got.numpy(), most)
    for outer in (True, False):
        mean = pooled(
            x, k, s, p, ceil,
            lambda part, full, outer=outer: part.sum() / (full if outer else part.size),
        )  # fmt: skip
        got = AVG[spatial](t, k, s, p, ceil, outer)
        np.testing.assert_allclose(got.numpy(), mean, atol=1e-12)


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_indices_find_the_values(spatial):
    x = weft.tensor(uniform(2, 3, *SIZES[spatial]))
    flat = x.flatten(2)
    pools = (
        MAX[spatial](x, 3, 2, 1, return_indices=True),
        ADAPTIVE_MAX[spatial](x, 2, return_indices=True),
    )
    for out, index in pools:
        assert index.dtype is weft.int64
        found = flat.gather(2, index.flatten(2)).reshape(out.shape)
        np.testing.assert_array_equal(found.numpy(), out.numpy())


def test_dilation_skips_elements():
    x = weft.tensor([[0.0, 9.0, 1.0, 8.0, 2.0]])
    out, index = F.max_pool1d(x, 3, 1, dilation=2, return_indices=True)
    assert (out.tolist(), index.tolist()) == ([[2.0]], [[4]])


def test_the_first_of_equals_is_taken():
    index = F.max_pool2d(weft.ones(1, 4, 4), 2, return_indices=True)[1]
    assert index.tolist() == [[[0, 2], [8, 10]]]
    assert F.adaptive_max_pool1d(weft.ones(1, 5), 2, True)[1].tolist() == [[0, 2]]


def test_nan_is_the_largest():
    x = weft.tensor([[1.0, NAN, 3.0, 4.0, NAN, NAN]])
    out, index = F.max_pool1d(x, 2, return_indices=True)
    assert np.isnan(out.numpy()).tolist() == [[True, False, True]]
    assert index.tolist() == [[1, 3, 5]]
    assert F.adaptive_max_pool1d(x, 3).isnan().tolist() == [[True, False, True]]


def test_padding_is_never_the_largest():
    x = weft.full((1, 3), -float("inf"))
    index = F.max_pool1d(x, 3, 1, 1, return_indices=True)[1]
    assert index.tolist() == [[0, 0, 1]]
    low = weft.full((1, 3), -128, dtype=weft.int8)
    assert F.max_pool1d(low, 3, 1, 1).tolist() == [[-128] * 3]


def test_many_taps():
    """More taps than a small integer numbers."""
    x = weft.tensor(distinct(1, 1, 14, 14))
    out, index = F.max_pool2d(x, 13, 1, return_indices=True)
    want = pooled(x.numpy(), 13, 1, 0, False, lambda part, full: part.max())
    np.testing.assert_array_equal(out.numpy(), want)
    np.testing.assert_array_equal(x.flatten()[index.flatten()].numpy(), want.ravel())


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("wanted", [1, 2, 3, 7])
def test_adaptive_is_the_loops(spatial, wanted):
    x = uniform(2, 2, *SIZES[spatial])
    most, mean = (np.zeros((2, 2, *(wanted,) * spatial)) for _ in range(2))
    for n, c, *at in np.ndindex(*most.shape):
        part = x[n, c][
            tuple(
                slice(math.floor(a * m / wanted), math.ceil((a + 1) * m / wanted))
                for a, m in zip(at, x.shape[2:], strict=True)
            )
        ]
        most[(n, c, *at)], mean[(n, c, *at)] = part.max(), part.mean()
    got = ADAPTIVE_MAX[spatial](weft.tensor(x), wanted)
    np.testing.assert_array_equal(got.numpy(), most)
    got = ADAPTIVE_AVG[spatial](weft.tensor(x), wanted)
    np.testing.assert_allclose(got.numpy(), mean, atol=1e-12)


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("norm", [1, 2, 3.0])
def test_lp_is_the_loops(spatial, norm):
    x = np.abs(uniform(1, 2, *SIZES[spatial]))
    got = LP[spatial](weft.tensor(x), norm, 2)
    want = pooled(
        x, 2, 2, 0, False, lambda part, full: (part**norm).sum() ** (1 / norm)
    )
    np.testing.assert_allclose(got.numpy(), want)


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_unpooling_undoes_pooling(spatial):
    x = distinct(2, 3, *SIZES[spatial]) + 1
    out, index = MAX[spatial](weft.tensor(x), 2, return_indices=True)
    back = UNPOOL[spatial](out, index, 2, output_size=SIZES[spatial])
    assert back.shape == x.shape
    kept = back.numpy() != 0
    assert kept.sum() == out.numel()
    np.testing.assert_array_equal(back.numpy()[kept], x[kept])
    again = MAX[spatial](back, 2)
    np.testing.assert_array_equal(again.numpy(), out.numpy())


def test_batch_may_be_missing_or_empty():
    x = weft.tensor(uniform(3, 6, 6))
    pools = [
        lambda x: F.max_pool2d(x, 2),
        lambda x: F.avg_pool2d(x, 3, 2, 1),
        lambda x: F.adaptive_max_pool2d(x, 4),
        lambda x: F.adaptive_avg_pool2d(x, 4),
    ]
    for f in pools:
        np.testing.assert_array_equal(f(x).numpy(), f(x[None])[0].numpy())
        assert f(x[None][:0]).shape == (0, *f(x).shape)


def test_override_divides_the_sum():
    x = weft.tensor(uniform(1, 1, 4, 4))
    got = F.avg_pool2d(x, 2, padding=1, divisor_override=3)
    want = F.avg_pool2d(x, 2, padding=1) * 4 / 3
    np.testing.assert_allclose(got.numpy(), want.numpy())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_summed_in_single_precision(dtype):
    x = weft.full((1, 1, 3000), 30.0).to(dtype)
    for out in (F.avg_pool1d(x, 3000), F.adaptive_avg_pool1d(x, 1)):
        assert out.dtype is x.dtype
        assert out.item() == 30.0  # the sum itself is beyond float16


# -- derivatives

SMOOTH = {
    "max": lambda x: F.max_pool2d(x, 2),
    "max overlapping": lambda x: F.max_pool2d(x, 3, 1, 1),
    "max dilated": lambda x: F.max_pool2d(x, 2, 1, dilation=2, ceil_mode=True),
    "avg": lambda x: F.avg_pool2d(x, 3, 2, 1, True, False),
    "avg overlapping": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "avg divided": lambda x: F.avg_pool2d(x, (2, 3), divisor_override=2),
    "adaptive max": lambda x: F.adaptive_max_pool2d(x, (3, 2)),
    "adaptive avg": lambda x: F.adaptive_avg_pool2d(x, (3, 4)),
    "adaptive one": lambda x: F.adaptive_avg_pool2d(x, (1, None)),
    "lp": lambda x: F.lp_pool2d(x + 1, 3, 2, ceil_mode=True),
    "unpool": lambda x: F.max_unpool2d(
        *F.max_pool2d(x, 2, return_indices=True), 2, output_size=(5, 6)
    ),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives(name):
    x = weft.tensor(distinct(2, 2, 5, 6), requires_grad=True)
    assert gradcheck(SMOOTH[name], (x,))
    assert gradgradcheck(lambda x: SMOOTH[name](x) ** 2, (x,))


@pytest.mark.parametrize("name", SMOOTH)
def test_vmap_is_a_loop(name):
    x = weft.tensor(distinct(3, 2, 2, 5, 6))
    f = SMOOTH[name]
    for g in (f, grad(lambda x: (f(x) ** 2).sum())):
        got = vmap(g)(x)
        for i in range(3):
            np.testing.assert_allclose(got[i].numpy(), g(x[i]).numpy(), atol=1e-12)


# -- mistakes

X = weft.ones(2, 4, 6, 6)
I = weft.zeros(2, 4, 6, 6).long()  # noqa: E741


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: F.max_pool2d(X, 0), ArgumentError, "kernel_size of at least 1, got 0"),
        (lambda: F.max_pool2d(X, 2, 0), ArgumentError, "stride of at least 1"),
        (lambda: F.max_pool2d(X, 2, padding=2), ArgumentError, "half the kernel"),
        (lambda: F.max_pool2d(X, 7), ShapeError, "no window of size (7, 7)"),
        (lambda: F.max_pool2d(X[0, 0], 2), ShapeError, "without a batch, 3"),
        (lambda: F.max_pool2d(X > 0, 2), DTypeError, "a real dtype, got bool"),
        (lambda: F.max_pool2d(X[:, :0], 2), ShapeError, "sizes of at least 1"),
        (lambda: F.avg_pool2d(X.long(), 2), DTypeError, "floating-point"),
        (lambda: F.avg_pool2d(X, 2, divisor_override=0), ArgumentError, "not be 0"),
        (lambda: F.avg_pool1d(X[0], (2, 3)), ArgumentError, "to be an int, got"),
        (lambda: F.adaptive_avg_pool2d(X, 0), ArgumentError, "output_size of at least"),
        (lambda: F.adaptive_max_pool2d(X, (1, 2, 3)), ArgumentError, "int or 2 ints"),
        (lambda: F.max_unpool2d(X, I[0], 2), ShapeError, "indices of the input"),
        (lambda: F.max_unpool2d(X, I.int(), 2), DTypeError, "int64 indices, got int32"),
        (lambda: F.max_unpool2d(X, I - 1, 2), OutOfRangeError, "unpool2d: index -1"),
        (lambda: F.max_unpool2d(X, I, 2, output_size=(9, 9)), ArgumentError,
         "within a stride (2, 2) of (12, 12)"),
    ],
)  # fmt: skip
def test_mistakes_say_what_was_expected(call, kind, words):
    with pytest.raises(kind, match=re.escape(words)):
        call()


@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "padding", "ceil_mode"),
    [
        ((2, 3, 8, 28), 2, 2, 0, False),
        ((1, 2, 7, 9), 2, 2, 1, True),  # windows over the edge, and rows in none
        ((2, 2, 9, 10), (1, 2), (2, 3), 0, False),  # elements between windows
    ],
)
def test_windows_side_by_side_give_their_gradient_to_the_element_they_picked(
    shape, kernel, stride, padding, ceil_mode
):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, shape).astype(np.float32)  # many are equal
    x[0, 0, 0, 1], x[0, 1, 1, 0] = np.nan, -np.inf
    pooled, index = F.max_pool2d(
        weft.tensor(x), kernel, stride, padding, 1, ceil_mode, return_indices=True
    )
    g = rng.standard_normal(pooled.shape).astype(np.float32)
    expected = np.zeros((*shape[:2], shape[2] * shape[3]), np.float32)
    for n, c, i, j in np.ndindex(*pooled.shape):
        expected[n, c, int(index[n, c, i, j])] += g[n, c, i, j]

    def grad(x, g):
        def total(x):
            return (F.max_pool2d(x, kernel, stride, padding, 1, ceil_mode) * g).sum()

        return weft.func.grad(total)(x)

    for run in (grad, weft.compile(grad)):
        got = run(weft.tensor(x), weft.tensor(g)).numpy()
        np.testing.assert_array_equal(got.reshape(expected.shape), expected)
