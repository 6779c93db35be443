"""Pooling: the largest, the mean or a norm of each window, and max pooling undone."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from weft import Tensor, reshape, scatter
from weft import dtype as dtypes
from weft.core.autocast import widened
from weft.core.mode import mode
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.nn.functional.conv import sizes_of, with_batch, without_batch
from weft.ops.conv import Sizes
from weft.ops.elementwise import check_accepts
from weft.ops.operands import as_index
from weft.ops.pooling import (
    adaptive_bounds,
    adaptive_max_index_op,
    max_pool_index_op,
    max_pool_op,
    overlap,
    picked,
)
from weft.ops.require import require_index
from weft.ops.resample import Taps, resample_op

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
]

# -- arguments


def _strides(name: str, stride: Any, kernel: Sizes) -> Sizes:
    """The given strides; those of windows side by side if there are none."""
    if stride is None or stride in ((), []):
        return kernel
    return sizes_of(name, "stride", stride, len(kernel), 1)


def _check_input(name: str, x: Tensor) -> None:
    if 0 in x.shape[1:]:
        raise ShapeError(
            f"{name}: expected channels and sizes of at least 1, got shape {x.shape}"
        )


def _pooled_counts(
    name: str, size: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes,
    dilation: Sizes, ceil_mode: bool,
) -> Sizes:  # fmt: skip
    """The number of windows; the last must start inside, or in the padding."""
    counts = []
    for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True):
        span = d * (k - 1) + 1
        if 2 * p > span:
            raise ArgumentError(
                f"{name}: expected padding of at most half the kernel, got padding "
                f"{padding} for a kernel that spans {span}"
            )
        count = (n + 2 * p - span + (s - 1 if ceil_mode else 0)) // s + 1
        if ceil_mode and (count - 1) * s >= n + p:
            count -= 1
        counts.append(count)
    if any(n < 1 for n in counts):
        raise ShapeError(
            f"{name}: no window of size {kernel} (dilation {dilation}, padding "
            f"{padding}) fits an input of size {size}"
        )
    return tuple(counts)


# -- the largest element


def _max_pool(
    spatial: int, input: Tensor, kernel_size: Any, stride: Any, padding: Any,
    dilation: Any, ceil_mode: bool, return_indices: bool,
) -> Any:  # fmt: skip
    name = f"max_pool{spatial}d"
    x, had = with_batch(name, input, spatial)
    check_accepts(name, "real number", x.dtype)
    _check_input(name, x)
    kernel = sizes_of(name, "kernel_size", kernel_size, spatial, 1)
    steps = _strides(name, stride, kernel)
    pads = sizes_of(name, "padding", padding, spatial)
    spread = sizes_of(name, "dilation", dilation, spatial, 1)
    counts = _pooled_counts(name, x.shape[2:], kernel, steps, pads, spread, ceil_mode)
    windows = {
        "kernel": kernel, "stride": steps, "padding": pads, "dilation": spread,
        "counts": counts,
    }  # fmt: skip
    if not return_indices and (
        not overlap(kernel, steps, spread) or _no_gradient(x)
    ):  # where windows overlap, the gradient needs indices
        return without_batch(max_pool_op(x, **windows), had)
    index = max_pool_index_op(x, **windows)
    out = without_batch(picked(x, index), had)
    return (out, without_batch(index, had)) if return_indices else out


def _no_gradient(x: Tensor) -> bool:
    """Whether it is known that no derivative of x's pool is asked for."""
    eager = x._interpreter is None and mode.capture is None
    return eager and not x.requires_grad


def max_pool1d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest element of each window of (N, C, L) or (C, L).

    >>> x = weft.tensor([[1.0, 3.0, 2.0, 0.0]])
    >>> weft.nn.functional.max_pool1d(x, 2)
    tensor([[3., 2.]])
    """
    return _max_pool(
        1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


def max_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest element of each window of (N, C, H, W) or (C, H, W).

    With ``return_indices`` also its index into the flattened height and width.

    >>> x = weft.arange(16.0).reshape(1, 4, 4)
    >>> weft.nn.functional.max_pool2d(x, 2)
    tensor([[[ 5.,  7.],
             [13., 15.]]])
    """
    return _max_pool(
        2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


@widened
def max_pool3d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest element of each window of (N, C, D, H, W).

    >>> weft.nn.functional.max_pool3d(weft.ones(1, 2, 4, 6, 6), 2).shape
    (1, 2, 2, 3, 3)
    """
    return _max_pool(
        3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


def _adaptive_counts(name: str, output_size: Any, size: Sizes) -> Sizes:
    """The wanted sizes; None keeps the input's."""
    listed = list(output_size) if isinstance(output_size, (tuple, list)) else None
    wanted = listed if listed is not None else [output_size] * len(size)
    if len(wanted) == len(size):
        wanted = [n if m is None else m for m, n in zip(wanted, size, strict=True)]
    return sizes_of(name, "output_size", wanted, len(size), 1)


def _adaptive_max(
    spatial: int, input: Tensor, output_size: Any, return_indices: bool
) -> Any:
    name = f"adaptive_max_pool{spatial}d"
    x, had = with_batch(name, input, spatial)
    check_accepts(name, "real number", x.dtype)
    _check_input(name, x)
    counts = _adaptive_counts(name, output_size, x.shape[2:])
    index = adaptive_max_index_op(x, counts=counts)
    out = without_batch(picked(x, index), had)
    return (out, without_batch(index, had)) if return_indices else out


def adaptive_max_pool1d(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> Any:
    """The largest of each of ``output_size`` windows that share out the input.

    >>> x = weft.tensor([[1.0, 3.0, 2.0, 0.0, 5.0]])
    >>> weft.nn.functional.adaptive_max_pool1d(x, 2)
    tensor([[3., 5.]])
    """
    return _adaptive_max(1, input, output_size, return_indices)


def adaptive_max_pool2d(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> Any:
    """The largest of each of ``output_size`` windows that share out the input.

    >>> weft.nn.functional.adaptive_max_pool2d(weft.ones(2, 5, 7), (3, None)).shape
    (2, 3, 7)
    """
    return _adaptive_max(2, input, output_size, return_indices)


def adaptive_max_pool3d(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> Any:
    """The largest of each of ``output_size`` windows that share out the input.

    >>> weft.nn.functional.adaptive_max_pool3d(weft.ones(2, 5, 7, 4), 2).shape
    (2, 2, 2, 2)
    """
    return _adaptive_max(3, input, output_size, return_indices)


# -- the mean


@functools.lru_cache(maxsize=256)
def _window_taps(
    size: int, kernel: int, stride: int, padding: int, count: int, divide: str
) -> Taps:
    """Windows as taps, divided by ``"none"``, the ``"padded"`` or ``"inner"`` size."""
    start = np.arange(count) * stride - padding
    stop = np.minimum(start + kernel, size + padding)
    inner = np.maximum(start, 0), np.minimum(stop, size)
    lengths = {
        "none": np.ones(count),
        "padded": stop - start,
        "inner": inner[1] - inner[0],
    }
    return range_taps(size, *inner, 1.0 / np.maximum(lengths[divide], 1))


def range_taps(size: int, start: Any, stop: Any, weight: Any) -> Taps:
    """Rows that sum a range each, times the row's weight."""
    lengths = np.maximum(stop - start, 0)
    rows = np.repeat(np.arange(len(start)), lengths)
    ends = np.cumsum(lengths)
    cols = np.arange(int(lengths.sum())) - np.repeat(ends - lengths - start, lengths)
    return Taps((len(start), size), rows, cols, weight[rows])


def resampled(x: Tensor, taps: list[Taps | None]) -> Tensor:
    """x (N, C, *S) resampled along each of *S; halves are summed in float32."""
    out = x.to(dtypes.float32) if x.dtype.itemsize == 2 else x
    for k, one in enumerate(taps):
        if one is not None:
            out = resample_op(out, taps=one, dim=k + 2)
    return out.to(x.dtype)


def _avg_pool(
    spatial: int, input: Tensor, kernel_size: Any, stride: Any, padding: Any,
    ceil_mode: bool, count_include_pad: bool, divisor_override: Any = None,
) -> Tensor:  # fmt: skip
    name = f"avg_pool{spatial}d"
    x, had = with_batch(name, input, spatial)
    check_accepts(name, "floating", x.dtype)
    _check_input(name, x)
    kernel = sizes_of(name, "kernel_size", kernel_size, spatial, 1)
    steps = _strides(name, stride, kernel)
    pads = sizes_of(name, "padding", padding, spatial)
    ones = (1,) * spatial
    counts = _pooled_counts(name, x.shape[2:], kernel, steps, pads, ones, ceil_mode)
    if divisor_override == 0:
        raise ArgumentError(f"{name}: divisor_override must not be 0")
    divide = "padded" if count_include_pad else "inner"
    if divisor_override is not None:
        divide = "none"
        x = x / divisor_override
    sizes = map(int, x.shape[2:])  # taps are for one size: an open one is settled
    taps = [
        _window_taps(n, k, s, p, int(m), divide)
        for n, k, s, p, m in zip(sizes, kernel, steps, pads, counts, strict=True)
    ]
    return without_batch(resampled(x, [*taps]), had)


def avg_pool1d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """The mean of each window of (N, C, L) or (C, L).

    >>> x = weft.tensor([[1.0, 3.0, 2.0, 0.0]])
    >>> weft.nn.functional.avg_pool1d(x, 2)
    tensor([[2., 1.]])
    """
    return _avg_pool(
        1, input, kernel_size, stride, padding, ceil_mode, count_include_pad
    )


def avg_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of (N, C, H, W) or (C, H, W).

    Padding counts as zeros that are part of the window unless
    ``count_include_pad`` is False; ``divisor_override`` divides by another number.

    >>> x = weft.arange(16.0).reshape(1, 4, 4)
    >>> weft.nn.functional.avg_pool2d(x, 2)
    tensor([[[ 2.5000,  4.5000],
             [10.5000, 12.5000]]])
    """
    return _avg_pool(
        2, input, kernel_size, stride, padding, ceil_mode, count_include_pad,
        divisor_override,
    )  # fmt: skip


@widened
def avg_pool3d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of (N, C, D, H, W).

    >>> weft.nn.functional.avg_pool3d(weft.ones(1, 2, 4, 6, 6), 2).shape
    (1, 2, 2, 3, 3)
    """
    return _avg_pool(
        3, input, kernel_size, stride, padding, ceil_mode, count_include_pad,
        divisor_override,
    )  # fmt: skip


@functools.lru_cache(maxsize=256)
def adaptive_taps(size: int, count: int) -> Taps:
    """Means of ``count`` ranges that share out ``size`` elements."""
    start, stop = adaptive_bounds(size, count)
    return range_taps(size, start, stop, 1.0 / (stop - start))


def adaptive_mean(x: Tensor, counts: Sizes) -> Tensor:
    """x (N, C, *S) averaged down (or repeated up) to other sizes."""
    wide = x.to(dtypes.float32) if x.dtype.itemsize == 2 else x
    single = [k + 2 for k, m in enumerate(counts) if m == 1]
    if len(single) == len(counts):
        mean = wide.mean(tuple(range(2, x.ndim)))
        return reshape(mean, (*x.shape[:2], *counts)).to(x.dtype)
    if single:
        wide = wide.mean(tuple(single), keepdim=True)
    taps = [
        None if n == m else adaptive_taps(int(n), int(m))
        for n, m in zip(wide.shape[2:], counts, strict=True)
    ]
    return resampled(wide, taps).to(x.dtype)


def _adaptive_avg(spatial: int, input: Tensor, output_size: Any) -> Tensor:
    name = f"adaptive_avg_pool{spatial}d"
    x, had = with_batch(name, input, spatial)
    check_accepts(name, "floating", x.dtype)
    _check_input(name, x)
    counts = _adaptive_counts(name, output_size, x.shape[2:])
    return without_batch(adaptive_mean(x, counts), had)


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """The mean of each of ``output_size`` windows that share out the input.

    >>> x = weft.tensor([[1.0, 3.0, 2.0]])
    >>> weft.nn.functional.adaptive_avg_pool1d(x, 2)
    tensor([[2.0000, 2.5000]])
    """
    return _adaptive_avg(1, input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """The mean of each of ``output_size`` windows that share out the input.

    >>> weft.nn.functional.adaptive_avg_pool2d(weft.ones(2, 5, 7), (3, None)).shape
    (2, 3, 7)
    """
    return _adaptive_avg(2, input, output_size)


@widened
def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """The mean of each of ``output_size`` windows that share out the input.

    >>> weft.nn.functional.adaptive_avg_pool3d(weft.ones(2, 5, 7, 4), 1).shape
    (2, 1, 1, 1)
    """
    return _adaptive_avg(3, input, output_size)


# -- norms


def _lp_pool(
    spatial: int, input: Tensor, norm_type: float, kernel_size: Any, stride: Any,
    ceil_mode: bool,
) -> Tensor:  # fmt: skip
    """The pooled norm; as in PyTorch, windows that stick out are scaled to a full
    window's sum."""
    kernel = sizes_of(f"lp_pool{spatial}d", "kernel_size", kernel_size, spatial, 1)
    mean = _avg_pool(spatial, input**norm_type, kernel, stride, 0, ceil_mode, True)
    return (mean * math.prod(kernel)) ** (1.0 / norm_type)


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """``sum(window ** norm_type) ** (1 / norm_type)`` of each window.

    >>> x = weft.tensor([[3.0, 4.0, 6.0, 8.0]])
    >>> weft.nn.functional.lp_pool1d(x, 2, 2)
    tensor([[ 5., 10.]])
    """
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """``sum(window ** norm_type) ** (1 / norm_type)`` of each window.

    >>> weft.nn.functional.lp_pool2d(weft.ones(1, 2, 2), 2, 2)
    tensor([[[2.]]])
    """
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """``sum(window ** norm_type) ** (1 / norm_type)`` of each window.

    >>> weft.nn.functional.lp_pool3d(weft.ones(1, 2, 2, 2), 1, 2)
    tensor([[[[8.]]]])
    """
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


# -- max pooling undone


def _unpooled_size(
    name: str, size: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, wanted: Any
) -> Sizes:
    usual = tuple(
        (n - 1) * s - 2 * p + k
        for n, k, s, p in zip(size, kernel, stride, padding, strict=True)
    )
    if wanted is None:
        return usual
    last = tuple(wanted)[-len(size) :]
    if len(wanted) not in (len(size), len(size) + 1, len(size) + 2) or any(
        abs(n - u) >= s for n, u, s in zip(last, usual, stride, strict=True)
    ):
        raise ArgumentError(
            f"{name}: expected output_size within a stride {stride} of {usual}, got "
            f"{tuple(wanted)}"
        )
    return last


def _max_unpool(
    spatial: int, input: Tensor, indices: Tensor, kernel_size: Any, stride: Any,
    padding: Any, output_size: Any,
) -> Tensor:  # fmt: skip
    name = f"max_unpool{spatial}d"
    x, had = with_batch(name, input, spatial)
    if not isinstance(indices, Tensor) or indices.shape != input.shape:
        came = indices.shape if isinstance(indices, Tensor) else type(indices).__name__
        raise ShapeError(
            f"{name}: expected indices of the input's shape {input.shape}, got {came}"
        )
    if indices.dtype is not dtypes.int64:
        raise DTypeError(
            f"{name}: expected int64 indices, got {indices.dtype.name}. Convert them "
            "with .long()"
        )
    kernel = sizes_of(name, "kernel_size", kernel_size, spatial, 1)
    steps = _strides(name, stride, kernel)
    pads = sizes_of(name, "padding", padding, spatial)
    size = _unpooled_size(name, x.shape[2:], kernel, steps, pads, output_size)
    rows = x.shape[0] * x.shape[1]
    flat = (rows, math.prod(x.shape[2:]))
    index = reshape(as_index(name, indices), flat)
    index = require_index(name, index, math.prod(size), 1, wrap=False)
    blank = x.new_zeros(rows, math.prod(size))
    out = scatter(blank, 1, index, reshape(x, flat))
    return without_batch(reshape(out, (*x.shape[:2], *size)), had)


def max_unpool1d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None,
    padding: Any = 0, output_size: Any = None,
) -> Tensor:  # fmt: skip
    """Zeros with pooled values put back to where they were the largest.

    >>> F = weft.nn.functional
    >>> x = weft.tensor([[1.0, 3.0, 2.0, 0.0]])
    >>> F.max_unpool1d(*F.max_pool1d(x, 2, return_indices=True), 2)
    tensor([[0., 3., 2., 0.]])
    """
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


@widened
def max_unpool2d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None,
    padding: Any = 0, output_size: Any = None,
) -> Tensor:  # fmt: skip
    """Zeros with pooled values put back to where they were the largest.

    >>> F = weft.nn.functional
    >>> out, index = F.max_pool2d(weft.ones(1, 1, 4, 5), 2, return_indices=True)
    >>> F.max_unpool2d(out, index, 2, output_size=(4, 5)).shape
    (1, 1, 4, 5)
    """
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


@widened
def max_unpool3d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None,
    padding: Any = 0, output_size: Any = None,
) -> Tensor:  # fmt: skip
    """Zeros with pooled values put back to where they were the largest.

    >>> F = weft.nn.functional
    >>> out, index = F.max_pool3d(weft.ones(1, 2, 4, 4), 2, return_indices=True)
    >>> F.max_unpool3d(out, index, 2).shape
    (1, 2, 4, 4)
    """
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size)
