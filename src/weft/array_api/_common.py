"""Promotion, operands and axes, shared by the standard's functions.

In the standard a 0-d array takes part in type promotion like any other, and a
Python number takes the arrays' dtype. Weft's own operators put 0-d tensors
behind tensors with dimensions, as PyTorch does, so operands are brought to one
dtype here before an operator sees them.
"""

from __future__ import annotations

from typing import Any

from weft import dtype as dtypes
from weft.core.tensor import Tensor
from weft.dtype import DType, promote_types
from weft.errors import ArgumentError, DTypeError
from weft.ops.copies import cast
from weft.ops.creation import full

Array = Tensor


def common_dtype(name: str, *values: Any) -> DType:
    """The dtype of several arrays, dtypes and Python numbers together.

    >>> from weft.array_api._common import common_dtype
    >>> common_dtype("f", weft.tensor(1.0), weft.float64, 3)
    weft.float64
    """
    common: DType | None = None
    for value in values:
        dtype = value.dtype if isinstance(value, Tensor) else value
        if isinstance(dtype, DType):
            common = dtype if common is None else promote_types(common, dtype)
    if common is None:
        raise ArgumentError(f"{name}: expected at least one array or dtype")
    for value in values:
        if not isinstance(value, (Tensor, DType)):
            common = _with_number(name, common, value)
    return common


def _with_number(name: str, dtype: DType, value: Any) -> DType:
    """An array's dtype beside a Python number, raised only in kind."""
    if not isinstance(value, (bool, int, float, complex)):
        raise DTypeError(
            f"{name}: expected an array or a Python number, got {type(value).__name__}"
        )
    kind = dtypes.scalar_dtype(value)
    if kind.category <= dtype.category:
        return dtype
    return dtype.to_complex() if kind.is_complex and dtype.is_inexact else kind


def operands(name: str, *values: Any) -> tuple[Tensor, ...]:
    """Arrays of one dtype from arrays and Python numbers."""
    dtype = common_dtype(name, *values)
    return tuple(
        cast(v, dtype) if isinstance(v, Tensor) else full((), v, dtype=dtype)
        for v in values
    )


def check_array(name: str, x: Any) -> Tensor:
    """The argument itself, if it is an array."""
    if not isinstance(x, Tensor):
        raise DTypeError(f"{name}: expected an array, got {type(x).__name__}")
    return x


def as_shape(shape: Any) -> tuple[int, ...]:
    """A shape from an int or a sequence of ints."""
    return (shape,) if isinstance(shape, int) else tuple(shape)
