"""Windows, shuffles, interpolation and grids: values by loops, and derivatives."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest

import weft
from weft.autograd import gradcheck, gradgradcheck
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.func import grad, vmap
from weft.nn import functional as F


def uniform(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).uniform(-2, 2, shape)


# -- windows as columns

OPTIONS = list(itertools.product([1, 2, (2, 1)], [0, (1, 2)], [1, (1, 2)]))


def pair(value: Any) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)


@pytest.mark.parametrize(("stride", "padding", "dilation"), OPTIONS)
def test_unfold_is_the_loops(stride, padding, dilation):
    x = uniform(2, 3, 5, 6)
    (sh, sw), (ph, pw), (dh, dw) = map(pair, (stride, padding, dilation))
    wide = np.pad(x, [(0, 0), (0, 0), (ph, ph), (pw, pw)])
    columns = []
    for i in range(0, wide.shape[2] - dh, sh):
        for j in range(0, wide.shape[3] - 2 * dw, sw):
            part = wide[:, :, i : i + dh + 1 : dh, j : j + 2 * dw + 1 : dw]
            columns.append(part.reshape(2, -1))
    got = F.unfold(weft.tensor(x), (2, 3), dilation, padding, stride)
    np.testing.assert_array_equal(got.numpy(), np.stack(columns, -1))


@pytest.mark.parametrize(("stride", "padding", "dilation"), OPTIONS)
def test_fold_is_the_transpose_of_unfold(stride, padding, dilation):
    x = weft.tensor(uniform(2, 3, 5, 6))
    options = ((2, 3), dilation, padding, stride)
    cols = F.unfold(x, *options)
    y = weft.tensor(uniform(*cols.shape))
    back = F.fold(y, (5, 6), *options)
    assert back.shape == x.shape
    np.testing.assert_allclose((cols * y).sum().item(), (x * back).sum().item())


def test_a_convolution_is_a_product_with_columns():
    x, w = weft.tensor(uniform(2, 3, 5, 6)), weft.tensor(uniform(4, 3, 3, 2))
    product = w.reshape(4, -1) @ F.unfold(x, (3, 2), padding=1)
    want = F.conv2d(x, w, padding=1)
    np.testing.assert_allclose(product.reshape(want.shape).numpy(), want.numpy())


def test_folding_works_without_a_batch():
    x = weft.tensor(uniform(3, 4, 4))
    cols = F.unfold(x, 2)
    np.testing.assert_array_equal(cols.numpy(), F.unfold(x[None], 2)[0].numpy())
    counts = F.fold(F.unfold(weft.ones(1, 4, 4), 2), 4, 2)
    assert counts[0].tolist() == [
        [1, 2, 2, 1],
        [2, 4, 4, 2],
        [2, 4, 4, 2],
        [1, 2, 2, 1],
    ]


# -- shuffles


def test_pixel_shuffle_is_the_loops():
    x = uniform(2, 8, 2, 3)
    got = F.pixel_shuffle(weft.tensor(x), 2).numpy()
    assert got.shape == (2, 2, 4, 6)
    for n, c, i, j in np.ndindex(*got.shape):
        assert got[n, c, i, j] == x[n, c * 4 + i % 2 * 2 + j % 2, i // 2, j // 2]


def test_pixel_unshuffle_undoes_it():
    x = weft.tensor(uniform(2, 3, 9, 6, 4))
    there = F.pixel_shuffle(x, 3)
    np.testing.assert_array_equal(F.pixel_unshuffle(there, 3).numpy(), x.numpy())


def test_channel_shuffle_deals_groups():
    x = weft.arange(6).reshape(1, 6, 1, 1)
    assert F.channel_shuffle(x, 3).flatten().tolist() == [0, 2, 4, 1, 3, 5]


# -- interpolation


def keys(x: float) -> float:
    """Keys' cubic convolution kernel with a = -0.75."""
    a, x = -0.75, abs(x)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def tent(x: float) -> float:
    return max(0.0, 1 - abs(x))


def line(x: Any, count: int, kernel: Any, align: bool) -> Any:
    """One row resampled: each output a sum over all inputs, ends repeated."""
    n, out = len(x), np.zeros(count)
    for i in range(count):
        place = (i + 0.5) * n / count - 0.5
        if align:
            place = i * (n - 1) / (count - 1) if count > 1 else 0.0
        for j in range(-3, n + 3):
            out[i] += x[min(max(j, 0), n - 1)] * kernel(place - j)
    return out


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4, 7, 15])
def test_linear_and_cubic_are_sums_over_a_kernel(count, align):
    x = uniform(1, 1, 7)
    got = F.interpolate(weft.tensor(x), count, mode="linear", align_corners=align)
    np.testing.assert_allclose(got.numpy()[0, 0], line(x[0, 0], count, tent, align))
    square = x[0, 0][:, None] * np.ones(3)
    got = F.interpolate(
        weft.tensor(square[None, None]), (count, 3), mode="bicubic", align_corners=align
    )
    want = line(x[0, 0], count, keys, align)
    np.testing.assert_allclose(got.numpy()[0, 0, :, 1], want, atol=1e-12)


@pytest.mark.parametrize("align", [False, True])
def test_dimensions_are_independent(align):
    a, b, c = uniform(3), uniform(4), uniform(5)
    cube = weft.tensor(np.einsum("i,j,k->ijk", a, b, c)[None, None])
    got = F.interpolate(cube, (6, 3, 8), mode="trilinear", align_corners=align)
    rows = [line(x, n, tent, align) for x, n in zip((a, b, c), (6, 3, 8), strict=True)]
    want = np.einsum("i,j,k->ijk", *rows)
    np.testing.assert_allclose(got.numpy()[0, 0], want, atol=1e-12)


@pytest.mark.parametrize(("mode", "a"), [("bilinear", None), ("bicubic", -0.5)])
@pytest.mark.parametrize("count", [1, 2, 4, 7, 15])
def test_antialias_averages_what_an_output_pixel_covers(mode, a, count):
    """Means of the 9 inputs by a kernel that is as wide as an output pixel."""
    x = uniform(1, 1, 9, 1)
    step = 9 / count
    expected = np.empty(count)
    for i in range(count):
        total = weights = 0.0
        for j in range(9):
            at = abs(j + 0.5 - step * (i + 0.5)) / max(step, 1)
            near, far = 1 - at, 0.0
            if a is not None:
                near = (a + 2) * at**3 - (a + 3) * at**2 + 1
                far = a * (at**3 - 5 * at**2 + 8 * at - 4)
            w = near if at < 1 else far if at < 2 else 0.0
            total, weights = total + w * x[0, 0, j, 0], weights + w
        expected[i] = total / weights
    got = F.interpolate(weft.tensor(x), (count, 1), mode=mode, antialias=True)
    np.testing.assert_allclose(got.numpy().ravel(), expected, rtol=1e-12, atol=1e-12)


def test_nearest_takes_one_element():
    x = weft.arange(4.0).reshape(1, 1, 4)
    assert F.interpolate(x, 6).flatten().tolist() == [0, 0, 1, 2, 2, 3]
    exact = F.interpolate(x, 6, mode="nearest-exact")
    assert exact.flatten().tolist() == [0, 1, 1, 2, 3, 3]
    assert F.interpolate(x.to("uint8"), scale_factor=2).dtype is weft.uint8
    assert F.upsample(x, scale_factor=2).flatten().tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_nearest_keeps_infinity_where_it_is():
    x = weft.tensor([[[1.0, float("inf"), 3.0]]])
    out = F.interpolate(x, 6).flatten()
    assert out.isinf().tolist() == [False, False, True, True, False, False]
    assert not out.isnan().any()


def test_area_is_adaptive_pooling():
    x = weft.tensor(uniform(2, 3, 7, 5))
    got = F.interpolate(x, (3, 8), mode="area")
    np.testing.assert_array_equal(got.numpy(), F.adaptive_avg_pool2d(x, (3, 8)).numpy())


def test_a_scale_is_used_as_given_unless_recomputed():
    x = weft.arange(10.0).reshape(1, 1, 10)
    given = F.interpolate(x, scale_factor=0.35, mode="linear")
    sized = F.interpolate(x, 3, mode="linear")
    again = F.interpolate(
        x, scale_factor=0.35, mode="linear", recompute_scale_factor=True
    )
    np.testing.assert_array_equal(again.numpy(), sized.numpy())
    want = [(i + 0.5) / 0.35 - 0.5 for i in range(3)]
    np.testing.assert_allclose(given.flatten().numpy(), want, rtol=1e-6)


# -- grids


def sample(x: Any, at: list[float], kernel: Any, padding: str, align: bool) -> float:
    """One channel at one place in pixels, summed over a neighbourhood."""
    total = 0.0
    spans = [range(math.floor(a) - 2, math.floor(a) + 4) for a in at]
    for place in itertools.product(*spans):
        weight = math.prod(kernel(a - p) for a, p in zip(at, place, strict=True))
        if weight:
            inside = [
                fit(p, n, padding, align) for p, n in zip(place, x.shape, strict=True)
            ]
            total += weight * (x[tuple(inside)] if None not in inside else 0.0)
    return total


def fit(p: int, n: int, padding: str, align: bool) -> int | None:
    """The pixel that stands for one outside."""
    if padding == "border":
        return min(max(p, 0), n - 1)
    while padding == "reflection" and not 0 <= p < n:
        edge = 0.0 if align else 0.5
        p = round(-2 * edge - p) if p < 0 else round(2 * (n - 1 + edge) - p)
    return p if 0 <= p < n else None


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [True, False])
def test_grid_sample_is_the_loops(mode, padding, align):
    x, grid = uniform(2, 2, 4, 5), uniform(2, 3, 3, 2)
    got = F.grid_sample(weft.tensor(x), weft.tensor(grid), mode, padding, align)
    kernel = {"bilinear": tent, "bicubic": keys, "nearest": box}[mode]
    for n, c, i, j in np.ndindex(*got.shape):
        at = []
        for u, m in zip(grid[n, i, j][::-1], (4, 5), strict=True):
            at.append((u + 1) / 2 * (m - 1) if align else ((u + 1) * m - 1) / 2)
        want = sample(x[n, c], at, kernel, padding, align)
        np.testing.assert_allclose(got[n, c, i, j].item(), want, atol=1e-12)


def box(x: float) -> float:
    return float(-0.5 < x <= 0.5)


@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 2, 4, 5)])
def test_the_identity_samples_the_image(size, align):
    x = weft.tensor(uniform(*size))
    n = len(size) - 2
    theta = weft.tensor(np.repeat(np.eye(n, n + 1)[None], 2, 0))
    grid = F.affine_grid(theta, size, align)
    for mode in ("bilinear", "nearest"):
        got = F.grid_sample(x, grid, mode, align_corners=align)
        np.testing.assert_allclose(got.numpy(), x.numpy(), atol=1e-12)


def test_an_affine_grid_is_the_map_of_each_place():
    theta = weft.tensor([[[0.0, 2.0, 1.0], [-1.0, 0.5, 3.0]]])
    grid = F.affine_grid(theta, (1, 1, 2, 3), True)[0]
    for (i, y), (j, x) in itertools.product(enumerate((-1, 1)), enumerate((-1, 0, 1))):
        assert grid[i, j].tolist() == [2 * y + 1, -x + 0.5 * y + 3]


def test_nan_in_a_grid_counts_as_minus_one():
    x = weft.tensor([[[[5.0, 7.0]]]])
    grid = weft.tensor([[[[float("nan"), 0.0]]]])
    assert F.grid_sample(x, grid, align_corners=True).item() == 5.0


def test_far_places_are_outside():
    x = weft.ones(1, 1, 3, 3)
    grid = weft.tensor([[[[1e30, 0.0], [-float("inf"), 0.0], [0.0, 1e30]]]])
    assert F.grid_sample(x, grid, "nearest").flatten().tolist() == [0.0, 0.0, 0.0]
    assert F.grid_sample(x, grid, "nearest", "border").flatten().tolist() == [1.0] * 3


# -- derivatives

IMAGE = {
    "unfold": lambda x: F.unfold(x, (2, 3), (1, 2), 1, 2),
    "fold": lambda x: F.fold(x.reshape(2, 4, 12)[..., :6], (3, 4), 2),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.reshape(2, 4, 3, 4), 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x[..., :4, :4], 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2),
    "nearest": lambda x: F.interpolate(x, (3, 7)),
    "bilinear": lambda x: F.interpolate(x, (3, 7), mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, (6, 3), mode="bicubic", align_corners=True),
    "area": lambda x: F.interpolate(x, (3, 7), mode="area"),
}

SHAPE = (2, 2, 4, 6)


@pytest.mark.parametrize("name", IMAGE)
def test_derivatives(name):
    f = IMAGE[name]
    x = weft.tensor(uniform(*SHAPE))
    assert gradcheck(f, (x.requires_grad_(),))
    assert gradgradcheck(lambda x: f(x) ** 2, (x,))


@pytest.mark.parametrize("name", IMAGE)
def test_vmap_is_a_loop(name):
    f = IMAGE[name]
    x = weft.tensor(uniform(3, *SHAPE))
    for g in (f, grad(lambda x: (f(x) ** 2).sum())):
        got = vmap(g)(x)
        for i in range(3):
            np.testing.assert_allclose(got[i].numpy(), g(x[i]).numpy(), atol=1e-12)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [True, False])
def test_grid_sample_derivatives(mode, padding, align):
    x = weft.tensor(uniform(1, 2, 4, 5), requires_grad=True)
    grid = weft.tensor(uniform(1, 2, 3, 2), requires_grad=True)

    def f(x, grid):
        return F.grid_sample(x, grid, mode, padding, align)

    assert gradcheck(f, (x, grid))
    assert gradgradcheck(f, (x, grid))


def test_grid_sample_maps():
    x, grid = weft.tensor(uniform(3, 1, 2, 4, 5)), weft.tensor(uniform(3, 1, 2, 3, 2))
    got = vmap(F.grid_sample)(x, grid)
    shared = vmap(F.grid_sample, (None, 0))(x[0], grid)
    for i in range(3):
        np.testing.assert_allclose(got[i].numpy(), F.grid_sample(x[i], grid[i]).numpy())
        np.testing.assert_allclose(
            shared[i].numpy(), F.grid_sample(x[0], grid[i]).numpy()
        )


def test_affine_grid_derivatives():
    theta = weft.tensor(uniform(2, 2, 3), requires_grad=True)
    assert gradcheck(lambda t: F.affine_grid(t, (2, 1, 3, 4)), (theta,))


# -- mistakes

X = weft.ones(2, 4, 6, 6)
G = weft.zeros(2, 3, 3, 2)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: F.unfold(X, 7), ShapeError, "no window of size (7, 7)"),
        (lambda: F.fold(weft.ones(5, 4), 4, 2), ShapeError, "4 elements, got 5"),
        (lambda: F.fold(weft.ones(4, 5), 4, 2), ShapeError, "9 windows, got 5 columns"),
        (lambda: F.pixel_shuffle(X, 3), ShapeError, "multiples of 3 * 3, got 4"),
        (lambda: F.pixel_shuffle(X[0, 0], 2), ShapeError, "at least 3 dimensions"),
        (lambda: F.pixel_unshuffle(X, 4), ShapeError, "multiples of 4"),
        (lambda: F.channel_shuffle(X, 3), ShapeError, "3 groups, got 4"),
        (lambda: F.interpolate(X), ArgumentError, "one of size and scale_factor"),
        (lambda: F.interpolate(X, 3, 2), ArgumentError, "one of size and scale_factor"),
        (lambda: F.interpolate(X, 3, mode="linear"), ShapeError, "of 3 dimensions"),
        (lambda: F.interpolate(X[0, 0], 3), ShapeError, "3, 4 or 5 dimensions"),
        (lambda: F.interpolate(X, 3, mode="cubic"), ArgumentError, "got 'cubic'"),
        (lambda: F.interpolate(X, 3, align_corners=True), ArgumentError, "is for the"),
        (lambda: F.interpolate(X, scale_factor=0.1), ArgumentError, "size (0, 0)"),
        (lambda: F.interpolate(X, 3, antialias=True), ArgumentError, "got mode 'nea"),
        (lambda: F.interpolate(X, (3,)), ArgumentError, "or 2 of them"),
        (lambda: F.interpolate(X, scale_factor=(2.0,)), ArgumentError, "or 2 of them"),
        (lambda: F.interpolate(X.long(), 3, mode="bilinear"), DTypeError, "floating"),
        (lambda: F.interpolate(X, 3, recompute_scale_factor=True), ArgumentError,
         "needs scale_factor"),
        (lambda: F.grid_sample(X, G[0]), ShapeError, "got (2, 4, 6, 6) and (3, 3, 2)"),
        (lambda: F.grid_sample(X[:1], G), ShapeError, "one batch size, got 1 and 2"),
        (lambda: F.grid_sample(X, G.double()), DTypeError, "float32 and float64"),
        (lambda: F.grid_sample(X, G, "cubic"), ArgumentError, "got 'cubic'"),
        (lambda: F.grid_sample(X, G, padding_mode="wrap"), ArgumentError, "got 'wrap'"),
        (lambda: F.affine_grid(G, (2, 1, 3, 3)), ShapeError, "of shape (2, 2, 3)"),
        (lambda: F.affine_grid(G, (2, 1)), ShapeError, "expected size (N, C, H, W)"),
    ],
)  # fmt: skip
def test_mistakes_say_what_was_expected(call, kind, words):
    with pytest.raises(kind, match=re.escape(words)):
        call()
