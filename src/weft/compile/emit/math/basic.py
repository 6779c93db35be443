"""Rounding, remainders, comparisons, signs: what takes a few instructions."""

from __future__ import annotations

import math

from weft.compile.emit.control_flow import F64
from weft.compile.emit.math.values import (
    absolute,
    copysign,
    head,
    nearest,
    rarely,
    sign_bits,
    square_root,
    with_sign,
)
from weft.compile.emit.values import SINGLE, Value, fma, intrinsic, select

# -- rounding


def floor(x: Value) -> Value:
    return intrinsic("floor", x)


def ceil(x: Value) -> Value:
    return intrinsic("ceil", x)


def trunc(x: Value) -> Value:
    return intrinsic("trunc", x)


def round_even(x: Value) -> Value:
    """The nearest whole number, ties to even."""
    return intrinsic("rint", x)


# -- division


def fmod(x: Value, y: Value) -> Value:
    """The remainder with x's sign (C's fmod); exact."""
    a, b = absolute(x), absolute(y)
    quotient = a / b
    near = _single_remainder(a, b) if x.format is SINGLE else _remainder(a, b, quotient)
    near = select(b.equals(math.inf) & (a < math.inf), a, near)
    large = quotient >= math.ldexp(1.0, 20 if x.format is SINGLE else 24)
    out = rarely(large, near, "fmod", _any_remainder, a, b)
    return with_sign(out, x)


def _any_remainder(a: Value, b: Value) -> Value:
    """By the C library: one quotient's bit after another."""
    return Value(a.b, a.b.frem(a.ir, b.ir))


def _single_remainder(a: Value, b: Value) -> Value:
    """``a mod b`` of float32 numbers: their products are exact in float64."""
    a, b = a.convert("fpext", F64), b.convert("fpext", F64)
    whole, _ = nearest(a / b)
    return _above_zero(a - whole * b, b).to_single()


def _remainder(a: Value, b: Value, quotient: Value) -> Value:
    """``a mod b`` with b cut in two, so that the products are exact."""
    whole, _ = nearest(quotient)
    high = head(b, b.format.fraction // 2 + 1)
    r = fma(whole, -(b - high), fma(whole, -high, a))
    return _above_zero(r, b)


def _above_zero(r: Value, b: Value) -> Value:
    r = select(r < 0, r + b, r)
    return select(r >= b, r - b, r)


def _crosses(r: Value, y: Value) -> Value:
    """Whether a remainder is not 0 and its sign is not y's."""
    return ~r.equals(0.0) & ((r.bits() ^ y.bits()) < 0)


def remainder(x: Value, y: Value) -> Value:
    """The remainder with y's sign (NumPy's remainder)."""
    r = fmod(x, y)
    return select(r.equals(0.0), copysign(r, y), select(_crosses(r, y), r + y, r))


def floor_divide(x: Value, y: Value) -> Value:
    """The quotient rounded down, by NumPy's steps."""
    r = fmod(x, y)
    quotient = (x - r) / y
    quotient = select(_crosses(r, y), quotient - 1, quotient)
    whole = floor(quotient)
    whole = select(quotient - whole > 0.5, whole + 1, whole)
    zero = copysign(x.like(0.0), x / y)
    out = select(quotient.equals(0.0), zero, whole)
    return select(y.equals(0.0), x / y, out)


# -- the larger and the smaller


def maximum(x: Value, y: Value) -> Value:
    """The larger; a NaN where one is."""
    return select((x > y) | x.is_nan(), x, y)


def minimum(x: Value, y: Value) -> Value:
    """The smaller; a NaN where one is."""
    return select((x < y) | x.is_nan(), x, y)


def fmax(x: Value, y: Value) -> Value:
    """The larger; the other where one is a NaN."""
    return select((x >= y) | y.is_nan(), x, y)


def fmin(x: Value, y: Value) -> Value:
    """The smaller; the other where one is a NaN."""
    return select((x <= y) | y.is_nan(), x, y)


# -- signs and neighbours


def sign(x: Value) -> Value:
    """-1, 0 or 1; 0 at NaN."""
    below = select(x < 0, x.like(-1.0), 0.0)
    return select(x > 0, 1.0, below)


def nextafter(x: Value, y: Value) -> Value:
    """The next number from x towards y."""
    outward = (x < y) ^ (x < 0)
    pattern = x.bits()
    step = select(outward, pattern + 1, pattern - 1).as_float()
    first = (sign_bits(y) | 1).as_float()
    out = select(x.equals(0.0), first, step)
    out = select(x.equals(y), y, out)
    return select(x.is_nan() | y.is_nan(), x + y, out)


# -- questions


def isinf(x: Value) -> Value:
    return absolute(x).equals(math.inf)


def isfinite(x: Value) -> Value:
    return absolute(x) < math.inf


def isposinf(x: Value) -> Value:
    return x.equals(math.inf)


def isneginf(x: Value) -> Value:
    return x.equals(-math.inf)


def signbit(x: Value) -> Value:
    return x.bits() < 0


# -- roots


def rsqrt(x: Value) -> Value:
    return 1 / square_root(x)


def reciprocal(x: Value) -> Value:
    return 1 / x
