"""The error function, its complement and its inverse; the normal distribution.

``exp(x*x) erfc(x) (1 + 2x)`` is smooth and nearly constant for all x >= 0: one
polynomial in ``(x - 4) / (x + 4)`` serves (Shepherd and Laframboise, 1981). The
inverse is a polynomial in ``-log(1 - x*x)``, or its root (Giles, 2010).
"""

from __future__ import annotations

import math

from weft.compile.emit.math import coefficients
from weft.compile.emit.math.exponential import (
    EXP_RANGE,
    exp_plus,
    exp_reduced,
    reduced,
    scaled,
)
from weft.compile.emit.math.logarithmic import log, log1p, log_finite
from weft.compile.emit.math.values import (
    absolute,
    at_least,
    at_most,
    exact_product,
    horner,
    in_double,
    power_of_two,
    square_root,
    with_sign,
)
from weft.compile.emit.values import SINGLE, Value, fma, select

_SMALL = 0.5  # up to which erfc is 1 - erf
_MOST = 36.0  # of -log(1 - t*t), to which the inverse's polynomials reach
_FAR = 26.0  # from which erfcx is its asymptotic series
# of that series, in 1/x**2: the products of odd numbers over powers of -2
_TAIL = (1.0, -0.5, 0.75, -1.875, 6.5625, -29.53125, 162.421875, -1055.7421875)


def _erf_near(a: Value, accuracy: int) -> Value:
    """erf for 0 <= a <= 1."""
    p = horner(at_most(a * a, 1.0), coefficients.ERF[accuracy])
    return fma(a, p, a)


def erf(x: Value) -> Value:
    """The error function."""
    a = absolute(x)
    tail = _erfc_single(a) if x.format is SINGLE else _erfc_tail(at_most(a, 6.5), 64)
    near = _erf_near(a, x.format.bits)
    return with_sign(select(a < 1, near, 1 - tail), x)


def _erfc_single(a: Value) -> Value:
    """float32's erfc between 1 and 4, where erf becomes 1."""
    r, k = reduced(-horner(at_most(a, 4.1), coefficients.ERF_LOG[32]))
    return exp_reduced(r) * power_of_two(k)


def _scaled(a: Value, accuracy: int) -> Value:
    """``exp(a*a) erfc(a)`` for 0 <= a <= 30."""
    q = (a - 4) / (a + 4)
    return horner(q, coefficients.ERFCX[accuracy]) / fma(a, 2.0, 1.0)


def _erfc_tail(a: Value, accuracy: int) -> Value:
    """erfc for 0 <= a <= 30."""
    high, low = exact_product(a, a)
    return exp_plus(-high, -low) * _scaled(a, accuracy)


@in_double
def erfc(x: Value, accuracy: int) -> Value:
    """``1 - erf(x)``, exact for large x."""
    a = absolute(x)
    tail = _erfc_tail(at_most(a, 28.0), accuracy)
    near = 1 - with_sign(_erf_near(a, 64), x)
    return select(a < _SMALL, near, select(x < 0, 2 - tail, tail))


@in_double
def erfcx(x: Value, accuracy: int) -> Value:
    """``exp(x*x) erfc(x)``."""
    a = absolute(x)
    inverse = 1 / a
    series = horner(inverse * inverse, _TAIL) * (inverse / math.sqrt(math.pi))
    right = select(a > _FAR, series, _scaled(at_most(a, _FAR), accuracy))
    high, low = exact_product(at_most(a, 27.0), at_most(a, 27.0))
    r, k = reduced(at_most(high, EXP_RANGE[64][1] + 1))
    left = scaled(exp_reduced(r + low), k + 1) - right
    return select(x < 0, left, right)


@in_double
def erfinv(x: Value, accuracy: int) -> Value:
    """The inverse of the error function."""
    a = absolute(x)
    inside = a < 1
    t = select(inside, a, 0.5)
    w = -log_finite((1 - t) * (1 + t), accuracy, subnormal=False)
    edge = select(a.equals(1.0), math.inf, x.like(math.nan))
    return with_sign(select(inside, _inverse(t, w, accuracy), edge), x)


def _inverse(t: Value, w: Value, accuracy: int) -> Value:
    """erfinv for 0 <= t < 1, with ``w = -log(1 - t*t)`` up to 37."""
    root = square_root(w)
    near = horner(w - 3.125, coefficients.ERFINV_NEAR[accuracy])
    far = horner(root - 3.25, coefficients.ERFINV_FAR[accuracy])
    if accuracy == 64:
        end = horner(root - 5, coefficients.ERFINV_END[64])
        far = select(w < 16, far, end)
    return t * select(w < 6.25, near, far)


# -- the normal distribution


@in_double
def log_ndtr(x: Value, accuracy: int) -> Value:
    """The logarithm of the normal distribution's cumulative probability."""
    y = x * -math.sqrt(0.5)
    left = log(erfcx(at_least(y, 0.0)) * 0.5) - y * y
    right = log1p(erfc(-at_most(y, _SMALL)) * -0.5)
    return select(y > _SMALL, left, right)


@in_double
def ndtri(p: Value, accuracy: int) -> Value:
    """The inverse of the normal distribution's cumulative probability."""
    inside = (p > 0) & (p < 1)
    half = select(p > 0.5, 1 - p, p)
    tail = select(inside, half + half, 0.5)  # erfc of the result over sqrt(2)
    w = -log_finite(tail * (2 - tail))
    near = _inverse(1 - tail, at_most(w, _MOST), 64)
    out = select(w > _MOST, _inverse_tail(tail), near) * math.sqrt(2)
    edge = select(p.equals(0.0) | p.equals(1.0), math.inf, p.like(math.nan))
    return with_sign(select(inside, out, edge), p - 0.5)


def _inverse_tail(tail: Value) -> Value:
    """The y with ``erfc(y) = tail``, by Newton's steps for erfc's logarithm."""
    size = -log_finite(at_most(tail, 1e-10))
    y = square_root(size - log_finite(size * math.pi) * 0.5)
    for _ in range(3):
        scaled_down = erfcx(y)
        off = log(scaled_down) - y * y + size
        y = y + off * scaled_down * (math.sqrt(math.pi) / 2)
    return y
