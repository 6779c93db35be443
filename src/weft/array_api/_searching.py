"""Searching, sorting, picking, and sets of different elements."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft.array_api._common import Array, check_array, operands
from weft.core.tensor import Tensor
from weft.dtype import int64, sortable
from weft.errors import ShapeError
from weft.ops import (
    copies,
    extremes,
    gathering,
    index,
    searching,
    select,
    shaping,
    sorting,
)
from weft.ops.operands import as_index, concrete
from weft.ops.operands import nonzero as _nonzero


def argmax(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """The indices of the largest elements.

    >>> weft.array_api.argmax(weft.tensor([1, 9, 3]))
    tensor(1)
    """
    return extremes.argmax(x, axis, keepdims)


def argmin(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """The indices of the smallest elements.

    >>> weft.array_api.argmin(weft.tensor([5, 9, 3]))
    tensor(2)
    """
    return extremes.argmin(x, axis, keepdims)


def nonzero(x: Array, /) -> tuple[Array, ...]:
    """The indices of the elements that are not zero, one array an axis.

    >>> weft.array_api.nonzero(weft.tensor([0, 5, 6]))
    (tensor([1, 2]),)
    """
    if x.ndim == 0:
        raise ShapeError("nonzero: expected at least one axis, got a 0-d array")
    return _nonzero(x, as_tuple=True)


def searchsorted(
    x1: Array, x2: Any, /, *, side: str = "left", sorter: Array | None = None
) -> Array:
    """The indices at which elements would be inserted into a sorted 1-d array.

    >>> weft.array_api.searchsorted(weft.tensor([1, 3, 5]), weft.tensor([3, 6]))
    tensor([1, 3])
    """
    ordered, wanted = operands("searchsorted", x1, x2)
    if sorter is not None:
        ordered = index.index_select(ordered, 0, sorter)
    return searching.searchsorted(ordered, wanted, side=side)


def where(condition: Array, x1: Any, x2: Any, /) -> Array:
    """Elements of ``x1`` where the condition holds, of ``x2`` elsewhere.

    >>> x = weft.tensor([-1.0, 4.0])
    >>> weft.array_api.where(x > 0, x, 0.0)
    tensor([0., 4.])
    """
    if not isinstance(x1, Tensor) and not isinstance(x2, Tensor):
        return select.where(condition, x1, x2)
    return select.where(condition, *operands("where", x1, x2))


# -- sorting


def argsort(
    x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Array:
    """The indices that sort along an axis (always a stable order).

    >>> weft.array_api.argsort(weft.tensor([3, 1, 2]))
    tensor([1, 2, 0])
    """
    return sorting.argsort(x, axis, descending)


def sort(
    x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Array:
    """The elements in order along an axis.

    >>> weft.array_api.sort(weft.tensor([3, 1, 2]), descending=True)
    tensor([3, 2, 1])
    """
    return sorting.sort(x, axis, descending).values


# -- picking


def take(x: Array, indices: Array, /, *, axis: int | None = None) -> Array:
    """Slices picked along an axis, which only a 1-d array may leave out.

    >>> weft.array_api.take(weft.tensor([[1, 2], [3, 4]]), weft.tensor([1]), axis=1)
    tensor([[2],
            [4]])
    """
    if axis is None:
        if check_array("take", x).ndim != 1:
            raise ShapeError(f"take: expected an axis for shape {x.shape}, got None")
        axis = 0
    positions = _from_start("take", indices, x.shape[axis])
    if indices.ndim == 0:
        return shaping.squeeze(index.index_select(x, axis, positions), axis)
    return index.index_select(x, axis, positions)


def _from_start(name: str, indices: Array, size: Any) -> Array:
    """Indices of which the negative ones count from the end."""
    ids = copies.cast(as_index(name, indices), int64)
    return select.where(ids < 0, ids + size, ids)


def take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
    """Elements picked along an axis, the other axes broadcast.

    >>> x = weft.tensor([[3, 1, 2]])
    >>> weft.array_api.take_along_axis(x, weft.array_api.argsort(x))
    tensor([[1, 2, 3]])
    """
    positions = _from_start("take_along_axis", indices, x.shape[axis])
    return gathering.take_along_dim(x, positions, axis)


# -- sets


class UniqueAll(NamedTuple):
    """The result of ``unique_all``."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """The result of ``unique_counts``."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """The result of ``unique_inverse``."""

    values: Array
    inverse_indices: Array


def unique_all(x: Array, /) -> UniqueAll:
    """The different elements, where each is first, how to undo it, and how many.

    Each NaN counts as different from the others.

    >>> weft.array_api.unique_all(weft.tensor([2, 1, 2])).counts
    tensor([1, 2])
    """
    array = concrete("unique_all", x)
    found = np.unique_all(sortable(array))
    positions = Tensor(np.asarray(found.indices))
    # The values are picked by index, so that gradients flow to them.
    values = index.index_select(shaping.reshape(x, (x.numel(),)), 0, positions)
    inverse = Tensor(found.inverse_indices.reshape(array.shape))
    return UniqueAll(values, positions, inverse, Tensor(np.asarray(found.counts)))


def unique_counts(x: Array, /) -> UniqueCounts:
    """The different elements, and how often each occurs.

    >>> weft.array_api.unique_counts(weft.tensor([2, 1, 2])).values
    tensor([1, 2])
    """
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Array, /) -> UniqueInverse:
    """The distinct elements, and the index among them of each element.

    >>> weft.array_api.unique_inverse(weft.tensor([2, 1, 2])).inverse_indices
    tensor([1, 0, 1])
    """
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Array, /) -> Array:
    """The different elements, in order.

    >>> weft.array_api.unique_values(weft.tensor([2, 1, 2]))
    tensor([1, 2])
    """
    return unique_all(x).values
