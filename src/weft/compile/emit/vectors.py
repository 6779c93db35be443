"""Vectors in generated code: masks, sums of lanes, transposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I1, I32, VOID, undefined, zeros
from weft.compile.emit.values import (
    PTR,
    Pointer,
    Value,
    call,
    constant,
    declared,
    minimum,
    operand,
    select,
)


def filled(vector: Any, value: float) -> Any:
    """A vector that repeats a number that is known."""
    return constant(vector, value)


def splat(scalar: Value, lanes: int) -> Value:
    """A vector that repeats a scalar."""
    b, vector = scalar.b, ir.VectorType(scalar.type, lanes)
    one = b.insert_element(undefined(vector), scalar.ir, I32(0))
    first = zeros(ir.VectorType(I32, lanes))
    return Value(b, b.shuffle_vector(one, undefined(vector), first))


def shuffle(x: Value, y: Any, order: Sequence[int]) -> Value:
    """The lanes of two vectors, one after the other, that an order lists."""
    picked = ir.Constant(ir.VectorType(I32, len(order)), list(order))
    return Value(x.b, x.b.shuffle_vector(x.ir, operand(y), picked))


def first_lanes(count: Any, lanes: int) -> Any:
    """A mask of the first ``count`` lanes (all of them if there are fewer).

    It is made from bits, not by comparing with a vector of indices, because that would
    hold one of the registers that sums need.
    """
    if isinstance(count, int):
        return ir.Constant(ir.VectorType(I1, lanes), [i < count for i in range(lanes)])
    return mask_of(lane_bits(count, lanes), lanes)


def lane_bits(count: Value, lanes: int) -> Value:
    """An integer whose first ``count`` bits are set."""
    bits = (1 << minimum(count, lanes)) - 1
    if lanes == 64:  # where a shift by all of them is none
        bits = select(count >= 64, -1, bits)
    return bits


def mask_of(bits: Value, lanes: int) -> Value:
    """A mask from the lowest bits of an integer."""
    short = bits if lanes == 64 else bits.cut(ir.IntType(lanes))
    return short.bitcast(ir.VectorType(I1, lanes))


def lane(vector: Any, scalars: Sequence[Value]) -> Value:
    """A vector whose first lanes are these scalars."""
    b, filled = scalars[0].b, zeros(vector)
    for index, scalar in enumerate(scalars):
        filled = b.insert_element(filled, scalar.ir, I32(index))
    return Value(b, filled)


def totals(vectors: Sequence[Value]) -> Value:
    """A vector of the sums of each vector's lanes: halves are added, down to one.

    As many vectors as lanes at most, a power of two. Two vectors become one with half
    as many lanes for each, so each step costs three instructions for many sums.
    """
    vectors, lanes = list(vectors), vectors[0].type.count
    groups = 1
    while len(vectors) > 1:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [_add_halves(x, y, 2 * lanes, 2 * groups) for x, y in pairs]
        groups *= 2
    (vector,) = vectors
    while lanes > groups:
        vector = _add_halves(vector, vector, lanes, groups)
        lanes //= 2
    return vector


def _add_halves(x: Value, y: Value, lanes: int, groups: int) -> Value:
    """Add the second half of each group of lanes to the first, x's lanes then y's."""
    size = lanes // groups
    first = [g * size + i for g in range(groups) for i in range(size // 2)]
    return shuffle(x, y, first) + shuffle(x, y, [i + size // 2 for i in first])


def prefetch(place: Pointer, *, level: int = 3) -> None:
    """Ask for a cache line that will be needed; 3 is the first cache, 2 the second."""
    kind = ir.FunctionType(VOID, [PTR, I32, I32, I32])
    fetch = declared(place.b, "llvm.prefetch.p0", kind)
    call(fetch, [place, I32(0), I32(level), I32(1)])


def transpose(rows: Sequence[Value]) -> list[Value]:
    """The transpose of as many vectors as they have lanes."""
    rows, n = list(rows), len(rows)
    distance = 1
    while distance < n:
        rows = [_exchange(rows, i, distance) for i in range(n)]
        distance *= 2
    return rows


def _exchange(rows: list[Value], i: int, distance: int) -> Value:
    """Row i after swapping blocks of ``distance`` lanes with its partner row."""
    n, low = len(rows), i & ~distance
    odd = distance if i & distance else 0
    pick = [
        (j & ~distance) + odd + (n if j & distance else 0) for j in range(n)
    ]  # even blocks from the lower row, odd ones from the upper
    return shuffle(rows[low], rows[low + distance], pick)
