"""The limits of element types."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from weft.dtype import INT, DType, Named, as_dtype, default_dtype
from weft.errors import ArgumentError, DTypeError


def wrapped(value: Any, dtype: DType) -> Any:
    """An integer brought into its dtype's range, as C would."""
    if dtype.category == INT and isinstance(value, int):
        bits = 8 * dtype.itemsize
        value &= (1 << bits) - 1
        if dtype.is_signed and value >> (bits - 1):
            value -= 1 << bits
    return value


def check_stored(name: str, value: Any, dtype: DType) -> None:
    """Refuse a number as an element of an integer dtype that cannot hold it.

    As in PyTorch, a fraction is cut off, and a negative integer wraps around in an
    unsigned dtype.
    """
    value = value.item() if isinstance(value, np.generic) else value
    if dtype.category != INT or type(value) not in (int, float):
        return
    if type(value) is float:
        held = fits(value, dtype)
    else:
        low, high = held_by(dtype)
        held = low <= value <= high
    if not held:
        raise ArgumentError(refusal_to_store(name, value, dtype))


def held_by(dtype: DType) -> tuple[int, int]:
    """The least and the largest integer that may be stored in an integer dtype."""
    info = np.iinfo(dtype.np)
    return info.min or -info.max, info.max


def fits(x: Any, dtype: DType) -> Any:
    """Whether floating-point numbers may be stored in an integer dtype."""
    info = np.iinfo(dtype.np)
    end = float(info.max)  # which is rounded up for 64 bits
    return (x >= float(info.min)) & (x <= end if end == info.max else x < end)


def refusal_to_store(name: str, value: Any, dtype: DType) -> str:
    """The text of the error for a number that an integer dtype cannot hold."""
    info = np.iinfo(dtype.np)
    return (
        f"{name}: {value} does not fit into {dtype.name} ({info.min} to {info.max}); "
        "convert the tensor to a wider dtype first"
    )


class finfo:
    """The limits of a floating-point type.

    >>> weft.finfo(weft.float32).bits
    32
    """

    def __init__(self, type: Any = None) -> None:
        named = isinstance(type, Named)
        dtype = type if named else default_dtype() if type is None else as_dtype(type)
        if not dtype.is_inexact:
            raise DTypeError(
                f"finfo: expected a floating-point dtype, got {dtype.name}"
            )
        real = dtype.to_real()
        info = ml_dtypes.finfo(real.np)
        self.dtype = real.name
        self.bits = int(info.bits)
        self.eps = float(info.eps)
        self.max = float(info.max)
        self.min = float(info.min)
        self.tiny = self.smallest_normal = float(info.smallest_normal)
        self.resolution = float(info.resolution)

    def __repr__(self) -> str:
        limits = f"min={self.min:g}, max={self.max:g}, eps={self.eps:g}"
        small = f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}"
        head = f"finfo(resolution={self.resolution:g}"
        return f"{head}, {limits}, {small}, dtype={self.dtype})"


class iinfo:
    """The limits of an integer type.

    >>> weft.iinfo(weft.int8).max
    127
    """

    def __init__(self, type: Any) -> None:
        dtype = as_dtype(type)
        if dtype.category != INT:
            raise DTypeError(f"iinfo: expected an integer dtype, got {dtype.name}")
        info = np.iinfo(dtype.np)
        self.dtype = dtype.name
        self.bits = int(info.bits)
        self.max = int(info.max)
        self.min = int(info.min)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"
