"""From the Loop IR to LLVM: one native function a kernel.

    void name(void** buffers, int64* sizes, int64 begin, int64 end)

runs the iterations [begin, end) of the flattened parallel loops. Pointers are in the
order of the kernel's buffers, sizes in that of ``kernel.sizes``; an error flag follows
them where the kernel checks indices or divisors. Loops run as the kernel's schedule
says; where it says nothing, LLVM makes vectors of inner ones.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir

from weft.compile.emit import scalar
from weft.compile.emit.control_flow import (
    I1,
    I32,
    I64,
    POINTER,
    VOID,
    i64,
    loop,
    zeros,
)
from weft.compile.emit.isa import Isa, prepare_function
from weft.compile.emit.kernel import KernelEmitter, moves, pointer_to
from weft.compile.emit.loop_hints import scalar_hint, strip_hint, vector_hint
from weft.compile.loop.ir import (
    Buffer,
    For,
    Kernel,
    Local,
    Set,
    Store,
    sums_of,
)
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.register_transpose import (
    SIDE,
    Square,
    emit_transpose,
    transposed_square,
)
from weft.compile.targets.cpu.streaming_stores import (
    copied,
    emit_copy,
    emit_fence,
    emit_line,
)
from weft.core.size import Size
from weft.runtime.cpu.address import ALIGNMENT

_CHUNK = COST.streaming.chunk
SIGNATURE = ir.FunctionType(VOID, [POINTER.as_pointer(), I64.as_pointer(), I64, I64])


def emit_kernel(module: ir.Module, kernel: Kernel, isa: Isa) -> ir.Function:
    """Add a kernel's function to a module."""
    return _Emitter(module, kernel, isa).run()


def _as_vector(b: Any, memory: Any, kind: ir.VectorType) -> Any:
    return b.bitcast(memory, kind.as_pointer())


def _numbers(first: int, count: int) -> ir.Constant:
    """Consecutive numbers, as a shuffle's indices."""
    kind = ir.VectorType(I32, count)
    return ir.Constant(kind, list(range(first, first + count)))


class _Emitter(KernelEmitter):
    """One kernel as a function over a range of its parallel iterations."""

    def __init__(self, module: ir.Module, kernel: Kernel, isa: Isa) -> None:
        super().__init__(module, kernel, isa)
        self.lanes: dict[str, Any] = {}  # where the present strip's totals are
        # scratch memory of the present chunk of streaming stores
        self.chunks: dict[str, Any] = {}
        self.fence = False  # whether there are such stores

    def run(self) -> ir.Function:
        inner = self._inner()
        outer = ir.Function(self.module, SIGNATURE, self.kernel.name)
        prepare_function(outer, self.isa)
        b = ir.IRBuilder(outer.append_basic_block("entry"))
        table, sizes, begin, end = outer.args
        args = []
        for k, buffer in enumerate(self.kernel.buffers):
            args.append(self._buffer(b, table, k, pointer_to(buffer)))
        count = len(self.sizes)
        args += [b.load(b.gep(sizes, [i64(k)])) for k in range(count)]
        if self.checks:
            args.append(b.gep(sizes, [i64(count)]))
        b.call(inner, [*args, begin, end])
        b.ret_void()
        return outer

    def _buffer(self, b: Any, table: Any, k: int, kind: Any) -> Any:
        """An address in the table, whose words have 64 bits on all machines."""
        if self.isa.triple.startswith("wasm32"):
            words = b.bitcast(table, I64.as_pointer())
            return b.inttoptr(b.load(b.gep(words, [i64(k)])), kind)
        return b.bitcast(b.load(b.gep(table, [i64(k)])), kind)

    def _inner(self) -> ir.Function:
        """The loops, with pointers that LLVM may assume to be apart."""
        kernel = self.kernel
        types = [pointer_to(buffer) for buffer in kernel.buffers]
        types += [I64] * len(self.sizes)
        types += [I64.as_pointer()] * self.checks
        types += [I64, I64]
        name = f"{kernel.name}.loops"
        inner = ir.Function(self.module, ir.FunctionType(VOID, types), name)
        inner.linkage = "internal"
        prepare_function(inner, self.isa)
        self.b = ir.IRBuilder(inner.append_basic_block("entry"))
        for buffer, arg in zip(kernel.buffers, inner.args, strict=False):
            arg.add_attribute("noalias")
            self.pointers[buffer.name] = arg
        self._share()
        rest = inner.args[len(kernel.buffers) :]
        self.symbols = dict(zip(self.sizes, rest, strict=False))
        for buffer in kernel.scratch:
            size = math.prod(buffer.shape)
            kind = ir.ArrayType(scalar.memory_type(buffer.dtype), size)
            memory = self.b.alloca(kind, name=buffer.name)
            memory.align = ALIGNMENT
            self.pointers[buffer.name] = self.b.bitcast(memory, pointer_to(buffer))
        self._declare_locals(kernel.body)
        self._declare_flag()
        counters = self._counters(rest[-2])
        with loop(self.b, rest[-2], rest[-1], name="p") as p:
            self._decode(p, counters)
            with self._scope():
                self._body(kernel.body)
            self._count_on(counters)
        if self.checks:
            self._report(rest[-3])
        if self.fence:
            emit_fence(self.b)
        self.b.ret_void()
        return inner

    def _counters(self, begin: Any) -> list[tuple[Any, Any]]:
        """The parallel variables at the first position, and their extents.

        From there on they are counted: a division takes as long as a short row.
        """
        if len(self.kernel.parallel) < 2:
            return []
        counters = []
        for _, extent in self.kernel.parallel[:0:-1]:
            size = self.index(extent)
            none = self.b.icmp_signed("==", size, i64(0))
            size = self.b.select(none, i64(1), size)  # then there are no iterations
            counters.append((self.b.alloca(I64), size))
            self.b.store(self.b.urem(begin, size), counters[-1][0])
            begin = self.b.udiv(begin, size)
        counters.append((self.b.alloca(I64), None))
        self.b.store(begin, counters[-1][0])
        return counters[::-1]

    def _decode(self, position: Any, counters: list[tuple[Any, Any]]) -> None:
        """The parallel variables at a position of the flattened loops."""
        names = [var for var, _ in self.kernel.parallel]
        values = [self.b.load(counter) for counter, _ in counters] or [position]
        self.symbols.update(zip(names, values, strict=False))

    def _count_on(self, counters: list[tuple[Any, Any]]) -> None:
        """Advance to the next position: a variable at its end starts over."""
        carry: Any = ir.Constant(I1, 1)
        for counter, size in reversed(counters):
            value = self.b.load(counter)
            more = self.b.add(value, self.b.zext(carry, I64))
            if size is not None:
                carry = self.b.icmp_signed("==", more, size)
                more = self.b.select(carry, i64(0), more)
            self.b.store(more, counter)

    # -- statements

    def _for(self, stmt: For) -> None:
        square = transposed_square(stmt) if stmt.in_registers else None
        if square is None:
            self._loop(stmt)
            return
        whole = [
            self.b.icmp_signed("==", self.index(n), i64(SIDE)) for n in square.extents
        ]
        with self.b.if_else(self.b.and_(*whole)) as (full, rest):
            with full:
                self._transpose(square)
            with rest:
                self._loop(stmt)

    def _loop(self, stmt: For) -> None:
        if stmt.totals:
            self._strips(stmt, sums_of(stmt), stmt.totals)
            return
        if stmt.streaming:
            stores = [s for s in stmt.body if isinstance(s, Store)]
            self._stream(stmt, [s for s in stores if s.buffer.name in stmt.streaming])
            return
        extent, hint = self.index(stmt.extent), self._hint(stmt)
        with loop(self.b, i64(0), extent, name=stmt.var, hint=hint) as i:
            self.symbols[stmt.var] = i
            with self._scope():
                self._body(stmt.body)

    def _hint(self, stmt: For) -> Any:
        if moves(stmt.body):
            return scalar_hint(self.module, COST.loops.scalar_moves)
        if not stmt.vector:
            return None
        whole = not isinstance(stmt.extent, Size) and stmt.extent % stmt.vector == 0
        masked = self.isa.bits == 512 and not whole
        return vector_hint(self.module, stmt.vector, masked=masked)

    def _stream(self, stmt: For, stores: list[Store]) -> None:
        """A loop with streaming stores, of copied or of computed elements."""
        self.fence = True
        sources = [s for s in (copied(one, stmt.var) for one in stores) if s]
        if len(sources) < len(stmt.body):
            self._in_chunks(stmt, stores)
            return
        self.symbols[stmt.var] = i64(0)
        for store, source in zip(stores, sources, strict=True):
            first = self._address(source.buffer, source.at)
            self._copy_streaming(store, first, stmt.extent)

    def _copy_streaming(self, store: Store, source: Any, count: Any) -> None:
        """Copy elements to a store's first address, with streaming stores."""
        b, size = self.b, store.buffer.dtype.itemsize
        to = b.bitcast(self._address(store.buffer, store.at), POINTER)
        source = b.bitcast(source, POINTER)
        if isinstance(count, int) and count * size == COST.caches.line:
            emit_line(b, self.isa, to, source)
            return
        copy = emit_copy(self.module, self.isa)
        b.call(copy, [to, source, b.mul(self._count(count), i64(size))])

    def _in_chunks(self, stmt: For, stores: list[Store]) -> None:
        """A loop in chunks: values of streaming stores go to scratch memory first."""
        b = self.b
        chunks = {s.buffer.name: self._chunk(s.buffer) for s in stores}
        if isinstance(stmt.extent, int) and stmt.extent <= COST.streaming.least_row:
            self._one_chunk(stmt, stores, chunks, i64(0), stmt.extent)
            return
        extent = self.index(stmt.extent)
        with loop(
            b, self._edge(stmt, stores[0]), extent, i64(_CHUNK), name="part"
        ) as p:
            end = b.add(p, i64(_CHUNK), flags=["nsw"])
            end = b.select(b.icmp_signed("<", end, extent), end, extent)
            first = b.select(b.icmp_signed("<", p, i64(0)), i64(0), p)
            count = b.sub(end, first, flags=["nsw"])
            self._one_chunk(stmt, stores, chunks, first, count)

    def _one_chunk(
        self, stmt: For, stores: list[Store], chunks: dict[str, Any], first: Any,
        count: Any,
    ) -> None:  # fmt: skip
        b = self.b
        with loop(
            b, i64(0), self._count(count), name=stmt.var, hint=self._hint(stmt)
        ) as k:
            self.symbols[stmt.var] = b.add(first, k, flags=["nsw"])
            self.chunks = {name: b.gep(chunk, [i64(0), k], inbounds=True)
                          for name, chunk in chunks.items()}  # fmt: skip
            with self._scope():
                self._body(stmt.body)
        self.symbols[stmt.var], self.chunks = first, {}
        for store in stores:
            self._copy_streaming(store, chunks[store.buffer.name], count)

    def _count(self, count: Any) -> Any:
        """A number of iterations that may be one already."""
        return self.index(count) if isinstance(count, (int, Size)) else count

    def _edge(self, stmt: For, store: Store) -> Any:
        """The start of the first chunk that lets all others begin with a cache line."""
        self.symbols[stmt.var] = i64(0)
        start = self.b.ptrtoint(self._address(store.buffer, store.at), I64)
        over = self.b.and_(start, i64(COST.caches.line - 1))
        return self.b.sub(i64(0), self.b.udiv(over, i64(store.buffer.dtype.itemsize)))

    def _chunk(self, buffer: Buffer) -> Any:
        """Scratch memory for a chunk of a result, in the function's first block."""
        kind = ir.ArrayType(scalar.memory_type(buffer.dtype), _CHUNK)
        with self.b.goto_entry_block():
            memory = self.b.alloca(kind, name=f"{buffer.name}.part")
        memory.align = ALIGNMENT
        return memory

    def _strips(self, stmt: For, sums: list[Local], lanes: int) -> None:
        """A loop that adds up, in strips with one total for each lane.

        The totals are added up by halves. So the order is always the same, whatever
        else is computed in the loop, and any width of vectors may be used.
        """
        b, before = self.b, self.lanes
        totals = {local.name: self._total_memory(local, lanes) for local in sums}
        for local in sums:
            kind = ir.VectorType(scalar.register_type(local.dtype), lanes)
            b.store(zeros(kind), _as_vector(b, totals[local.name], kind))
        count = self.index(stmt.extent)
        whole = b.udiv(count, i64(lanes))
        with loop(b, i64(0), whole) as strip:
            first = b.mul(strip, i64(lanes), flags=["nsw"])
            width = self.isa.lanes(max(4, *[local.dtype.itemsize for local in sums]))
            hint = strip_hint(self.module, width, max(lanes // width, 1))
            self._strip(stmt, totals, first, i64(lanes), hint)
        first = b.mul(whole, i64(lanes), flags=["nsw"])
        if isinstance(stmt.extent, Size) or stmt.extent % lanes:
            self._strip(stmt, totals, first, b.sub(count, first))
        self.lanes = before
        for local in sums:
            self._add_lanes(local, totals[local.name], lanes)

    def _strip(
        self,
        stmt: For,
        totals: dict[str, Any],
        first: Any,
        count: Any,
        hint: Any = None,
    ) -> None:
        with loop(self.b, i64(0), count, name=stmt.var, hint=hint) as k:
            self.symbols[stmt.var] = self.b.add(first, k, flags=["nsw"])
            self.lanes = {
                name: self.b.gep(total, [i64(0), k], inbounds=True)
                for name, total in totals.items()
            }
            with self._scope():
                self._body(stmt.body)

    def _total_memory(self, local: Local, lanes: int) -> Any:
        """Memory for totals, in the function's first block."""
        kind = ir.ArrayType(scalar.register_type(local.dtype), lanes)
        with self.b.goto_entry_block():
            memory = self.b.alloca(kind, name=f"{local.name}.lanes")
        memory.align = ALIGNMENT
        return memory

    def _add_lanes(self, local: Local, memory: Any, lanes: int) -> None:
        """Add the totals of a sum up, each of a half to that of the other half."""
        b = self.b
        kind = ir.VectorType(scalar.register_type(local.dtype), lanes)
        totals = b.load(_as_vector(b, memory, kind))
        while lanes > 1:
            lanes //= 2
            low, high = (
                b.shuffle_vector(totals, totals, _numbers(first, lanes))
                for first in (0, lanes)
            )
            totals = b.fadd(low, high)
        place = self.locals[local.name]
        first = b.extract_element(totals, ir.Constant(I32, 0))
        b.store(b.fadd(b.load(place), first), place)

    def _transpose(self, square: Square) -> None:
        buffers = square.source.buffer, square.target.buffer
        source, to = (
            self.b.gep(self.pointers[b.name], [self.index(at)], inbounds=True)
            for b, at in zip(buffers, (square.start, square.first), strict=True)
        )
        element = scalar.memory_type(square.source.dtype)
        emit_transpose(self.b, source, self.index(square.step), to, element)

    def _set(self, stmt: Set) -> None:
        place = self.lanes.get(stmt.local.name)
        if place is None or not stmt.reorder:
            super()._set(stmt)
            return
        more = self.value(stmt.value.args[1])
        self.b.store(self.b.fadd(self.b.load(place), more), place)

    def _place(self, stmt: Store) -> Any:
        chunk = self.chunks.get(stmt.buffer.name)
        return super()._place(stmt) if chunk is None else chunk
