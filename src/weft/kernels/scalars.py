"""Scalars of a kernel while it is translated: their dtypes, and functions of them.

    int, Size       a whole number that loop variables and sizes determine: an index
    float, bool     a number of the source
    Scalar          a value of the Loop IR

Numbers of Python are weak, as in NumPy and PyTorch: they take over the dtype of what
they meet. Alone they are Python's own, float64 and int64.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft import dtype as dtypes
from weft.compile.emit.scalar import has_function
from weft.compile.loop.ir import Call, Const, Position, facts_of
from weft.compile.lower.values import as_dtype
from weft.core.lowering import Pointwise
from weft.core.op import all_ops
from weft.core.size import Size, larger, smaller
from weft.dtype import DType
from weft.errors import DTypeError


class Kind(NamedTuple):
    """The dtype of a scalar, and whether it gives way to another's."""

    dtype: DType
    weak: bool


class Scalar(NamedTuple):
    """A value of the Loop IR."""

    value: Any
    weak: bool = False


INDEX, NUMBER = Kind(dtypes.int64, True), Kind(dtypes.float64, True)
TRUTH = Kind(dtypes.bool_, False)


def is_index(one: Any) -> bool:
    """Whether a scalar is an index expression."""
    return type(one) is int or type(one) is Size


def kind_of(one: Any) -> Kind:
    """The kind of a scalar."""
    if isinstance(one, Scalar):
        return Kind(one.value.dtype, one.weak)
    if is_index(one):
        return INDEX
    return TRUTH if type(one) is bool else NUMBER


def common(kinds: Sequence[Kind]) -> Kind:
    """The kind of a result to which scalars of some kinds are converted.

    >>> from weft.kernels.scalars import INDEX, NUMBER, Kind, common
    >>> common([Kind(weft.float16, False), NUMBER, INDEX]).dtype
    weft.float16
    >>> common([Kind(weft.int32, False), NUMBER]).dtype
    weft.float32
    """
    strong = [kind.dtype for kind in kinds if not kind.weak]
    real = any(kind.weak and kind.dtype.is_inexact for kind in kinds)
    if not strong:
        return NUMBER if real else INDEX
    found = strong[0]
    for dtype in strong[1:]:
        found = dtypes.promote_types(found, dtype)
    if real and not found.is_inexact:
        return Kind(dtypes.default_dtype(), False)
    if found is dtypes.bool_ and len(strong) < len(kinds):
        return INDEX
    return Kind(found, False)


def value_of(one: Any, dtype: DType) -> Any:
    """A scalar as a value of a dtype."""
    if isinstance(one, Scalar):
        return as_dtype(one.value, dtype)
    if type(one) is Size:
        return as_dtype(Position(one, dtypes.int64), dtype)
    return Const(one, dtype)


def scalar(one: Any) -> Scalar:
    """A scalar as a value of its own kind."""
    dtype, weak = kind_of(one)
    return Scalar(value_of(one, dtype), weak)


def truth(one: Any) -> Any:
    """Whether a scalar is not zero, as a bool or a value."""
    if not isinstance(one, Scalar) and type(one) is not Size:
        return bool(one)
    return value_of(one, dtypes.bool_)


# -- functions


class Sign(NamedTuple):
    """An operator of the source: its opcode, and Python's function."""

    opcode: str
    python: Callable[..., Any]
    folds: bool = False  # whether a function of indices is an index


SIGNS: dict[type, Sign] = {
    ast.Add: Sign("add", operator.add, folds=True),
    ast.Sub: Sign("sub", operator.sub, folds=True),
    ast.Mult: Sign("mul", operator.mul, folds=True),
    ast.Div: Sign("div", operator.truediv),
    ast.FloorDiv: Sign("floor_divide", operator.floordiv, folds=True),
    ast.Mod: Sign("remainder", operator.mod, folds=True),
    ast.Pow: Sign("pow", operator.pow),
    ast.BitAnd: Sign("bitwise_and", operator.and_),
    ast.BitOr: Sign("bitwise_or", operator.or_),
    ast.BitXor: Sign("bitwise_xor", operator.xor),
    ast.LShift: Sign("bitwise_left_shift", operator.lshift),
    ast.RShift: Sign("bitwise_right_shift", operator.rshift),
    ast.USub: Sign("neg", operator.neg, folds=True),
    ast.Invert: Sign("bitwise_not", operator.invert),
    ast.Eq: Sign("eq", operator.eq),
    ast.NotEq: Sign("ne", operator.ne),
    ast.Lt: Sign("lt", operator.lt),
    ast.LtE: Sign("le", operator.le),
    ast.Gt: Sign("gt", operator.gt),
    ast.GtE: Sign("ge", operator.ge),
}
# Functions whose result is a whole number in Python, and the operator before that.
WHOLE: dict[Callable[..., Any], str] = {
    math.floor: "floor",
    math.ceil: "ceil",
    math.trunc: "trunc",
    round: "round",
}
EXTREMES: dict[Callable[..., Any], Sign] = {
    builtins.max: Sign("maximum", larger, folds=True),
    builtins.min: Sign("minimum", smaller, folds=True),
}


@functools.cache
def _opcodes() -> dict[Any, str]:
    """The opcodes of Weft's, Python's and NumPy's functions."""
    table: dict[Any, str] = {}
    for op in all_ops():
        if isinstance(op.lower, Pointwise) and op.function is not None:
            table[op.function] = op.name
            for module in (sys.modules["weft"], math, np):
                for name in (op.name, op.name.replace("a", "arc", 1)):
                    found = getattr(module, name, None)
                    if callable(found):
                        table.setdefault(found, op.name)
    table.update({builtins.abs: "abs", math.fabs: "abs", np.power: "pow",
                  np.multiply: "mul", np.subtract: "sub", np.divide: "div",
                  np.negative: "neg"})  # fmt: skip
    return table


def opcode(function: Any) -> str:
    """The opcode of a function that the source calls; empty if it has none."""
    try:
        return _opcodes().get(function, "")
    except TypeError:  # it has no hash
        return ""


def cast_of(function: Any) -> Kind | None:
    """The kind that a function such as ``int`` or ``np.float32`` converts to."""
    known = {float: NUMBER, int: INDEX, bool: TRUTH}
    if isinstance(function, type) and function in known:
        return known[function]
    if isinstance(function, DType):
        return Kind(function, False)
    if isinstance(function, type) and issubclass(function, np.generic):
        with contextlib.suppress(DTypeError):
            return Kind(dtypes.as_dtype(function), False)
    return None


def is_number(one: Any) -> bool:
    """Whether a scalar is a number that is known when the kernel is translated."""
    return type(one) in (bool, int, float)


def applied(sign: Sign, args: Sequence[Any]) -> Any:
    """An operator of the source applied to scalars."""
    if all(map(is_number, args)):
        return sign.python(*args)
    if sign.folds and all(map(is_index, args)) and _divides(sign, args[-1]):
        return sign.python(*args)
    return called(sign.opcode, args)


def _divides(sign: Sign, last: Any) -> bool:
    """Whether an index may be divided: the machine has no quotient by zero."""
    if sign.python not in (operator.floordiv, operator.mod):
        return True
    return bool(last.symbol_name) if type(last) is Size else last > 0


def called(name: str, args: Sequence[Any]) -> Scalar:
    """A scalar function of scalars, with operands of one dtype."""
    kind, tells = common([kind_of(a) for a in args]), facts_of(name).returns == "bool"
    if not has_function(name, [kind.dtype] * len(args), kind.dtype) or name == "div":
        if not kind.dtype.is_inexact:
            kind = NUMBER if kind.weak else Kind(dtypes.default_dtype(), False)
    elif (
        kind.dtype is dtypes.bool_ and not tells and facts_of(name).identity is not None
    ):
        kind = INDEX  # sums of truth values count them
    values = tuple([value_of(a, kind.dtype) for a in args])
    if tells:
        return Scalar(Call(name, values, dtypes.bool_))
    return Scalar(Call(name, values, kind.dtype), kind.weak)
