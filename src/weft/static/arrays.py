"""Shapes, and arrays that are made, under TensorFlow 1's names."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

import weft
from weft.core.size import TensorShape
from weft.dtype import as_dtype
from weft.errors import ArgumentError, ShapeError
from weft.nn import functional as F
from weft.static.building import (
    SHAPE_OF_VALUES,
    as_node,
    function,
    given,
    refused,
)
from weft.static.graph import StaticTensor, constant
from weft.static.math import (
    _node,
    identity,
)
from weft.static.math import shape as shape_of
from weft.static.rnn import reversed_in_time
from weft.static.shapes import sizes_of

newaxis = None

# -- shapes


@function
def expand_dims(input: Any, axis: int | None = None, dim: int | None = None) -> Any:
    """Insert an axis of size one.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     weft.static.expand_dims(weft.static.constant([1, 2]), 0).get_shape()
    (1, 2)
    """
    return _node(input).unsqueeze(given("expand_dims", axis, dim))


@function
def squeeze(input: Any, axis: Any = None, squeeze_dims: Any = None) -> Any:
    """Remove the axes of size one.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     weft.static.squeeze(weft.static.constant([[1, 2]])).get_shape()
    (2,)
    """
    x = _node(input)
    dims = squeeze_dims if axis is None else axis
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return x.squeeze()
    chosen = dims if isinstance(dims, (list, tuple)) else (dims,)
    for d in chosen:
        n = x.shape[d]
        if isinstance(n, int) and n != 1:
            raise ShapeError(f"squeeze: axis {d} has size {n}, not 1")
    return x.squeeze(tuple(chosen))


@function
def tile(input: Any, multiples: Any) -> Any:
    """The tensor several times along each axis.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.tile([1, 2], [2]))
    array([1, 2, 1, 2])
    """
    return weft.tile(as_node(input), sizes_of(multiples))


_MODES = {"CONSTANT": "constant", "REFLECT": "reflect", "SYMMETRIC": "symmetric"}


@function
def pad(
    tensor: Any, paddings: Any, mode: str = "CONSTANT", constant_values: Any = 0
) -> Any:
    """The tensor with more elements before and after along each axis.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.pad([1, 2], [[1, 2]]))
    array([0, 1, 2, 0, 0])
    """
    x = as_node(tensor)
    amounts = [tuple(p) for p in paddings]
    if len(amounts) != x.ndim:
        raise ShapeError(
            f"pad: expected a pair for each of {x.ndim} axes, got {len(amounts)}"
        )
    if mode.upper() == "CONSTANT":
        flat = [n for pair in amounts[::-1] for n in pair]
        return F.pad(x, flat, value=constant_values)
    if mode.upper() not in _MODES:
        raise ArgumentError(f"pad: expected a mode of {list(_MODES)}, got {mode!r}")
    skip = 1 if mode.upper() == "REFLECT" else 0
    for d, (before, after) in enumerate(amounts):
        n = x.shape[d]
        order = [*builtins.range(before + skip - 1, skip - 1, -1)]
        ends = (
            [*builtins.range(n - 1 - skip, n - 1 - skip - after, -1)] if after else []
        )
        pieces = [
            weft.index_select(x, d, constant(ids)) for ids in (order, ends) if ids
        ]
        first = [pieces.pop(0)] if order else []
        x = weft.cat([*first, x, *pieces], d)
    return x


@function
def split(
    value: Any, num_or_size_splits: Any, axis: int = 0, num: int | None = None
) -> list[Any]:
    """Parts along an axis: so many equal ones, or ones of given sizes.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.split([1, 2, 3, 4], 2))
    [array([1, 2]), array([3, 4])]
    """
    if isinstance(value, int) and isinstance(num_or_size_splits, weft.Tensor):
        raise ArgumentError("split: expected (value, num_or_size_splits, axis)")
    x = as_node(value)
    whole = x.shape[axis]
    if isinstance(num_or_size_splits, (int, np.integer)):
        count = int(num_or_size_splits)
        if isinstance(whole, int) and whole % count:
            raise ShapeError(f"split: {whole} elements are not {count} equal parts")
        if isinstance(whole, int):
            return list(weft.split(x, whole // count, axis))
        part = whole // count
        if part * count != whole:
            raise ShapeError(f"split: {whole} elements are not {count} equal parts")
        return [x.narrow(axis, part * k, part) for k in builtins.range(count)]
    sizes = list(num_or_size_splits)
    if -1 in sizes:
        rest = whole - sum(n for n in sizes if n != -1)
        sizes[sizes.index(-1)] = rest
    return list(weft.split(x, sizes, axis))


@function
def unstack(value: Any, num: int | None = None, axis: int = 0) -> list[Any]:
    """The slices along an axis, as a list.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.unstack([[1, 2], [3, 4]]))
    [array([1, 2]), array([3, 4])]
    """
    x = as_node(value)
    n = x.shape[axis]
    if not isinstance(n, int):
        if num is None:
            raise ShapeError(
                f"unstack: the size of axis {axis} is not known when the graph is "
                "built; give num="
            )
        return [x.select(axis, k) for k in builtins.range(num)]
    return list(weft.unbind(x, axis))


@function
def slice(input_: Any, begin: Any, size: Any) -> Any:
    """A block: where it begins, and how large it is (-1: to the end) along each axis.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.slice([1, 2, 3, 4], [1], [2]))
    array([2, 3])
    """
    x = as_node(input_)
    for d, (start, n) in enumerate(
        zip(
            list(begin) if not isinstance(begin, StaticTensor) else begin.unbind(0),
            sizes_of(size),
            strict=True,
        )
    ):
        length = x.shape[d] - start if isinstance(n, int) and n == -1 else n
        x = x.narrow(d, start, length)
    return x


@function
def strided_slice(
    input_: Any, begin: Any, end: Any, strides: Any = None, begin_mask: int = 0,
    end_mask: int = 0, ellipsis_mask: int = 0, new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> Any:  # fmt: skip
    """``x[begin:end:strides]`` along each axis; a bit of a mask is for an axis.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.strided_slice([1, 2, 3, 4], [0], [4], [2]))
    array([1, 3])
    """
    steps = [1] * len(begin) if strides is None else strides
    index: list[Any] = []
    for d, (a, b, step) in enumerate(zip(begin, end, steps, strict=True)):
        bit = 1 << d
        if ellipsis_mask & bit:
            index.append(...)
        elif new_axis_mask & bit:
            index.append(None)
        elif shrink_axis_mask & bit:
            index.append(a)
        else:
            first = None if begin_mask & bit else a
            index.append(builtins.slice(first, None if end_mask & bit else b, step))
    return as_node(input_)[tuple(index)]


@function
def reverse(tensor: Any, axis: Any) -> Any:
    """The elements in the opposite order along axes.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.reverse([1, 2, 3], [0]))
    array([3, 2, 1])
    """
    return weft.flip(as_node(tensor), sizes_of(axis))


@function
def reverse_sequence(
    input: Any, seq_lengths: Any, seq_axis: int | None = None,
    batch_axis: int | None = None, seq_dim: int | None = None,
    batch_dim: int | None = None,
) -> Any:  # fmt: skip
    """Rows reversed along an axis, each up to its own length.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.reverse_sequence([[1, 2, 3]], [2], 1))
    array([[2, 1, 3]])
    """
    time = given("reverse_sequence", seq_axis, seq_dim)
    batch = given("reverse_sequence", batch_axis, batch_dim, 0)
    return reversed_in_time(as_node(input), seq_lengths, time, batch)


@function
def sequence_mask(lengths: Any, maxlen: Any = None, dtype: Any = weft.bool) -> Any:
    """For each length, as many true elements and then false ones.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.sequence_mask([1, 2], 3))
    array([[ True, False, False],
           [ True,  True, False]])
    """
    if maxlen is None or isinstance(maxlen, weft.Tensor):
        raise ArgumentError(
            "sequence_mask: expected maxlen as a number or a size of another tensor's "
            "shape; the size of the result cannot depend on values"
        )
    ends = as_node(lengths)
    return (weft.arange(maxlen) < ends.unsqueeze(-1)).to(as_dtype(dtype))


@function
def one_hot(
    indices: Any, depth: int, on_value: Any = None, off_value: Any = None,
    axis: int | None = None, dtype: Any = None,
) -> Any:  # fmt: skip
    """A one (``on_value``) at each index, zeros (``off_value``) elsewhere.

    They stand in a new axis, the last one unless told; an index outside of it has no
    one at all.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     session.run(weft.static.one_hot([1], 3))
    array([[0., 1., 0.]], dtype=float32)
    """
    ids = as_node(indices)
    given = next((v for v in (on_value, off_value) if v is not None), None)
    wanted = as_node(given).dtype if dtype is None and given is not None else dtype
    wanted = as_dtype(weft.float32 if wanted is None else wanted)
    hits = ids.unsqueeze(-1) == weft.arange(depth)
    on = as_node(1 if on_value is None else on_value, wanted)
    off = as_node(0 if off_value is None else off_value, wanted)
    out = weft.where(hits, on, off)
    if axis is None or axis in (-1, ids.ndim):
        return out
    return out.movedim(-1, axis)


@function
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """``x`` where the condition holds, else ``y``; one flag a row chooses rows.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     x = weft.static.constant([-1.0, 2.0])
    ...     session.run(weft.static.where(x > 0, x, 0.0))
    array([0., 2.], dtype=float32)
    """
    flags = _node(condition)
    if x is None or y is None:
        raise ArgumentError(
            "where: expected x and y; the places where a condition holds have a shape "
            "that depends on values, which a graph cannot have. Use where(condition, "
            "x, y), or a sum over cast(condition, float32)"
        )
    axes = max(v.ndim for v in (_node(x), _node(y)))
    if flags.ndim == 1 and axes > 1:  # as TensorFlow 1: rows, not columns
        flags = flags.reshape(-1, *[1] * (axes - 1))
    return weft.where(flags, x, y)


boolean_mask = refused(
    "boolean_mask",
    SHAPE_OF_VALUES,
    "multiply by cast(mask, float32), or use where(mask, x, 0)",
)  # fmt: skip
unique = refused("unique", SHAPE_OF_VALUES, "call numpy.unique on fetched values")
dynamic_partition = refused(
    "dynamic_partition",
    SHAPE_OF_VALUES,
    "use where(partitions == k, x, 0) for each part",
)


@function
def depth_to_space(input: Any, block_size: int) -> Any:
    """Channels moved into blocks of space.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.depth_to_space(np.ones((1, 2, 2, 8)), 2)).shape
    (1, 4, 4, 2)
    """
    x, b = as_node(input), block_size
    n, h, w, c = x.shape
    x = x.reshape(n, h, w, b, b, c // (b * b)).permute(0, 1, 3, 2, 4, 5)
    return x.reshape(n, h * b, w * b, c // (b * b))


@function
def space_to_depth(input: Any, block_size: int) -> Any:
    """Blocks of space moved into channels.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.space_to_depth(np.ones((1, 4, 4, 2)), 2)).shape
    (1, 2, 2, 8)
    """
    x, b = as_node(input), block_size
    n, h, w, c = x.shape
    x = x.reshape(n, h // b, b, w // b, b, c).permute(0, 1, 3, 2, 4, 5)
    return x.reshape(n, h // b, w // b, b * b * c)


# -- making


@function
def fill(dims: Any, value: Any) -> Any:
    """One number everywhere.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.fill([2], 9.0))
    array([9., 9.], dtype=float32)
    """
    x = as_node(value)
    return weft.broadcast_to(x, sizes_of(dims))


@function
def range(start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None) -> Any:
    """Numbers from a start to a limit (not with it), a step apart.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.range(3))
    array([0, 1, 2])
    """
    start, limit = (0, start) if limit is None else (start, limit)
    ends = [_end(one) for one in (start, limit, delta)]
    found = weft.arange(*ends)
    return found if dtype is None else found.to(as_dtype(dtype))


def _end(value: Any) -> Any:
    return sizes_of(value)[0] if isinstance(value, StaticTensor) else value


@function
def linspace(start: Any, stop: Any, num: int) -> Any:
    """Numbers at equal distances, both ends included.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.linspace(0.0, 1.0, 3))
    array([0. , 0.5, 1. ], dtype=float32)
    """
    first, last = as_node(start), as_node(stop)
    rate = weft.arange(num, dtype=first.dtype) / builtins.max(num - 1, 1)
    return first + (last - first) * rate


lin_space = linspace


@function
def eye(
    num_rows: Any, num_columns: Any = None, batch_shape: Any = None,
    dtype: Any = weft.float32,
) -> Any:  # fmt: skip
    """The identity matrix, or a batch of it.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.eye(2))
    array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    columns = num_rows if num_columns is None else num_columns
    rows = weft.arange(num_rows).reshape(-1, 1)
    one = (rows == weft.arange(columns)).to(as_dtype(dtype))
    if batch_shape is None:
        return one
    return weft.broadcast_to(one, (*sizes_of(batch_shape), *one.shape))


@function
def convert_to_tensor(
    value: Any, dtype: Any = None, preferred_dtype: Any = None, dtype_hint: Any = None
) -> Any:
    """A node of a value; a list may hold nodes.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.convert_to_tensor([1.0, 2.0])
    <constant 'Const' float32[2]>
    """
    return as_node(value, dtype)


def is_tensor(x: Any) -> bool:
    """Whether this is a node.

    >>> weft.static.is_tensor(1.0)
    False
    """
    return isinstance(x, StaticTensor)


@function
def broadcast_to(input: Any, shape: Any) -> Any:
    """The tensor repeated along axes of size one and new first axes.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.broadcast_to([1, 2], [2, 2])).shape
    (2, 2)
    """
    return weft.broadcast_to(as_node(input), sizes_of(shape))


@function
def meshgrid(*args: Any, indexing: str = "xy") -> list[Any]:
    """Coordinates of a grid.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.meshgrid([1, 2], [3, 4, 5]))[0].shape
    (3, 2)
    """
    return list(weft.meshgrid(*[as_node(a) for a in args], indexing=indexing))


@function
def roll(input: Any, shift: Any, axis: Any) -> Any:
    """Elements moved along axes; those that leave at one end come in at the other.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.roll([1, 2, 3], 1, 0))
    array([3, 1, 2])
    """
    return weft.roll(as_node(input), shift, axis)


@function
def repeat(input: Any, repeats: Any, axis: int | None = None) -> Any:
    """Each element so many times.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.repeat([1, 2], 2))
    array([1, 1, 2, 2])
    """
    return weft.repeat_interleave(as_node(input), repeats, axis)


@function
def ensure_shape(x: Any, shape: Any) -> Any:
    """The tensor, with sizes that are known from here on and checked in a run.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 2])
    ...     weft.static.ensure_shape(x, [3, 2]).get_shape()
    (3, 2)
    """
    out = identity(x)
    out.set_shape(shape)
    return out


@function
def shape_n(input: Any, out_type: Any = weft.int32) -> list[Any]:
    """The shape of each of several tensors.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.shape_n([[1.0, 2.0]]))
    [array([2], dtype=int32)]
    """
    return [shape_of(x, out_type=out_type) for x in input]


def broadcast_static_shape(shape_x: Any, shape_y: Any) -> TensorShape:
    """The shape that tensors of two shapes have together.

    >>> weft.static.broadcast_static_shape([3, 1], [4])
    (3, 4)
    """
    return TensorShape(np.broadcast_shapes(tuple(shape_x), tuple(shape_y)))


def dimension_value(dimension: Any) -> int | None:
    """The number of a size; None if a run decides it.

    >>> weft.static.dimension_value(weft.static.Dimension(3))
    3
    """
    return None if dimension is None else getattr(dimension, "value", dimension)


@function
def space_to_batch_nd(input: Any, block_shape: Any, paddings: Any) -> Any:
    """Blocks of space, after zeros around them, moved into the batch.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = np.ones((1, 2, 2, 1), "f")
    ...     y = weft.static.space_to_batch_nd(x, [2, 2], np.zeros((2, 2)))
    ...     session.run(y).shape
    (4, 1, 1, 1)
    """
    blocks, ends = np.asarray(block_shape).tolist(), np.asarray(paddings, int).tolist()
    x, axes = as_node(input), len(blocks)
    wide = [n for pair in reversed(ends) for n in pair]
    x = F.pad(x, [0, 0] * (x.ndim - 1 - axes) + wide)
    batch, space, rest = x.shape[0], x.shape[1 : axes + 1], x.shape[axes + 1 :]
    split = [m for n, b in zip(space, blocks, strict=True) for m in (n // b, b)]
    count = builtins.range
    order = [*count(2, 2 * axes + 1, 2), 0, *count(1, 2 * axes + 1, 2)]
    order += count(2 * axes + 1, 2 * axes + 1 + len(rest))
    x = x.reshape(batch, *split, *rest).permute(order)
    small = [n // b for n, b in zip(space, blocks, strict=True)]
    return x.reshape(batch * int(np.prod(blocks)), *small, *rest)


@function
def batch_to_space_nd(input: Any, block_shape: Any, crops: Any) -> Any:
    """Blocks of the batch moved into space, whose ends are then cut off.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = np.ones((4, 1, 1, 1), "f")
    ...     y = weft.static.batch_to_space_nd(x, [2, 2], np.zeros((2, 2)))
    ...     session.run(y).shape
    (1, 2, 2, 1)
    """
    blocks, ends = np.asarray(block_shape).tolist(), np.asarray(crops, int).tolist()
    x, axes, count = as_node(input), len(blocks), builtins.range
    space, rest = x.shape[1 : axes + 1], x.shape[axes + 1 :]
    batch = x.shape[0] // int(np.prod(blocks))
    order = [axes, *[d for k in count(axes) for d in (axes + 1 + k, k)]]
    order += count(2 * axes + 1, 2 * axes + 1 + len(rest))
    x = x.reshape(*blocks, batch, *space, *rest).permute(order)
    x = x.reshape(batch, *[n * b for n, b in zip(space, blocks, strict=True)], *rest)
    for axis, (low, high) in enumerate(ends, 1):
        x = x.narrow(axis, low, x.shape[axis] - low - high)
    return x


def space_to_batch(input: Any, paddings: Any, block_size: int) -> Any:
    """``space_to_batch_nd`` of two axes with one block size.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = np.ones((1, 2, 2, 1), "f")
    ...     session.run(weft.static.space_to_batch(x, [[0, 0], [0, 0]], 2)).shape
    (4, 1, 1, 1)
    """
    return space_to_batch_nd(input, [block_size] * 2, paddings)


def batch_to_space(input: Any, crops: Any, block_size: int) -> Any:
    """``batch_to_space_nd`` of two axes with one block size.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = np.ones((4, 1, 1, 1), "f")
    ...     session.run(weft.static.batch_to_space(x, [[0, 0], [0, 0]], 2)).shape
    (1, 2, 2, 1)
    """
    return batch_to_space_nd(input, [block_size] * 2, crops)
