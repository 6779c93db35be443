"""Pooling: the largest element, the mean or a norm of windows."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft import Tensor
from weft.nn import functional as F
from weft.onnx.errors import ModelError
from weft.onnx.operators.convolution import Pairs, ends_of, padded
from weft.onnx.registry import operator
from weft.onnx.types import bounded, numbers

_MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def _windows(
    x: Tensor, kernel: Any, strides: Any, dilations: Any, pads: Any, auto: str,
    ceil: int,
) -> tuple[Any, Any, Pairs, list[Any]]:  # fmt: skip
    """Strides, dilations, ends, and how many windows there are along each axis."""
    rank = len(kernel)
    if x.ndim != rank + 2 or min(kernel) < 1:
        raise ModelError(
            f"expected {x.ndim - 2} positive sizes of windows, got {kernel}"
        )
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    ends = ends_of(x, kernel, strides, dilations, pads, auto)
    counts = []
    for k, (a, b) in enumerate(ends):
        size = x.shape[2 + k]
        room = size + a + b - (kernel[k] - 1) * dilations[k] - 1
        count = room // strides[k] + 1
        if ceil and auto == "NOTSET":
            count = -(-room // strides[k]) + 1
            if (count - 1) * strides[k] >= size + a:
                count -= 1  # a window that begins beyond the image
        counts.append(count)
    reach = []
    for k, (a, b) in enumerate(ends):
        last = (counts[k] - 1) * strides[k] + (kernel[k] - 1) * dilations[k] + 1
        reach.append((a, max(b, last - x.shape[2 + k] - a)))
    return strides, dilations, reach, counts


def _trim(y: Tensor, counts: list[Any]) -> Tensor:
    for k, count in enumerate(counts):
        if type(count) is int and y.shape[2 + k] != count:
            y = y.narrow(2 + k, 0, count)
    return y


@operator("MaxPool")
def max_pool(
    x: Tensor, *, kernel_shape: Any, strides: Any = None, dilations: Any = None,
    pads: Any = None, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    storage_order: int = 0, outputs: int = 1,
) -> Any:  # fmt: skip
    """The largest element of each window, and its place."""
    rank = len(kernel_shape)
    if rank not in _MAX:
        raise ModelError(f"expected windows of 1 to 3 axes, got {rank}")
    strides, dilations, ends, counts = _windows(
        x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    )
    least: Any = -math.inf
    given = x
    if not x.dtype.is_floating_point:
        least = weft.iinfo(x.dtype).min
    even = all(
        a == b and 2 * a <= k for (a, b), k in zip(ends, kernel_shape, strict=True)
    )
    simple = even and all(d == 1 for d in dilations) and x.dtype.is_floating_point
    padding: Any = tuple(a for a, _ in ends) if simple else (0,) * rank
    x = x if simple else padded(x, ends, least)
    found = _MAX[rank](
        x, tuple(kernel_shape), tuple(strides), padding, tuple(dilations),
        return_indices=outputs > 1,
    )  # fmt: skip
    if outputs == 1:
        return _trim(found, counts)
    y, at = (_trim(v, counts) for v in found)
    starts = [0] * rank if simple else [a for a, _ in ends]
    return y, _places(at, x.shape, given.shape, starts, storage_order)


def _places(at: Tensor, shape: Any, given: Any, starts: Any, order: int) -> Tensor:
    """Places in an image that was padded as places in the whole tensor given."""
    axes = []
    for size, start in zip(reversed(shape[2:]), reversed(starts), strict=True):
        axes.append(weft.remainder(at, size) - start)
        at = weft.div(at, size, rounding_mode="floor")
    sizes = list(given[2:])
    pairs = list(zip(reversed(axes), sizes, strict=True))
    flat: Any = 0
    for place, size in pairs[::-1] if order else pairs:
        flat = flat * size + place
    n, c = given[0], given[1]
    image = weft.arange(n * c).reshape(n, c, *(1,) * len(sizes))
    return image * math.prod(sizes) + flat


@operator("MaxUnpool", static=(2,))
def max_unpool(
    x: Tensor, index: Tensor, shape: Any = None, *, kernel_shape: Any,
    strides: Any = None, pads: Any = None,
) -> Tensor:  # fmt: skip
    """Elements put back to the places that ``MaxPool`` took them from."""
    rank = len(kernel_shape)
    strides, pads = strides or (1,) * rank, pads or (0,) * (2 * rank)
    sizes = [
        (x.shape[2 + k] - 1) * strides[k] + kernel_shape[k] - pads[k] - pads[rank + k]
        for k in range(rank)
    ]
    whole = [x.shape[0], x.shape[1], *sizes]
    wanted = whole if shape is None else numbers(shape)
    bounded(wanted)
    at = index.reshape(-1)
    if wanted != whole:  # places are those of the image that was pooled
        axes = []
        for size in reversed(whole):
            axes.append(weft.remainder(at, size))
            at = weft.div(at, size, rounding_mode="floor")
        at = weft.zeros_like(at)
        for size, place in zip(wanted, reversed(axes), strict=True):
            at = at * size + place
    flat = weft.zeros(math.prod(wanted), dtype=x.dtype)
    return flat.scatter(0, at, x.reshape(-1)).reshape(wanted)


def _sums(
    x: Tensor, kernel: Any, strides: Any, dilations: Any, ends: Pairs, counts: Any
) -> Tensor:
    """The sums of windows: along one axis after the other."""
    y = padded(x, ends)
    for k, size in enumerate(kernel):
        span = (counts[k] - 1) * strides[k] + 1
        parts = [
            _every(y.narrow(2 + k, tap * dilations[k], span), 2 + k, strides[k])
            for tap in range(size)
        ]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        y = total
    return y


def _every(x: Tensor, axis: int, step: int) -> Tensor:
    return x[(*(slice(None),) * axis, slice(None, None, step))]


@operator("AveragePool")
def average_pool(
    x: Tensor, *, kernel_shape: Any, strides: Any = None, dilations: Any = None,
    pads: Any = None, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    count_include_pad: int = 0,
) -> Tensor:  # fmt: skip
    """The mean of each window."""
    rank = len(kernel_shape)
    asked = strides, dilations
    strides, dilations, ends, counts = _windows(
        x, kernel_shape, *asked, pads, auto_pad, ceil_mode
    )
    total = _sums(x, kernel_shape, strides, dilations, ends, counts)
    own = ends_of(x, kernel_shape, strides, dilations, pads, auto_pad)
    ones = weft.ones((1, 1, *x.shape[2:]), dtype=x.dtype)
    if count_include_pad:
        ones = padded(ones, own, 1)
        ends = [(0, b - y) for (_, b), (_, y) in zip(ends, own, strict=True)]
    if all(a == 0 and b == 0 for a, b in ends) and rank:
        return total / math.prod(kernel_shape)
    return total / _sums(ones, kernel_shape, strides, dilations, ends, counts)


@operator("LpPool")
def lp_pool(
    x: Tensor, *, kernel_shape: Any, p: Any = 2, strides: Any = None,
    dilations: Any = None, pads: Any = None, auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> Tensor:  # fmt: skip
    """The norm of each window."""
    strides, dilations, ends, counts = _windows(
        x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    )
    powers = x.abs() ** p
    return _sums(powers, kernel_shape, strides, dilations, ends, counts) ** (1 / p)


@operator("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Tensor:
    """The mean of each image."""
    return x.mean(list(range(2, x.ndim)), keepdim=True)


@operator("GlobalMaxPool")
def global_max_pool(x: Tensor) -> Tensor:
    """The largest element of each image."""
    return weft.amax(x, list(range(2, x.ndim)), keepdim=True)


@operator("GlobalLpPool")
def global_lp_pool(x: Tensor, *, p: Any = 2) -> Tensor:
    """The norm of each image."""
    return (x.abs() ** p).sum(list(range(2, x.ndim)), keepdim=True) ** (1 / p)
