"""Convolution, pooling, interpolation and sampling, against PyTorch.

Each case is an expression over ``F`` and float64 leaves x, w and b; values and
the gradients of a weighted sum of the outputs must agree.
"""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional
from weft.errors import WeftError

torch = pytest.importorskip("torch", reason="compares with PyTorch")

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def run(expression: str, arrays: dict[str, Any], lib: Any) -> tuple[list, list]:
    """The outputs, and the gradient by each floating leaf, as arrays."""
    leaves = {k: lib.tensor(v) for k, v in arrays.items()}
    for leaf in leaves.values():
        if leaf.is_floating_point():
            leaf.requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = eval(expression, {"F": lib.nn.functional, "T": lib}, leaves)
    outs = list(got) if isinstance(got, tuple) else [got]
    weights = np.random.default_rng(1).uniform(-1, 1, tuple(outs[0].shape))
    grads = []
    if outs[0].requires_grad:
        (outs[0] * lib.tensor(weights)).sum().backward()
        grads = [_gradient(leaf) for leaf in leaves.values()]
    return [o.detach().numpy() for o in outs], grads


def _gradient(leaf: Any) -> Any:
    """A leaf that nothing depends on has zeros (PyTorch) or None (Weft)."""
    return np.zeros(leaf.shape) if leaf.grad is None else leaf.grad.numpy()


def agree(expression: str, **arrays: Any) -> None:
    ours, ours_back = run(expression, arrays, weft)
    theirs, theirs_back = run(expression, arrays, torch)
    assert len(ours_back) == len(theirs_back)
    pairs = zip([*ours, *ours_back], [*theirs, *theirs_back], strict=True)
    for a, b in pairs:
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, **CLOSE)


def uniform(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).uniform(-2, 2, shape)


# -- convolutions

CONV = [
    # spatial size, kernel, stride, padding, dilation, groups
    *((1, s, k, st, p, d, g)
      for s, k, st, p, d, g in itertools.product(
          [(7,)], [(1,), (2,), (3,)], [1, 2, 3], [0, 1, 2], [1, 2], [1, 2])),
    *((2, s, k, st, p, d, g)
      for s, k, st, p, d, g in itertools.product(
          [(7, 6)], [(1, 1), (3, 2), (3, 3)], [1, (2, 1)], [0, (1, 2)],
          [1, (1, 2)], [1, 2])),
    *((3, s, k, st, p, d, g)
      for s, k, st, p, d, g in itertools.product(
          [(4, 5, 4)], [(2, 2, 3)], [1, (2, 1, 2)], [0, (0, 1, 1)], [1], [1, 2])),
]  # fmt: skip


def words(**options: Any) -> str:
    return ", ".join(f"{k}={v!r}" for k, v in options.items())


def test_conv():
    for n, size, kernel, stride, padding, dilation, groups in CONV:
        options = words(
            stride=stride, padding=padding, dilation=dilation, groups=groups
        )
        agree(
            f"F.conv{n}d(x, w, b, {options})",
            x=uniform(2, 4, *size),
            w=uniform(6, 4 // groups, *kernel),
            b=uniform(6),
        )


def test_conv_transpose():
    for n, size, kernel, stride, padding, dilation, groups in CONV:
        least = min(stride) if isinstance(stride, tuple) else stride
        for extra in {0, least - 1}:
            options = words(
                stride=stride, padding=padding, output_padding=extra, groups=groups,
                dilation=dilation,
            )  # fmt: skip
            agree(
                f"F.conv_transpose{n}d(x, w, b, {options})",
                x=uniform(2, 4, *size),
                w=uniform(4, 6 // groups, *kernel),
                b=uniform(6),
            )


@pytest.mark.parametrize(
    "expression",
    [
        "F.conv2d(x, w, padding='same')",
        "F.conv2d(x, w, padding='same', dilation=2)",
        "F.conv2d(x, w, padding='valid')",
        "F.conv2d(x[0], w, b)",
        "F.conv2d(x[:0], w, b)",
        "F.conv2d(x, w[:, :1], groups=4)",
        "F.conv1d(x[0, :, 0], w[:, :, 0])",
        "F.conv_transpose2d(x[0], w.transpose(0, 1), b, stride=2)",
        "F.conv_transpose2d(x, w.transpose(0, 1), stride=1, dilation=3, "
        "output_padding=2)",
        "F.conv_transpose2d(x, w.transpose(0, 1), stride=2, dilation=3, "
        "output_padding=2)",
    ],
)
def test_conv_forms(expression):
    agree(expression, x=uniform(2, 4, 6, 5), w=uniform(4, 4, 3, 2), b=uniform(4))


# -- pooling

SIZES = {1: (9,), 2: (7, 8), 3: (5, 6, 5)}
WINDOWS = list(itertools.product([2, 3], [None, 1, 2, 3], [0, 1], [False, True]))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_max_pool(n):
    x = uniform(2, 3, *SIZES[n])
    for (k, s, p, ceil), dilation in itertools.product(WINDOWS, [1, 2]):
        options = words(
            kernel_size=k, stride=s, padding=p, dilation=dilation, ceil_mode=ceil
        )
        agree(f"F.max_pool{n}d(x, {options}, return_indices=True)", x=x)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_avg_pool(n):
    x = uniform(2, 3, *SIZES[n])
    for (k, s, p, ceil), inner in itertools.product(WINDOWS, [True, False]):
        options = words(
            kernel_size=k, stride=s, padding=p, ceil_mode=ceil, count_include_pad=inner
        )
        agree(f"F.avg_pool{n}d(x, {options})", x=x)
        if n > 1:
            agree(f"F.avg_pool{n}d(x, {options}, divisor_override=5)", x=x)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 11])
def test_adaptive(n, count):
    x = uniform(2, 3, *SIZES[n])
    agree(f"F.adaptive_avg_pool{n}d(x, {count})", x=x)
    agree(f"F.adaptive_max_pool{n}d(x, {count}, return_indices=True)", x=x)
    agree(f"F.adaptive_avg_pool{n}d(x[0], {count})", x=x)


@pytest.mark.parametrize(
    "expression",
    [
        "F.max_pool2d(x[0], 2)",
        "F.max_pool2d(x[:0], 2)",
        "F.max_pool2d(x, (3, 2), (2, 1), (1, 0))",
        "F.max_pool2d(x.round(), 3, return_indices=True)",
        "F.max_pool2d(T.where(x > 1, float('nan'), x), 3, 1, 1, return_indices=True)",
        "F.max_pool2d(x * 0 - float('inf'), 3, 2, 1, return_indices=True)",
        "F.adaptive_max_pool2d(T.where(x > 1, float('nan'), x), 3, True)",
        "F.adaptive_max_pool2d(x.round(), 3, return_indices=True)",
        "F.adaptive_avg_pool2d(x, (None, 3))",
        "F.avg_pool2d(x[0], 3, 2, 1)",
        "F.lp_pool1d(x[0].abs(), 2, 3)",
        "F.lp_pool1d(x[0].abs(), 3, 3, 2, ceil_mode=True)",
        "F.lp_pool2d(x.abs(), 2, 3)",
        "F.lp_pool2d(x.abs(), 1.5, (2, 3), 2, ceil_mode=True)",
        "F.lp_pool3d(x.abs(), 2, 2)",
        "F.max_unpool2d(*F.max_pool2d(x[..., :6, :8], 2, return_indices=True), 2)",
        "F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, "
        "output_size=(7, 9))",
        "F.max_unpool2d(*F.max_pool2d(x[0, :, :, :7], 3, 3, 1, return_indices=True), "
        "3, 3, 1)",
        "F.max_unpool1d(*F.max_pool1d(x[0], 2, return_indices=True), 2, "
        "output_size=(7, 3, 9))",
        "F.max_unpool3d(*F.max_pool3d(x[:, :2, :6, :8], 2, return_indices=True), 2)",
    ],
)
def test_pooling_forms(expression):
    agree(expression, x=uniform(2, 3, 7, 9))


# -- windows and shuffles


@pytest.mark.parametrize("stride", [1, 2, (1, 3)])
@pytest.mark.parametrize("padding", [0, (1, 2)])
@pytest.mark.parametrize("dilation", [1, (2, 1)])
def test_unfold_and_fold(stride, padding, dilation):
    options = words(
        kernel_size=(2, 3), stride=stride, padding=padding, dilation=dilation
    )
    agree(f"F.unfold(x, {options})", x=uniform(2, 3, 6, 7))
    agree(
        f"F.fold(F.unfold(x, {options}) * 2, (6, 7), {options})", x=uniform(2, 3, 6, 7)
    )
    agree(f"F.fold(F.unfold(x, {options}), (6, 7), {options})", x=uniform(3, 6, 7))


@pytest.mark.parametrize(
    "expression",
    [
        "F.pixel_shuffle(x, 2)",
        "F.pixel_shuffle(x[0], 2)",
        "F.pixel_shuffle(x.unsqueeze(0), 2)",
        "F.pixel_unshuffle(x, 2)",
        "F.pixel_unshuffle(x[0], 2)",
        "F.channel_shuffle(x, 4)",
    ],
)
def test_shuffles(expression):
    agree(expression, x=uniform(2, 8, 6, 4))


# -- interpolation

MODES = {
    1: ["nearest", "nearest-exact", "area", "linear"],
    2: ["nearest", "nearest-exact", "area", "bilinear", "bicubic"],
    3: ["nearest", "nearest-exact", "area", "trilinear"],
}
TARGETS = [
    {"size": 1}, {"size": 3}, {"size": 8}, {"size": 12}, {"scale_factor": 2},
    {"scale_factor": 0.6}, {"scale_factor": 1.7},
    {"scale_factor": 1.7, "recompute_scale_factor": True},
]  # fmt: skip


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_interpolate(n, target):
    for mode in MODES[n]:
        corners = [None, True, False] if mode.endswith(("linear", "cubic")) else [None]
        for align in corners:
            options = words(mode=mode, align_corners=align, **target)
            agree(f"F.interpolate(x, {options})", x=uniform(2, 3, *SIZES[n]))
            if mode in ("bilinear", "bicubic"):
                smooth = f"F.interpolate(x, {options}, antialias=True)"
                agree(smooth, x=uniform(2, 3, *SIZES[n]))


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_nearest_in_single_precision(mode):
    """Places are rounded in the data's precision, so float32 is its own case."""
    for n, m in itertools.product([3, 7, 10, 13], range(1, 60)):
        x = np.arange(n, dtype=np.float32).reshape(1, 1, n)
        options = words(size=m, mode=mode)
        ours = weft.nn.functional.interpolate(weft.tensor(x), size=m, mode=mode).numpy()
        theirs = torch.nn.functional.interpolate(torch.tensor(x), size=m, mode=mode)
        np.testing.assert_array_equal(ours, theirs.numpy(), err_msg=options)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [True, False])
def test_grid_sample(mode, padding_mode, align):
    options = words(mode=mode, padding_mode=padding_mode, align_corners=align)
    agree(
        f"F.grid_sample(x, w, {options})",
        x=uniform(2, 3, 5, 6),
        w=uniform(2, 4, 7, 2) * 1.7,
    )
    agree(
        f"F.grid_sample(x, w, {options})", x=uniform(2, 3, 1, 4), w=uniform(2, 3, 3, 2)
    )
    if mode != "bicubic":
        agree(
            f"F.grid_sample(x, w, {options})",
            x=uniform(2, 3, 4, 5, 3),
            w=uniform(2, 3, 2, 4, 3),
        )


@pytest.mark.parametrize("align", [True, False])
def test_affine_grid(align):
    agree(f"F.affine_grid(x, (2, 3, 4, 5), {align})", x=uniform(2, 2, 3))
    agree(f"F.affine_grid(x, (2, 3, 4, 1, 5), {align})", x=uniform(2, 3, 4))


# -- what is refused


@pytest.mark.parametrize(
    "expression",
    [
        "F.conv2d(x, w[:, :3])",
        "F.conv2d(x, w, groups=3)",
        "F.conv2d(x, w, groups=0)",
        "F.conv2d(x, w, b[:3])",
        "F.conv2d(x, w, stride=0)",
        "F.conv2d(x, w, padding=-1)",
        "F.conv2d(x, w, padding='same', stride=2)",
        "F.conv2d(x, w, padding='full')",
        "F.conv2d(x, w, dilation=0)",
        "F.conv2d(x, w, dilation=9)",
        "F.conv2d(x, w, stride=(1, 1, 1))",
        "F.conv2d(x, w.float())",
        "F.conv2d(x, w[0])",
        "F.conv2d(x[0, 0], w)",
        "F.conv_transpose2d(x, w[:3])",
        "F.conv_transpose2d(x, w, output_padding=1)",
        "F.conv_transpose2d(x, w, padding=9)",
        "F.max_pool2d(x, 0)",
        "F.max_pool2d(x, 2, 0)",
        "F.max_pool2d(x, 2, padding=2)",
        "F.max_pool2d(x, 9)",
        "F.max_pool2d(x[0, 0], 2)",
        "F.avg_pool2d(x, 9)",
        "F.avg_pool2d(x, 2, divisor_override=0)",
        "F.avg_pool2d(x, 2, padding=2)",
        "F.adaptive_avg_pool2d(x, (1, 2, 3))",
        "F.adaptive_avg_pool2d(x[0, 0], 2)",
        "F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)",
        "F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, "
        "output_size=(3, 8))",
        "F.unfold(x, 9)",
        "F.fold(x[0, 0], (5, 5), 2)",
        "F.pixel_shuffle(x, 3)",
        "F.pixel_unshuffle(x, 4)",
        "F.channel_shuffle(x, 3)",
        "F.interpolate(x)",
        "F.interpolate(x, 3, 2.0)",
        "F.interpolate(x, 3, mode='linear')",
        "F.interpolate(x, 3, mode='nearest', align_corners=True)",
        "F.interpolate(x, 3, mode='cubic')",
        "F.interpolate(x, (3, 3, 3))",
        "F.interpolate(x, scale_factor=0.01)",
        "F.grid_sample(x, w)",
        "F.grid_sample(x, w[..., :2], mode='cubic')",
        "F.affine_grid(x, (2, 3, 4, 5))",
    ],
)
def test_both_refuse(expression):
    arrays = {"x": uniform(2, 4, 6, 5), "w": uniform(4, 4, 3, 3), "b": uniform(4)}
    with pytest.raises((RuntimeError, ValueError, NotImplementedError, TypeError)):
        run(expression, arrays, torch)
    with pytest.raises(WeftError):
        run(expression, arrays, weft)
