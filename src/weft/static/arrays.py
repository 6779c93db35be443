"""Functions on arrays under TensorFlow 1's names, beyond those in ``static.math``."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

import weft
from weft.core.dims import normalize_dim
from weft.dtype import as_dtype
from weft.errors import ArgumentError, ShapeError
from weft.nn import functional as F
from weft.static.building import as_node, building, function, named
from weft.static.graph import StaticTensor, constant
from weft.static.math import (
    _binary,
    _node,
    _reduction,
    _unary,
    floordiv,
    mod,
    multiply,
    truediv,
)
from weft.static.rnn import reversed_in_time
from weft.static.shapes import sizes_of
from weft.static.variable import Variable

newaxis = None

# -- element by element

acos, acosh = _unary(weft.acos, "acos"), _unary(weft.acosh, "acosh", "[1.5]")
asin, asinh = _unary(weft.asin, "asin"), _unary(weft.asinh, "asinh")
atan, atanh = _unary(weft.atan, "atan"), _unary(weft.atanh, "atanh")
cosh, sinh = _unary(weft.cosh, "cosh"), _unary(weft.sinh, "sinh")
digamma, lgamma = _unary(weft.digamma, "digamma"), _unary(weft.lgamma, "lgamma")
erf, erfc = _unary(weft.erf, "erf"), _unary(weft.erfc, "erfc")
expm1, log1p = _unary(weft.expm1, "expm1"), _unary(weft.log1p, "log1p")
is_finite, is_inf = _unary(weft.isfinite, "is_finite"), _unary(weft.isinf, "is_inf")
is_nan = _unary(weft.isnan, "is_nan")
round, rint = _unary(weft.round, "round"), _unary(weft.round, "rint")
atan2 = _binary(weft.atan2, "atan2", "[1.0], [2.0]")
floormod = mod
floor_div = floordiv
truncatemod = _binary(weft.fmod, "truncatemod")
logical_xor = _binary(weft.logical_xor, "logical_xor", "[True], [False]")
squared_difference = _binary(
    lambda x, y: (x - y) ** 2, "squared_difference", "[3.0], [2.0]"
)
xdivy = _binary(
    lambda x, y: weft.where(x == 0, 0.0, x / weft.where(x == 0, 1.0, y)),
    "xdivy", "[3.0], [2.0]",
)  # fmt: skip
reduce_logsumexp = _reduction(weft.logsumexp, "reduce_logsumexp")
reduce_variance = _reduction(
    lambda x, dims, keep: weft.var(x, dims, correction=0, keepdim=keep),
    "reduce_variance",
)
reduce_std = _reduction(
    lambda x, dims, keep: weft.std(x, dims, correction=0, keepdim=keep), "reduce_std"
)


@function
def div(x: Any, y: Any) -> Any:
    """The quotient as Python 2 had it: of whole numbers, rounded down.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run([weft.static.div([7], [2]), weft.static.div([7.0], [2.0])])
    [array([3]), array([3.5], dtype=float32)]
    """
    return (truediv if as_node(x).dtype.is_inexact else floordiv)(x, y)


@function
def div_no_nan(x: Any, y: Any) -> Any:
    """The quotient, and zero where the divisor is zero.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.div_no_nan([1.0, 1.0], [2.0, 0.0]))
    array([0.5, 0. ], dtype=float32)
    """
    x, y = as_node(x), as_node(y)
    return weft.where(y == 0, 0.0, x / weft.where(y == 0, 1.0, y))


def _cast(name: str, dtype: Any) -> Any:
    def call(x: Any) -> Any:
        return as_node(x).to(dtype)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""The tensor as {dtype.name}.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.{name}([1, 2]).dtype
    weft.{dtype.name}
    """
    return function(call)


to_float, to_double = _cast("to_float", weft.float32), _cast("to_double", weft.float64)
to_int32, to_int64 = _cast("to_int32", weft.int32), _cast("to_int64", weft.int64)


@function
def saturate_cast(value: Any, dtype: Any) -> Any:
    """The tensor in another dtype, limited to what it can hold.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.saturate_cast([300.0, -1.0], weft.uint8))
    array([255,   0], dtype=uint8)
    """
    wanted = as_dtype(dtype)
    if wanted.is_inexact:
        return as_node(value).to(wanted)
    limits = np.iinfo(wanted.np)
    return weft.clamp(as_node(value), int(limits.min), int(limits.max)).to(wanted)


# -- shapes


@function
def expand_dims(input: Any, axis: int | None = None, dim: int | None = None) -> Any:
    """Insert an axis of size one.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     weft.static.expand_dims(weft.static.constant([1, 2]), 0).get_shape()
    (1, 2)
    """
    return _node(input).unsqueeze(_given("expand_dims", axis, dim))


def _given(what: str, *choices: Any) -> Any:
    """The first of an argument's old and new names that was given."""
    for one in choices:
        if one is not None:
            return one
    raise ArgumentError(f"{what}: expected an axis")


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
        return list(weft.split(x, whole // count, axis))
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
    time = _given("reverse_sequence", seq_axis, seq_dim)
    batch = _given("reverse_sequence", batch_axis, batch_dim, 0)
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


def _refused(name: str, why: str, instead: str) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise ArgumentError(f"{name}: {why}; {instead}")

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""Refused: {why}; {instead}.

    >>> weft.static.{name}([1.0])
    Traceback (most recent call last):
    ...
    weft.errors.ArgumentError: {name}: ...
    """
    return call


_SHAPE = "the result's shape depends on values, which a graph cannot have"
boolean_mask = _refused(
    "boolean_mask", _SHAPE, "multiply by cast(mask, float32), or use where(mask, x, 0)"
)
unique = _refused("unique", _SHAPE, "call numpy.unique on fetched values")
dynamic_partition = _refused(
    "dynamic_partition", _SHAPE, "use where(partitions == k, x, 0) for each part"
)


# -- picking and placing


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
    count = _product(sizes[:depth])
    start = weft.zeros((count, *rest), dtype=values.dtype)
    rows = values.reshape(flat.shape[0], *rest)
    return weft.index_add(start, 0, flat.to(weft.int64), rows).reshape(sizes)


def _product(sizes: Any) -> Any:
    total = 1
    for n in sizes:
        total = total * n
    return total


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
    found = weft.argmax(_node(input), _given("argmax", axis, dimension, 0))
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
    found = weft.argmin(_node(input), _given("argmin", axis, dimension, 0))
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


# -- matrices


def _matrix(name: str, fn: Any, text: str, at: str, shape: str) -> Any:
    def call(input: Any) -> Any:
        return fn(as_node(input))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""{text}

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.{name}({at})).shape
    {shape}
    """
    return function(call)


_TWO = "[[2.0, 1.0], [1.0, 2.0]]"
matrix_inverse = _matrix(
    "matrix_inverse", weft.linalg.inv, "The inverse of matrices.", _TWO, "(2, 2)"
)
matrix_determinant = _matrix(
    "matrix_determinant", weft.linalg.det, "The determinants of matrices.", _TWO, "()"
)
cholesky = _matrix(
    "cholesky", weft.linalg.cholesky, "``L`` with ``L @ L.T`` the matrix.", _TWO,
    "(2, 2)",
)  # fmt: skip
matrix_transpose = _matrix(
    "matrix_transpose", lambda x: x.transpose(-2, -1), "The last two axes exchanged.",
    "[[1.0, 2.0]]", "(2, 1)",
)  # fmt: skip
trace = _matrix(
    "trace", lambda x: weft.diagonal(x, dim1=-2, dim2=-1).sum(-1),
    "The sums of diagonals.", _TWO, "()",
)  # fmt: skip
diag = _matrix(
    "diag", lambda x: weft.diag_embed(x.reshape(-1)).reshape(*x.shape, *x.shape),
    "The tensor as the diagonal of one with twice the axes.", "[1.0, 2.0]", "(2, 2)",
)  # fmt: skip
diag_part = _matrix(
    "diag_part", weft.diagonal, "The diagonal of a matrix.", _TWO, "(2,)"
)
matrix_diag = _matrix(
    "matrix_diag", weft.diag_embed, "Matrices with these diagonals.", "[1.0, 2.0]",
    "(2, 2)",
)  # fmt: skip
matrix_diag_part = _matrix(
    "matrix_diag_part", lambda x: weft.diagonal(x, dim1=-2, dim2=-1),
    "The diagonals of matrices.", _TWO, "(2,)",
)  # fmt: skip


@function
def matrix_solve(matrix: Any, rhs: Any, adjoint: bool = False) -> Any:
    """``x`` with ``matrix @ x == rhs``.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.matrix_solve([[2.0]], [[6.0]]))
    array([[3.]], dtype=float32)
    """
    a = as_node(matrix)
    return weft.linalg.solve(a.transpose(-2, -1) if adjoint else a, as_node(rhs))


@function
def svd(tensor: Any, full_matrices: bool = False, compute_uv: bool = True) -> Any:
    """Singular values ``s``, and ``u`` and ``v`` with ``u @ diag(s) @ v.T`` the matrix.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     s, u, v = session.run(weft.static.svd([[3.0, 0.0], [0.0, 2.0]]))
    ...     s
    array([3., 2.], dtype=float32)
    """
    u, s, vt = weft.linalg.svd(as_node(tensor), full_matrices=full_matrices)
    return (s, u, vt.transpose(-2, -1)) if compute_uv else s


@function
def qr(input: Any, full_matrices: bool = False) -> Any:
    """``q`` with orthonormal columns and an upper triangle ``r``: ``q @ r``.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     [x.shape for x in session.run(weft.static.qr([[1.0], [2.0]]))]
    [(2, 1), (1, 1)]
    """
    return weft.linalg.qr(as_node(input), "complete" if full_matrices else "reduced")


@function
def self_adjoint_eig(tensor: Any) -> Any:
    """Eigenvalues (rising) and eigenvectors of symmetric matrices.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.self_adjoint_eig([[2.0, 0.0], [0.0, 1.0]]))[0]
    array([1., 2.], dtype=float32)
    """
    return tuple(weft.linalg.eigh(as_node(tensor)))


@function
def norm(
    tensor: Any, ord: Any = "euclidean", axis: Any = None, keepdims: bool = False,
    keep_dims: bool | None = None,
) -> Any:  # fmt: skip
    """The norm of vectors along an axis, or of all elements.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     float(session.run(weft.static.norm([3.0, 4.0])))
    5.0
    """
    kept = keepdims if keep_dims is None else keep_dims
    x = as_node(tensor)
    if isinstance(axis, (list, tuple)) and len(axis) == 2 and ord != "euclidean":
        return weft.linalg.matrix_norm(x, ord, tuple(axis), kept)
    power = 2 if ord in ("euclidean", "fro") else ord
    return weft.linalg.vector_norm(x, power, axis, kept)


@function
def tensordot(a: Any, b: Any, axes: Any) -> Any:
    """Products summed over axes: so many last and first ones, or lists of them.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.tensordot([[1.0, 2.0]], [[3.0], [4.0]], 1))
    array([[11.]], dtype=float32)
    """
    return weft.tensordot(as_node(a), as_node(b), axes)


@function
def einsum(equation: str, *inputs: Any) -> Any:
    """Products summed as an equation of indices says.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.einsum("i,i->", [1.0, 2.0], [3.0, 4.0])).item()
    11.0
    """
    given = inputs[0] if len(inputs) == 1 and isinstance(inputs[0], tuple) else inputs
    return weft.einsum(equation, *[as_node(x) for x in given])


@function
def matrix_band_part(input: Any, num_lower: int, num_upper: int) -> Any:
    """A band around the diagonals of matrices; -1 keeps a whole triangle.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.matrix_band_part([[1, 2], [3, 4]], -1, 0))
    array([[1, 0],
           [3, 4]])
    """
    x = as_node(input)
    x = x if num_lower < 0 else weft.triu(x, -num_lower)
    return x if num_upper < 0 else weft.tril(x, num_upper)


@function
def cross(a: Any, b: Any) -> Any:
    """The cross product of vectors along the last axis.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.cross([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]))
    array([0., 0., 1.], dtype=float32)
    """
    return weft.linalg.cross(as_node(a), as_node(b))


# -- segments and counts


def _scattered(rows: Any, ids: Any, count: Any, kind: str, start: Any) -> Any:
    """Rows put together by their ids; those with an id below zero count for none."""
    # a first row takes what counts for none, so that an id too large is an error
    place = weft.where(ids < 0, 0, ids + 1).to(weft.int64)
    place = place.reshape(-1, *[1] * (rows.ndim - 1))
    into = weft.full((count + 1, *rows.shape[1:]), start, dtype=rows.dtype)
    place = weft.broadcast_to(place, rows.shape)
    return weft.scatter_reduce(into, 0, place, rows, kind).narrow(0, 1, count)


def _segments(name: str, text: str, kind: str) -> Any:
    def call(data: Any, segment_ids: Any, num_segments: Any) -> Any:
        x, ids = as_node(data), as_node(segment_ids)
        rows, ids = x.reshape(-1, *x.shape[ids.ndim :]), ids.reshape(-1)
        if kind == "mean":
            total = _scattered(rows, ids, num_segments, "sum", 0)
            ones = _scattered(weft.ones_like(rows), ids, num_segments, "sum", 0)
            return total / weft.clamp(ones, 1)
        start = _starts(x.dtype)[kind]
        return _scattered(rows, ids, num_segments, kind, start)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""The {text} of the rows of each segment, which ``ids`` tell.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     data, ids = [1.0, 2.0, 4.0], [0, 1, 0]
    ...     session.run(weft.static.{name}(data, ids, 2))
    {_SEGMENT_EXAMPLES[text]}
    """
    return function(call)


def _starts(dtype: Any) -> dict[str, Any]:
    """What an empty segment has."""
    info: Any = np.finfo(dtype.np) if dtype.is_inexact else np.iinfo(dtype.np)
    ends = [n.item() if isinstance(n, np.generic) else n for n in (info.min, info.max)]
    return {"sum": 0, "prod": 1, "amax": ends[0], "amin": ends[1]}


_SEGMENT_EXAMPLES = {
    "sum": "array([5., 2.], dtype=float32)",
    "product": "array([4., 2.], dtype=float32)",
    "maximum": "array([4., 2.], dtype=float32)",
    "minimum": "array([1., 2.], dtype=float32)",
    "mean": "array([2.5, 2. ], dtype=float32)",
}  # fmt: skip
unsorted_segment_sum = _segments("unsorted_segment_sum", "sum", "sum")
unsorted_segment_prod = _segments("unsorted_segment_prod", "product", "prod")
unsorted_segment_max = _segments("unsorted_segment_max", "maximum", "amax")
unsorted_segment_min = _segments("unsorted_segment_min", "minimum", "amin")
unsorted_segment_mean = _segments("unsorted_segment_mean", "mean", "mean")
segment_sum = _refused(
    "segment_sum", _SHAPE, "use unsorted_segment_sum with num_segments"
)
segment_mean = _refused(
    "segment_mean", _SHAPE, "use unsorted_segment_mean with num_segments"
)
segment_max = _refused(
    "segment_max", _SHAPE, "use unsorted_segment_max with num_segments"
)


@function
def histogram_fixed_width(
    values: Any, value_range: Any, nbins: int = 100, dtype: Any = weft.int32
) -> Any:
    """How many values fall into each of equal bins; those outside are in the end bins.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.histogram_fixed_width([0.1, 0.9, 2.0], [0, 1], 2))
    array([1, 2], dtype=int32)
    """
    x = as_node(values)
    low, high = as_node(value_range, x.dtype).unbind(0)
    bins = weft.floor((x - low) / (high - low) * nbins)
    bins = weft.clamp(bins, 0, nbins - 1).reshape(-1)
    ones = weft.ones_like(bins, dtype=as_dtype(dtype))
    return _scattered(ones, bins, nbins, "sum", 0)


@function
def bincount(
    arr: Any, weights: Any = None, minlength: Any = None, maxlength: Any = None,
    dtype: Any = weft.int32,
) -> Any:  # fmt: skip
    """How often each of the numbers below ``maxlength`` (== ``minlength``) is there.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.bincount([1, 1, 3], minlength=4, maxlength=4))
    array([0, 2, 0, 1], dtype=int32)
    """
    if minlength is None or minlength != maxlength:
        raise ArgumentError(
            "bincount: expected minlength and maxlength to be one number; the size of "
            "the result cannot depend on values"
        )
    ids = as_node(arr).reshape(-1)
    if weights is None:
        each = weft.ones_like(ids, dtype=as_dtype(dtype))
    else:
        each = as_node(weights).reshape(-1)
    return _scattered(each, weft.where(ids < maxlength, ids, -1), maxlength, "sum", 0)


@function
def confusion_matrix(
    labels: Any, predictions: Any, num_classes: int | None = None,
    dtype: Any = weft.int32, weights: Any = None,
) -> Any:  # fmt: skip
    """How often each class (a row) was taken for each class (a column).

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.confusion_matrix([0, 1, 1], [0, 0, 1], 2))
    array([[1, 0],
           [1, 1]], dtype=int32)
    """
    if num_classes is None:
        raise ArgumentError(
            "confusion_matrix: expected num_classes; the size of the result cannot "
            "depend on values"
        )
    rows, columns = [
        one_hot(as_node(ids).reshape(-1), num_classes, dtype=weft.float64)
        for ids in (labels, predictions)
    ]
    if weights is not None:
        rows = rows * as_node(weights, weft.float64).reshape(-1, 1)
    return (rows.transpose(0, 1) @ columns).to(as_dtype(dtype))


# -- clipping


@function
def clip_by_norm(t: Any, clip_norm: Any, axes: Any = None) -> Any:
    """The tensor, shortened to a norm where it is longer.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.clip_by_norm([3.0, 4.0], 1.0))
    array([0.6, 0.8], dtype=float32)
    """
    x = as_node(t)
    dims = tuple(builtins.range(x.ndim)) if axes is None else sizes_of(axes)
    square = (x * x).sum(dims, keepdim=True)
    length = weft.where(square > 0, square, 1.0).sqrt()
    length = weft.where(square > 0, length, square)
    return x * clip_norm / weft.maximum(length, as_node(clip_norm, x.dtype))


@function
def clip_by_average_norm(t: Any, clip_norm: Any) -> Any:
    """The tensor, shortened so that its norm over its size is no larger.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.clip_by_average_norm([3.0, 4.0], 0.5))
    array([0.6, 0.8], dtype=float32)
    """
    x = as_node(t)
    average = (x * x).sum().sqrt() / _product(x.shape)
    limit = as_node(clip_norm, x.dtype)
    return x * clip_norm / weft.maximum(average, limit)


@function
def global_norm(t_list: Any) -> Any:
    """The norm of all elements of all tensors (None is skipped).

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     float(session.run(weft.static.global_norm([[3.0], [4.0], None])))
    5.0
    """
    squares = [(as_node(t) ** 2).sum() for t in t_list if t is not None]
    if not squares:
        raise ArgumentError("global_norm: expected at least one tensor")
    total = squares[0]
    for one in squares[1:]:
        total = total + one
    return total.sqrt()


def clip_by_global_norm(
    t_list: Any, clip_norm: Any, use_norm: Any = None, name: str | None = None
) -> tuple[list[Any], Any]:
    """All tensors, shortened together to a norm; returns them and the norm before.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     (x,), norm = weft.static.clip_by_global_norm([[3.0, 4.0]], 1.0)
    ...     session.run([x, norm])
    [array([0.6, 0.8], dtype=float32), array(5., dtype=float32)]
    """
    with building():
        length = global_norm(t_list) if use_norm is None else as_node(use_norm)
        limit = as_node(clip_norm, length.dtype)
        rate = limit * weft.minimum(1 / length, 1 / limit)
        # a norm that is not finite makes everything NaN, as in TensorFlow
        rate = rate + (length - length)
        out = [None if t is None else as_node(t) * rate for t in t_list]
    return [o if o is None else named(o, name) for o in out], length


@function
def accumulate_n(inputs: Any, shape: Any = None, tensor_dtype: Any = None) -> Any:
    """The sum of several tensors.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     float(session.run(weft.static.accumulate_n([1.0, 2.0])))
    3.0
    """
    from weft.static.math import add_n

    return add_n(inputs)


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


@function
def count_nonzero(
    input_tensor: Any, axis: Any = None, keepdims: bool = False,
    dtype: Any = weft.int64,
) -> Any:  # fmt: skip
    """How many elements are not zero.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     int(session.run(weft.static.count_nonzero([0, 3, 4])))
    2
    """
    hits = (as_node(input_tensor) != 0).to(as_dtype(dtype))
    return hits.sum(axis, keepdim=keepdims) if axis is not None else hits.sum()


def scalar_mul(scalar: Any, x: Any, name: str | None = None) -> Any:
    """A number times a tensor.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.scalar_mul(2.0, [1.0, 2.0]))
    array([2., 4.], dtype=float32)
    """
    return multiply(scalar, x, name)
