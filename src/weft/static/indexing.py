"""Picking, placing, ordering and running sums under TensorFlow 1's names."""

from __future__ import annotations

import builtins
from typing import Any

import weft
from weft.core.dims import normalize_dim
from weft.dtype import as_dtype
from weft.errors import ArgumentError
from weft.static.building import as_node, function, given, product_of
from weft.static.math import (
    _node,
)
from weft.static.shapes import sizes_of
from weft.static.variable import Variable


def _flat_index(indices: Any, shape: Any) -> Any:
    """Rows of indices as positions in an array that was made flat."""
    position = indices[..., 0]
    for k, n in enumerate(shape[1:], 1):
        position = position * n + indices[..., k]
    return position


@function
def gather_nd(params: Any, indices: Any) -> Any:
    """Elements or slices by rows of indices, one index an axis.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.gather_nd([[1, 2], [3, 4]], [[0, 1], [1, 0]]))
    array([2, 3])
    """
    x, ids = as_node(params), as_node(indices)
    return x[tuple(ids[..., k] for k in builtins.range(ids.shape[-1]))]


@function
def scatter_nd(indices: Any, updates: Any, shape: Any) -> Any:
    """Zeros, with updates added at rows of indices.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.scatter_nd([[1], [1]], [5.0, 6.0], [3]))
    array([ 0., 11.,  0.], dtype=float32)
    """
    ids, values = as_node(indices), as_node(updates)
    sizes = sizes_of(shape)
    depth = ids.shape[-1]
    rest = sizes[depth:]
    flat = _flat_index(ids, sizes[:depth]).reshape(-1)
    count = product_of(sizes[:depth])
    start = weft.zeros((count, *rest), dtype=values.dtype)
    rows = values.reshape(flat.shape[0], *rest)
    return weft.index_add(start, 0, flat.to(weft.int64), rows).reshape(sizes)


def _rows(name: str, change: Any, text: str) -> Any:
    def call(
        ref: Variable, indices: Any, updates: Any, use_locking: bool = False
    ) -> Any:
        ids = as_node(indices).to(weft.int64)
        now = ref.read_value()
        new = as_node(updates, ref.dtype)
        rows = ref.shape[1:]
        new = weft.broadcast_to(new, (*ids.shape, *rows)) if new.ndim == 0 else new
        ids, new = ids.reshape(-1), new.reshape(-1, *rows)
        return ref.assign(change(now, ids, new))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""{text} Gives the variable's new value.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     w = weft.static.Variable([1.0, 2.0, 3.0])
    ...     session.run(w.initializer)
    ...     session.run(weft.static.{name}(w, [1], [10.0])).shape
    (3,)
    """
    return function(call)


scatter_update = _rows(
    "scatter_update", lambda x, i, v: weft.index_copy(x, 0, i, v),
    "Rows of a variable set to new ones.",
)  # fmt: skip
scatter_add = _rows(
    "scatter_add", lambda x, i, v: weft.index_add(x, 0, i, v),
    "Updates added to rows of a variable.",
)  # fmt: skip
scatter_sub = _rows(
    "scatter_sub", lambda x, i, v: weft.index_add(x, 0, i, -v),
    "Updates taken off rows of a variable.",
)  # fmt: skip


scatter_mul = _rows(
    "scatter_mul", lambda x, i, v: weft.index_reduce(x, 0, i, v, "prod"),
    "Rows of a variable times updates.",
)  # fmt: skip
scatter_div = _rows(
    "scatter_div", lambda x, i, v: weft.index_reduce(x, 0, i, 1 / v, "prod"),
    "Rows of a variable divided by updates.",
)  # fmt: skip
scatter_max = _rows(
    "scatter_max", lambda x, i, v: weft.index_reduce(x, 0, i, v, "amax"),
    "Rows of a variable, and of updates where those are larger.",
)  # fmt: skip
scatter_min = _rows(
    "scatter_min", lambda x, i, v: weft.index_reduce(x, 0, i, v, "amin"),
    "Rows of a variable, and of updates where those are smaller.",
)  # fmt: skip


@function
def argmax(
    input: Any, axis: int | None = None, dimension: int | None = None,
    output_type: Any = weft.int64,
) -> Any:  # fmt: skip
    """The index of the largest element along an axis.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     int(session.run(weft.static.argmax(weft.static.constant([1, 5, 2]))))
    1
    """
    found = weft.argmax(_node(input), given("argmax", axis, dimension, 0))
    return found.to(as_dtype(output_type))


@function
def argmin(
    input: Any, axis: int | None = None, dimension: int | None = None,
    output_type: Any = weft.int64,
) -> Any:  # fmt: skip
    """The index of the smallest element along an axis.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     int(session.run(weft.static.argmin([3, 1, 2])))
    1
    """
    found = weft.argmin(_node(input), given("argmin", axis, dimension, 0))
    return found.to(as_dtype(output_type))


arg_max, arg_min = argmax, argmin


def _descending(direction: str) -> bool:
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ArgumentError(
            f"direction: expected 'ASCENDING' or 'DESCENDING', got {direction!r}"
        )
    return direction == "DESCENDING"


@function
def sort(values: Any, axis: int = -1, direction: str = "ASCENDING") -> Any:
    """The elements in order along an axis.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.sort([3, 1, 2], direction="DESCENDING"))
    array([3, 2, 1])
    """
    return weft.sort(as_node(values), axis, _descending(direction))[0]


@function
def argsort(
    values: Any, axis: int = -1, direction: str = "ASCENDING", stable: bool = False
) -> Any:
    """The indices that put elements in order along an axis; equal ones as they were.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.argsort([3, 1, 2]))
    array([1, 2, 0], dtype=int32)
    """
    x = as_node(values)
    found = weft.argsort(x, axis, _descending(direction), stable=True)
    return found.to(weft.int32)


def _cumulative(name: str, fn: Any, neutral: int) -> Any:
    def call(
        x: Any, axis: int = 0, exclusive: bool = False, reverse: bool = False
    ) -> Any:
        x = as_node(x)
        d = normalize_dim(name, axis, x.ndim)
        x = weft.flip(x, (d,)) if reverse else x
        if exclusive:  # each without the element itself: shifted by one
            one = weft.full_like(x.narrow(d, 0, 1), neutral)
            x = weft.cat([one, x], d).narrow(d, 0, x.shape[d])
        out = fn(x, d)
        return weft.flip(out, (d,)) if reverse else out

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""The running {"sum" if neutral == 0 else "product"} along an axis.

    ``exclusive`` leaves each element itself out, ``reverse`` begins at the end.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.{name}([1.0, 2.0, 3.0])).shape
    (3,)
    """
    return function(call)


cumsum = _cumulative("cumsum", weft.cumsum, 0)
cumprod = _cumulative("cumprod", weft.cumprod, 1)


@function
def tensor_scatter_update(tensor: Any, indices: Any, updates: Any) -> Any:
    """A tensor with other values at rows of indices.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.tensor_scatter_update([1, 2, 3], [[1]], [9]))
    array([1, 9, 3])
    """
    x, ids = as_node(tensor), as_node(indices)
    index = tuple(ids[..., k] for k in builtins.range(ids.shape[-1]))
    return weft.index_put(x, index, as_node(updates, x.dtype))


def _at(name: str, text: str, variable: bool, change: Any) -> Any:
    """A function that changes elements at rows of indices."""

    def call(ref: Any, indices: Any, updates: Any, use_locking: bool = False) -> Any:
        now = ref.read_value() if variable else as_node(ref)
        ids = as_node(indices).to(weft.int64)
        index = tuple(ids[..., k] for k in builtins.range(ids.shape[-1]))
        new = change(now, index, as_node(updates, now.dtype))
        return ref.assign(new) if variable else new

    call.__name__ = call.__qualname__ = name
    first = "weft.static.Variable([1.0, 2.0, 3.0])" if variable else "[1.0, 2.0, 3.0]"
    call.__doc__ = f"""{text} at rows of indices.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     w = {first}
    ...     session.run(weft.static.global_variables_initializer())
    ...     session.run(weft.static.{name}(w, [[1]], [10.0])).shape
    (3,)
    """
    return function(call)


def _put(x: Any, index: Any, new: Any) -> Any:
    return weft.index_put(x, index, new)


def _add(x: Any, index: Any, new: Any) -> Any:
    return weft.index_put(x, index, new, accumulate=True)


def _sub(x: Any, index: Any, new: Any) -> Any:
    return weft.index_put(x, index, -new, accumulate=True)


scatter_nd_update = _at("scatter_nd_update", "A variable with other values", True, _put)
scatter_nd_add = _at("scatter_nd_add", "A variable with updates added", True, _add)
scatter_nd_sub = _at("scatter_nd_sub", "A variable less updates", True, _sub)
tensor_scatter_add = _at("tensor_scatter_add", "A tensor, updates added", False, _add)
tensor_scatter_sub = _at("tensor_scatter_sub", "A tensor less updates", False, _sub)
tensor_scatter_nd_update = tensor_scatter_update
tensor_scatter_nd_add, tensor_scatter_nd_sub = tensor_scatter_add, tensor_scatter_sub


@function
def batch_gather(params: Any, indices: Any) -> Any:
    """Rows by indices, in each batch its own.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.batch_gather([[1, 2], [3, 4]], [[1], [0]]))
    array([[2],
           [3]])
    """
    x, ids = as_node(params), as_node(indices).to(weft.int64)
    lead = ids.ndim - 1
    rest = x.shape[lead + 1 :]
    ids = ids.reshape(*ids.shape, *[1] * len(rest))
    return weft.gather(x, lead, weft.broadcast_to(ids, (*ids.shape[: lead + 1], *rest)))


@function
def invert_permutation(x: Any) -> Any:
    """The permutation that undoes another one.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.invert_permutation([2, 0, 1]))
    array([1, 2, 0])
    """
    order = as_node(x)
    return weft.argsort(order).to(order.dtype)


@function
def searchsorted(
    sorted_sequence: Any, values: Any, side: str = "left", out_type: Any = weft.int32
) -> Any:
    """The places at which values would keep a sequence in order.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.searchsorted([1.0, 3.0], [0.0, 2.0, 3.0]))
    array([0, 1, 1], dtype=int32)
    """
    found = weft.searchsorted(as_node(sorted_sequence), as_node(values), side=side)
    return found.to(as_dtype(out_type))


@function
def unravel_index(indices: Any, dims: Any) -> Any:
    """Positions in a flat array as rows of indices, one row an axis.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.unravel_index([5], [2, 3]))
    array([[1],
           [2]])
    """
    return weft.stack(list(weft.unravel_index(as_node(indices), tuple(dims))))


@function
def dynamic_stitch(indices: Any, data: Any) -> Any:
    """Rows of several tensors put where their indices say; all places must be known.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.dynamic_stitch([[0, 2], [1]], [[1.0, 3.0], [2.0]]))
    array([1., 2., 3.], dtype=float32)
    """
    places = [as_node(ids).reshape(-1).to(weft.int64) for ids in indices]
    tensors = [as_node(rows) for rows in data]
    axes = as_node(indices[0]).ndim
    rest = tensors[0].shape[axes:]
    rows = weft.cat([t.reshape(-1, *rest) for t in tensors])
    start = weft.zeros((rows.shape[0], *rest), dtype=rows.dtype)
    return weft.index_copy(start, 0, weft.cat(places), rows)
