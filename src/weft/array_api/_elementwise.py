"""Element-wise functions, over Weft's operators of the same meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.array_api._common import Array, check_array, operands
from weft.core.elementwise import broadcast_shapes
from weft.ops import (
    arithmetic,
    bits,
    broadcasting,
    comparison,
    complex_numbers,
    copies,
    predicates,
    rounding,
    select,
)
from weft.ops import transcendental as trans
from weft.ops.operands import as_tensorlike

_REALS, _WHOLE, _TRUTH = "weft.ones(2)", "weft.tensor([1, 2])", "weft.tensor([True])"


def _finish(fn: Any, name: str, text: str, example: str, shape: str) -> Any:
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = f"""{text}

    >>> weft.array_api.{name}({example}).shape
    {shape}
    """
    return fn


def _first_line(op: Callable[..., Any]) -> str:
    return (op.__doc__ or "").partition("\n")[0]


def _unary(name: str, op: Callable[..., Any], sample: str = _REALS) -> Any:
    """A function of one array from an operator."""

    def fn(x: Array, /) -> Array:
        return op(check_array(name, x))

    shape = "(1,)" if sample == _TRUTH else "(2,)"
    return _finish(fn, name, _first_line(op), sample, shape)


def _binary(name: str, op: Callable[..., Any], sample: str = _REALS) -> Any:
    """A function of two arrays (one may be a Python number) from an operator."""

    def fn(x1: Any, x2: Any, /) -> Array:
        return op(*operands(name, x1, x2))

    shape = "(1,)" if sample == _TRUTH else "(2,)"
    return _finish(fn, name, _first_line(op), f"{sample}, {sample}", shape)


# -- one array

abs = _unary("abs", arithmetic.abs)
acos = _unary("acos", trans.acos)
acosh = _unary("acosh", trans.acosh)
asin = _unary("asin", trans.asin)
asinh = _unary("asinh", trans.asinh)
atan = _unary("atan", trans.atan)
atanh = _unary("atanh", trans.atanh)
bitwise_invert = _unary("bitwise_invert", bits.bitwise_not, _WHOLE)
ceil = _unary("ceil", rounding.ceil)
conj = _unary("conj", complex_numbers.conj)
cos = _unary("cos", trans.cos)
cosh = _unary("cosh", trans.cosh)
exp = _unary("exp", trans.exp)
expm1 = _unary("expm1", trans.expm1)
floor = _unary("floor", rounding.floor)
isfinite = _unary("isfinite", predicates.isfinite)
isinf = _unary("isinf", predicates.isinf)
isnan = _unary("isnan", predicates.isnan)
log = _unary("log", trans.log)
log10 = _unary("log10", trans.log10)
log1p = _unary("log1p", trans.log1p)
log2 = _unary("log2", trans.log2)
logical_not = _unary("logical_not", bits.logical_not, _TRUTH)
negative = _unary("negative", arithmetic.neg)
positive = _unary("positive", arithmetic.positive)
real = _unary("real", complex_numbers.real)
reciprocal = _unary("reciprocal", arithmetic.reciprocal)
signbit = _unary("signbit", predicates.signbit)
sin = _unary("sin", trans.sin)
sinh = _unary("sinh", trans.sinh)
sqrt = _unary("sqrt", trans.sqrt)
square = _unary("square", arithmetic.square)
tan = _unary("tan", trans.tan)
tanh = _unary("tanh", trans.tanh)
trunc = _unary("trunc", rounding.trunc)


def imag(x: Array, /) -> Array:
    """The imaginary part of a complex array.

    >>> weft.array_api.imag(weft.tensor([1 + 2j]))
    tensor([2.], shape=(1,), dtype=float32)
    """
    return complex_numbers.imag(x)


def round(x: Array, /) -> Array:
    """The nearest whole numbers, ties to even; of complex numbers both parts.

    >>> weft.array_api.round(weft.tensor([0.5, 1.5, -1.7]))
    tensor([ 0.,  2., -2.], shape=(3,), dtype=float32)
    """
    if x.dtype.is_complex:
        return complex_numbers.complex(
            rounding.round(complex_numbers.real(x)),
            rounding.round(complex_numbers.imag(x)),
        )
    return rounding.round(x)


def sign(x: Array, /) -> Array:
    """-1, 0 or 1 by each element's sign, NaN for NaN; ``x / |x|`` if complex.

    >>> weft.array_api.sign(weft.tensor([-2.0, 0.0, 3.0]))
    tensor([-1.,  0.,  1.], shape=(3,), dtype=float32)
    """
    signs = arithmetic.sgn(x)
    return select.where(predicates.isnan(x), x, signs) if x.dtype.is_inexact else signs


# -- two arrays


def _floored(x1: Array, x2: Array) -> Array:
    """The quotient rounded down; that of an infinity, which PyTorch and NumPy have as
    NaN, is infinite."""
    out = arithmetic.floor_divide(x1, x2)
    if not out.dtype.is_floating_point:
        return out
    lost = predicates.isinf(x1) & predicates.isnan(out)
    return select.where(lost, arithmetic.div(x1, x2), out)


add = _binary("add", arithmetic.add)
atan2 = _binary("atan2", trans.atan2)
bitwise_and = _binary("bitwise_and", bits.bitwise_and, _WHOLE)
bitwise_left_shift = _binary("bitwise_left_shift", bits.bitwise_left_shift, _WHOLE)
bitwise_or = _binary("bitwise_or", bits.bitwise_or, _WHOLE)
bitwise_right_shift = _binary("bitwise_right_shift", bits.bitwise_right_shift, _WHOLE)
bitwise_xor = _binary("bitwise_xor", bits.bitwise_xor, _WHOLE)
copysign = _binary("copysign", arithmetic.copysign)
divide = _binary("divide", arithmetic.div)
equal = _binary("equal", comparison.eq)
floor_divide = _binary("floor_divide", _floored)
greater = _binary("greater", comparison.gt)
greater_equal = _binary("greater_equal", comparison.ge)
hypot = _binary("hypot", trans.hypot)
less = _binary("less", comparison.lt)
less_equal = _binary("less_equal", comparison.le)
logaddexp = _binary("logaddexp", trans.logaddexp)
logical_and = _binary("logical_and", bits.logical_and, _TRUTH)
logical_or = _binary("logical_or", bits.logical_or, _TRUTH)
logical_xor = _binary("logical_xor", bits.logical_xor, _TRUTH)
maximum = _binary("maximum", select.maximum)
minimum = _binary("minimum", select.minimum)
multiply = _binary("multiply", arithmetic.mul)
nextafter = _binary("nextafter", rounding.nextafter)
not_equal = _binary("not_equal", comparison.ne)
pow = _binary("pow", arithmetic.pow)
remainder = _binary("remainder", arithmetic.remainder)
subtract = _binary("subtract", arithmetic.sub)


def clip(x: Array, /, min: Any = None, max: Any = None) -> Array:
    """Each element brought between ``min`` and ``max``, in the array's own dtype.

    >>> weft.array_api.clip(weft.tensor([-2.0, 0.5, 9.0]), 0, 1)
    tensor([0.0000, 0.5000, 1.0000], shape=(3,), dtype=float32)
    """
    if min is None and max is None:
        return copies.clone(x)
    bounds = [b for b in (min, max) if isinstance(b, Array)]
    shape = broadcast_shapes("clip", x.shape, *(b.shape for b in bounds))
    wide = broadcasting.expand(x, shape)
    limits = (as_tensorlike(b) if b is not None else None for b in (min, max))
    return copies.cast(select.clamp(wide, *limits), x.dtype)
