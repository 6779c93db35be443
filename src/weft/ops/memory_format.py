"""Memory formats: layouts of a tensor's elements, under PyTorch's names.

A format changes the strides, never the indices: a channels-last image still has the
shape (N, C, H, W). Compiled programs choose layouts themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import naming
from weft.errors import ArgumentError, DTypeError, ShapeError


class MemoryFormat:
    """A way to lay out elements; ``order`` lists dimensions from the outermost.

    >>> weft.channels_last
    weft.channels_last
    """

    __slots__ = ("name", "order")

    def __init__(self, name: str, order: tuple[int, ...] | None = None) -> None:
        self.name = name
        self.order = order

    def __repr__(self) -> str:
        return f"{naming.library()}.{self.name}"


contiguous_format = MemoryFormat("contiguous_format")
preserve_format = MemoryFormat("preserve_format")
channels_last = MemoryFormat("channels_last", (0, 2, 3, 1))
channels_last_3d = MemoryFormat("channels_last_3d", (0, 2, 3, 4, 1))


def check_format(name: str, given: Any) -> MemoryFormat:
    """The argument itself, if it is a format."""
    if isinstance(given, MemoryFormat):
        return given
    raise DTypeError(
        f"{name}: expected memory_format to be weft.contiguous_format, "
        "weft.preserve_format, weft.channels_last or weft.channels_last_3d, got "
        f"{type(given).__name__}"
    )


def order_of(name: str, x: Any, form: MemoryFormat) -> tuple[int, ...]:
    """The dimensions of a tensor or array in a format, from the outermost."""
    if form.order is None:
        return tuple(range(x.ndim))
    if x.ndim != len(form.order):
        raise ShapeError(
            f"{name}: expected {len(form.order)} dimensions for {form.name}, got shape "
            f"{tuple(x.shape)}"
        )
    return form.order


def has_format(array: np.ndarray, form: MemoryFormat) -> bool:
    """Whether an array has the layout of a format.

    >>> from weft.ops.memory_format import has_format
    >>> has_format(np.zeros((2, 3, 4, 4)), weft.channels_last)
    False
    """
    if form is preserve_format:
        raise ArgumentError("is_contiguous: preserve_format is no order of its own")
    if form.order is not None and array.ndim != len(form.order):
        return False
    order = order_of("is_contiguous", array, form)
    return bool(array.transpose(order).flags.c_contiguous)


def laid_out(name: str, x: Any, form: MemoryFormat, *, copy: bool = False) -> Any:
    """A tensor in a format: itself if it has that layout, unless a copy is wanted."""
    from weft.ops.copies import clone_op
    from weft.ops.shaping import permute
    from weft.ops.strided import memory_order

    if form is preserve_format:
        found = memory_order(x) if copy else None
        order = tuple(found or range(x.ndim))
        if not copy:
            return x
    else:
        order = order_of(name, x, form)
        array = x.layout_array()
        there = isinstance(array, np.ndarray) and array.ndim == x.ndim
        if not copy and there and has_format(array, form):
            return x
    if order == tuple(range(x.ndim)):
        return clone_op(x)
    back = [order.index(d) for d in range(x.ndim)]
    return permute(clone_op(permute(x, order)), back)
