"""Vector math: every element-wise function as straight-line code.

    y = emit("exp", builder, x)

x is a float or a double in the code being built, or a vector of them. The code has no
calls and no branches, selects instead; the exceptions are the angles of very large
arguments and remainders of very large quotients, which are branched over where no
lane has one. ``docs/vector_math.md`` gives the error of each function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from weft.compile.emit.math import (
    basic,
    bessel,
    error,
    exponential,
    gamma,
    logarithmic,
    outline,
    powers,
    trigonometric,
    values,
)
from weft.compile.emit.values import Value
from weft.errors import ArgumentError

# The functions with rare cases that are branched over.
BRANCHING: dict[str, Callable[..., Value]] = {
    "sin": trigonometric.sin,
    "cos": trigonometric.cos,
    "tan": trigonometric.tan,
    "fmod": basic.fmod,
    "remainder": basic.remainder,
    "floor_divide": basic.floor_divide,
}

FUNCTIONS: dict[str, Callable[..., Value]] = {
    # exponentials
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "sigmoid": exponential.sigmoid,
    "sinh": exponential.sinh,
    "cosh": exponential.cosh,
    "tanh": exponential.tanh,
    # logarithms
    "log": logarithmic.log,
    "log2": logarithmic.log2,
    "log10": logarithmic.log10,
    "log1p": logarithmic.log1p,
    "asinh": logarithmic.asinh,
    "acosh": logarithmic.acosh,
    "atanh": logarithmic.atanh,
    "logaddexp": logarithmic.logaddexp,
    # powers
    "pow": powers.pow,
    "hypot": powers.hypot,
    "sqrt": values.square_root,
    "rsqrt": basic.rsqrt,
    "square": lambda x: x * x,
    "reciprocal": basic.reciprocal,
    "relu": lambda x: values.at_least(x, 0.0),
    # angles
    "asin": trigonometric.asin,
    "acos": trigonometric.acos,
    "atan": trigonometric.atan,
    "atan2": trigonometric.atan2,
    # special functions
    "erf": error.erf,
    "erfc": error.erfc,
    "erfcx": error.erfcx,
    "erfinv": error.erfinv,
    "log_ndtr": error.log_ndtr,
    "ndtri": error.ndtri,
    "i0": bessel.i0,
    "i0e": bessel.i0e,
    "i1": bessel.i1,
    "i1e": bessel.i1e,
    "lgamma": gamma.lgamma,
    "digamma": gamma.digamma,
    # rounding and division
    "floor": basic.floor,
    "ceil": basic.ceil,
    "trunc": basic.trunc,
    "round": basic.round_even,
    # arithmetic
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "neg": lambda x: -x,
    "abs": values.absolute,
    "sign": basic.sign,
    "copysign": values.copysign,
    "nextafter": basic.nextafter,
    "maximum": basic.maximum,
    "minimum": basic.minimum,
    "fmax": basic.fmax,
    "fmin": basic.fmin,
    # questions: the result is an i1
    "isnan": Value.is_nan,
    "isinf": basic.isinf,
    "isfinite": basic.isfinite,
    "isposinf": basic.isposinf,
    "isneginf": basic.isneginf,
    "signbit": basic.signbit,
    "eq": Value.equals,
    "ne": lambda x, y: ~x.equals(y),
    "lt": Value.__lt__,
    "le": Value.__le__,
    "gt": Value.__gt__,
    "ge": Value.__ge__,
    **BRANCHING,
}


def emit(name: str, b: Any, *args: Any, fused: bool = False) -> Any:
    """The code of a function at the builder's place; gives LLVM's value.

    ``fused`` says that the target surely has a fused multiply-add (``Isa.fused``);
    some functions are then shorter. The builder may be in another block afterwards.

    >>> from llvmlite import ir
    >>> single = ir.FloatType()
    >>> made = ir.Function(ir.Module(), ir.FunctionType(single, [single]), "f")
    >>> b = ir.IRBuilder(made.append_basic_block())
    >>> str(weft.compile.emit.math.emit("tanh", b, made.args[0]).type)
    'float'
    """
    if name not in FUNCTIONS:
        raise ArgumentError(
            f"emit: expected one of {', '.join(sorted(FUNCTIONS))}, got {name!r}"
        )
    with values.fused_products(fused):
        if name in BRANCHING and not isinstance(args[0].type, ir.VectorType):
            return outline.call(name, FUNCTIONS[name], b, list(args))
        return FUNCTIONS[name](*[Value(b, x) for x in args]).ir
