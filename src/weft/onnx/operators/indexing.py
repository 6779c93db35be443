"""Picking and placing elements by indices; order among them."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft import Tensor
from weft.onnx.registry import operator
from weft.onnx.types import bounded, number


def _wrapped(index: Tensor, size: Any) -> Tensor:
    """Indices from 0 on: negative ones count from the end."""
    index = index.long()
    return weft.where(index < 0, index + size, index)


@operator("Gather")
def gather(x: Tensor, index: Tensor, *, axis: int = 0) -> Tensor:
    """The slices of an axis at indices of any shape."""
    axis %= x.ndim
    flat = _wrapped(index, x.shape[axis]).reshape(-1)
    found = x.index_select(axis, flat)
    return found.reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])


@operator("GatherElements")
def gather_elements(x: Tensor, index: Tensor, *, axis: int = 0) -> Tensor:
    """The element at an index along an axis, for each place of the result."""
    return weft.gather(x, axis, _wrapped(index, x.shape[axis]))


def _flat(x_shape: Any, index: Tensor, batch: int = 0) -> Tensor:
    """The places in a flattened tensor of vectors of indices."""
    depth = index.shape[-1]
    total: Any = 0
    for k in range(depth):
        size = x_shape[batch + k]
        total = total * size + _wrapped(index[..., k], size)
    return total


@operator("GatherND")
def gather_nd(x: Tensor, index: Tensor, *, batch_dims: int = 0) -> Tensor:
    """The slices at vectors of indices."""
    depth, rest = index.shape[-1], tuple(x.shape[batch_dims + index.shape[-1] :])
    lead = tuple(x.shape[:batch_dims])
    batch = math.prod(lead)
    middle = tuple(index.shape[batch_dims:-1])
    index = index.reshape(batch, math.prod(middle), depth)
    rows = math.prod(x.shape[batch_dims : batch_dims + depth])
    flat = _flat(x.shape, index, batch_dims)  # (B, K)
    flat = flat + weft.arange(batch).unsqueeze(1) * rows
    found = x.reshape(batch * rows, *rest).index_select(0, flat.reshape(-1))
    return found.reshape(*lead, *middle, *rest)


_REDUCE = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@operator("ScatterElements Scatter")
def scatter_elements(
    x: Tensor, index: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    """A tensor with elements replaced at indices along an axis."""
    index = _wrapped(index, x.shape[axis])
    if reduction == "none":
        return weft.scatter(x, axis, index, updates)
    return weft.scatter_reduce(x, axis, index, updates, _REDUCE[reduction])


@operator("ScatterND")
def scatter_nd(
    x: Tensor, index: Tensor, updates: Tensor, *, reduction: str = "none"
) -> Tensor:
    """A tensor with slices replaced at vectors of indices."""
    depth = index.shape[-1]
    rows = math.prod(x.shape[:depth])
    rest = tuple(x.shape[depth:])
    many = math.prod(index.shape[:-1])
    flat = _flat(x.shape, index.reshape(many, depth))
    if depth == 0:
        flat = weft.zeros(many, dtype=weft.int64)
    data = x.reshape(rows, math.prod(rest))
    new = updates.reshape(many, math.prod(rest))
    where = flat.unsqueeze(1).expand(new.shape)
    if reduction == "none":
        return weft.scatter(data, 0, where, new).reshape(x.shape)
    made = weft.scatter_reduce(data, 0, where, new, _REDUCE[reduction])
    return made.reshape(x.shape)


@operator("TensorScatter")
def tensor_scatter(
    past: Tensor, update: Tensor, starts: Any = None, *, axis: int = -2,
    mode: str = "linear",
) -> Tensor:  # fmt: skip
    """A cache with new elements along an axis, from a start for each example on."""
    axis %= past.ndim
    size, count = past.shape[axis], update.shape[axis]
    first = weft.zeros(past.shape[0], dtype=weft.int64) if starts is None else starts
    at = first.long().reshape(-1, 1) + weft.arange(count)  # (B, T)
    if mode == "circular":
        at = weft.remainder(at, size)
    shape = [1] * past.ndim
    shape[0], shape[axis] = past.shape[0], count
    return weft.scatter(past, axis, at.reshape(shape).expand(update.shape), update)


@operator("OneHot", static=(1,))
def one_hot(index: Tensor, depth: Any, values: Tensor, *, axis: int = -1) -> Tensor:
    """A vector for each index: one number at it, another elsewhere."""
    (count,) = bounded([int(number(depth))])
    off, on = values[0], values[1]
    axis = axis % (index.ndim + 1)
    index = weft.where(index < 0, index + count, index)
    shape = [count if k == axis else 1 for k in range(index.ndim + 1)]
    hit = index.unsqueeze(axis) == weft.arange(count).to(index.dtype).reshape(shape)
    return weft.where(hit, on, off)


@operator("TopK", static=(1,))
def top_k(
    x: Tensor, count: Any = None, *, k: int | None = None, axis: int = -1,
    largest: int = 1, sorted: int = 1,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The largest elements along an axis, and where they are; the first of equals."""
    wanted: Any = k if count is None else number(count)
    order = weft.argsort(x, dim=axis, descending=bool(largest), stable=True)
    index = order.narrow(axis, 0, wanted)
    return weft.gather(x, axis, index), index


def _arg(function: Any) -> Any:
    def run(
        x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Tensor:
        if not select_last_index:
            return function(x, axis, keepdim=bool(keepdims))
        found = function(x.flip(axis), axis, keepdim=bool(keepdims))
        return x.shape[axis] - 1 - found

    return run


operator("ArgMax")(_arg(weft.argmax))
operator("ArgMin")(_arg(weft.argmin))


@operator("NonZero")
def non_zero(x: Tensor) -> Tensor:
    """The indices of elements that are not zero: a row for each axis."""
    return weft.nonzero(x.reshape(1) if x.ndim == 0 else x).T


@operator("Compress")
def compress(x: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    """The slices of an axis at which a condition holds."""
    if axis is None:
        x, axis = x.reshape(-1), 0
    return x.index_select(axis, weft.nonzero(condition).reshape(-1))


@operator("Unique")
def unique(
    x: Tensor, *, axis: int | None = None, sorted: int = 1
) -> tuple[Tensor, ...]:
    """The different elements or slices; where they are first; how many there are."""
    rows = x.reshape(-1, 1) if axis is None else x.movedim(axis, 0).flatten(1)
    dim = None if axis is None else axis
    values, inverse, counts = weft.unique(
        x, sorted=True, return_inverse=True, return_counts=True, dim=dim
    )
    inverse, count = inverse.reshape(-1), counts.shape[0]
    places = weft.arange(rows.shape[0])
    first = weft.full((count,), rows.shape[0], dtype=weft.int64)
    first = first.scatter_reduce(0, inverse, places, "amin")
    if not sorted:
        order = weft.argsort(first)
        values = values.index_select(0 if axis is None else axis, order)
        first, counts = first[order], counts[order]
        inverse = weft.argsort(order)[inverse]
    return values, first, inverse, counts


@operator("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(x: Tensor, index: Tensor) -> Tensor:
    """Columns by their numbers."""
    found = x.index_select(-1, index.reshape(-1))
    return found.reshape(1, -1) if x.ndim == 1 else found
