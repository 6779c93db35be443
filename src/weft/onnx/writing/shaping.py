"""Rules of shapes: the same elements in other places."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.core.op import TensorType
from weft.onnx.writing.windows import index_of_maxima, pooled
from weft.onnx.writing.writer import Refused, Writer, rule, static

_END = (1 << 63) - 1


def reshaped(w: Writer, x: str, shape: Any) -> str:
    """A value in another shape, of which one size at most is left open."""
    open_ = [k for k, n in enumerate(shape) if type(n) is not int]
    if len(open_) == 1 and 0 not in shape:
        shape = [-1 if k in open_ else n for k, n in enumerate(shape)]
    zero = 1 if 0 in shape else None
    return w("Reshape", x, w.ints(shape), allowzero=zero)


@rule("reshape")
def _reshape(w: Writer, node: Any, x: str) -> str:
    maxima = index_of_maxima(node)
    if maxima is not None:
        return pooled(w, maxima)
    return reshaped(w, x, node.params["shape"])


@rule("permute")
def _permute(w: Writer, node: Any, x: str) -> str:
    dims = list(node.params["dims"])
    return w("Transpose", x, perm=dims) if dims else w("Identity", x)


@rule("expand")
def _expand(w: Writer, node: Any, x: str) -> str:
    return w("Expand", x, w.ints(node.params["shape"]))


@rule("cat")
def _cat(w: Writer, node: Any, *xs: str) -> str:
    return w("Concat", *xs, axis=node.params["dim"])


@rule("flip")
def _flip(w: Writer, node: Any, x: str) -> str:
    dims = list(node.params["dims"])
    if not dims:
        return w("Identity", x)
    ends = [-1] * len(dims), [-_END] * len(dims), dims, [-1] * len(dims)
    return w("Slice", x, *map(w.ints, ends))


def _axes(index: Any) -> tuple[list[Any], list[int]]:
    """An index without new axes, and where those are in its result."""
    kept, new, at = [], [], 0
    for one in index:
        if one is None:
            new.append(at)
        else:
            kept.append(one)
        at += one is None or isinstance(one, slice)
    return kept, new


@rule("slice")
def _slice(w: Writer, node: Any, x: str) -> str:
    starts, ends, axes, steps, gone = [], [], [], [], []
    index, new = _axes(node.params["index"])
    for axis, one in enumerate(index):
        if isinstance(one, slice):
            if one == slice(None):
                continue
            step = 1 if one.step is None else one.step
            starts.append(_or(one.start, 0 if step > 0 else _END))
            ends.append(_or(one.stop, _END if step > 0 else -_END))
            steps.append(step)
        else:
            starts.append(one)
            ends.append(_END if type(one) is int and one == -1 else one + 1)
            steps.append(1)
            gone.append(axis)
        axes.append(axis)
    if axes:
        x = w("Slice", x, *map(w.ints, (starts, ends, axes, steps)))
    x = w("Squeeze", x, w.ints(gone)) if gone else x
    return w("Unsqueeze", x, w.ints(new)) if new else x


def _or(value: Any, default: int) -> Any:
    return default if value is None else value


@rule("place")
def _place(w: Writer, node: Any, x: str) -> str:
    """Zeros with a tensor at some slices."""
    return _placed(w, x, node.inputs[0], **node.params)


@rule("put_slice")
def _put_slice(w: Writer, node: Any, x: str, value: str) -> str:
    """A choice, by a mask that is placed as the value is."""
    kind, index = node.inputs[1], node.params["index"]
    true = w("Expand", w.constant(True, weft.bool), w.ints(kind.shape))
    flags = TensorType(kind.shape, weft.bool)
    mask = _placed(w, true, flags, shape=node.shape, index=index)
    new = _placed(w, value, kind, shape=node.shape, index=index)
    return w("Where", mask, new, x)


def _placed(w: Writer, x: str, kind: Any, *, shape: Any, index: Any) -> str:
    """Zeros with a tensor at some slices: padding, after steps and single places."""
    index, new = _axes(index)
    sizes: list[Any] = [n for k, n in enumerate(kind.shape) if k not in new]
    if new:
        x = w("Squeeze", x, w.ints(new))
    index += [slice(None)] * (len(shape) - len(index))
    single = [k for k, one in enumerate(index) if not isinstance(one, slice)]
    if single:
        x = w("Unsqueeze", x, w.ints(single))
    for k in single:
        sizes.insert(k, 1)
    before, after, axes = [], [], []
    for axis, (one, size) in enumerate(zip(index, shape, strict=True)):
        if axis in single:
            start = one + size if type(one) is int and one < 0 else one
            pair = start, size - start - 1
        elif one == slice(None):
            continue
        else:
            start, step = one.start or 0, 1 if one.step is None else one.step
            stop = size if one.stop is None else one.stop
            if step != 1:
                start, stop, step = static([start, stop, step], "a step")
                if step < 0 or start < 0:
                    raise Refused("a step backwards has no form in ONNX here")
                many = -(-(stop - start) // step) * step
                now = [many if k == axis else n for k, n in enumerate(sizes)]
                x = _spread(w, x, now, axis, step, stop - start)
                sizes[axis] = stop - start
            pair = start, size - stop
        before.append(pair[0])
        after.append(pair[1])
        axes.append(axis)
    if not axes:
        return x
    starts, ends = [0] * len(shape), [0] * len(shape)
    for axis, a, b in zip(axes, before, after, strict=True):
        starts[axis], ends[axis] = a, b
    pads = w.ints([*starts, *ends])
    if kind.dtype is weft.bool:  # some libraries pad numbers alone
        return w.cast(w("Pad", w.cast(x, weft.int32), pads), weft.bool)
    return w("Pad", x, pads)


def _spread(
    w: Writer, x: str, shape: list[Any], axis: int, step: int, span: int
) -> str:
    """Elements of an axis with zeros between them; ``shape`` is the new one."""
    rank = len(shape)
    x = w("Unsqueeze", x, w.ints([axis + 1]))
    pads = [0] * (2 * (rank + 1))
    pads[rank + 1 + axis + 1] = step - 1
    x = w("Pad", x, w.ints(pads))
    x = reshaped(w, x, shape)
    return w("Slice", x, w.ints([0]), w.ints([span]), w.ints([axis]))


@rule("diagonal")
def _diagonal(w: Writer, node: Any, x: str) -> str:
    given = node.inputs[0]
    dims = node.params["dim1"], node.params["dim2"]
    rank = len(given.shape)
    first, second = (d % rank for d in dims)
    rows, columns = static([given.shape[first], given.shape[second]], "diagonal")
    rest = [k for k in range(rank) if k not in (first, second)]
    x = w("Transpose", x, perm=[*rest, first, second])
    x = reshaped(w, x, [*(given.shape[k] for k in rest), rows * columns])
    where = np.diagonal(
        np.arange(rows * columns).reshape(rows, columns), node.params["offset"]
    )
    return w("Gather", x, w.constant(where.astype(np.int64)), axis=rank - 2)


@rule("windows")
def _windows(w: Writer, node: Any, x: str) -> str:
    given, dim = node.inputs[0], node.params["dim"]
    size, step = node.params["size"], node.params["step"]
    (length,) = static([given.shape[dim]], "unfold")
    starts = np.arange(0, length - size + 1, step)
    at = starts[:, None] + np.arange(size)
    x = w("Gather", x, w.constant(at.astype(np.int64)), axis=dim)
    rank = len(given.shape) + 1
    order = [k for k in range(rank) if k != dim + 1] + [dim + 1]
    return w("Transpose", x, perm=order)


@rule("arange")
def _arange(w: Writer, node: Any) -> str:
    start, step, count = (node.params[k] for k in ("start", "step", "count"))
    if all(isinstance(n, (int, float)) for n in (start, step, count)) and count < 65536:
        value = node.op.eval(**node.params)
        return w.constant(np.asarray(value))
    zero, one = w.size(0), w.size(1)
    x = w("Range", zero, w.size(count), one)
    x = w.cast(x, node.dtype)
    x = w("Mul", x, w.read(step, node.dtype))
    return w("Add", x, w.read(start, node.dtype))
