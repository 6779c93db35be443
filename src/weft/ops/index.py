"""Rows by index: taken, added to, and replaced.

The primitives are ``take``, its transpose ``add_at``, and ``put``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.dims import existing_dim, normalize_dim
from weft.core.eager_kernels import SLOW
from weft.core.lowering import Element, Scatter
from weft.core.op import Op, Sample, TensorType, define
from weft.core.size import is_integer
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, RankError, ShapeError
from weft.ops import dividing
from weft.ops.broadcasting import expand
from weft.ops.copies import cast
from weft.ops.creation import ones, zeros
from weft.ops.operands import as_index, check_range, concrete, scalar
from weft.ops.public import public
from weft.ops.require import require_index
from weft.ops.select import where
from weft.ops.shaping import movedim, own, reshape

# -- take, add_at, put


def _take_eval(x: Any, index: Any) -> Any:
    check_range("take", index, x.shape[0], 0)
    return x[index]


def _take_type(x: TensorType, index: TensorType) -> TensorType:
    return TensorType((*index.shape, *x.shape[1:]), x.dtype)


def _take_batch(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Tensor:
    x, index = args
    if not batched[1]:  # the batch axis goes behind the rows and comes back
        return movedim(take_op(movedim(x, 0, 1), index), index.ndim, 0)
    if not batched[0]:
        return take_op(x, index)
    rows, flat = _flat_rows(x, index, size)
    return take_op(rows, flat)


def _flat_rows(x: Tensor, index: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Rows of all examples in one axis, and indices into it."""
    n = x.shape[1]
    first = np.arange(size).reshape(-1, *(1,) * (index.ndim - 1)) * n
    start = Tensor(first).to(index.device)
    wrapped = where(index < 0, index + n, index) + start
    return reshape(x, (size * n, *x.shape[2:])), wrapped


def _index_samples(rng: np.random.Generator) -> Any:
    for shape, ids in (((4, 3), (2, 2)), ((5,), (3,)), ((4, 2), ()), ((3, 0), (2,))):
        yield Sample(
            (rng.uniform(-2, 2, shape), rng.integers(-shape[0], shape[0], ids))
        )


def _taken(k: Any, out: Any, x: Any, index: Any) -> Any:
    lead = len(index.shape)
    row = k.within(index[out[:lead]], x.shape[0], wrap=True)
    return x[row, *out[lead:]]


take_op: Op = define(
    "take",
    divides=dividing.taken,
    refuses={"index": 10**6},
    bulk=SLOW,
    inputs="x index",
    eval=_take_eval,
    type=_take_type,
    cost=0,
    lower=Element(_taken),
    vjp={"x": lambda g, x_shape, index: add_at(g, index, size=x_shape[0])},
    jvp={"x": lambda t, index: take_op(t, index)},
    batch=_take_batch,
    samples=_index_samples,
    reference=lambda x, index: np.stack(
        [x[int(i)] for i in np.ravel(index)] or [np.zeros(x.shape[1:])]
    ).reshape(*np.shape(index), *x.shape[1:]),
)


def _add_at_eval(x: Any, index: Any, *, size: int) -> Any:
    check_range("add_at", index, size, 0)
    out = np.zeros((size, *x.shape[np.ndim(index) :]), x.dtype)
    np.add.at(out, index, x)
    return out


def _add_at_batch(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Tensor:
    x, index = args
    n = params["size"]
    if not batched[1]:
        moved = movedim(x, 0, index.ndim)
        return movedim(add_at(moved, index, size=n), 1, 0)
    if not batched[0]:
        x = expand(x, (size, *x.shape))
    first = np.arange(size).reshape(-1, *(1,) * (index.ndim - 1)) * n
    start = Tensor(first).to(index.device)
    flat = where(index < 0, index + n, index) + start
    out = add_at(x, flat, size=size * n)
    return reshape(out, (size, n, *out.shape[1:]))


def _add_at_samples(rng: np.random.Generator) -> Any:
    for ids, rest, n in (
        ((2, 2), (3,), 4),
        ((3,), (), 5),
        ((), (2,), 3),
        ((0,), (2,), 3),
    ):
        yield Sample(
            (rng.uniform(-2, 2, (*ids, *rest)), rng.integers(-n, n, ids)), {"size": n}
        )


def _add_at_reference(x: Any, index: Any, *, size: int) -> Any:
    hot = (np.ravel(index)[:, None] % size) == np.arange(size)
    rows = x.reshape(hot.shape[0], -1) if x.size else x.reshape(hot.shape[0], 2)
    rest = x.shape[np.ndim(index) :]
    return (hot.T.astype(float) @ rows).reshape(size, *rest)


def _added(k: Any, at: Any, x: Any, index: Any, *, size: Any) -> Any:
    lead = len(index.shape)
    row = k.within(index[at[:lead]], size, wrap=True)
    return (row, *at[lead:]), x[at]


def _behind(x: Any, index: Any, *rest: Any, **params: Any) -> Any:
    """The axes of rows and of updates behind the index."""
    lead, shape = len(index.shape), (rest or (x,))[-1].shape
    return tuple((d - lead + 1, d) for d in range(lead, len(shape)))


add_at: Op = define(
    "add_at",
    divides=dividing.added_at,
    refuses={"index": 10**6},
    bulk=SLOW,
    inputs="x index",
    eval=_add_at_eval,
    lower=Scatter(
        start=lambda k, out, x, index, size: k.number(0),
        domain=lambda x, index, size: x.shape,
        update=_added,
        combine="add",
        shared=_behind,
    ),
    type=lambda x, index, *, size: TensorType(
        (size, *x.shape[len(index.shape) :]), x.dtype
    ),
    flops=lambda out, x, index: x,
    vjp={"x": lambda g, index: take_op(g, index)},
    jvp={"x": lambda t, index, size: add_at(t, index, size=size)},
    batch=_add_at_batch,
    samples=_add_at_samples,
    reference=_add_at_reference,
)


def _put_eval(
    x: Any, index: Any, value: Any, *, axis: int, checked: bool = False
) -> Any:
    check_range("put", index, x.shape[axis], axis)
    out = x.copy()
    out[(slice(None),) * axis + (index,)] = value
    return out


def _put_batch(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Tensor:
    axis = params["axis"]
    x, index, value = (
        a if b or (k == 1 and not batched[1]) else expand(a, (size, *a.shape))
        for k, (a, b) in enumerate(zip(args, batched, strict=True))
    )
    if not batched[1]:
        return put_op(x, index, value, axis=axis + 1)
    lead = index.ndim - 1
    block = list(range(1, 1 + lead))
    value = movedim(value, [axis + d for d in block], block)
    moved = movedim(x, axis + 1, 1)
    rows, flat = _flat_rows(moved, index, size)
    return movedim(reshape(put_op(rows, flat, value, axis=0), moved.shape), 1, axis + 1)


def _put_samples(rng: np.random.Generator) -> Any:
    for shape, ids, axis in (
        ((4, 3), (2, 2), 0),
        ((5,), (3,), 0),
        ((4, 2), (), 0),
        ((3, 0), (2,), 0),
        ((2, 4, 3), (2,), 1),
        ((2, 3, 5), (2, 2), 2),
        ((3, 4), (), 1),
    ):
        index = rng.permutation(shape[axis])[: math.prod(ids)].reshape(ids)
        value = rng.uniform(-2, 2, (*shape[:axis], *ids, *shape[axis + 1 :]))
        yield Sample((rng.uniform(-2, 2, shape), index, value), {"axis": axis})


def _put_reference(x: Any, index: Any, value: Any, *, axis: int) -> Any:
    rows = [np.take(x, i, axis) for i in range(x.shape[axis])]
    lead = np.ndim(index)
    flat = np.moveaxis(value, range(axis, axis + lead), range(lead))
    for at in np.ndindex(np.shape(index)):
        rows[int(index[at])] = flat[at]
    return np.stack(rows, axis)


def _replacing(
    k: Any, at: Any, x: Any, index: Any, value: Any, *, axis: int, checked: bool = False
) -> Any:
    behind = axis + len(index.shape)
    place = index[at[axis:behind]]
    row = k.within(place, x.shape[axis], wrap=True, known=checked)
    return (*at[:axis], row, *at[behind:]), value[at]


def _beside(x: Any, index: Any, value: Any, *, axis: int, checked: bool = False) -> Any:
    """The axes of the tensor and of the values before and behind the index."""
    lead, rank = len(index.shape), len(x.shape)
    before = [(d, d) for d in range(axis)]
    return (*before, *[(d, d - 1 + lead) for d in range(axis + 1, rank)])


put_op: Op = define(
    "put",
    refuses={"index": 10**6},
    inputs="x index value",
    eval=_put_eval,
    lower=Scatter(
        start=lambda k, out, x, index, value, axis, checked=False: x[out],
        domain=lambda x, index, value, axis, checked=False: value.shape,
        update=_replacing,
        combine=None,
        shared=_beside,
    ),
    type=lambda x, index, value, *, axis, checked=False: x,
    cost=0,
    vjp={
        "x": lambda g, index, value_shape, axis: put_op(
            g, index, zeros_of(value_shape, g), axis=axis
        ),
        "value": lambda g, index, axis: _taken_along(g, index, axis),
    },
    jvp={
        "x": lambda t, index, value_shape, axis: put_op(
            t, index, zeros_of(value_shape, t), axis=axis
        ),
        "value": lambda t, x, index, axis: put_op(
            zeros_of(x.shape, t), index, t, axis=axis
        ),
    },
    batch=_put_batch,
    samples=_put_samples,
    reference=_put_reference,
)


def _taken_along(x: Tensor, index: Tensor, axis: int) -> Tensor:
    rows = take_op(x if axis == 0 else movedim(x, axis, 0), index)
    block = list(range(index.ndim))
    return movedim(rows, block, [axis + d for d in block]) if axis else rows


def zeros_of(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return zeros(shape, dtype=like.dtype, device=like.device)


# -- along one axis


@public(method=True)
def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements of the flattened tensor.

    >>> weft.tensor([[1, 2], [3, 4]]).take(weft.tensor([0, 3]))
    tensor([1, 4])
    """
    return take_op(reshape(input, (input.numel(),)), as_index("take", index))


@public(method=True)
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """Whole slices picked along a dimension.

    >>> weft.tensor([[1, 2], [3, 4]]).index_select(1, weft.tensor([1]))
    tensor([[2],
            [4]])
    """
    d = normalize_dim("index_select", dim, input.ndim)
    ids = as_index("index_select", index)
    if ids.ndim > 1:
        raise RankError(f"index_select: expected a 1-d index, got shape {ids.shape}")
    if input.ndim == 0:
        return reshape(index_select(as_row(input), 0, ids), ())
    ids = require_index("index_select", ids, input.shape[d], d, wrap=False)
    rows = input if d == 0 else movedim(input, d, 0)
    out = take_op(rows, reshape(ids, (-1,)) if ids.ndim == 0 else ids)
    return out if d == 0 else own(movedim(out, 0, d))


@public(method=True, inplace="0, weft.tensor([0, 1]), x")
def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1
) -> Tensor:
    """A copy with slices of ``source`` added at the indices of a dimension.

    >>> weft.zeros(3).index_add(0, weft.tensor([0, 0]), weft.tensor([1.0, 2.0]))
    tensor([3., 0., 0.])
    """
    if input.ndim == 0:
        row = index_add(as_row(input), dim, index, as_row(source), alpha=alpha)
        return reshape(row, ())
    d, ids, rows = _index_rows("index_add", input, dim, index, source)
    added = add_at(rows, ids, size=input.shape[d])
    return input + alpha * movedim(added, 0, d)


@public(method=True, inplace="0, weft.tensor([1, 0]), x")
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy with slices of ``source`` put at the indices of a dimension.

    >>> weft.zeros(3).index_copy(0, weft.tensor([2]), weft.tensor([7.0]))
    tensor([0., 0., 7.])
    """
    if input.ndim == 0:
        return reshape(index_copy(as_row(input), dim, index, as_row(source)), ())
    d, ids, rows = _index_rows("index_copy", input, dim, index, source)
    return put_op(input, ids, movedim(rows, 0, d), axis=d)


@public(method=True, inplace="0, weft.tensor([0]), 5")
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy with one value put at the indices of a dimension.

    >>> weft.zeros(3).index_fill(0, weft.tensor([2]), 7)
    tensor([0., 0., 7.])
    """
    if input.ndim == 0:
        return reshape(index_fill(as_row(input), dim, index, value), ())
    d = normalize_dim("index_fill", dim, input.ndim)
    ids = as_index("index_fill", index)
    if isinstance(value, Tensor) and value.ndim:
        raise ShapeError(
            f"index_fill: expected a number or 0-d tensor, got shape {value.shape}"
        )
    fill = (
        cast(value, input.dtype)
        if isinstance(value, Tensor)
        else scalar("index_fill", value, input.dtype)
    )
    ids = as_row(require_index("index_fill", ids, input.shape[d], d))
    lone = (input.shape[d],) + (1,) * (input.ndim - d - 1)
    there = zeros((input.shape[d],), dtype=dtypes.bool_, device=input.device)
    filled = ones(ids.shape, dtype=dtypes.bool_, device=input.device)
    chosen = reshape(put_op(there, ids, filled, axis=0), lone)
    return where(chosen, fill, input)


def _index_rows(
    name: str, x: Tensor, dim: int, index: Tensor, source: Tensor
) -> tuple[int, Tensor, Tensor]:
    """The dimension, the indices and the source's rows, all checked."""
    d = normalize_dim(name, dim, x.ndim)
    ids = as_index(name, index)
    want = (*x.shape[:d], ids.numel(), *x.shape[d + 1 :])
    if source.shape != want:
        raise RankError(
            f"{name}: expected a source of shape {want} for {ids.numel()} indices "
            f"along dim {d} of shape {x.shape}, got {source.shape}"
        )
    ids = require_index(name, ids, x.shape[d], d, wrap=False)
    return d, ids, movedim(cast(source, x.dtype), d, 0)


def as_row(x: Tensor) -> Tensor:
    """A 0-d tensor as a vector of one element."""
    return x if x.ndim else reshape(x, (1,))


@public(method=True)
def repeat_interleave(
    input: Tensor,
    repeats: Any = None,
    dim: int | None = None,
    *,
    output_size: int | None = None,
) -> Tensor:
    """Each element (or slice) repeated, one after the other.

    With the repeats alone, the index of each that many times.

    >>> weft.tensor([1, 2]).repeat_interleave(2)
    tensor([1, 1, 2, 2])
    """
    if repeats is None:
        positions = Tensor(np.arange(input.numel())).to(input.device)
        return repeat_interleave(positions, as_index("repeat_interleave", input), 0)
    if dim is None:
        input, dim = reshape(input, (input.numel(),)), 0
    d = existing_dim("repeat_interleave", dim, input.ndim)
    size = input.shape[d]
    if is_integer(repeats) and repeats >= 0:
        before, after = input.shape[: d + 1], input.shape[d + 1 :]
        column = reshape(input, (*before, 1, *after))
        wide = expand(column, (*before, repeats, *after))
        return reshape(wide.clone(), (*before[:-1], size * repeats, *after))
    if isinstance(repeats, Tensor):
        counts = concrete("repeat_interleave", repeats)
    else:
        counts = np.asarray(repeats)
    if counts.dtype.kind not in "iu":
        raise DTypeError(
            f"repeat_interleave: expected integer repeats, got {counts.dtype.name}"
        )
    if counts.ndim and counts.shape != (1,) and counts.shape != (size,):
        raise ShapeError(
            f"repeat_interleave: expected 1 or {size} repeats for dim {d}, got "
            f"{counts.shape}"
        )
    if (counts < 0).any():
        raise ArgumentError("repeat_interleave: repeats must not be negative")
    return index_select(
        input, d, Tensor(np.repeat(np.arange(size), counts)).to(input.device)
    )
