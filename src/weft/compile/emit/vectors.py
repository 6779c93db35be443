"""Vector values in LLVM IR: loads and stores with masks, loops that carry values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I1, I32, I64, VOID, i64, undefined, zeros

PTR = ir.PointerType()
ITEMSIZE = {"float": 4, "double": 8, "i32": 4, "i16": 2, "i8": 1}


def itemsize(element: Any) -> int:
    """Bytes of an element."""
    return ITEMSIZE[str(element)]


def at(b: Any, pointer: Any, index: Any, element: Any) -> Any:
    """The address of an element."""
    return b.gep(pointer, [index], source_etype=element)


def splat(b: Any, scalar: Any, lanes: int) -> Any:
    """A vector that repeats a scalar."""
    vector = ir.VectorType(scalar.type, lanes)
    one = b.insert_element(undefined(vector), scalar, I32(0))
    return b.shuffle_vector(one, undefined(vector), zeros(ir.VectorType(I32, lanes)))


def first_lanes(b: Any, count: Any, lanes: int) -> Any:
    """A mask of the first ``count`` lanes (all of them if there are fewer).

    It is made from bits, not by comparing with a vector of indices, because that would
    hold one of the registers that sums need.
    """
    return mask_of(b, lane_bits(b, count, lanes), lanes)


def lane_bits(b: Any, count: Any, lanes: int) -> Any:
    """An integer whose first ``count`` bits are set."""
    most = minimum(b, count, i64(lanes))
    bits = b.sub(b.shl(i64(1), most), i64(1))
    if lanes == 64:  # where a shift by all of them is none
        bits = b.select(b.icmp_signed(">=", count, i64(64)), i64(-1), bits)
    return bits


def mask_of(b: Any, bits: Any, lanes: int) -> Any:
    """A mask from the lowest bits of an integer."""
    short = bits if lanes == 64 else b.trunc(bits, ir.IntType(lanes))
    return b.bitcast(short, ir.VectorType(I1, lanes))


def minimum(b: Any, x: Any, y: Any) -> Any:
    """The smaller of two signed integers."""
    return b.select(b.icmp_signed("<", x, y), x, y)


def lane(b: Any, vector: Any, scalars: Sequence[Any]) -> Any:
    """A vector whose first lanes are these scalars."""
    filled = zeros(vector)
    for index, scalar in enumerate(scalars):
        filled = b.insert_element(filled, scalar, I32(index))
    return filled


def totals(b: Any, vectors: Sequence[Any]) -> Any:
    """A vector of the sums of each vector's lanes: halves are added, down to one.

    As many vectors as lanes at most, a power of two. Two vectors become one with half
    as many lanes for each, so each step costs three instructions for many sums.
    """
    vectors, lanes = list(vectors), vectors[0].type.count
    groups = 1
    while len(vectors) > 1:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [_add_halves(b, x, y, 2 * lanes, 2 * groups) for x, y in pairs]
        groups *= 2
    (vector,) = vectors
    while lanes > groups:
        vector = _add_halves(b, vector, vector, lanes, groups)
        lanes //= 2
    return vector


def _add_halves(b: Any, x: Any, y: Any, lanes: int, groups: int) -> Any:
    """Add the second half of each group of lanes to the first, x's lanes then y's."""
    size = lanes // groups
    first = [g * size + i for g in range(groups) for i in range(size // 2)]
    kind = ir.VectorType(I32, len(first))
    low = b.shuffle_vector(x, y, ir.Constant(kind, first))
    high = b.shuffle_vector(x, y, ir.Constant(kind, [i + size // 2 for i in first]))
    return plus(b, low, high)


def load(b: Any, pointer: Any, vector: Any, mask: Any = None) -> Any:
    """A vector from memory; lanes outside of the mask are zero and not touched."""
    size = itemsize(vector.element)
    if mask is None:
        return b.load(pointer, align=size, typ=vector)
    masks = ir.VectorType(I1, vector.count)
    kind = ir.FunctionType(vector, [PTR, I32, masks, vector])
    call = intrinsic(b, f"llvm.masked.load.{suffix(vector)}.p0", kind)
    return b.call(call, [pointer, I32(size), mask, zeros(vector)])


def store(b: Any, value: Any, pointer: Any, mask: Any = None) -> None:
    """A vector to memory; lanes outside of the mask are not touched."""
    vector = value.type
    size = itemsize(vector.element)
    if mask is None:
        b.store(value, pointer, align=size)
        return
    masks = ir.VectorType(I1, vector.count)
    kind = ir.FunctionType(VOID, [vector, PTR, I32, masks])
    call = intrinsic(b, f"llvm.masked.store.{suffix(vector)}.p0", kind)
    b.call(call, [value, pointer, I32(size), mask])


def is_whole(kind: Any) -> bool:
    """Whether a type is one of integers, or of vectors of them."""
    element = kind.element if isinstance(kind, ir.VectorType) else kind
    return isinstance(element, ir.IntType)


def plus(b: Any, x: Any, y: Any) -> Any:
    """A sum of numbers, or of vectors."""
    return b.add(x, y) if is_whole(x.type) else b.fadd(x, y)


def fma(b: Any, x: Any, y: Any, z: Any) -> Any:
    """``x * y + z``, in one rounding where the target can."""
    if is_whole(x.type):
        return b.add(b.mul(x, y), z)
    kind = ir.FunctionType(x.type, [x.type] * 3)
    name = suffix(x.type) if isinstance(x.type, ir.VectorType) else _scalar(x.type)
    return b.call(intrinsic(b, f"llvm.fmuladd.{name}", kind), [x, y, z])


def prefetch(b: Any, pointer: Any, *, level: int = 3) -> None:
    """Ask for a cache line that will be needed; 3 is the first cache, 2 the second."""
    kind = ir.FunctionType(VOID, [PTR, I32, I32, I32])
    call = intrinsic(b, "llvm.prefetch.p0", kind)
    b.call(call, [pointer, I32(0), I32(level), I32(1)])


def transpose(b: Any, rows: Sequence[Any]) -> list[Any]:
    """The transpose of as many vectors as they have lanes."""
    rows, n = list(rows), len(rows)
    distance = 1
    while distance < n:
        rows = [_exchange(b, rows, i, distance) for i in range(n)]
        distance *= 2
    return rows


def _exchange(b: Any, rows: list[Any], i: int, distance: int) -> Any:
    """Row i after swapping blocks of ``distance`` lanes with its partner row."""
    n, low = len(rows), i & ~distance
    odd = distance if i & distance else 0
    pick = [
        (j & ~distance) + odd + (n if j & distance else 0) for j in range(n)
    ]  # even blocks from the lower row, odd ones from the upper
    order = ir.Constant(ir.VectorType(I32, n), pick)
    return b.shuffle_vector(rows[low], rows[low + distance], order)


def carry(
    b: Any,
    start: Any,
    stop: Any,
    step: int,
    values: Sequence[Any],
    body: Callable[[Any, list[Any]], list[Any]],
) -> list[Any]:
    """``for i in range(start, stop, step): values = body(i, values)``."""
    before = b.block
    head, inside, done = (b.append_basic_block(f"k.{n}") for n in ("head", "in", "out"))
    b.branch(head)
    b.position_at_end(head)
    i = b.phi(I64, name="k")
    held = [b.phi(value.type) for value in values]
    b.cbranch(b.icmp_signed("<", i, stop), inside, done)
    b.position_at_end(inside)
    after = body(i, held)
    for phi, first, later in zip(
        [i, *held],
        [start, *values],
        [b.add(i, i64(step), flags=["nsw"]), *after],
        strict=True,
    ):
        phi.add_incoming(first, before)
        phi.add_incoming(later, b.block)
    b.branch(head)
    b.position_at_end(done)
    return held


@contextmanager
def while_less(b: Any, start: Any, stop: Any) -> Iterator[tuple[Any, Any]]:
    """The body of ``while i < stop``; gives ``i`` and a function that adds to it."""
    before = b.block
    head, body, done = (b.append_basic_block(f"w.{n}") for n in ("head", "in", "out"))
    b.branch(head)
    b.position_at_end(head)
    i = b.phi(I64)
    i.add_incoming(start, before)
    b.cbranch(b.icmp_signed("<", i, stop), body, done)
    b.position_at_end(body)

    def advance(step: Any) -> None:
        i.add_incoming(b.add(i, step), b.block)

    yield i, advance
    b.branch(head)
    b.position_at_end(done)


def choose(
    b: Any, condition: Any, values: Sequence[Any], change: Callable[[], list[Any]]
) -> list[Any]:
    """``change()`` if the condition holds, else ``values``."""
    before = b.block
    with b.if_then(condition):
        changed = change()
        inside = b.block
    merged = []
    for old, new in zip(values, changed, strict=True):
        phi = b.phi(old.type)
        phi.add_incoming(old, before)
        phi.add_incoming(new, inside)
        merged.append(phi)
    return merged


def _scalar(element: Any) -> str:
    return f"{'i' if is_whole(element) else 'f'}{8 * itemsize(element)}"


def suffix(vector: Any) -> str:
    """A vector type in an intrinsic's name."""
    return f"v{vector.count}{_scalar(vector.element)}"


def intrinsic(b: Any, name: str, kind: Any) -> Any:
    """A function that LLVM provides."""
    module = b.module
    return module.globals.get(name) or ir.Function(module, kind, name)
