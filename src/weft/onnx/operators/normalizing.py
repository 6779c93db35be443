"""Normalization: by batches, layers, groups, neighbours; and dropout."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.nn import functional as F
from weft.onnx.errors import ModelError
from weft.onnx.registry import operator
from weft.onnx.types import number


def _channels(v: Tensor, x: Tensor) -> Tensor:
    return v.reshape(1, -1, *(1,) * (x.ndim - 2))


@operator("BatchNormalization", frozen=(3, 4))
def batch_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, *,
    epsilon: float = 1e-5, momentum: float = 0.9, spatial: int = 1,
    training_mode: int = 0, is_test: int = 0, outputs: int = 1, opset: int,
) -> Any:  # fmt: skip
    """Channels of mean 0 and variance 1, scaled and moved."""
    training_mode = not is_test if opset < 7 else training_mode
    if not spatial:
        raise ModelError("statistics of each element (spatial=0) are not supported")
    kept = mean, var
    if training_mode:
        axes = [k for k in range(x.ndim) if k != 1]
        wide = x.float()
        mean = wide.mean(axes)
        var = ((wide - _channels(mean, x)) ** 2).mean(axes)
    scaled = (x - _channels(mean, x)) / weft.sqrt(_channels(var, x) + epsilon)
    y = (scaled * _channels(scale, x) + _channels(bias, x)).to(x.dtype)
    if not training_mode or outputs == 1:
        return y
    new = (m * momentum + now * (1 - momentum)
           for m, now in zip(kept, (mean, var), strict=True))  # fmt: skip
    return (y, *(v.to(m.dtype) for v, m in zip(new, kept, strict=True)))


@operator("InstanceNormalization")
def instance_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5
) -> Tensor:  # fmt: skip
    """Channels of each example of mean 0 and variance 1."""
    axes = list(range(2, x.ndim))
    centred = x - x.mean(axes, keepdim=True)
    scaled = centred / weft.sqrt((centred * centred).mean(axes, keepdim=True) + epsilon)
    return scaled * _channels(scale, x) + _channels(bias, x)


@operator("GroupNormalization")
def group_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int,
    epsilon: float = 1e-5, stash_type: int = 1, opset: int,
) -> Tensor:  # fmt: skip
    """Groups of channels of mean 0 and variance 1."""
    if opset < 21:  # a number for each group
        each = x.shape[1] // num_groups
        scale, bias = (v.repeat_interleave(each) for v in (scale, bias))
    y = F.group_norm(x.float(), num_groups, None, None, epsilon).to(x.dtype)
    return y * _channels(scale, x) + _channels(bias, x)


@operator("LayerNormalization")
def layer_normalization(
    x: Tensor, scale: Tensor, bias: Any = None, *, axis: int = -1,
    epsilon: float = 1e-5, stash_type: int = 1, outputs: int = 1,
) -> Any:  # fmt: skip
    """The last axes of mean 0 and variance 1."""
    axes = list(range(axis % x.ndim, x.ndim))
    wide = x.float() if stash_type == 1 and x.dtype.itemsize < 4 else x
    if outputs == 1 and wide is x and tuple(scale.shape) == tuple(x.shape[axes[0] :]):
        return F.layer_norm(x, tuple(scale.shape), scale, bias, epsilon)
    mean = wide.mean(axes, keepdim=True)
    centred = wide - mean
    inverse = 1 / weft.sqrt((centred * centred).mean(axes, keepdim=True) + epsilon)
    y = (centred * inverse).to(x.dtype) * scale
    y = y if bias is None else y + bias
    return y if outputs == 1 else (y, mean, inverse)


@operator("RMSNormalization")
def rms_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:  # fmt: skip
    """The last axes divided by the root of their mean square."""
    axes = list(range(axis % x.ndim, x.ndim))
    wide = x.float() if stash_type == 1 and x.dtype.itemsize < 4 else x
    y = wide / weft.sqrt((wide * wide).mean(axes, keepdim=True) + epsilon)
    return y.to(x.dtype) * scale


@operator("LRN")
def lrn(
    x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Tensor:
    """Elements divided by a power of the squares of neighbouring channels."""
    low = (size - 1) // 2
    padded = F.pad(x * x, [0, 0] * (x.ndim - 2) + [low, size - 1 - low])
    total = padded.narrow(1, 0, x.shape[1])
    for k in range(1, size):
        total = total + padded.narrow(1, k, x.shape[1])
    return x / (bias + alpha / size * total) ** beta


@operator("LpNormalization")
def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """Vectors of length 1; those of length 0 stay."""
    if p == 1:
        length = x.abs().sum(axis, keepdim=True)
    else:
        length = weft.sqrt((x * x).sum(axis, keepdim=True))
    return weft.where(length == 0, weft.zeros_like(x), x / length)


@operator("MeanVarianceNormalization")
def mean_variance_normalization(x: Tensor, *, axes: Any = (0, 2, 3)) -> Tensor:
    """Axes of mean 0 and standard deviation 1."""
    mean = x.mean(list(axes), keepdim=True)
    deviation = weft.sqrt((x * x).mean(list(axes), keepdim=True) - mean * mean)
    return (x - mean) / (deviation + 1e-9)


@operator("Dropout", static=(1, 2))
def dropout(
    x: Tensor, ratio_: Any = None, mode: Any = None, *, ratio: float = 0.5,
    seed: int | None = None, is_test: int = 0,
    outputs: int = 1, opset: int,
) -> Any:  # fmt: skip
    """Elements set to zero at random, in training alone."""
    share = number(ratio_, ratio)
    runs = bool(number(mode, False)) if opset >= 12 else opset < 7 and not is_test
    if not runs or share == 0:
        kept = weft.ones(x.shape, dtype=weft.bool if opset >= 10 else x.dtype)
        return (x, kept) if outputs > 1 else x
    keep = weft.rand(x.shape) >= share
    scale = 0.0 if share >= 1 else 1 / (1 - share)
    y = weft.where(keep, x * scale, weft.zeros_like(x))
    return (y, keep) if outputs > 1 else y
