"""Logarithms and the inverse hyperbolic functions.

``log(x) = k log(2) + log(1 + f)`` with ``1 + f`` between sqrt(1/2) and sqrt(2), and
``log(1 + f) = f - (f*f/2 - s (f*f/2 + R(s*s)))`` with ``s = f / (2 + f)``: the form of
FreeBSD's msun, in which the rounding of s hardly shows. R is a polynomial; in float32
all that is left of ``f - f*f/2`` is one.
"""

from __future__ import annotations

import math

from weft.compile.emit.math import coefficients
from weft.compile.emit.math.exponential import LOG_2, exp_negative
from weft.compile.emit.math.values import (
    absolute,
    float_of,
    head,
    horner,
    in_double,
    square_root,
    with_sign,
)
from weft.compile.emit.values import SINGLE, Value, fma, select

# 1/log(2), 1/log(10) and log10(2): a number and what it lacks
_LOG2_E = (1.4426950408889634, 2.0355273740931033e-17)
_LOG10_E = (0.4342944819032518, 1.098319650216765e-17)
_LOG10_2 = (0.3010299956639812, -2.8037281277851704e-18)
_HUGE = 1e18  # its square is finite, and 1 beside it does not count


def split(x: Value, *, subnormal: bool = True) -> tuple[Value, Value]:
    """(m, k) with ``x = m 2**k`` and m in [sqrt(1/2), sqrt(2)), for x > 0."""
    format = x.format
    if subnormal:
        tiny = x < format.smallest_normal
        x = select(tiny, x * math.ldexp(1.0, format.fraction), x)
    k = (x.bits() - format.bits_of(math.sqrt(0.5))) >> format.fraction
    m = (x.bits() - (k << format.fraction)).as_float()
    if subnormal:
        k = select(tiny, k - format.fraction, k)
    return m, k


def _series(f: Value, accuracy: int | None = None) -> tuple[Value, Value]:
    """(f*f/2, s (f*f/2 + R)): log(1 + f) is f minus the first plus the second."""
    half = f * f * 0.5
    if f.format is SINGLE:  # a polynomial in f itself costs less than a division
        return half, f * f * (f * horner(f, coefficients.LOG_DIRECT[32]))
    s = f / (f + 2)
    z = s * s
    r = z * horner(z, coefficients.LOG[accuracy or 64])
    return half, s * (half + r)


def log_series(f: Value, accuracy: int | None = None) -> Value:
    """``log(1 + f)`` for a reduced f."""
    half, rest = _series(f, accuracy)
    return f - (half - rest)


def _specials(x: Value, out: Value) -> Value:
    """A logarithm's values at 0, below it and at infinity."""
    below = select(x.equals(0.0), x.like(-math.inf), math.nan)
    above = select(x < math.inf, out, x)
    return select(x > 0, above, below)


def log_finite(x: Value, accuracy: int | None = None, subnormal: bool = True) -> Value:
    """The natural logarithm of a positive finite number."""
    m, k = split(x, subnormal=subnormal)
    whole, f = float_of(k), m - 1
    high, low = LOG_2[x.format.bits]
    half, rest = _series(f, accuracy)
    return fma(whole, high, f - (half - fma(whole, low, rest)))


def log(x: Value) -> Value:
    """The natural logarithm."""
    return _specials(x, log_finite(x))


def _shortened(value: float, low: float, x: Value) -> tuple[float, float]:
    """``value + low`` as a number of half the bits and the rest."""
    first = x.format.short(value)
    return first, (value - first) + low


def _in_base(
    x: Value, inverse: tuple[float, float], per_k: tuple[float, float]
) -> Value:
    """log(x) times ``inverse``; ``per_k`` is the logarithm of 2."""
    m, k = split(x)
    whole, f = float_of(k), m - 1
    half, rest = _series(f)
    high = head(f - half, x.format.fraction // 2 + 1)
    low = (f - high) - half + rest
    first, second = _shortened(*inverse, x)
    rest = fma(low, first, fma(high + low, second, whole * per_k[1]))
    top = whole * per_k[0]
    total = top + high * first
    return _specials(x, total + (rest + ((top - total) + high * first)))


def log2(x: Value) -> Value:
    """The logarithm to base 2."""
    return _in_base(x, _LOG2_E, (1.0, 0.0))


def log10(x: Value) -> Value:
    """The logarithm to base 10."""
    return _in_base(x, _LOG10_E, _shortened(*_LOG10_2, x))


def log1p(x: Value, accuracy: int | None = None) -> Value:
    """``log(1 + x)``, exact near 0."""
    high, low = LOG_2[x.format.bits]
    u = x + 1
    lost = select(x > 1, 1 - (u - x), x - (u - 1))  # by the rounding of u
    m, k = split(u, subnormal=False)
    whole, f = float_of(k), m - 1
    half, rest = _series(f, accuracy)
    rest = rest + fma(whole, low, lost / u)
    out = fma(whole, high, f - (half - rest))
    return select(x.equals(0.0), x, _specials(u, out))  # for the sign of 0


def asinh(x: Value) -> Value:
    """The inverse of the hyperbolic sine."""
    return with_sign(_asinh_positive(absolute(x)), x)


@in_double
def _asinh_positive(x: Value, accuracy: int) -> Value:
    huge = x > _HUGE
    a = select(huge, 1.0, x)
    near = log1p(a + a * a / (square_root(fma(a, a, 1.0)) + 1), accuracy)
    return select(huge, log(x) + math.log(2), near)


@in_double
def acosh(x: Value, accuracy: int) -> Value:
    """The inverse of the hyperbolic cosine."""
    huge = x > _HUGE
    t = select(huge, 1.0, x - 1)
    near = log1p(t + square_root(t * (t + 2)), accuracy)
    out = select(huge, log(x) + math.log(2), near)
    return select(x < 1, math.nan, out)


def atanh(x: Value) -> Value:
    """The inverse of the hyperbolic tangent."""
    return with_sign(_atanh_positive(absolute(x)), x)


@in_double
def _atanh_positive(x: Value, accuracy: int) -> Value:
    return log1p((x + x) / (1 - x), accuracy) * 0.5


def logaddexp(x: Value, y: Value) -> Value:
    """``log(exp(x) + exp(y))``."""
    large, small = select(x > y, x, y), select(x > y, y, x)
    near = large + log1p(exp_negative(small - large))
    same = x.equals(y)  # infinities too, whose difference is NaN
    return select(same, x + math.log(2), near)
