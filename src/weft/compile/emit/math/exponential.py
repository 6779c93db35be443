"""Exponentials and what is made of them: sigmoid, hyperbolic functions.

``exp(x) = 2**k exp(r)`` with k whole and ``|r| <= log(2) / 2``; exp(r) is a
polynomial. log(2) is taken in two parts, the first so short that k times it is exact.
"""

from __future__ import annotations

import math

from weft.compile.emit.math import coefficients
from weft.compile.emit.math.values import (
    absolute,
    at_least,
    at_most,
    horner,
    nearest,
    power_of_two,
    with_sign,
)
from weft.compile.emit.values import SINGLE, Value, fma, select

# log(2) in two parts: the first has few enough bits to be multiplied exactly
LOG_2 = {
    32: (0.693359375, -2.1219444e-4),
    64: (6.93147180369123816490e-01, 1.90821492927058770002e-10),
}
# below and above these, exp is 0 and infinite
EXP_RANGE = {32: (-104.0, 89.0), 64: (-746.0, 710.0)}
EXP2_RANGE = {32: (-151.0, 128.0), 64: (-1076.0, 1024.0)}
# from where on tanh is 1, and up to where expm1 is -1
TANH_LIMIT = {32: 10.0, 64: 20.0}
EXPM1_LOW = {32: -20.0, 64: -40.0}


def reduced(x: Value) -> tuple[Value, Value]:
    """(r, k) with ``x = k log(2) + r``; k is an integer."""
    high, low = LOG_2[x.format.bits]
    whole, k = nearest(x, 1 / math.log(2))
    r = fma(whole, -high, x)
    return fma(whole, -low, r), k


def scaled(y: Value, k: Value) -> Value:
    """``y * 2**k`` for all k that can matter, in two steps: 2**k may not be normal."""
    half = k >> 1
    return y * power_of_two(half) * power_of_two(k - half)


def scaled_down(y: Value, k: Value) -> Value:
    """``y * 2**k`` for k <= 0."""
    shift = 64 if y.format is SINGLE else 512
    return y * power_of_two(k + shift) * math.ldexp(1.0, -shift)


def exp_reduced(r: Value) -> Value:
    """``exp(r)`` for a reduced r."""
    p = horner(r, coefficients.EXP[r.format.bits])
    return fma(r * r, p, r) + 1


def clamped(x: Value, low: float, high: float) -> Value:
    return at_least(at_most(x, high), low)


def exp(x: Value) -> Value:
    """e to the power of x."""
    r, k = reduced(clamped(x, *EXP_RANGE[x.format.bits]))
    return scaled(exp_reduced(r), k)


def exp_negative(x: Value) -> Value:
    """``exp(x)`` for x <= 0."""
    r, k = reduced(at_least(x, EXP_RANGE[x.format.bits][0]))
    return scaled_down(exp_reduced(r), k)


def exp_plus(high: Value, low: Value) -> Value:
    """``exp(high + low)`` for a low far smaller than high, high <= 0."""
    r, k = reduced(at_least(high, EXP_RANGE[high.format.bits][0]))
    return scaled_down(exp_reduced(r + low), k)


def exp2_reduced(r: Value) -> Value:
    """``2**r`` for ``|r| <= 1/2``."""
    return fma(r, horner(r, coefficients.EXP2[r.format.bits]), 1.0)


def exp2(x: Value) -> Value:
    """2 to the power of x."""
    x = clamped(x, *EXP2_RANGE[x.format.bits])
    whole, k = nearest(x)
    return scaled(exp2_reduced(x - whole), k)


def _expm1_reduced(r: Value) -> Value:
    """``exp(r) - 1`` for a reduced r."""
    return fma(r * r, horner(r, coefficients.EXPM1[r.format.bits]), r)


def expm1(x: Value) -> Value:
    """``exp(x) - 1``, exact near 0."""
    bits = x.format.bits
    r, k = reduced(clamped(x, EXPM1_LOW[bits], EXP_RANGE[bits][1]))
    half = power_of_two(k - 1)  # 2**k itself may be too large
    out = fma(half, _expm1_reduced(r), half - 0.5) * 2
    return with_sign(absolute(out), x)


def sigmoid(x: Value) -> Value:
    """``1 / (1 + exp(-x))``."""
    z = exp_negative((x.bits() | x.format.sign_mask).as_float())
    return select(x < 0, z, 1.0) / (z + 1)


def tanh(x: Value) -> Value:
    """The hyperbolic tangent."""
    a = at_most(absolute(x), TANH_LIMIT[x.format.bits])
    z = a * a
    near = fma(a * z, horner(z, coefficients.TANH[x.format.bits]), a)
    r, k = reduced(a + a)
    far = 1 - 2 / fma(exp_reduced(r), power_of_two(k), 1.0)
    return with_sign(select(a < 0.55, near, far), x)


def _half_exp(size: Value) -> Value:
    """``exp(size) / 2`` for size >= 0: finite for longer than exp."""
    high = EXP_RANGE[size.format.bits][1]
    r, k = reduced(at_most(size, high + 1))
    return scaled(exp_reduced(r), k - 1)


def cosh(x: Value) -> Value:
    """The hyperbolic cosine."""
    half = _half_exp(absolute(x))
    return half + 0.25 / half


def sinh(x: Value) -> Value:
    """The hyperbolic sine."""
    size = absolute(x)
    half = _half_exp(size)
    z = at_most(size * size, 1.0)
    series = horner(z, coefficients.SINH[x.format.bits])
    small = fma(size * z, series, size)
    return with_sign(select(size < 1, small, half - 0.25 / half), x)
