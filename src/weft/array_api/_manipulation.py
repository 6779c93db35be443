"""Changing arrays' shapes, joining and repeating them."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.array_api._common import Array, as_shape, check_array, operands
from weft.core.dims import normalize_dim, normalize_dims
from weft.errors import ArgumentError, ShapeError
from weft.ops import broadcasting, copies, index, joining, padding, shaping, slicing


def broadcast_arrays(*arrays: Array) -> list[Array]:
    """Arrays expanded to their common shape.

    >>> a, b = weft.array_api.broadcast_arrays(weft.ones(3, 1), weft.ones(2))
    >>> a.shape, b.shape
    ((3, 2), (3, 2))
    """
    return list(broadcasting.broadcast_tensors(*arrays)) if arrays else []


def broadcast_to(x: Array, /, shape: Any) -> Array:
    """The array broadcast to a shape.

    >>> weft.array_api.broadcast_to(weft.ones(3), (2, 3)).shape
    (2, 3)
    """
    return broadcasting.expand(x, as_shape(shape))


def concat(arrays: Any, /, *, axis: int | None = 0) -> Array:
    """Arrays joined along an axis; with ``axis=None``, flattened first.

    >>> weft.array_api.concat([weft.tensor([1]), weft.tensor([2, 3])])
    tensor([1, 2, 3])
    """
    joined = _several("concat", arrays)
    if axis is None:
        return joining.cat([shaping.ravel(x) for x in joined], 0)
    return joining.cat(joined, axis)


def _several(name: str, arrays: Any) -> list[Array]:
    """A nonempty sequence of arrays, in one dtype."""
    if not isinstance(arrays, (list, tuple)) or not arrays:
        what = f"{type(arrays).__name__} of length {len(arrays)}"
        raise ArgumentError(f"{name}: expected a list of arrays, got a {what}")
    return list(operands(name, *[check_array(name, x) for x in arrays]))


def expand_dims(x: Array, /, *, axis: int | tuple[int, ...] = 0) -> Array:
    """Axes of size 1 put in.

    >>> weft.array_api.expand_dims(weft.ones(3), axis=1).shape
    (3, 1)
    """
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    positions = normalize_dims("expand_dims", axes, x.ndim + len(axes))
    out = x
    for position in sorted(positions):
        out = shaping.unsqueeze(out, position)
    return out


def flip(x: Array, /, *, axis: Any = None) -> Array:
    """The elements in reverse order along axes (all by default).

    >>> weft.array_api.flip(weft.arange(3))
    tensor([2, 1, 0])
    """
    return padding.flip(x, normalize_dims("flip", axis, x.ndim))


def matrix_transpose(x: Array, /) -> Array:
    """The last two axes exchanged.

    >>> weft.array_api.matrix_transpose(weft.ones(5, 2, 3)).shape
    (5, 3, 2)
    """
    return x.mT


def moveaxis(x: Array, source: Any, destination: Any, /) -> Array:
    """Axes moved to other positions, the rest in order.

    >>> weft.array_api.moveaxis(weft.ones(2, 3, 4), 0, -1).shape
    (3, 4, 2)
    """
    return shaping.movedim(x, source, destination)


def permute_dims(x: Array, /, axes: tuple[int, ...]) -> Array:
    """The axes in another order.

    >>> weft.array_api.permute_dims(weft.ones(2, 3, 4), (2, 0, 1)).shape
    (4, 2, 3)
    """
    return shaping.permute(x, tuple(axes))


def repeat(x: Array, repeats: Any, /, *, axis: int | None = None) -> Array:
    """Each element repeated, one after the other.

    >>> weft.array_api.repeat(weft.tensor([1, 2]), 2)
    tensor([1, 1, 2, 2])
    """
    return index.repeat_interleave(check_array("repeat", x), repeats, axis)


def reshape(x: Array, /, shape: Any, *, copy: bool | None = None) -> Array:
    """The same elements in another shape; one size may be -1.

    ``copy=True`` always copies, ``False`` refuses to.

    >>> weft.array_api.reshape(weft.arange(6), (2, -1)).shape
    (2, 3)
    """
    wanted = as_shape(shape)
    if copy is False:
        return shaping.view(x, wanted)
    return shaping.reshape(copies.clone(x) if copy else x, wanted)


def roll(x: Array, /, shift: Any, *, axis: Any = None) -> Array:
    """The elements shifted along axes, those pushed out coming in at the other end.

    >>> weft.array_api.roll(weft.arange(4), 1)
    tensor([3, 0, 1, 2])
    """
    if axis is None:
        return padding.roll(x, shift)
    pairs = np.broadcast(np.atleast_1d(shift), np.atleast_1d(axis))
    steps, axes = zip(*[(int(s), int(a)) for s, a in pairs], strict=True)
    return padding.roll(x, steps, axes)


def squeeze(x: Array, /, axis: Any) -> Array:
    """Axes of size 1 left out; another size there is refused.

    >>> weft.array_api.squeeze(weft.ones(1, 3), 0).shape
    (3,)
    """
    axes = axis if isinstance(axis, tuple) else (axis,)
    for a in axes:
        position = normalize_dim("squeeze", a, x.ndim)
        if not x.ndim or x.shape[position] != 1:
            raise ShapeError(f"squeeze: axis {a} of shape {x.shape} is not of size 1")
    return shaping.squeeze(x, axes)


def stack(arrays: Any, /, *, axis: int = 0) -> Array:
    """Arrays of one shape joined along a new axis.

    >>> weft.array_api.stack([weft.ones(3), weft.ones(3)], axis=1).shape
    (3, 2)
    """
    return joining.stack(_several("stack", arrays), axis)


def tile(x: Array, repetitions: tuple[int, ...], /) -> Array:
    """The whole array repeated along each axis.

    >>> weft.array_api.tile(weft.tensor([1, 2]), (2,))
    tensor([1, 2, 1, 2])
    """
    return padding.tile(x, as_shape(repetitions))


def unstack(x: Array, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The slices along an axis.

    >>> weft.array_api.unstack(weft.tensor([[1, 2], [3, 4]]))[1]
    tensor([3, 4])
    """
    return slicing.unbind(x, axis)
