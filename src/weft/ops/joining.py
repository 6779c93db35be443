"""Several tensors joined into one; the primitive is ``cat``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.dims import normalize_dim
from weft.core.dispatch import bind
from weft.core.lowering import Element
from weft.core.op import Op, Sample, TensorType, define
from weft.core.size import same, same_shape
from weft.core.tensor import Tensor
from weft.errors import ShapeError
from weft.ops import dividing
from weft.ops.broadcasting import expand
from weft.ops.copies import cast
from weft.ops.creation import zeros_like
from weft.ops.elementwise import result_type
from weft.ops.operands import tensor_list
from weft.ops.public import public
from weft.ops.shaping import atleast_1d, atleast_2d, atleast_3d, reshape, unsqueeze
from weft.ops.slicing import split


def _cat_type(*types: TensorType, dim: int) -> TensorType:
    first = types[0]
    for k, other in enumerate(types[1:], 1):
        if len(other.shape) != len(first.shape):
            raise ShapeError(
                f"cat: expected tensors of equal rank, got shape {first.shape} "
                f"and, at position {k}, {other.shape}"
            )
        for axis, (a, b) in enumerate(zip(first.shape, other.shape, strict=True)):
            if axis != dim and a != b:
                raise ShapeError(
                    f"cat: sizes must match except in dim {dim}; tensor 0 has shape "
                    f"{first.shape}, tensor {k} has {other.shape} (axis {axis} differs)"
                )
    total = sum(t.shape[dim] for t in types)
    return TensorType((*first.shape[:dim], total, *first.shape[dim + 1 :]), first.dtype)


def _cat_vjp(g: Tensor, need: Any, xs_shape: Any, dim: int) -> list[Any]:
    pieces = split(g, [shape[dim] for shape in xs_shape], dim)
    return [piece if n else None for piece, n in zip(pieces, need, strict=True)]


def _cat_jvp(ts: list[Any], xs: list[Any], dim: int) -> Tensor:
    filled = [zeros_like(x) if t is None else t for t, x in zip(ts, xs, strict=True)]
    return cat_op(*filled, dim=dim)


def _cat_batch(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Tensor:
    full = [
        a if b else expand(a, (size, *a.shape))
        for a, b in zip(args, batched, strict=True)
    ]
    return cat_op(*full, dim=params["dim"] + 1)


def _joined(k: Any, out: Any, *xs: Any, dim: int) -> Any:
    """The element of the input that holds the index along the axis."""
    at, stop = out[dim], sum(x.shape[dim] for x in xs)
    chosen: Any = None
    for x in reversed(xs):
        if same(x.shape[dim], 0):
            continue
        start = stop - x.shape[dim]
        value = x[*out[:dim], at - start, *out[dim + 1 :]]
        chosen = value if chosen is None else k.choice(at, stop, value, chosen)
        stop = start
    return k.number(0) if chosen is None else chosen


cat_op: Op = define(
    "cat",
    divides=dividing.joined,
    inputs="*xs",
    lower=Element(_joined),
    eval=lambda *xs, dim: np.concatenate(xs, dim),
    type=_cat_type,
    cost=0,
    vjp=_cat_vjp,
    jvp=_cat_jvp,
    batch=_cat_batch,
    samples=lambda rng: [
        Sample(tuple(rng.uniform(-2, 2, s) for s in shapes), {"dim": dim})
        for shapes, dim in (
            (((3, 4), (2, 4)), 0),
            (((3, 1), (3, 0), (3, 2)), 1),
            (((2,),), 0),
            (((0, 2), (0, 3)), 1),
        )
    ],
    reference=lambda *xs, dim: _cat_reference(xs, dim),
)


def _cat_reference(xs: Any, dim: int) -> Any:
    """Each tensor written into its slice of a zero array."""
    total = _cat_type(*(TensorType(x.shape, dtypes.float64) for x in xs), dim=dim)
    out = np.zeros(total.shape)
    start = 0
    for x in xs:
        np.moveaxis(out, dim, 0)[start : start + x.shape[dim]] = np.moveaxis(x, dim, 0)
        start += x.shape[dim]
    return out


@public(also=("concat", "concatenate"))
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors joined along a dimension.

    >>> weft.cat([weft.tensor([1]), weft.tensor([2, 3])])
    tensor([1, 2, 3])
    """
    xs = tensor_list("cat", tensors)
    for k, x in enumerate(xs):
        if x.ndim == 0:
            raise ShapeError(
                f"cat: expected tensors of at least one dimension, but tensor {k} "
                "is 0-d; use stack"
            )
    # PyTorch lets an empty 1-d tensor join anything.
    kept = [x for x in xs if not same_shape(x.shape, (0,))] or xs[:1]
    d = normalize_dim("cat", dim, kept[0].ndim)
    dtype = result_type(*xs)
    return bind(cat_op, tuple(cast(x, dtype) for x in kept), {"dim": d})


@public()
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape joined along a new dimension.

    >>> weft.stack([weft.tensor([1, 2]), weft.tensor([3, 4])])
    tensor([[1, 2],
            [3, 4]])
    """
    xs = tensor_list("stack", tensors)
    for k, x in enumerate(xs):
        if x.shape != xs[0].shape:
            raise ShapeError(
                f"stack: expected equal shapes, got {xs[0].shape} at position 0 and "
                f"{x.shape} at position {k}"
            )
    d = normalize_dim("stack", dim, xs[0].ndim + 1)
    dtype = result_type(*xs)
    raised = tuple(unsqueeze(cast(x, dtype), d) for x in xs)
    return bind(cat_op, raised, {"dim": d})


# -- along a named axis


@public()
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along the second dimension (the first for vectors).

    >>> weft.hstack([weft.tensor([1]), weft.tensor([2])])
    tensor([1, 2])
    """
    xs = [atleast_1d(x) for x in tensor_list("hstack", tensors)]
    return cat(xs, 0 if xs[0].ndim == 1 else 1)


@public(also=("row_stack",))
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along the first dimension, vectors as rows.

    >>> weft.vstack([weft.tensor([1, 2]), weft.tensor([3, 4])]).shape
    (2, 2)
    """
    return cat([atleast_2d(x) for x in tensor_list("vstack", tensors)], 0)


@public()
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along the third dimension.

    >>> weft.dstack([weft.tensor([1, 2]), weft.tensor([3, 4])]).shape
    (1, 2, 2)
    """
    return cat([atleast_3d(x) for x in tensor_list("dstack", tensors)], 2)


@public()
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along the second dimension, vectors as columns.

    >>> weft.column_stack([weft.tensor([1, 2]), weft.tensor([3, 4])])
    tensor([[1, 3],
            [2, 4]])
    """
    xs = tensor_list("column_stack", tensors)
    return cat([x if x.ndim > 1 else reshape(x, (x.numel(), 1)) for x in xs], 1)
