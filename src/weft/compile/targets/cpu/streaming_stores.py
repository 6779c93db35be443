"""Streaming stores: results that are too large for any cache bypass the caches.

A store to memory that is not in a cache first reads its line. Stores of whole lines
need not do so: a loop computes some results into scratch memory, and nontemporal
stores copy them from there.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I32, I64, POINTER, VOID, function, i64, loop
from weft.compile.emit.isa import Isa, prepare_function
from weft.compile.loop.depend import flat_position, symbols_of
from weft.compile.loop.ir import Buffer, Call, For, Kernel, Load, Store, When
from weft.compile.loop.ranges import coefficient
from weft.compile.loop.rewrite import uses
from weft.compile.loop.staging import most
from weft.compile.targets.cpu.cost_model import COST
from weft.core.size import Size, same

_COST, _LINE = COST.streaming, COST.caches.line
_NAME = "stream"


def is_large(shape: tuple[Any, ...], itemsize: int, limit: int = _COST.large) -> bool:
    """Whether an array is known to be too large for caches.

    >>> from weft.compile.targets.cpu.streaming_stores import is_large
    >>> is_large((4096, 4096), 4), is_large((64, 64), 4)
    (True, False)
    """
    total = itemsize
    for n in shape:
        total *= n
    return not isinstance(total, Size) and total >= limit


def streamed(stmt: For, kernel: Kernel, isa: Isa, known: Any) -> list[Store]:
    """The stores of an innermost loop that are to bypass the caches.

    Their addresses are contiguous, and may depend on ``known`` symbols alone.
    """
    if not isa.triple.startswith(("x86", "i686")):
        return []
    longest = most(stmt.extent)
    short = longest is not None and longest < _COST.least_row
    if short and not _reads_scratch(stmt, kernel):
        return []
    if any(isinstance(s, (For, When)) for s in stmt.body):
        return []
    stores = [s for s in stmt.body if isinstance(s, Store)]
    return [s for s in stores if _may_stream(s, stmt.var, kernel, known)]


def copied(store: Store, var: str) -> Load | None:
    """The load that a store copies, if its elements are contiguous along a loop."""
    value, dtype = store.value, store.buffer.dtype
    if isinstance(value, Call) and value.name == "conj" and not dtype.is_complex:
        (value,) = value.args
    if not isinstance(value, Load) or value.buffer.dtype is not dtype:
        return None
    flat = flat_position(value.at, value.buffer.shape)
    return value if same(coefficient(flat, var), 1) else None


def _reads_scratch(stmt: For, kernel: Kernel) -> bool:
    """Whether a loop reads scratch memory alone, such as transposed squares."""
    own = {buffer.name for buffer in kernel.scratch}
    rows = [b.name for b, _ in uses(stmt.body) if b.name in own]
    others = {b.name for b, _ in uses(stmt.body)} - own
    return bool(rows) and len(others) == 1


def _may_stream(store: Store, var: str, kernel: Kernel, known: Any) -> bool:
    buffer = store.buffer
    if buffer.name not in {b.name for b in kernel.buffers}:
        return False
    limit = _COST.large if copied(store, var) is None else _COST.copied
    size = buffer.dtype.itemsize
    if size % 4 or not is_large(buffer.shape, size, limit):
        return False
    if buffer.name in {name for pair in kernel.shared for name in pair}:
        return False
    flat = flat_position(store.at, buffer.shape)
    if not same(coefficient(flat, var), 1) or not symbols_of(flat) - {var} <= known:
        return False
    return _used_once(buffer, kernel)


def _used_once(buffer: Buffer, kernel: Kernel) -> bool:
    return sum(found.name == buffer.name for found, _ in uses(kernel.body)) == 1


def emit_copy(module: ir.Module, isa: Isa) -> ir.Function:
    """``void stream(to, from, bytes)``, emitted once: whole lines bypass the caches."""
    if _NAME in module.globals:
        return module.globals[_NAME]
    arguments = [POINTER, POINTER, I64]
    with function(module, _NAME, VOID, arguments) as (b, copy):
        copy.linkage = "internal"
        copy.attributes.add("noinline")
        prepare_function(copy, isa)
        to, source, count = copy.args
        begun = b.and_(b.sub(i64(0), b.ptrtoint(to, I64)), i64(_LINE - 1))
        begun = b.select(b.icmp_signed("<", begun, count), begun, count)
        whole = b.add(begun, b.and_(b.sub(count, begun), i64(-_LINE)))
        _copy(b, to, source, i64(0), begun, I32)
        vector = ir.VectorType(I32, isa.bits // 32)
        _copy(b, to, source, begun, whole, vector)
        _copy(b, to, source, whole, count, I32)
        b.ret_void()
    return copy


def emit_line(b: Any, isa: Isa, to: Any, source: Any) -> None:
    """Copy the bytes of a line; with vectors alone, if they are one line."""
    copy = emit_copy(b.module, isa)
    over = b.and_(b.ptrtoint(to, I64), i64(_LINE - 1))
    with b.if_else(b.icmp_signed("==", over, i64(0)), likely=True) as (one, other):
        with one:
            vector = ir.VectorType(I32, isa.bits // 32)
            for start in range(0, _LINE, isa.bits // 8):
                _move(b, to, source, i64(start), vector)
        with other:
            b.call(copy, [to, source, i64(_LINE)])


def _copy(b: Any, to: Any, source: Any, start: Any, stop: Any, kind: Any) -> None:
    """Bytes from ``start`` to ``stop``, as words or as nontemporal vectors."""
    size = 4 * (kind.count if isinstance(kind, ir.VectorType) else 1)
    with loop(b, start, stop, i64(size)) as i:
        _move(b, to, source, i, kind)


def _move(b: Any, to: Any, source: Any, at: Any, kind: Any) -> None:
    """Copy one word, or one vector with a nontemporal store."""
    vector = isinstance(kind, ir.VectorType)
    pointers = [b.bitcast(b.gep(p, [at]), kind.as_pointer()) for p in (to, source)]
    size = 4 * (kind.count if vector else 1)
    stored = b.store(b.load(pointers[1], align=4), pointers[0], align=size)
    if vector:
        mark = b.module.add_metadata([ir.Constant(I32, 1)])
        stored.set_metadata("nontemporal", mark)


def emit_fence(b: Any) -> None:
    """Make streaming stores visible to other threads."""
    name = "llvm.x86.sse.sfence"
    known = b.module.globals.get(name)
    b.call(known or ir.Function(b.module, ir.FunctionType(VOID, []), name), [])
