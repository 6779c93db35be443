"""Scalar functions as LLVM instructions, with NumPy's meaning.

``emit(b, name, args, dtype)`` gives the value of a function of the Loop IR. What the
machine has no instruction for is in ``math``.
"""

from __future__ import annotations

import math as pymath
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from weft import dtype as dtypes
from weft.compile.llvm import random
from weft.compile.llvm.emit import F32, F64, I1, I8
from weft.config import config
from weft.dtype import DType

_INTS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint8": 8}
Emit = Callable[..., Any]


def memory_type(dtype: DType) -> Any:
    """How a dtype lies in memory."""
    if dtype.name == "float32":
        return F32
    if dtype.name == "float64":
        return F64
    return I8 if dtype is dtypes.bool_ else ir.IntType(_INTS[dtype.name])


def register_type(dtype: DType) -> Any:
    """How a dtype is computed with."""
    return I1 if dtype is dtypes.bool_ else memory_type(dtype)


def has_dtype(dtype: DType) -> bool:
    """Whether kernels compute with a dtype."""
    return dtype.name in ("float32", "float64", "bool") or dtype.name in _INTS


def constant(value: Any, dtype: DType) -> Any:
    """A number of a dtype."""
    if dtype.is_inexact:
        number = float(value)
        if dtype.name == "float32" and pymath.isfinite(number):
            import numpy as np

            number = float(np.float32(number))
        return ir.Constant(register_type(dtype), number)
    if dtype is dtypes.bool_:
        return ir.Constant(I1, bool(value))
    bits = _INTS[dtype.name]
    return ir.Constant(register_type(dtype), int(value) & ((1 << bits) - 1))


def emit(
    b: Any,
    name: str,
    args: list[Any],
    kinds: list[DType],
    dtype: DType,
    *,
    fused: bool = False,
) -> Any:
    """The value of a scalar function; ``kinds`` are its arguments' dtypes.

    ``fused`` says that the target has a fused multiply-add.
    """
    kind = kinds[-1]
    if name in _SPECIAL:
        return _SPECIAL[name](b, args, kinds, dtype)
    table = _FLOAT if kind.is_inexact else _BOOL if kind is dtypes.bool_ else _INT
    if name in table:
        return table[name](b, *args)
    from weft.compile.llvm import math

    return math.emit(name, b, *args, fused=fused)


def has_function(name: str, kinds: list[DType], dtype: DType) -> bool:
    """Whether a scalar function is there for these dtypes."""
    if not all(map(has_dtype, [*kinds, dtype])):
        return False
    kind = kinds[-1] if kinds else dtype
    if name in _SPECIAL:
        return name != "div" or kind.is_inexact
    table = _FLOAT if kind.is_inexact else _BOOL if kind is dtypes.bool_ else _INT
    if name in table:
        return True
    return kind.is_inexact and _in_math(name)


def _in_math(name: str) -> bool:
    from weft.compile.llvm import math

    return name in math.FUNCTIONS


# -- instructions


def _intrinsic(name: str) -> Emit:
    def call(b: Any, *args: Any) -> Any:
        kinds = [args[0].type]
        made = b.module.declare_intrinsic(
            f"llvm.{name}", kinds, ir.FunctionType(kinds[0], kinds * len(args))
        )
        return b.call(made, args)

    return call


def _number(like: Any, value: float) -> Any:
    return ir.Constant(like.type, value)


def _is_nan(b: Any, x: Any) -> Any:
    return b.fcmp_unordered("uno", x, x)


_fabs = _intrinsic("fabs")
_maximum, _minimum = _intrinsic("maximum"), _intrinsic("minimum")


def _is_inf(b: Any, x: Any) -> Any:
    return b.fcmp_ordered("==", _fabs(b, x), _number(x, float("inf")))


def _absorb(b: Any, g: Any, d: Any) -> Any:
    """The product, but 0 where one factor is 0 and the other not finite."""
    product = b.fmul(g, d)
    if config.strict_ieee:
        return product
    zero = _number(g, 0.0)
    none = b.fcmp_ordered("==", g, zero)
    lost = b.or_(none, b.and_(b.fcmp_ordered("==", d, zero), _is_inf(b, g)))
    return b.select(b.and_(_is_nan(b, product), lost), zero, product)


# Those that ``math`` does not have, and the ones that LLVM must recognise in loops
# that accumulate.
_FLOAT: dict[str, Emit] = {
    "absorb": _absorb,
    "add": lambda b, x, y: b.fadd(x, y),
    "conj": lambda b, x: x,
    "maximum": _maximum,
    "minimum": _minimum,
    "relu": lambda b, x: _maximum(b, x, _number(x, 0.0)),
}


def _signed(predicate: str) -> Emit:
    return lambda b, x, y: b.icmp_signed(predicate, x, y)


_INT: dict[str, Emit] = {
    "add": lambda b, x, y: b.add(x, y),
    "sub": lambda b, x, y: b.sub(x, y),
    "mul": lambda b, x, y: b.mul(x, y),
    "neg": lambda b, x: b.neg(x),
    "conj": lambda b, x: x,
    "square": lambda b, x: b.mul(x, x),
    "bitwise_and": lambda b, x, y: b.and_(x, y),
    "bitwise_or": lambda b, x, y: b.or_(x, y),
    "bitwise_xor": lambda b, x, y: b.xor(x, y),
    "bitwise_not": lambda b, x: b.not_(x),
    "eq": _signed("=="),
    "ne": _signed("!="),
}

_BOOL: dict[str, Emit] = {
    "logical_and": lambda b, x, y: b.and_(x, y),
    "logical_or": lambda b, x, y: b.or_(x, y),
    "logical_xor": lambda b, x, y: b.xor(x, y),
    "logical_not": lambda b, x: b.not_(x),
    "bitwise_and": lambda b, x, y: b.and_(x, y),
    "bitwise_or": lambda b, x, y: b.or_(x, y),
    "bitwise_xor": lambda b, x, y: b.xor(x, y),
    "bitwise_not": lambda b, x: b.not_(x),
    "eq": lambda b, x, y: b.not_(b.xor(x, y)),
    "ne": lambda b, x, y: b.xor(x, y),
    "maximum": lambda b, x, y: b.or_(x, y),
    "minimum": lambda b, x, y: b.and_(x, y),
}


# -- those that look at dtypes


def _where(b: Any, args: list[Any], kinds: list[DType], dtype: DType) -> Any:
    return b.select(args[0], args[1], args[2])


def _ordered(name: str) -> Emit:
    signs = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}

    def call(b: Any, args: list[Any], kinds: list[DType], dtype: DType) -> Any:
        kind = kinds[-1]
        if kind.is_inexact:
            return b.fcmp_ordered(signs[name], *args)
        signed = kind.is_signed and kind is not dtypes.bool_
        compare = b.icmp_signed if signed else b.icmp_unsigned
        return compare(signs[name], *args)

    return call


def _extreme(name: str, sign: str) -> Emit:
    def call(b: Any, args: list[Any], kinds: list[DType], dtype: DType) -> Any:
        kind = kinds[-1]
        if kind.is_inexact:
            return _FLOAT[name](b, *args)
        if kind is dtypes.bool_:
            return _BOOL[name](b, *args)
        compare = b.icmp_signed if kind.is_signed else b.icmp_unsigned
        return b.select(compare(sign, *args), *args)

    return call


def cast(b: Any, args: list[Any], kinds: list[DType], dtype: DType) -> Any:
    """A value in another dtype, as NumPy's ``astype``."""
    (x,), (have,) = args, kinds
    if have is dtype:
        return x
    to = register_type(dtype)
    if have.is_inexact:
        if dtype.is_inexact:
            return (
                b.fpext(x, to) if dtype.itemsize > have.itemsize else b.fptrunc(x, to)
            )
        if dtype is dtypes.bool_:
            return b.fcmp_unordered("!=", x, _number(x, 0.0))
        return b.fptosi(x, to) if dtype.is_signed else b.fptoui(x, to)
    signed = have.is_signed and have is not dtypes.bool_
    if dtype.is_inexact:
        return b.sitofp(x, to) if signed else b.uitofp(x, to)
    if dtype is dtypes.bool_:
        return b.icmp_signed("!=", x, ir.Constant(x.type, 0))
    wide, narrow = to.width, x.type.width
    if wide == narrow:
        return x
    if wide < narrow:
        return b.trunc(x, to)
    return b.sext(x, to) if signed else b.zext(x, to)


_SPECIAL: dict[str, Emit] = {
    **random.FUNCTIONS,
    "where": _where,
    "cast": cast,
    "lt": _ordered("lt"),
    "le": _ordered("le"),
    "gt": _ordered("gt"),
    "ge": _ordered("ge"),
    "maximum": _extreme("maximum", ">"),
    "minimum": _extreme("minimum", "<"),
}
