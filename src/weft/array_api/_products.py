"""Products of matrices and vectors."""

from __future__ import annotations

from typing import Any

from weft.array_api._common import Array, operands
from weft.errors import ShapeError
from weft.ops import copies, products, reduce, shaping
from weft.ops.elementwise import conj


def matmul(x1: Array, x2: Array, /) -> Array:
    """The matrix product, with broadcast batches.

    >>> weft.array_api.matmul(weft.ones(2, 3), weft.ones(3))
    tensor([3., 3.])
    """
    return products.matmul(*operands("matmul", x1, x2))


def tensordot(x1: Array, x2: Array, /, *, axes: Any = 2) -> Array:
    """Products summed over several axes.

    >>> weft.array_api.tensordot(weft.ones(2, 3), weft.ones(3, 4), axes=1).shape
    (2, 4)
    """
    a, b = operands("tensordot", x1, x2)
    return products.tensordot(a, b, axes)


def vecdot(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """The dot products along an axis, the first operand conjugated.

    >>> weft.array_api.vecdot(weft.ones(2, 3), weft.ones(3))
    tensor([3., 3.])
    """
    a, b = operands("vecdot", x1, x2)
    if not -min(a.ndim, b.ndim) <= axis < min(a.ndim, b.ndim):
        raise ShapeError(
            f"vecdot: axis {axis} is out of range for shapes {a.shape} and {b.shape}"
        )
    if a.shape[axis] != b.shape[axis]:
        raise ShapeError(
            f"vecdot: sizes along axis {axis} differ in shapes {a.shape} and {b.shape}"
        )
    left, right = (shaping.movedim(v, axis, -1) for v in (a, b))
    return copies.cast(reduce.sum(conj(left) * right, -1), a.dtype)
