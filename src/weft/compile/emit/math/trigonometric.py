"""Sine, cosine, tangent and their inverses.

``x = q pi/2 + r`` with q whole and ``|r| <= pi/4``. pi/2 is cut into parts so short
that q times each is exact; where q is too large for that, the fraction of ``x 2/pi``
is computed in integers from as many bits of 2/pi as it takes (Payne and Hanek).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable

from llvmlite import ir

from weft.compile.emit.control_flow import F64, I64
from weft.compile.emit.math import coefficients
from weft.compile.emit.math.values import (
    absolute,
    cut,
    exact_sum,
    flip_sign,
    head,
    horner,
    nearest,
    rarely,
    sign_bits,
    square_root,
    with_sign,
)
from weft.compile.emit.values import DOUBLE, SINGLE, Value, fma, select

Angle = tuple[Value, Value, Value]  # (r, low, q): r + low + q pi/2

_PI_BITS = 1280
# the bits of pi/2's parts; q times each is exact, the last one's apart
_PARTS = {32: (10, 10, 4, 10, 10, 24), 64: (33, 20, 33, 53)}
_EXACT = {32: 3, 64: 2}  # and so is the difference after so many of them
_LIMIT = {32: 25000.0, 64: 1600000.0}  # below 2**14 and 2**20 quarter turns
_PAD = 96  # zeros before 2/pi's bits, for exponents below the table's
_PIO2 = {32: (1.5707964, -4.371139e-08), 64: (math.pi / 2, 6.123233995736766e-17)}


@functools.cache
def _pi() -> int:
    """pi times 2**_PI_BITS, by Machin's formula."""

    def inverse_tangent(n: int) -> int:
        unit = 1 << (_PI_BITS + 32)
        total = term = unit // n
        for k in range(1, _PI_BITS):
            term //= n * n
            total += (-1) ** k * (term // (2 * k + 1))
        return total

    return (16 * inverse_tangent(5) - 4 * inverse_tangent(239)) >> 32


@functools.cache
def _half_pi(bits: int) -> list[float]:
    """pi/2 in parts."""
    return cut(_pi(), _PI_BITS + 1, _PARTS[bits])


@functools.cache
def _two_over_pi() -> list[int]:
    """The bits of 2/pi behind the point, in words of 32, after _PAD zeros."""
    fraction = (1 << (2 * _PI_BITS + 1)) // _pi()
    count = _PI_BITS // 32
    words = [(fraction >> (32 * (count - 1 - i))) & 0xFFFFFFFF for i in range(count)]
    return [0] * (_PAD // 32) + words


# -- reducing the angle


def reduced(x: Value) -> Angle:
    """(r, low, q) for an x >= 0: the angle is r + low, in quadrant q."""
    format = x.format
    parts = _half_pi(format.bits)
    whole, q = nearest(x, 2 / math.pi)
    exact = x
    for part in parts[: _EXACT[format.bits]]:
        exact = fma(whole, -part, exact)
    part, *others = parts[_EXACT[format.bits] :]
    r = fma(whole, -part, exact)
    low = fma(whole, -part, exact - r)
    for part in others:
        low = fma(whole, -part, low)
    if format is SINGLE:  # its parts are short: low may have become large
        r, low = exact_sum(r, low)
    return r, low, q


def reduced_large(x: Value) -> Angle:
    """The same for any x, in integers."""
    format = x.format
    pattern = x.bits()
    exponent = (pattern >> format.fraction) - (format.bias + format.fraction)
    implicit = 1 << format.fraction
    mantissa = (pattern & (implicit - 1)) | implicit
    if format is SINGLE:
        exponent, mantissa = (v.convert("zext", I64) for v in (exponent, mantissa))
        exponent = (exponent << 32) >> 32
    digits = [mantissa & 0xFFFFFFFF, mantissa.shift_right(32)]
    if format is SINGLE:
        digits = digits[:1]
    count = 3 * len(digits) + (1 if format is SINGLE else 0)
    window = _window(exponent - 2, count)
    turns = _low_product(digits, window)
    return _angle(turns, x)


def _window(start: Value, count: int) -> list[Value]:
    """``count`` words of 2/pi's bits from a position on, the last word first."""
    position = start + _PAD
    word, shift = position.shift_right(5), position & 31
    words = [_lookup(word + i) for i in range(count + 1)]
    pairs = [(a << 32) | b for a, b in itertools.pairwise(words)]
    found = [p.shift_right(32 - shift) & 0xFFFFFFFF for p in pairs]
    return found[::-1]


def _lookup(index: Value) -> Value:
    """The word of 2/pi at an index."""
    b, name, words = index.b, "weft.two_over_pi", _two_over_pi()
    table = b.module.globals.get(name)
    if table is None:
        type = ir.ArrayType(I64, len(words))
        table = ir.GlobalVariable(b.module, type, name)
        table.initializer = ir.Constant(type, words)
        table.global_constant, table.linkage = True, "private"
    place = [ir.Constant(I64, 0), index.ir]
    return Value(b, b.load(b.gep(table, place, inbounds=True)))


def _low_product(x: list[Value], y: list[Value]) -> list[Value]:
    """The product of two numbers of 32-bit digits, cut to y's digits."""
    carry = y[0] * 0
    out = []
    columns: list[list[Value]] = [[] for _ in range(len(y) + 1)]
    for i, a in enumerate(x):
        for j, c in enumerate(y[: len(y) - i]):
            product = a * c
            columns[i + j].append(product & 0xFFFFFFFF)
            columns[i + j + 1].append(product.shift_right(32))
    for column in columns[:-1]:
        total = sum(column, carry)
        out.append(total & 0xFFFFFFFF)
        carry = total.shift_right(32)
    return out


def _angle(turns: list[Value], x: Value) -> Angle:
    """The angle of a fixed-point number of quarter turns, mod 4, top digit last."""
    a, c, d, e = turns[-1], turns[-2], turns[-3], turns[-4]
    top = (a << 32) | c
    rest = (d << 32) | e
    fraction = (top << 2) | rest.shift_right(62)  # signed: from -1/2 to 1/2
    quarter = top.shift_right(62) + fraction.shift_right(63)
    first = (fraction >> 32).convert("sitofp", F64) * math.ldexp(1.0, -32)
    second = (fraction & 0xFFFFFFFF).convert("sitofp", F64) * math.ldexp(1.0, -64)
    third = (rest << 2).shift_right(1).convert("sitofp", F64) * math.ldexp(1.0, -127)
    second = second + third
    high, rest_of_pi = cut(_pi(), _PI_BITS + 1, (21, 53))
    small = fma(first, rest_of_pi, second * (math.pi / 2))
    r = fma(first, high, small)
    left = fma(first, high, -r) + small
    if x.format is DOUBLE:
        return r, left, quarter
    short = r.to_single()
    low = (r - short.to_double()).to_single()
    return short, low, quarter.convert("trunc", x.format.int_type)


# -- the functions


def _sine(r: Value, low: Value) -> Value:
    z = r * r
    p = horner(z, coefficients.SIN[r.format.bits])
    return r + fma(r * z, p, low)


def _cosine(r: Value, low: Value) -> Value:
    z = r * r
    p = horner(z, coefficients.COS[r.format.bits])
    half = z * 0.5
    near = 1 - half
    rest = (1 - near) - half
    return near + fma(z * z, p, fma(r, -low, rest))


def _turned(r: Value, low: Value, q: Value) -> Value:
    """``sin(r + low + q pi/2)``."""
    out = select((q & 1).equals(0), _sine(r, low), _cosine(r, low))
    return flip_sign(out, (q & 2) << (r.format.bits - 2))


def _sine_of(reduction: Angle) -> Value:
    return _turned(*reduction)


def _cosine_of(reduction: Angle) -> Value:
    r, low, q = reduction
    return _turned(r, low, q + 1)


def _tangent_of(reduction: Angle) -> Value:
    r, low, q = reduction
    z = r * r
    p = horner(z, coefficients.TAN[r.format.bits])
    first = fma(r * z, p, r)
    rest = fma(r * z, p, fma(low, first * first, low))
    t = r + rest
    inverse = -1 / t
    inverse = fma(inverse * inverse, (r - t) + rest, inverse)
    return select((q & 1).equals(0), t, inverse)


def _of_any_size(name: str, fn: Callable[[Angle], Value], x: Value) -> Value:
    """A function of an angle x >= 0, however large."""
    large = (x > _LIMIT[x.format.bits]) & (x < math.inf)
    return rarely(large, fn(reduced(x)), name, lambda a: fn(reduced_large(a)), x)


def sin(x: Value) -> Value:
    """The sine."""
    return flip_sign(_of_any_size("sin", _sine_of, absolute(x)), sign_bits(x))


def cos(x: Value) -> Value:
    """The cosine."""
    return _of_any_size("cos", _cosine_of, absolute(x))


def tan(x: Value) -> Value:
    """The tangent."""
    return flip_sign(_of_any_size("tan", _tangent_of, absolute(x)), sign_bits(x))


def _atan_near(t: Value) -> Value:
    """``atan(t) - t`` for ``|t| <= tan(pi/8)``."""
    z = t * t
    return t * z * horner(z, coefficients.ATAN[t.format.bits])


def _atan_ratio(small: Value, large: Value) -> tuple[Value, Value]:
    """The angle below pi/4 whose tangent is small / large, as a sum (base, rest)."""
    bits = small.format.bits
    steep = small > large * math.tan(math.pi / 8)
    t = select(steep, small - large, small) / select(steep, small + large, large)
    base = select(steep, t.like(_PIO2[bits][0] / 2), 0.0)
    low = select(steep, t.like(_PIO2[bits][1] / 2), 0.0)
    rest = _atan_near(t)
    return base, t + (rest + low)


def atan(x: Value) -> Value:
    """The angle whose tangent is x."""
    a = absolute(x)
    bits = x.format.bits
    above = a > 1
    one = a.like(1.0)
    base, rest = _atan_ratio(select(above, one, a), select(above, a, one))
    high, low = _PIO2[bits]
    beyond = (high - base) + (low - rest)
    out = select(above, beyond, base + rest)
    return with_sign(out, x)


def atan2(y: Value, x: Value) -> Value:
    """The angle of the point (x, y)."""
    bits = x.format.bits
    a, c = absolute(y), absolute(x)
    steep = a > c
    small, large = select(steep, c, a), select(steep, a, c)
    small, large = _comparable(small, large)
    base, rest = _atan_ratio(small, large)
    high, low = _PIO2[bits]
    base, rest = select(steep, high - base, base), select(steep, low - rest, rest)
    left = x.bits() < 0
    base = select(left, 2 * high - base, base)
    rest = select(left, 2 * low - rest, rest)
    out = select(x.is_nan() | y.is_nan(), math.nan, base + rest)
    return with_sign(out, y)


def _comparable(small: Value, large: Value) -> tuple[Value, Value]:
    """Two sizes whose sum is finite and whose quotient is defined."""
    both = small.equals(math.inf)
    small, large = select(both, 1.0, small), select(both, 1.0, large)
    large = select(large.equals(0.0), 1.0, large)
    huge = large > large.format.largest / 4
    scale = select(huge, large.like(0.25), 1.0)
    return small * scale, large * scale


def _asin_near(t: Value, z: Value) -> Value:
    """``asin(t) - t`` for z = t*t <= 1/4."""
    return t * z * horner(z, coefficients.ASIN[t.format.bits])


def _half_angle(a: Value) -> tuple[Value, Value, Value]:
    """(s, short, lost) with ``s = sqrt((1 - a) / 2)``, also as short + lost."""
    z = (1 - a) * 0.5
    s = square_root(z)
    short = head(s, s.format.fraction // 2 + 1)
    total = select(s > 0, s + short, 1.0)
    return s, short, (z - short * short) / total


def asin(x: Value) -> Value:
    """The angle whose sine is x."""
    a = absolute(x)
    s, short, lost = _half_angle(a)
    near = a < 0.5
    t = select(near, a, s)
    z = select(near, a * a, (1 - a) * 0.5)
    rest = _asin_near(t, z)
    high, low = _PIO2[x.format.bits]
    quarter = high / 2
    far = quarter - (2 * rest - (low - 2 * lost) - (quarter - 2 * short))
    return with_sign(select(near, a + rest, far), x)


def acos(x: Value) -> Value:
    """The angle whose cosine is x."""
    a = absolute(x)
    s, short, lost = _half_angle(a)
    near = a < 0.5
    t = select(near, x, s)
    z = select(near, x * x, (1 - a) * 0.5)
    rest = _asin_near(t, z)
    high, low = _PIO2[x.format.bits]
    middle = high - (x - (low - rest))
    right = 2 * (short + (rest + lost))
    left = 2 * (high - (s + (rest - low)))
    return select(near, middle, select(x < 0, left, right))
