"""Random numbers inside kernels: Philox 4x32 with ten rounds, as ``ops.random`` does.

random_word(seed, block, lane)          one of a block's four 32-bit words
random_unit(seed, block, lane)          a number in [0, 1) from it (and the next)
random_below(seed, block, lane, span)   a whole number below a constant
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import F32, F64, I64, i64
from weft.dtype import DType

M0, M1 = 0xD2511F53, 0xCD9E8D57
W0, W1 = 0x9E3779B9, 0xBB67AE85
LOW = 0xFFFFFFFF
_BITS = {"float32": 24, "float16": 11, "bfloat16": 8}


def word(b: Any, args: list[Any], kinds: list[DType], dtype: DType) -> Any:
    """One word of a block, as a 64-bit integer."""
    seed, block, lane = args
    return _picked(b, _philox(b, seed, block), lane)


def unit(b: Any, args: list[Any], kinds: list[DType], dtype: DType) -> Any:
    """A number in [0, 1), on the grid that its dtype holds exactly."""
    seed, block, lane = args
    words = _philox(b, seed, block)
    first = _picked(b, words, lane)
    if dtype.name in _BITS:
        bits = _BITS[dtype.name]
        grid = b.uitofp(b.lshr(first, i64(32 - bits)), F32)
        return b.fmul(grid, ir.Constant(F32, 2.0**-bits))
    second = _picked(b, words, b.add(lane, i64(1)))
    high, low = b.lshr(first, i64(5)), b.lshr(second, i64(6))
    grid = b.or_(b.shl(high, i64(26)), low)  # 53 bits: exact as a double
    return b.fmul(b.uitofp(grid, F64), ir.Constant(F64, 2.0**-53))


def below(b: Any, args: list[Any], kinds: list[DType], dtype: DType) -> Any:
    """A whole number from 0 up to a span that is known when the code is made."""
    seed, block, lane, span = args
    size = span.constant & ((1 << 64) - 1) or 1 << 64
    words = _philox(b, seed, block)
    first = _picked(b, words, lane)
    if size < 1 << 32:
        return b.lshr(b.mul(first, span), i64(32))
    if size == 1 << 32:
        return first
    both = b.or_(b.shl(first, i64(32)), _picked(b, words, b.add(lane, i64(1))))
    return both if size == 1 << 64 else b.urem(both, span)


def _philox(b: Any, seed: Any, block: Any) -> tuple[Any, Any, Any, Any]:
    """The four words of a block, each in the low half of 64 bits."""
    low, half = i64(LOW), i64(32)
    k0, k1 = b.and_(seed, low), b.lshr(seed, half)
    c0, c1 = b.and_(block, low), b.lshr(block, half)
    c2, c3 = i64(0), i64(0)
    for _ in range(10):
        p0, p1 = b.mul(c0, i64(M0)), b.mul(c2, i64(M1))
        c0, c1, c2, c3 = (
            b.xor(b.xor(b.lshr(p1, half), c1), k0),
            b.and_(p1, low),
            b.xor(b.xor(b.lshr(p0, half), c3), k1),
            b.and_(p0, low),
        )
        k0 = b.and_(b.add(k0, i64(W0)), low)
        k1 = b.and_(b.add(k1, i64(W1)), low)
    return c0, c1, c2, c3


def _picked(b: Any, words: tuple[Any, ...], lane: Any) -> Any:
    found = words[3]
    for k in (2, 1, 0):
        found = b.select(
            b.icmp_signed("==", lane, ir.Constant(I64, k)), words[k], found
        )
    return found


FUNCTIONS = {"random_word": word, "random_unit": unit, "random_below": below}
