"""x to the power y, and the length of a vector.

The logarithm's error is multiplied by up to 745: float32 takes it in float64, and
float64 as a pair of numbers, to about 65 bits.
"""

from __future__ import annotations

import math

from weft.compile.emit.control_flow import I32
from weft.compile.emit.math import coefficients
from weft.compile.emit.math.exponential import (
    EXP2_RANGE,
    EXP_RANGE,
    LOG_2,
    clamped,
    exp2_reduced,
    exp_reduced,
    reduced,
    scaled,
)
from weft.compile.emit.math.logarithmic import log_series, split
from weft.compile.emit.math.values import (
    Pair,
    absolute,
    exact_product,
    exact_sum,
    float_of,
    horner,
    nearest,
    pair_product,
    power_of_two,
    square_root,
)
from weft.compile.emit.values import DOUBLE, Value, fma, select

_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)


def pow(x: Value, y: Value) -> Value:
    """x to the power y, with C's special values."""
    a = absolute(x)
    out = _pow_double(a, y) if x.format is DOUBLE else _pow_single(a, y)
    whole, odd = _parity(y)
    out = select((x.bits() < 0) & odd, -out, out)
    out = select((x < 0) & ~whole & (x > -math.inf), math.nan, out)
    one = a.equals(1.0) & absolute(y).equals(math.inf)
    return select(x.equals(1.0) | y.equals(0.0) | one, 1.0, out)


def _pow_single(a: Value, y: Value) -> Value:
    """``a**y`` of float32 numbers, a >= 0; the exponent alone is float64."""
    m, k = split(a)
    whole = _with_edges(a, float_of(k)).to_double()
    logarithm = fma(log_series(m.to_double() - 1, 48), 1 / math.log(2), whole)
    exponent = clamped(y.to_double() * logarithm, *EXP2_RANGE[32])
    whole, k = nearest(exponent)
    r = (exponent - whole).to_single()
    return scaled(exp2_reduced(r), k.convert("trunc", I32))


def _pow_double(a: Value, y: Value) -> Value:
    """``a**y`` for a >= 0."""
    high, low = _log_pair(a)
    high = _with_edges(a, high)
    product = y * high
    lost = fma(y, low, exact_product(y, high)[1])
    r, k = reduced(clamped(product, *EXP_RANGE[64]))
    inside = absolute(product) < 1000
    return scaled(exp_reduced(r + select(inside, lost, 0.0)), k)


def _with_edges(a: Value, logarithm: Value) -> Value:
    """The logarithm, also at 0 and infinity."""
    out = select(a.equals(0.0), -math.inf, logarithm)
    return select(a < math.inf, out, a)


def _parity(y: Value) -> tuple[Value, Value]:
    """Whether y is whole, and whether it is odd."""
    a, unit = absolute(y), math.ldexp(1.0, y.format.fraction)
    small = a < unit
    shifted = select(small, a + unit, a)
    whole = ~small | (shifted - unit).equals(a)
    last = (shifted.bits() & 1).equals(1)
    return whole, whole & last & (a < 2 * unit)


def _log_pair(x: Value) -> Pair:
    """log(x) as a pair, for a positive finite x."""
    m, k = split(x)
    series = _log_near_one(m - 1)
    high, low = LOG_2[64]
    whole = float_of(k)
    total, lost = exact_sum(whole * high, series[0])
    return exact_sum(total, lost + fma(whole, low, series[1]))


def _log_near_one(f: Value) -> Pair:
    """``log(1 + f) = s (2 + z (2/3 + z Q(z)))``, z = s*s, s = f / (2 + f)."""
    s = _divide(f, exact_sum(f.like(2.0), f))
    z = pair_product(s, s)
    tail = z[0] * horner(z[0], coefficients.LOG_TAIL[64])
    high, low = exact_sum(f.like(_TWO_THIRDS[0]), tail)
    w = pair_product(z, (high, low + _TWO_THIRDS[1]))
    high, low = exact_sum(f.like(2.0), w[0])
    return pair_product(s, (high, low + w[1]))


def _divide(x: Value, y: Pair) -> Pair:
    inverse = 1 / y[0]
    quotient = x * inverse
    product, lost = exact_product(quotient, y[0])
    rest = (x - product) - fma(quotient, y[1], lost)
    return exact_sum(quotient, rest * inverse)


def hypot(x: Value, y: Value) -> Value:
    """``sqrt(x*x + y*y)`` without overflow on the way."""
    infinite = absolute(x).equals(math.inf) | absolute(y).equals(math.inf)
    if x.format is DOUBLE:
        out = _hypot_double(absolute(x), absolute(y))
    else:
        a, b = x.to_double(), y.to_double()
        out = square_root(fma(a, a, b * b)).to_single()
    return select(infinite, math.inf, out)


def _hypot_double(a: Value, b: Value) -> Value:
    """By a scale that brings the larger near 1, and products with their errors."""
    order = a > b
    large, small = select(order, a, b), select(order, b, a)
    exponent = (large.bits() >> 52) - DOUBLE.bias
    exponent = select(exponent > 1000, exponent.like(1000), exponent)
    exponent = select(exponent < -1000, exponent.like(-1000), exponent)
    down = power_of_two(-exponent)
    large, small = large * down, small * down
    square, lost = exact_product(large, large)
    total, lost_sum = exact_sum(square, small * small)
    return square_root(total + (lost + lost_sum)) * power_of_two(exponent)
