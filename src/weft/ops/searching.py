"""Insertion points in a sorted sequence: the primitive ``search_sorted``."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.dispatch import bind
from weft.core.lowering import Element, Fold, Varied
from weft.core.op import Op, Sample, TensorType, define
from weft.core.size import same
from weft.core.tensor import Tensor
from weft.dtype import promote_types, sortable
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.ops.broadcasting import expand
from weft.ops.copies import cast
from weft.ops.elementwise import check_accepts
from weft.ops.gathering import gather
from weft.ops.operands import as_tensorlike
from weft.ops.public import public


def _search_eval(edges: Any, values: Any, *, right: bool) -> Any:
    side: Any = "right" if right else "left"
    edges, values = sortable(edges), sortable(values)
    if edges.ndim == 1:
        return np.asarray(np.searchsorted(edges, values, side))
    found = np.empty(values.shape, np.int64)
    for position in np.ndindex(edges.shape[:-1]):
        found[position] = np.searchsorted(edges[position], values[position], side)
    return found


def _search_type(edges: TensorType, values: TensorType, *, right: bool) -> TensorType:
    check_accepts("searchsorted", "ordered", edges.dtype)
    if len(edges.shape) != 1 and edges.shape[:-1] != values.shape[:-1]:
        raise ShapeError(
            "searchsorted: expected a 1-d sequence, or one that matches the values in "
            f"all dimensions but the last; got shapes {edges.shape} and {values.shape}"
        )
    return TensorType(values.shape, dtypes.int64)


def _search_reference(edges: Any, values: Any, *, right: bool) -> Any:
    """The insertion index, by counting the elements in front."""
    below = np.less_equal if right else np.less
    return below(edges[..., None, :], values[..., None]).sum(-1).reshape(values.shape)


def _search_batch(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Tensor:
    """One sequence for all stays one; else each has its own."""
    edges, values = args
    if not batched[0] and edges.ndim == 1:
        return op(edges, values, **params)
    full = [
        a if b else expand(a, (size, *a.shape))
        for a, b in zip(args, batched, strict=True)
    ]
    edges, values = full
    if edges.ndim < values.ndim:  # (B, n) for values (B, ..., m)
        lead = (size, *(1,) * (values.ndim - 2))
        edges = edges.reshape(*lead, edges.shape[-1])
        edges = expand(edges, (*values.shape[:-1], edges.shape[-1]))
    elif edges.ndim > values.ndim:  # single values
        return op(edges, values.unsqueeze(-1), **params).squeeze(-1)
    return op(edges, values, **params)


# -- as loops: halving, from the largest power of two on


def _in_front(k: Any, edge: Any, value: Any, right: bool) -> Any:
    """Whether an element of the sequence comes before a value; NaN comes last."""
    before = k.call("le" if right else "lt", edge, value)
    if not edge.dtype.is_inexact:
        return before
    last = k.call("isnan", value)
    if not right:
        known = k.call("eq", edge, edge)
        last = k.call("logical_and", last, known)
    return k.call("logical_or", before, last)


def _halved(
    k: Any, out: Any, count: Any, step: Any, edges: Any, value: Any, right: bool
) -> Any:
    """The number in front, after a comparison with the element ``step`` further on."""
    size = edges.shape[-1]
    more, top = k.call("add", count, step), k.at(size)
    there = k.call("minimum", more, top)
    position = k.within(k.call("sub", there, k.number(1, dtypes.int64)), size)
    lead = out[:-1] if len(edges.shape) > 1 else ()
    front = _in_front(k, edges[*lead, position], value, right)
    inside = k.call("logical_and", k.call("le", more, top), front)
    return k.call("where", inside, more, count)


_POWERS = 1 << np.arange(62)


def _search_step(
    k: Any, out: Any, at: Any, states: Any, edges: Any, values: Any, *, right: bool
) -> Any:
    step = k.table(_POWERS[_rounds(edges.shape[-1]) - 1 :: -1].copy())[at]
    return (_halved(k, out, states[0], step, edges, values[out], right),)


def _rounds(size: Any) -> int:
    return size.bit_length() if isinstance(size, int) else len(_POWERS)


def _search_loops(edges: Any, values: Any, *, right: bool) -> Any:
    if same(edges[-1], 0):
        return Element(lambda k, out, edges, values, right: k.number(0))
    return Fold(
        domain=lambda edges, values, right: (_rounds(edges.shape[-1]),),
        start=lambda k, out, edges, values, right: (k.number(0, dtypes.int64),),
        step=_search_step,
        end=lambda k, out, states, edges, values, right: states[0],
    )


def _search_samples(rng: np.random.Generator) -> Any:
    for lead, n, shape, right in (
        ((), 5, (3, 4), False),
        ((), 8, (), True),
        ((2, 3), 4, (2, 3, 5), True),
        ((), 1, (4,), False),
        ((), 0, (2,), False),
        ((), 5000, (3,), False),
        ((), 3, (0, 2), True),
    ):
        edges = np.sort(rng.uniform(0, 4, (*lead, n)), -1)
        yield Sample((edges, rng.uniform(0, 4, shape)), {"right": right})


search_sorted_op: Op = define(
    "search_sorted",
    inputs="edges values",
    lower=Varied(_search_loops),
    eval=_search_eval,
    type=_search_type,
    batch=_search_batch,
    samples=_search_samples,
    reference=_search_reference,
)


@public()
def searchsorted(
    sorted_sequence: Tensor,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """The indices at which elements would be inserted into a sorted last dimension.

    The sequence has one dimension, or all but the last in common with ``input``. With
    ``sorter``, indices that sort it, it may have any order.

    >>> weft.searchsorted(weft.tensor([1, 3, 5]), weft.tensor([3, 6]))
    tensor([1, 3])
    """
    chosen: Any = side or ("right" if right else "left")
    if chosen not in ("left", "right") or (right and side == "left"):
        raise ArgumentError(
            f"searchsorted: side must be 'left' or 'right' (as right=), got {side!r}"
        )
    edges, values = as_tensorlike(sorted_sequence), as_tensorlike(input)
    if sorter is not None:
        if sorter.shape != edges.shape:
            raise ShapeError(
                f"searchsorted: expected a sorter of shape {edges.shape}, as the "
                f"sequence has, got {sorter.shape}"
            )
        edges = gather(edges, -1, sorter)
    if edges.ndim > 1 and edges.shape[:-1] != values.shape[:-1]:
        raise ShapeError(
            "searchsorted: expected a sequence of one dimension, or all sizes but the "
            f"last as the values', got shapes {edges.shape} and {values.shape}"
        )
    kind = promote_types(edges.dtype, values.dtype)
    if edges.dtype.is_inexact != values.dtype.is_inexact:
        kind = dtypes.float64  # which has most whole numbers
    pair = (cast(edges.detach(), kind), cast(values.detach(), kind))
    found = bind(search_sorted_op, pair, {"right": chosen == "right"})
    return cast(found, dtypes.int32) if out_int32 else found


@public()
def bucketize(
    input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """The number of the bucket between boundaries that each element falls into.

    >>> weft.bucketize(weft.tensor([0.5, 2.0]), weft.tensor([1.0, 2.0]))
    tensor([0, 1])
    """
    if not isinstance(boundaries, Tensor):
        kind = type(boundaries).__name__
        raise DTypeError(f"bucketize: expected boundaries to be a tensor, got {kind}")
    if boundaries.ndim != 1:
        raise ShapeError(
            f"bucketize: expected 1-d boundaries, got shape {boundaries.shape}"
        )
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)
