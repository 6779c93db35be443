"""Whole numbers in the order of other numbers, and their digits.

    sort_key(x)                   less, equal and greater as x is; NaN above all
    sort_digit(key, shift, mask)  some bits of a key, the least key having zeros

A key has 32 bits, or 64 where the number has; keys of smaller whole numbers begin at 0,
so that their upper bits are all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from weft import dtype as dtypes
from weft.compile.emit.control_flow import I64
from weft.dtype import DType


def _sort_key(b: Any, args: list[Any], kinds: list[DType], dtype: DType) -> Any:
    (x,), (kind,) = args, kinds
    if not kind.is_inexact:
        return _widened(b, x, kind, dtype)
    zero = ir.Constant(x.type, 0.0)
    pattern = b.bitcast(b.fadd(x, zero), _integer(dtype))  # both zeros are one
    sign = b.ashr(pattern, ir.Constant(pattern.type, pattern.type.width - 1))
    most = ir.Constant(pattern.type, (1 << (pattern.type.width - 1)) - 1)
    key = b.xor(pattern, b.and_(sign, most))
    return b.select(b.fcmp_unordered("uno", x, x), most, key)


def _widened(b: Any, x: Any, kind: DType, dtype: DType) -> Any:
    to = _integer(dtype)
    if x.type == to:
        first = ir.Constant(to, 1 << (to.width - 1))
        return x if kind.is_signed else b.xor(x, first)
    if not kind.is_signed or kind is dtypes.bool_:
        return b.zext(x, to)
    return b.add(b.sext(x, to), ir.Constant(to, 1 << (x.type.width - 1)))


def _integer(dtype: DType) -> Any:
    return ir.IntType(dtype.itemsize * 8)


def _sort_digit(b: Any, args: list[Any], kinds: list[DType], dtype: DType) -> Any:
    key, shift, mask = args
    width = key.type.width
    plain = b.xor(key, ir.Constant(key.type, 1 << (width - 1)))
    wide = plain if width == 64 else b.zext(plain, I64)
    return b.and_(b.lshr(wide, shift), mask)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sort_key": _sort_key,
    "sort_digit": _sort_digit,
}


# -- the same for one number, in NumPy


def number_key(x: Any, *, dtype: DType) -> Any:
    """The key of a number."""
    x = np.asarray(x)
    if dtypes.of_array(x).is_inexact:
        wide = x.astype(np.float64 if dtype is dtypes.int64 else np.float32) + 0
        most = np.iinfo(dtype.np).max
        pattern = int(wide.view(dtype.np))
        key = pattern if pattern >= 0 else pattern ^ most
        return dtype.np.type(most if np.isnan(wide) else key)
    if x.dtype.itemsize == dtype.itemsize:
        start = 0 if x.dtype.kind == "i" else -int(np.iinfo(dtype.np).min)
    else:
        start = int(np.iinfo(x.dtype).min) if x.dtype.kind == "i" else 0
    return dtype.np.type(int(x) - start)


def number_digit(key: Any, shift: Any, mask: Any, *, dtype: DType) -> Any:
    """Some bits of a key."""
    plain = int(key) - int(np.iinfo(np.asarray(key).dtype).min)
    return np.int64(plain >> int(shift) & int(mask))


NUMBERS: dict[str, Callable[..., Any]] = {
    "sort_key": number_key,
    "sort_digit": number_digit,
}
