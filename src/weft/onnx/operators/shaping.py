"""Shapes: the same elements in other places."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft import Tensor
from weft.nn import functional as F
from weft.onnx.errors import ModelError
from weft.onnx.registry import operator
from weft.onnx.types import bounded, number, numbers


def axes_of(given: Any, attribute: Any) -> list[int] | None:
    """Axes, which are an input since opset 13, and an attribute before."""
    if given is not None:
        return numbers(given)
    return None if attribute is None else list(attribute)


@operator("Reshape", static=(1,))
def reshape(x: Tensor, shape: Any, *, allowzero: int = 0) -> Tensor:
    """The elements in another shape: 0 keeps a size, -1 is what is left."""
    wanted = numbers(shape)
    for k, n in enumerate(wanted):
        if type(n) is int and n == 0 and not allowzero:
            wanted[k] = x.shape[k]
    return x.reshape(wanted)


@operator("Flatten")
def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    """A matrix: the axes before one, and the others."""
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@operator("Transpose")
def transpose(x: Tensor, *, perm: Any = None) -> Tensor:
    """The axes in another order."""
    return x.permute(tuple(range(x.ndim))[::-1] if perm is None else perm)


@operator("Squeeze", static=(1,))
def squeeze(x: Tensor, given: Any = None, *, axes: Any = None) -> Tensor:
    """Without axes of one element."""
    places = axes_of(given, axes)
    if places is None:
        return x.squeeze()
    for axis in places:
        if x.shape[axis] != 1:
            raise ModelError(f"axis {axis} has {x.shape[axis]} elements, not 1")
    return x.squeeze(tuple(places))


@operator("Unsqueeze", static=(1,))
def unsqueeze(x: Tensor, given: Any = None, *, axes: Any = None) -> Tensor:
    """With more axes of one element, at places of the result."""
    places = axes_of(given, axes) or []
    rank = x.ndim + len(places)
    for axis in sorted(a % rank for a in places):
        x = x.unsqueeze(axis)
    return x


@operator("Expand", static=(1,))
def expand(x: Tensor, shape: Any) -> Tensor:
    """Repeated along axes of one element; the shapes are broadcast."""
    sizes = bounded(numbers(shape))
    return x.expand(weft.broadcast_shapes(tuple(x.shape), tuple(sizes)))


@operator("Concat")
def concat(*xs: Tensor, axis: int = 1) -> Tensor:
    """Tensors joined along an axis."""
    return weft.cat(xs, axis)


@operator("Split", static=(1,))
def split(
    x: Tensor, given: Any = None, *, axis: int = 0, split: Any = None,
    num_outputs: int | None = None, outputs: int = 1,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The parts along an axis, of equal or of given sizes."""
    sizes = axes_of(given, split)
    if sizes is None:
        each = -(-x.shape[axis] // (num_outputs or outputs))
        return tuple(x.split(each, axis))
    return tuple(x.split(sizes, axis))


@operator("Tile", static=(1, 2))
def tile(x: Tensor, repeats: Any, axis: Any = None, *, opset: int) -> Tensor:
    """Copies side by side."""
    times = numbers(repeats)
    if opset < 6 and axis is not None:
        times = [times[0] if k == number(axis) else 1 for k in range(x.ndim)]
    bounded([n * m for n, m in zip(x.shape, times, strict=True)])
    return x.repeat(times)


@operator("Pad", static=(1, 3))
def pad(
    x: Tensor, given: Any = None, value_: Any = None, axes: Any = None, *,
    mode: str = "constant", pads: Any = None, value: float = 0.0,
) -> Tensor:  # fmt: skip
    """More elements at the ends of axes; fewer where a number is negative."""
    sizes = axes_of(given, pads) or []
    places = range(x.ndim) if axes is None else [a % x.ndim for a in numbers(axes)]
    half = len(sizes) // 2
    ends = dict(zip(places, zip(sizes[:half], sizes[half:], strict=True), strict=True))
    bounded(
        [n + sum(max(0, k) for k in ends.get(d, ())) for d, n in enumerate(x.shape)]
    )
    for axis, (before, after) in ends.items():  # cut off first
        if before < 0 or after < 0:
            x = x.narrow(
                axis, max(0, -before), x.shape[axis] + min(0, before) + min(0, after)
            )
    ends = {k: (max(0, a), max(0, b)) for k, (a, b) in ends.items()}
    if mode == "constant":
        fill = value if value_ is None else number(value_)
        flat = [n for d in reversed(range(x.ndim)) for n in ends.get(d, (0, 0))]
        if x.dtype is weft.bool:
            return F.pad(x.to(weft.uint8), flat, value=int(fill)).bool()
        return F.pad(x, flat, value=fill)
    for axis, (before, after) in ends.items():
        x = x.index_select(axis, _border(x.shape[axis], before, after, mode))
    return x


def _border(size: int, before: int, after: int, mode: str) -> Tensor:
    at = weft.arange(-before, size + after)
    if mode == "edge":
        return at.clamp(0, size - 1)
    if mode == "wrap":
        return weft.remainder(at, size)
    if mode != "reflect":
        raise ModelError(f"the mode {mode!r} of padding is unknown")
    period = max(1, 2 * (size - 1))
    at = weft.remainder(at, period)
    return weft.minimum(at, period - at)


@operator("Slice", static=(1, 2, 3, 4))
def slice_(
    x: Tensor, starts_: Any = None, ends_: Any = None, axes_: Any = None,
    steps_: Any = None, *, starts: Any = None, ends: Any = None, axes: Any = None,
) -> Tensor:  # fmt: skip
    """Some elements of axes, from a start to before an end, by steps."""
    first, last = axes_of(starts_, starts) or [], axes_of(ends_, ends) or []
    steps = [1] * len(first) if steps_ is None else numbers(steps_)
    places = axes_of(axes_, axes)
    places = list(range(len(first))) if places is None else places
    for axis, start, end, step in zip(places, first, last, steps, strict=True):
        if step == 0:
            raise ModelError("expected steps that are not 0")
        axis = axis % x.ndim
        size = x.shape[axis]
        if step > 0:
            x = x[(*(slice(None),) * axis, slice(_near(start), _near(end), step))]
            continue
        if start in (-1, _near(1 << 63)) and _near(end) == -(1 << 62):
            x = x.flip(axis)[(*(slice(None),) * axis, slice(None, None, -step))]
            continue
        size = int(size)
        at = list(range(size))[_near(start) : None if end < -size else end : step]
        x = x.index_select(axis, weft.tensor(at, dtype=weft.int64))
    return x


def _near(value: Any) -> Any:
    """A bound of a slice: numbers beyond all sizes stand for the end."""
    return value if type(value) is not int else max(-(1 << 62), min(value, 1 << 62))


@operator("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Channels moved into blocks of pixels."""
    n, c, h, w = x.shape
    b, depth = blocksize, c // (blocksize * blocksize)
    if mode == "DCR":
        x = x.reshape(n, b, b, depth, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        x = x.reshape(n, depth, b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    return x.reshape(n, depth, h * b, w * b)


@operator("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Blocks of pixels moved into channels."""
    n, c, h, w = x.shape
    b = blocksize
    x = x.reshape(n, c, h // b, b, w // b, b)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return x.permute(order).reshape(n, c * b * b, h // b, w // b)


@operator("Trilu", static=(1,))
def trilu(x: Tensor, k: Any = None, *, upper: int = 1) -> Tensor:
    """The part of matrices above or below a diagonal."""
    rows, columns = weft.arange(x.shape[-2]), weft.arange(x.shape[-1])
    offset = columns - rows.unsqueeze(1) - number(k, 0)
    return weft.where(offset >= 0 if upper else offset <= 0, x, weft.zeros_like(x))


@operator("CenterCropPad", static=(1,))
def center_crop_pad(x: Tensor, shape: Any, *, axes: Any = None) -> Tensor:
    """Axes of given sizes: cut off or padded at both ends."""
    places = range(x.ndim) if axes is None else axes
    for axis, size in zip(places, bounded(numbers(shape)), strict=True):
        axis %= x.ndim
        more = size - x.shape[axis]
        if more < 0:
            x = x.narrow(axis, -more // 2, size)
        else:
            ends = [0, 0] * (x.ndim - 1 - axis) + [more // 2, more - more // 2]
            x = F.pad(x, ends)
    return x


@operator("Range", static=(0, 1, 2))
def range_(start: Any, limit: Any, delta: Any, *, stash_type: int = 1) -> Tensor:
    """Numbers from one to before another, by steps."""
    first, last, step = number(start), number(limit), number(delta)
    dtype = weft.dtype.of_array(start) if not isinstance(start, Tensor) else start.dtype
    if step == 0:
        raise ModelError("expected a step that is not 0")
    count = last - first if step == 1 else math.ceil((last - first) / step)
    if type(count) is float:
        count = math.ceil(count)
    bounded([max(count, 0) if type(count) is int else count])
    return (weft.arange(count) * step + first).to(dtype)


@operator("ReverseSequence", static=(1,))
def reverse_sequence(
    x: Tensor, lengths: Any, *, batch_axis: int = 1, time_axis: int = 0
) -> Tensor:
    """The first elements of each example in reverse order."""
    ends = weft.tensor(numbers(lengths)).reshape(-1, 1)  # (B, 1)
    at = weft.arange(x.shape[time_axis])  # (T,)
    order = weft.where(at < ends, ends - 1 - at, at)  # (B, T)
    moved = x.movedim((batch_axis, time_axis), (0, 1))
    taken = moved[weft.arange(moved.shape[0]).reshape(-1, 1), order]
    return taken.movedim((0, 1), (batch_axis, time_axis))
