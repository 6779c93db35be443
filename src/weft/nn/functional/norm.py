"""Normalisation over batches, layers, groups and instances."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import weft
from weft import Tensor
from weft.core.eager_kernels import fused
from weft.errors import ArgumentError, ShapeError
from weft.ops.copies import in_float32


def _per_channel(value: Tensor | None, ndim: int) -> Tensor | None:
    """A vector of channels, shaped to meet (N, C, ...)."""
    return None if value is None else value.reshape((1, -1) + (1,) * (ndim - 2))


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        x = x * weight
    return x if bias is None else x + bias


def _standard(x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    """x with mean 0 and variance 1 along dimensions."""
    off = x - x.mean(dims, keepdim=True)
    return off * weft.rsqrt((off * off).mean(dims, keepdim=True) + eps)


def _fused(
    name: str,
    plain: Callable[..., Tensor],
    input: Tensor,
    *scale: Tensor | None,
    key: Any,
) -> Tensor:
    """A composition as one kernel, where that pays, in float32 for half types."""
    kernel = functools.partial(fused, name, plain, key=key)
    return _scaled_in_float32(kernel, input, *scale)


def _scaled_in_float32(
    fn: Callable[..., Tensor], input: Tensor, *scale: Tensor | None
) -> Tensor:
    """``fn`` in float32; a half-precision input keeps its dtype beside wider scales."""
    out = in_float32(fn, input, *scale)
    half = input.dtype in (weft.float16, weft.bfloat16)
    return out.to(input.dtype) if half else out


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Each channel normalised over the batch and all positions.

    While training, the running statistics move by ``momentum`` towards the
    batch's (the variance unbiased); else they are what normalises.

    >>> x = weft.tensor([[1.0], [3.0]])
    >>> weft.nn.functional.batch_norm(x, None, None, training=True, eps=0.0)
    tensor([[-1.],
            [ 1.]])
    """
    if input.ndim < 2:
        raise ShapeError(f"batch_norm: expected (N, C, ...), got shape {input.shape}")
    channels = input.shape[1]
    for name, value in (("weight", weight), ("running_mean", running_mean)):
        if value is not None and value.numel() != channels:
            raise ShapeError(
                f"batch_norm: {name} has {value.numel()} elements, but the input of "
                f"shape {input.shape} has {channels} channels"
            )
    for name, value in (("mean", running_mean), ("var", running_var)):
        if not training and value is None:
            raise ArgumentError(
                f"batch_norm: expected running_{name} in evaluation, got None; with "
                "training=True the batch's own statistics normalise"
            )
    dims = (0, *range(2, input.ndim))
    count = math.prod(input.shape[d] for d in dims)
    if training and count <= 1:
        raise ShapeError(
            "batch_norm: expected more than one value per channel when training, got "
            f"input of shape {input.shape}"
        )

    def by_batch(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Any:
        mean = x.mean(dims, keepdim=True)
        off = x - mean
        var = (off * off).mean(dims, keepdim=True)
        return _affine(off * weft.rsqrt(var + eps), weight, bias), mean, var

    def by_running(x: Tensor, mean: Any, var: Any, *scale: Tensor | None) -> Tensor:
        return _affine((x - mean) * weft.rsqrt(var + eps), *scale)

    scale = _per_channel(weight, input.ndim), _per_channel(bias, input.ndim)
    if not training:
        running = [_per_channel(r, input.ndim) for r in (running_mean, running_var)]
        return _scaled_in_float32(by_running, input, *running, *scale)

    def normalized(*tensors: Tensor | None) -> Tensor:
        out, mean, var = fused("batch_norm", by_batch, *tensors, key=eps)
        if running_mean is not None and running_var is not None:
            _move(running_mean, mean, momentum)
            _move(running_var, var * (count / (count - 1)), momentum)
        return out

    return _scaled_in_float32(normalized, input, *scale)


def _move(running: Tensor, value: Tensor, momentum: float) -> None:
    """A running statistic moved towards a new value."""
    with weft.no_grad():
        target = value.detach().reshape(running.shape).to(running.dtype)
        running.copy_(running * (1 - momentum) + target * momentum)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Each channel of each example normalised over its positions.

    >>> weft.nn.functional.instance_norm(weft.rand(2, 3, 4)).shape
    (2, 3, 4)
    """
    if input.ndim < 3:
        raise ShapeError(
            f"instance_norm: expected (N, C, ...) with positions, got {input.shape}"
        )
    dims = tuple(range(2, input.ndim))
    count = math.prod(input.shape[2:])
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise ArgumentError(
                "instance_norm: expected running_mean and running_var where "
                "use_input_stats is False, got None"
            )
        return batch_norm(input, running_mean, running_var, weight, bias, False, 0, eps)
    if count <= 1:
        raise ShapeError(
            "instance_norm: expected more than one position per channel, got input of "
            f"shape {input.shape}"
        )
    if running_mean is not None and running_var is not None:
        mean = input.mean(dims)
        _move(running_mean, mean.mean(0), momentum)
        _move(running_var, input.var(dims).mean(0), momentum)

    def plain(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        out = _standard(x, dims, eps)
        return _affine(out, _per_channel(weight, x.ndim), _per_channel(bias, x.ndim))

    return _fused("instance_norm", plain, input, weight, bias, key=(dims, eps))


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalised over the last dimensions.

    >>> weft.nn.functional.layer_norm(weft.tensor([[1.0, 3.0]]), (2,), eps=0.0)
    tensor([[-1.,  1.]])
    """
    dims = _last("layer_norm", input, normalized_shape)

    def plain(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        return _affine(_standard(x, dims, eps), weight, bias)

    return _fused("layer_norm", plain, input, weight, bias, key=(dims, eps))


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Divided by the root of the mean square over the last dimensions.

    >>> weft.nn.functional.rms_norm(weft.tensor([3.0, 4.0]), (2,))
    tensor([0.8485, 1.1314])
    """
    dims = _last("rms_norm", input, normalized_shape)
    small = weft.finfo(input.dtype).eps if eps is None else eps

    def plain(x: Tensor, weight: Tensor | None) -> Tensor:
        out = x * weft.rsqrt((x * x).mean(dims, keepdim=True) + small)
        return _affine(out, weight, None)

    return _fused("rms_norm", plain, input, weight, key=(dims, small))


def _last(name: str, input: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    wanted = tuple(shape)
    if not wanted or input.shape[-len(wanted) :] != wanted:
        raise ShapeError(
            f"{name}: expected the last dimensions to be {wanted}, got input of shape "
            f"{input.shape}"
        )
    return tuple(range(-len(wanted), 0))


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalised over groups of channels and all positions.

    >>> weft.nn.functional.group_norm(weft.rand(2, 6, 4), 3).shape
    (2, 6, 4)
    """
    if input.ndim < 2 or num_groups < 1 or input.shape[1] % num_groups:
        raise ArgumentError(
            f"group_norm: {num_groups} groups do not divide the channels of shape "
            f"{input.shape}"
        )
    channels = num_groups, input.shape[1] // num_groups
    positions = math.prod(input.shape[2:])
    grouped = input.reshape((input.shape[0], *channels, positions))
    scale = [None if p is None else p.reshape((*channels, 1)) for p in (weight, bias)]

    def plain(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        return _affine(_standard(x, (2, 3), eps), weight, bias)

    out = _fused("group_norm", plain, grouped, *scale, key=eps)
    return out.reshape(input.shape)


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Divided by a power of the mean square over neighbouring channels.

    >>> weft.nn.functional.local_response_norm(weft.ones(1, 3, 2), 3).shape
    (1, 3, 2)
    """
    if input.ndim < 3:
        raise ShapeError(
            f"local_response_norm: expected (N, C, ...), got shape {input.shape}"
        )

    def plain(x: Tensor) -> Tensor:
        ends = (0, 0) * (x.ndim - 2) + (size // 2, (size - 1) // 2)
        padded = weft.pad(x * x, ends)
        total = padded.narrow(1, 0, x.shape[1])
        for shift in range(1, size):
            total = total + padded.narrow(1, shift, x.shape[1])
        return x / (total * (alpha / size) + k) ** beta

    return in_float32(plain, input)


def normalize(
    input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12
) -> Tensor:
    """Divided by its p-norm along a dimension (0 stays 0, with gradient 0).

    >>> weft.nn.functional.normalize(weft.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """

    def plain(x: Tensor) -> Tensor:
        size = x.norm(p, dim, keepdim=True)
        return x * weft.where(size == 0, 0.0, 1 / weft.clamp(size, min=eps))

    return in_float32(plain, input)
