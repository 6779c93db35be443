"""float16 and bfloat16, which are stored and computed with in float32.

The patterns are 16-bit integers; rounding is to nearest, ties to even, and a NaN
stays one. It is integer arithmetic that any target has; ``native`` takes the target's
own float16 conversions instead, which aarch64 and x86 from F16C (AVX2's time) on have.
"""

from __future__ import annotations

import math

from llvmlite import ir

from weft.compile.emit.control_flow import F16, F32, I32
from weft.compile.emit.math.values import absolute, sign_bits
from weft.compile.emit.values import SINGLE, Value, select, shaped

I16 = ir.IntType(16)


def bfloat16_to_float(pattern: Value) -> Value:
    """The float32 of a bfloat16's pattern (i16)."""
    return (pattern.unsigned(I32) << 16).as_float()


def float_to_bfloat16(x: Value) -> Value:
    """The pattern (i16) of the bfloat16 nearest to a float32."""
    bits = x.bits()
    rounded = bits + 0x7FFF + (bits.shift_right(16) & 1)
    chosen = select(x.is_nan(), bits | 0x400000, rounded)
    return chosen.shift_right(16).cut(I16)


def float16_to_float(pattern: Value, *, native: bool = False) -> Value:
    """The float32 of a float16's pattern (i16)."""
    if native:
        return pattern.bitcast(shaped(pattern.type, F16)).convert("fpext", F32)
    wide = pattern.unsigned(I32)
    moved = (wide & 0x7FFF) << 13
    # the product moves the exponent and makes subnormal numbers normal
    number = (moved.as_float() * math.ldexp(1.0, 112)).bits()
    endless = select(moved >= 31 << 23, moved | 0x7F800000, number)
    return (endless | ((wide & 0x8000) << 16)).as_float()


def float_to_float16(x: Value, *, native: bool = False) -> Value:
    """The pattern (i16) of the float16 nearest to a float32."""
    if native:
        return x.convert("fptrunc", F16).bitcast(shaped(x.type, I16))
    size = absolute(x)
    bits = size.bits()
    odd = bits.shift_right(13) & 1
    normal = (bits - (112 << 23) + 0xFFF + odd).shift_right(13)
    # adding 1/2 puts a subnormal result's bits, rounded, at the end
    small = (size + 0.5).bits() - SINGLE.bits_of(0.5)
    found = select(size < math.ldexp(1.0, -14), small, normal)
    found = select(size >= 65520.0, found.like(0x7C00), found)
    kept = (bits.shift_right(13) & 0x3FF) | 0x7E00
    found = select(x.is_nan(), kept, found)
    sign = sign_bits(x).shift_right(16)
    return (found | sign).cut(I16)


def double_to_odd_float(x: Value) -> Value:
    """A float32 that rounds to the same float16 as a float64.

    What the float32 cannot hold is kept as an odd last bit, so that rounding a second
    time does not take a number for the middle between two.
    """
    near = x.to_single()
    again = near.to_double()
    inexact = (again < x) | (again > x)
    bits = near.bits()
    cut = select(absolute(again) > absolute(x), bits - 1, bits)
    return select(inexact, cut | 1, bits).as_float()


def next_pattern(x: Value, y: Value, pattern: Value, goal: Value) -> Value:
    """The pattern (i16) after that of x towards y; both as float32 and as patterns."""
    outward = (x < y) ^ (x < 0)
    step = select(outward, pattern + 1, pattern - 1)
    out = select(x.equals(0.0), (goal & -0x8000) | 1, step)
    out = select(x.equals(y) | y.is_nan(), goal, out)
    return select(x.is_nan(), pattern, out)
