"""Convolutions: values by plain loops, derivatives by differences, and mistakes."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

import weft
from weft.autograd import gradcheck, gradgradcheck
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.func import grad, jvp, vmap
from weft.nn import functional as F
from weft.ops import conv as records

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {
    1: F.conv_transpose1d,
    2: F.conv_transpose2d,
    3: F.conv_transpose3d,
}
SIZES = {1: (7,), 2: (5, 6), 3: (3, 4, 4)}


def uniform(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).uniform(-2, 2, shape)


def leaf(*shape: int) -> weft.Tensor:
    return weft.tensor(uniform(*shape), requires_grad=True)


def loops(x: Any, w: Any, stride: int, pad: int, dilation: int, groups: int) -> Any:
    """A convolution, one output at a time over an input padded with zeros."""
    spatial = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *[(pad, pad)] * spatial])
    spans = [dilation * (k - 1) for k in w.shape[2:]]
    counts = [
        len(range(0, n - span, stride))
        for n, span in zip(x.shape[2:], spans, strict=True)
    ]
    out = np.zeros((x.shape[0], w.shape[0], *counts))
    each, per = w.shape[1], w.shape[0] // groups
    for n, o, *at in np.ndindex(*out.shape):
        first = o // per * each
        window = tuple(
            slice(a * stride, a * stride + span + 1, dilation)
            for a, span in zip(at, spans, strict=True)
        )
        part = x[(n, slice(first, first + each), *window)]
        out[(n, o, *at)] = (part * w[o]).sum()
    return out


def spread(y: Any, w: Any, stride: int, pad: int, dilation: int, groups: int) -> Any:
    """A transposed convolution: each input adds its window, then padding goes."""
    each, per = w.shape[1], w.shape[0] // groups
    size = [
        (n - 1) * stride + dilation * (k - 1) + 1
        for n, k in zip(y.shape[2:], w.shape[2:], strict=True)
    ]
    out = np.zeros((y.shape[0], each * groups, *size))
    for n, o, *at in np.ndindex(*y.shape):
        for c, *tap in np.ndindex(*w.shape[1:]):
            to = [a * stride + t * dilation for a, t in zip(at, tap, strict=True)]
            out[(n, o // per * each + c, *to)] += y[(n, o, *at)] * w[(o, c, *tap)]
    inner = tuple(slice(pad, n - pad) for n in size)
    return out[(slice(None), slice(None), *inner)]


OPTIONS = list(itertools.product([1, 2], [0, 1], [1, 2], [1, 2]))


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize(("stride", "padding", "dilation", "groups"), OPTIONS)
def test_conv_is_the_loops(spatial, stride, padding, dilation, groups):
    x, w = uniform(2, 4, *SIZES[spatial]), uniform(6, 4 // groups, *(2,) * spatial)
    b = uniform(6)
    got = CONV[spatial](*map(weft.tensor, (x, w, b)), stride, padding, dilation, groups)
    want = loops(x, w, stride, padding, dilation, groups)
    want += b.reshape(-1, *(1,) * spatial)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize(("stride", "padding", "dilation", "groups"), OPTIONS)
def test_conv_transpose_is_the_loops(spatial, stride, padding, dilation, groups):
    y, w = uniform(2, 4, *SIZES[spatial]), uniform(4, 6 // groups, *(2,) * spatial)
    got = TRANSPOSED[spatial](
        weft.tensor(y), weft.tensor(w), None, stride, padding, 0, groups, dilation
    )
    want = spread(y, w, stride, padding, dilation, groups)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-12)


def test_output_padding_adds_at_the_end():
    y, w = weft.tensor(uniform(1, 2, 4)), weft.tensor(uniform(2, 3, 3))
    short = F.conv_transpose1d(y, w, stride=3, padding=1)
    long = F.conv_transpose1d(y, w, stride=3, padding=1, output_padding=2)
    assert long.shape == (1, 3, short.shape[2] + 2)
    np.testing.assert_allclose(long[..., :-2].numpy(), short.numpy())
    whole = spread(y.numpy(), w.numpy(), 3, 0, 1, 1)
    np.testing.assert_allclose(long[..., :-1].numpy(), whole[..., 1:])


@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
def test_same_keeps_the_size(kernel, dilation):
    x, w = uniform(1, 2, 9), uniform(3, 2, kernel)
    got = F.conv1d(weft.tensor(x), weft.tensor(w), padding="same", dilation=dilation)
    span = dilation * (kernel - 1)
    wide = np.pad(x, [(0, 0), (0, 0), (span // 2, span - span // 2)])
    assert got.shape == (1, 3, 9)
    np.testing.assert_allclose(got.numpy(), loops(wide, w, 1, 0, dilation, 1))


def test_padding_may_differ_between_the_ends_of_an_axis():
    x, w = uniform(1, 2, 6, 5), uniform(3, 2, 3, 2)
    got = F.conv2d(weft.tensor(x), weft.tensor(w), None, 2, ((1, 0), (0, 2)))
    wide = np.pad(x, [(0, 0), (0, 0), (1, 0), (0, 2)])
    np.testing.assert_allclose(got.numpy(), loops(wide, w, 2, 0, 1, 1))
    with pytest.raises(weft.errors.ArgumentError, match="expected 2 pairs"):
        F.conv2d(weft.tensor(x), weft.tensor(w), None, 2, ((1, 0),))


def test_batch_may_be_missing_or_empty():
    x, w = weft.tensor(uniform(2, 5, 5)), weft.tensor(uniform(3, 2, 3, 3))
    one = F.conv2d(x, w)
    np.testing.assert_array_equal(one.numpy(), F.conv2d(x[None], w)[0].numpy())
    assert F.conv2d(weft.zeros(0, 2, 5, 5).double(), w).shape == (0, 3, 3, 3)
    back = F.conv_transpose2d(one, w)
    np.testing.assert_array_equal(
        back.numpy(), F.conv_transpose2d(one[None], w)[0].numpy()
    )


def test_an_empty_batch_has_zero_weight_gradients():
    w = leaf(3, 2, 2)
    F.conv1d(weft.zeros(0, 2, 5).double(), w).sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), np.zeros((3, 2, 2)))


# -- derivatives

CASES = [
    # x, w, stride, padding, dilation, groups
    ((2, 2, 6), (4, 1, 3), 1, 1, 1, 2),
    ((1, 2, 5, 4), (1, 2, 3, 2), 1, 1, 1, 1),
    ((1, 1, 5, 5), (3, 1, 2, 2), 1, 0, 2, 1),
    ((1, 2, 5, 6), (2, 2, 3, 2), (2, 3), (2, 0), 1, 1),
    ((1, 2, 3, 3), (2, 2, 1, 1), 1, 0, 1, 1),
    ((1, 3, 4, 4), (3, 1, 3, 3), 1, 1, 1, 3),
    ((1, 1, 3, 3, 3), (2, 1, 2, 2, 2), 1, 1, 1, 1),
]


@pytest.mark.parametrize(("x", "w", "stride", "padding", "dilation", "groups"), CASES)
def test_conv_derivatives(x, w, stride, padding, dilation, groups):
    conv = CONV[len(x) - 2]
    inputs = (leaf(*x), leaf(*w), leaf(w[0]))

    def f(x, w, b):
        return conv(x, w, b, stride, padding, dilation, groups)

    assert gradcheck(f, inputs)
    assert gradgradcheck(f, inputs)


@pytest.mark.parametrize(("stride", "padding", "extra", "dilation", "groups"), [
    (1, 0, 0, 1, 1), (2, 1, 1, 1, 2), (3, 1, 2, 1, 1), (1, 1, 1, 2, 2), (2, 0, 2, 3, 1),
])  # fmt: skip
def test_conv_transpose_derivatives(stride, padding, extra, dilation, groups):
    inputs = (leaf(2, 4, 3, 4), leaf(4, 2, 3, 2), leaf(2 * groups))

    def f(x, w, b):
        return F.conv_transpose2d(x, w, b, stride, padding, extra, groups, dilation)

    assert gradcheck(f, inputs)
    assert gradgradcheck(f, inputs)


def test_forward_mode_is_the_convolution_of_tangents():
    x, w, t, u = (weft.tensor(uniform(*s)) for s in ((1, 2, 6), (3, 2, 2)) * 2)
    _, out = jvp(F.conv1d, (x, w), (t, u))
    want = F.conv1d(t, w) + F.conv1d(x, u)
    np.testing.assert_allclose(out.numpy(), want.numpy())


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("in_dims", [(0, None), (None, 0), (0, 0), (1, 2)])
def test_vmap_is_a_loop(groups, in_dims):
    x, w = uniform(3, 2, 4, 6), uniform(3, 4, 4 // groups, 2)
    moved = [
        weft.tensor(a[0] if d is None else np.moveaxis(a, 0, d))
        for a, d in zip((x, w), in_dims, strict=True)
    ]
    for f in (
        lambda x, w: F.conv1d(x, w, padding=1, groups=groups),
        lambda x, w: F.conv_transpose1d(x, w, stride=2, groups=groups),
        lambda x, w: grad(lambda w: F.conv1d(x, w, groups=groups).square().sum())(w),
        lambda x, w: grad(lambda x: F.conv1d(x, w, groups=groups).square().sum())(x),
    ):
        got = vmap(f, in_dims)(*moved)
        for i in range(3):
            row = [
                weft.tensor(a[0 if d is None else i])
                for a, d in zip((x, w), in_dims, strict=True)
            ]
            np.testing.assert_allclose(got[i].numpy(), f(*row).numpy(), atol=1e-12)


# -- the ways of evaluating agree


@pytest.mark.parametrize("block", [1, 400, 1 << 20])
@pytest.mark.parametrize("waste", [0.0, 9.0])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_blocks_and_layouts(monkeypatch, block, waste, groups):
    monkeypatch.setattr(records, "BLOCK", block)
    monkeypatch.setattr(records, "WASTE", waste)
    x = weft.tensor(uniform(3, 4, 5, 4), requires_grad=True)
    w = weft.tensor(uniform(8, 4 // groups, 3, 2), requires_grad=True)
    out = F.conv2d(x, w, padding=1, groups=groups)
    want = loops(x.detach().numpy(), w.detach().numpy(), 1, 1, 1, groups)
    np.testing.assert_allclose(out.detach().numpy(), want, atol=1e-12)
    g = uniform(*out.shape)
    out.backward(weft.tensor(g))
    back = spread(g, w.detach().numpy(), 1, 1, 1, groups)
    np.testing.assert_allclose(x.grad.numpy(), back, atol=1e-12)
    assert gradcheck(lambda w: F.conv2d(x.detach(), w, padding=1, groups=groups), (w,))


def test_infinity_stays_in_its_windows():
    x = uniform(1, 1, 5, 6)
    x[0, 0, 2, 5] = np.inf
    w = weft.tensor(np.ones((1, 1, 3, 3)), requires_grad=True)
    out = F.conv2d(weft.tensor(x), w)
    assert np.isinf(out.detach().numpy()).sum() == 3  # the last column of windows
    out.sum().backward()
    # only windows' last columns see the last column of x
    np.testing.assert_array_equal(
        np.isfinite(w.grad.numpy()[0, 0]), [[True, True, False]] * 3
    )


def test_infinite_weights_reach_only_their_taps():
    w = np.ones((2, 1, 2, 2))
    w[0, 0, 0, 0] = np.inf
    x = weft.ones(1, 1, 4, 4).double().requires_grad_()
    out = F.conv2d(x, weft.tensor(w))
    g = np.zeros(out.shape)
    g[0, 0, 1, 2] = 1.0
    out.backward(weft.tensor(g))
    finite = np.isfinite(x.grad.numpy()[0, 0])
    want = ~np.isnan(spread_naive(g, w))
    np.testing.assert_array_equal(np.isnan(x.grad.numpy()[0, 0]), ~want)
    assert not finite[1, 2]


def spread_naive(g: Any, w: Any) -> Any:
    with np.errstate(invalid="ignore"):
        return spread(g, w, 1, 0, 1, 1)[0, 0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_summed_in_single_precision(dtype):
    x = weft.ones(1, 4096, 1).to(dtype)
    w = weft.full((1, 4096, 1), 0.25).to(dtype)
    assert F.conv1d(x, w).item() == 1024.0  # a running sum of halves stops sooner
    assert F.conv1d(x, w).dtype is x.dtype


def test_integers_convolve():
    x, w = weft.arange(5).reshape(1, 1, 5), weft.tensor([[[1, 10]]])
    assert F.conv1d(x, w).flatten().tolist() == [10, 21, 32, 43]


def test_odd_memory_gives_the_same():
    x, w = uniform(5, 6, 2, 3), uniform(2, 2, 3, 4)
    odd_x, odd_w = (
        weft.tensor(x).permute(3, 2, 1, 0),
        weft.tensor(w).permute(3, 0, 2, 1),
    )
    even = F.conv2d(odd_x.contiguous(), odd_w.contiguous())
    np.testing.assert_allclose(F.conv2d(odd_x, odd_w).numpy(), even.numpy())


# -- mistakes

X, W = weft.ones(2, 4, 6, 6), weft.ones(8, 4, 3, 3)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: F.conv2d(X, W[:, :3]), ShapeError, "input of 3 channels, got 4"),
        (lambda: F.conv2d(X, W, groups=2), ShapeError, "of 8 channels, got 4"),
        (lambda: F.conv2d(X, W[:, :1], groups=3), ArgumentError, "groups must divide"),
        (lambda: F.conv2d(X, W, groups=0), ArgumentError, "groups to be at least 1"),
        (lambda: F.conv2d(X, W, dilation=3), ShapeError, "spans (7, 7) does not fit"),
        (lambda: F.conv2d(X, W, padding="same", stride=2), ArgumentError, "stride 1"),
        (lambda: F.conv2d(X, W, padding="full"), ArgumentError, "'same', 'valid'"),
        (lambda: F.conv2d(X, W, padding=-1), ArgumentError, "padding of at least 0"),
        (lambda: F.conv2d(X, W, stride=(1, 2, 3)), ArgumentError, "int or 2 ints"),
        (lambda: F.conv2d(X, W, stride=1.5), DTypeError, "int or 2 ints"),
        (lambda: F.conv2d(X, W, weft.ones(4)), ShapeError, "bias of shape (8,)"),
        (lambda: F.conv2d(X, W, weft.ones(8).double()), DTypeError, "input and bias"),
        (lambda: F.conv2d(X.double(), W), DTypeError, "float64 and float32"),
        (lambda: F.conv2d(X[0, 0], W), ShapeError, "got shape (6, 6)"),
        (lambda: F.conv2d(X, W[0]), ShapeError, "weight tensor of 4 dimensions"),
        (lambda: F.conv_transpose2d(X, W), ShapeError, "of 8 channels, got 4"),
        (lambda: F.conv_transpose2d(X, W[:4], padding=4), ShapeError, "size (0, 0)"),
        (lambda: F.conv_transpose2d(X, W[:4], output_padding=1), ArgumentError,
         "output_padding smaller than stride"),
    ],
)  # fmt: skip
def test_mistakes_say_what_was_expected(call, kind, words):
    with pytest.raises(kind, match=re.escape(words)):
        call()
