"""Elements chosen by a mask, and masks of class indices."""

from __future__ import annotations

import math
from typing import Any

from weft import dtype as dtypes
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError
from weft.ops.broadcasting import expand
from weft.ops.copies import cast
from weft.ops.creation import arange, check_memory
from weft.ops.elementwise import broadcast_shapes, result_type
from weft.ops.index import take_op
from weft.ops.indexing import getitem
from weft.ops.operands import as_index, concrete
from weft.ops.public import public
from weft.ops.require import require, require_index, require_stored
from weft.ops.select import where
from weft.ops.shaping import reshape


@public(method=True, inplace="x > 0, 5")
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """A copy with ``value`` where the mask holds.

    >>> weft.tensor([1.0, 2.0]).masked_fill(weft.tensor([True, False]), 0)
    tensor([0., 2.])
    """
    if mask.dtype is not dtypes.bool_:
        raise DTypeError(f"masked_fill: expected a boolean mask, got {mask.dtype.name}")
    if isinstance(value, Tensor) and value.ndim:
        raise ShapeError(
            f"masked_fill: expected a number or 0-d tensor, got shape {value.shape}"
        )
    if result_type(input, value).is_complex and not input.dtype.is_complex:
        raise DTypeError(
            f"masked_fill: {value!r} cannot be stored in a {input.dtype.name} tensor"
        )
    value = require_stored("masked_fill", value, input.dtype)
    return cast(where(mask, value, input), input.dtype)


@public(method=True)
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask holds, in one dimension.

    >>> weft.tensor([1, 2, 3]).masked_select(weft.tensor([True, False, True]))
    tensor([1, 3])
    """
    if mask.dtype is not dtypes.bool_:
        raise DTypeError(
            f"masked_select: expected a boolean mask, got {mask.dtype.name}"
        )
    shape = broadcast_shapes("masked_select", input.shape, mask.shape)
    if not shape:
        return getitem(reshape(input, (1,)), reshape(mask, (1,)))
    return getitem(expand(input, shape), expand(mask, shape))


@public(method=True, inplace="x > 0, x * 2")
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy with the elements of ``source``, in order, where the mask holds.

    >>> mask = weft.tensor([False, True, True])
    >>> weft.zeros(3).masked_scatter(mask, weft.tensor([5.0, 6.0]))
    tensor([0., 5., 6.])
    """
    if mask.dtype is not dtypes.bool_:
        raise DTypeError(
            f"masked_scatter: expected a boolean mask, got {mask.dtype.name}"
        )
    if source.dtype is not input.dtype:
        raise DTypeError(
            f"masked_scatter: expected a {input.dtype.name} source, got "
            f"{source.dtype.name}"
        )
    shape = broadcast_shapes("masked_scatter", input.shape, mask.shape)
    flat = reshape(expand(mask, shape), (math.prod(shape),))
    have = source.numel()
    count = require(
        flat.cumsum(0),
        lambda count: count <= have,
        "masked_scatter: the mask holds at {high} places, but the source has "
        f"{have} elements",
        ShapeError,
    )
    if have == 0:
        return expand(input, shape).clone()
    position = (count - 1).clamp(min=0, max=have - 1)
    values = reshape(take_op(reshape(source, (have,)), position), shape)
    return where(expand(mask, shape), values, input)


@public()
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """A 1 at each class index, zeros elsewhere, in a new last dimension.

    >>> weft.one_hot(weft.tensor([0, 2]), 3)
    tensor([[1, 0, 0],
            [0, 0, 1]])
    """
    ids = as_index("one_hot", tensor)
    if num_classes == -1:
        array = concrete("one_hot", ids)
        if array.size == 0:
            raise ArgumentError("one_hot: give num_classes for an empty tensor")
        num_classes = int(array.max()) + 1
    text = "one_hot: class indices must not be negative, got {low}"
    ids = require(ids, lambda i: i >= 0, text, OutOfRangeError)
    ids = cast(require_index("one_hot", ids, num_classes, -1), dtypes.int64)
    check_memory("one_hot", (*ids.shape, num_classes), dtypes.int64)
    classes = arange(num_classes, device=ids.device)
    return cast(ids.unsqueeze(-1) == classes, dtypes.int64)
