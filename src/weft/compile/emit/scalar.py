"""Scalar functions as LLVM instructions, with NumPy's meaning.

``emit(b, name, args, dtype)`` gives the value of a function of the Loop IR. Functions
without an instruction are in ``math``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from weft import dtype as dtypes
from weft.compile.emit import integers, random, sort_keys
from weft.compile.emit.control_flow import F32, F64, I1, I8, I32, I64
from weft.compile.emit.math import conversions
from weft.compile.emit.values import Value
from weft.compile.loop.ir import facts_of
from weft.config import config
from weft.dtype import DType

_INTS = {d.name: 8 * d.itemsize for d in dtypes.ALL if d.category == dtypes.INT}
_FLOATS = {"float16": F32, "bfloat16": F32, "float32": F32, "float64": F64}
HALF = ("float16", "bfloat16")  # as float32 in registers
Emit = Callable[..., Any]


def memory_type(dtype: DType) -> Any:
    """The LLVM type of a dtype in memory; half types are their bit patterns."""
    if dtype.name in HALF:
        return conversions.I16
    return I8 if dtype is dtypes.bool_ else register_type(dtype)


def register_type(dtype: DType) -> Any:
    """The LLVM type of a dtype in registers."""
    if dtype.name in _FLOATS:
        return _FLOATS[dtype.name]
    return I1 if dtype is dtypes.bool_ else ir.IntType(_INTS[dtype.name])


def has_dtype(dtype: DType) -> bool:
    """Whether kernels compute with a dtype."""
    return not dtype.is_complex


def constant(value: Any, dtype: DType) -> Any:
    """A number of a dtype."""
    if dtype.is_inexact:
        with np.errstate(over="ignore"):
            number = float(dtype.np.type(value))
        return ir.Constant(register_type(dtype), number)
    if dtype is dtypes.bool_:
        return ir.Constant(I1, bool(value))
    bits = _INTS[dtype.name]
    return ir.Constant(register_type(dtype), int(value) & ((1 << bits) - 1))


# -- half types: rounded to nearest, ties to even


def rounds(name: str, dtype: DType) -> bool:
    """Whether a function's result must be rounded to a half type."""
    return dtype.name in HALF and not facts_of(name).exact


def widened(b: Any, pattern: Any, dtype: DType, *, native: bool = False) -> Any:
    """The float32 of a half type's pattern.

    ``native`` says that the target converts float16 itself.
    """
    if dtype is dtypes.bfloat16:
        return conversions.bfloat16_to_float(Value(b, pattern)).ir
    return conversions.float16_to_float(Value(b, pattern), native=native).ir


def narrowed(b: Any, x: Any, dtype: DType, *, native: bool = False) -> Any:
    """The pattern of the half type's number nearest to a float32."""
    if dtype is dtypes.bfloat16:
        return conversions.float_to_bfloat16(Value(b, x)).ir
    return conversions.float_to_float16(Value(b, x), native=native).ir


# -- functions


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

    The caller rounds a result of a half type. ``fused`` says that the target
    has a fused multiply-add.
    """
    if name in _SPECIAL:
        return _SPECIAL[name](b, args, kinds, dtype)
    table = _table(kinds[-1])
    if name in table:
        return table[name](b, *args)
    from weft.compile.emit import math

    return math.emit(name, b, *args, fused=fused)


def has_function(name: str, kinds: list[DType], dtype: DType) -> bool:
    """Whether a scalar function exists for these dtypes."""
    if not all(map(has_dtype, [*kinds, dtype])):
        return False
    kind = kinds[-1] if kinds else dtype
    if name in _SPECIAL or name in _table(kind):
        return True
    return kind.is_inexact and _in_math(name)


def _table(kind: DType) -> dict[str, Emit]:
    """The instructions for arguments of a dtype."""
    if kind.is_inexact:
        return _FLOAT
    if kind is dtypes.bool_:
        return integers.BOOL
    return integers.SIGNED if kind.is_signed else integers.UNSIGNED


def _in_math(name: str) -> bool:
    from weft.compile.emit import math

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


def _true(b: Any, x: Any) -> Any:
    return b.fcmp_unordered("!=", x, _number(x, 0.0))


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
    **{name: integers.of_truth(name, _true) for name in integers.LOGICAL},
}


# -- those that look at dtypes


def _where(b: Any, args: list[Any], kinds: list[DType], dtype: DType) -> Any:
    return b.select(args[0], args[1], args[2])


def _ordered(name: str) -> Emit:
    sign = facts_of(name).infix

    def call(b: Any, args: list[Any], kinds: list[DType], dtype: DType) -> Any:
        kind = kinds[-1]
        if kind.is_inexact:
            return b.fcmp_ordered(sign, *args)
        signed = kind.is_signed and kind is not dtypes.bool_
        compare = b.icmp_signed if signed else b.icmp_unsigned
        return compare(sign, *args)

    return call


def _extreme(name: str, sign: str) -> Emit:
    def call(b: Any, args: list[Any], kinds: list[DType], dtype: DType) -> Any:
        kind = kinds[-1]
        if kind.is_inexact:
            return _FLOAT[name](b, *args)
        if kind is dtypes.bool_:
            return integers.BOOL[name](b, *args)
        compare = b.icmp_signed if kind.is_signed else b.icmp_unsigned
        return b.select(compare(sign, *args), *args)

    return call


def cast(b: Any, args: list[Any], kinds: list[DType], dtype: DType) -> Any:
    """A value in another dtype, as NumPy's ``astype``."""
    (x,), (have,) = args, kinds
    if have is dtype:
        return x
    if have.is_inexact:
        return _from_float(b, x, dtype)
    to = register_type(dtype)
    signed = have.is_signed and have is not dtypes.bool_
    if dtype.is_inexact:
        return b.sitofp(x, to) if signed else b.uitofp(x, to)
    if dtype is dtypes.bool_:
        return integers.true(b, x)
    wide, narrow = to.width, x.type.width
    if wide == narrow:
        return x
    if wide < narrow:
        return b.trunc(x, to)
    return b.sext(x, to) if signed else b.zext(x, to)


def _from_float(b: Any, x: Any, dtype: DType) -> Any:
    """A floating-point value in another dtype."""
    to = register_type(dtype)
    if dtype is dtypes.float16 and x.type == F64:
        return conversions.double_to_odd_float(Value(b, x)).ir
    if dtype.is_inexact:
        if to == x.type:
            return x
        return b.fpext(x, to) if to == F64 else b.fptrunc(x, to)
    if dtype is dtypes.bool_:
        return _true(b, x)
    # a number that does not fit becomes some number, but the same one everywhere
    if dtype is dtypes.uint64:
        return _from_large(b, x)
    wide = to if to.width >= 32 else I32
    if dtype is dtypes.uint32:
        wide = I64
    whole = freeze(b, b.fptosi(x, wide))
    return whole if wide == to else b.trunc(whole, to)


def _from_large(b: Any, x: Any) -> Any:
    """A floating-point value as a uint64: the upper half without its first bit."""
    half = _number(x, 2.0**63)
    large = b.fcmp_ordered(">=", x, half)
    whole = freeze(b, b.fptosi(b.select(large, b.fsub(x, half), x), I64))
    return b.select(large, b.xor(whole, ir.Constant(I64, -(2**63))), whole)


def is_zero(b: Any, x: Any) -> Any:
    """Whether a whole number is 0."""
    return b.not_(integers.true(b, x))


def smaller(b: Any, x: Any, y: Any) -> Any:
    """The smaller of two whole numbers without sign."""
    return _intrinsic("umin")(b, x, y)


def freeze(b: Any, value: Any) -> Any:
    """The value, hidden from LLVM's optimisations."""
    if isinstance(value, ir.Constant):
        return value
    made = ir.instructions.Instruction(b.block, value.type, "freeze", [value])
    b._insert(made)
    return made


def _nextafter(b: Any, args: list[Any], kinds: list[DType], dtype: DType) -> Any:
    """The next number of the dtype itself."""
    from weft.compile.emit import math

    if dtype.name not in HALF:
        return math.emit("nextafter", b, *args)
    patterns = [narrowed(b, x, dtype) for x in args]
    found = conversions.next_pattern(*[Value(b, x) for x in (*args, *patterns)])
    return widened(b, found.ir, dtype)


_SPECIAL: dict[str, Emit] = {
    **random.FUNCTIONS,
    **sort_keys.FUNCTIONS,
    "where": _where,
    "cast": cast,
    "nextafter": _nextafter,
    "lt": _ordered("lt"),
    "le": _ordered("le"),
    "gt": _ordered("gt"),
    "ge": _ordered("ge"),
    "maximum": _extreme("maximum", ">"),
    "minimum": _extreme("minimum", "<"),
}
