"""The logarithm of the gamma function, and its derivative.

Between 1.5 and 2.5 (lgamma) and 1 and 2 (digamma) a polynomial that is exact at the
roots; below 8 their recurrences lead there, above it Stirling's series follows, and
negative numbers are reflected. Evaluated in float64.
"""

from __future__ import annotations

import math

from weft.compile.emit.math import coefficients
from weft.compile.emit.math.logarithmic import log_finite
from weft.compile.emit.math.values import absolute, at_most, horner, in_double, nearest
from weft.compile.emit.values import Value, fma, select

_TINY = 1e-100  # below which lgamma is -log(|x|), and reflecting would underflow
_LARGE = 8.0
_ROOT = (1.4616321449683622, 9.549995429965697e-17)  # of digamma
_STIRLING = 0.5 * math.log(2 * math.pi) - 0.5


@in_double
def lgamma(x: Value, accuracy: int) -> Value:
    """The logarithm of the gamma function's absolute value."""
    y = absolute(x)
    right = _lgamma_positive(y)
    r = _from_whole(y)
    sine = absolute(r * horner(r * r, coefficients.SIN_PI[64]))
    sine = select(sine.equals(0.0), 1.0, sine)
    left = math.log(math.pi) - log_finite(sine * y) - right
    left = select(r.equals(0.0), math.inf, left)
    out = select((x < 0) & (y > _TINY), left, right)
    return select(y.equals(0.0) | y.equals(math.inf), math.inf, out)


def _lgamma_positive(y: Value) -> Value:
    lowest, product = _lowered(y, 1.5)
    below = y < 1.5
    tiny = y < 0.5
    steps = select(tiny, y * (y + 1), y)  # whose logarithm is what the shift costs
    z = select(tiny, y, select(below, y - 1, lowest - 2))
    series = z * horner(z, coefficients.LGAMMA[64])
    large = y >= _LARGE
    logarithm = log_finite(select(large, y, select(below, steps, product)))
    near = select(below, series - logarithm, series + logarithm)
    return select(large, _stirling(y, logarithm), near)


def _stirling(y: Value, logarithm: Value) -> Value:
    inverse = 1 / y
    rest = horner(inverse * inverse, coefficients.STIRLING[64])
    return fma(y - 0.5, logarithm - 1, fma(rest, inverse, _STIRLING))


def _lowered(y: Value, limit: float) -> tuple[Value, Value]:
    """y below 8 less whole steps, to ``[limit, limit + 1)``; the steps' product."""
    product = y.like(1.0)
    for _ in range(math.ceil(_LARGE - limit - 1)):
        high = y >= limit + 1
        y = select(high, y - 1, y)
        product = select(high, product * y, product)
    return y, product


def _from_whole(y: Value) -> Value:
    """The distance from the nearest whole number; y >= 0."""
    small = at_most(y, math.ldexp(1.0, 51))
    return select(y < math.ldexp(1.0, 51), small - nearest(small)[0], 0.0)


@in_double
def digamma(x: Value, accuracy: int) -> Value:
    """The logarithmic derivative of the gamma function."""
    negative = x < 0
    right = _digamma_positive(select(negative, 1 - x, x))
    r = _from_whole(absolute(x))
    z = r * r
    cosine = (0.25 - z) * horner(z, coefficients.COS_PI[64])
    cotangent = cosine / (r * horner(z, coefficients.SIN_PI[64])) * math.pi
    pole = r.equals(0.0) | absolute(x).equals(math.inf)
    left = select(pole, math.nan, right + cotangent)  # r is |x|'s, not x's
    out = select(negative, left, right)
    return select(x.equals(0.0), -1 / x, out)


def _digamma_positive(x: Value) -> Value:
    below = x < 1
    first = select(below, x + 1, x)
    lowest, total, product = _reciprocals(first)
    u = (lowest - _ROOT[0]) - _ROOT[1]
    series = u * horner(lowest - 1.5, coefficients.DIGAMMA[64])
    near = series + total / product
    near = select(below, near - 1 / x, near)
    inverse = 1 / x
    z = inverse * inverse
    far = fma(inverse, -0.5, log_finite(x))
    far = fma(z, -horner(z, coefficients.DIGAMMA_FAR[64]), far)
    far = select(x.equals(math.inf), math.inf, far)
    return select(x >= _LARGE, far, near)


def _reciprocals(y: Value) -> tuple[Value, Value, Value]:
    """y less whole steps, to [1, 2); the sum of 1/(each step) as a fraction."""
    total, product = y.like(0.0), y.like(1.0)
    for _ in range(int(_LARGE) - 2):
        high = y >= 2
        y = select(high, y - 1, y)
        total = select(high, fma(total, y, product), total)
        product = select(high, product * y, product)
    return y, total, product
