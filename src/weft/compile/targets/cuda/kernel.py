"""From the Loop IR to LLVM for NVIDIA GPUs: one ``__global__`` function a kernel.

    void name(T0* b0, T1* b1, …, i64 size, …, i64 count, i64* flag)

runs the ``count`` iterations of the flattened parallel loops: a thread for each, or a
block of threads where a loop is shared out to threads (``loop.ir.block_size``). The
error flag is there where the kernel checks indices or divisors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from llvmlite import ir

from weft import dtype as dtypes
from weft.compile.emit import scalar
from weft.compile.emit.control_flow import F32, I1, I32, I64, VOID, i64, loop, when
from weft.compile.emit.isa import Isa
from weft.compile.emit.kernel import KernelEmitter, pointer_to
from weft.compile.loop.ir import (
    Buffer,
    Choice,
    For,
    Kernel,
    Load,
    Set,
    Store,
    When,
    block_size,
    combined,
    statements,
    subvalues,
    values_of,
)
from weft.compile.lower.values import identity
from weft.compile.targets.cuda.cost_model import COST
from weft.core.size import Size, same_shape
from weft.dtype import DType

WARP = 32
_ALIGN = COST.blocks.vector
I16 = ir.IntType(16)
_SHARED = 3  # the address space of a block's memory
_ALL = ir.Constant(I32, -1)  # lanes of a warp


def emit_kernel(
    module: ir.Module, kernel: Kernel, isa: Isa, *, aligned: bool = True
) -> ir.Function:
    """Add a kernel's function to a module.

    ``aligned`` says that all buffers begin at addresses for the widest loads.
    """
    return _Emitter(module, kernel, isa, aligned).run()


def special(b: Any, name: str) -> Any:
    """A special register, such as ``tid.x``, as a 64-bit number."""
    kind = ir.FunctionType(I32, [])
    read = declared(b.module, f"llvm.nvvm.read.ptx.sreg.{name}", kind)
    return b.zext(b.call(read, []), I64)


def declared(module: ir.Module, name: str, kind: ir.FunctionType) -> ir.Function:
    """A function of LLVM's, declared once in a module."""
    return module.globals.get(name) or ir.Function(module, kind, name)


def barrier(b: Any) -> None:
    """Wait until all threads of the block are here, and see what they have stored."""
    wait = declared(
        b.module, "llvm.nvvm.barrier.cta.sync.aligned.all", ir.FunctionType(VOID, [I32])
    )
    b.call(wait, [ir.Constant(I32, 0)])


def narrowed(b: Any, value: Any, dtype: DType, isa: Isa) -> Any:
    """The pattern of a half type's number, by the GPU's own conversions."""
    if dtype is not dtypes.bfloat16:
        return scalar.narrowed(b, value, dtype, native=isa.converts_half)
    if value.type != F32:
        return b.bitcast(b.fptrunc(value, _BFloat()), I16)
    return b.trunc(_bfloat16_pair(b, ir.Constant(F32, 0.0), value), I16)


def _bfloat16_pair(b: Any, high: Any, low: Any) -> Any:
    """Two float32 numbers as bfloat16, in 32 bits.

    The conversion of a single one has a quarter of this one's throughput.
    """
    kind = ir.FunctionType(I32, [F32, F32])
    code = ir.InlineAsm(kind, "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f")
    call = b.call(code, [high, low], attrs=("nounwind", "readnone"))
    set.add(call.attributes, "willreturn")  # llvmlite does not know it
    return call


class _BFloat(ir.Type):
    """LLVM's bfloat16, which llvmlite does not know."""

    intrinsic_name = "bf16"

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


def shared_memory(module: ir.Module, name: str, element: Any, count: int) -> Any:
    """Memory that the threads of a block share."""
    kind = ir.ArrayType(element, count)
    memory = ir.GlobalVariable(module, kind, name, addrspace=_SHARED)
    memory.linkage, memory.align = "internal", _ALIGN
    memory.initializer = ir.Constant(kind, ir.Undefined)
    return memory


class _Held(NamedTuple):
    """An element that a thread has loaded: its place, and the turn of the loop."""

    memory: str
    dtype: DType
    at: tuple[Any, ...]
    turn: tuple[str, int]


class _Emitter(KernelEmitter):
    """One kernel; ``block`` threads run each iteration of its parallel loops."""

    def __init__(
        self, module: ir.Module, kernel: Kernel, isa: Isa, aligned: bool
    ) -> None:
        super().__init__(module, kernel, isa)
        self.aligned = aligned
        self.block = block_size(kernel)
        self.shared = _is_reread(kernel)  # threads may read what others have stored
        self.apart = False  # inside a loop that threads share
        self.totals: Any = None  # the memory in which threads combine
        self.held: dict[_Held, Any] = {}  # what a thread has loaded
        self.turn: Any = None  # of such a loop: its variable, and how far it is
        self.steady = {*dict(kernel.parallel), *self.sizes}  # the same in all loops
        loops = [s for s in statements(kernel.body) if isinstance(s, (For, When))]
        self.holds = all(
            isinstance(s, For) and s.times and isinstance(s.extent, int) for s in loops
        )

    def run(self) -> ir.Function:
        kernel = self.kernel
        types = [pointer_to(buffer) for buffer in kernel.buffers]
        types += [I64] * (len(self.sizes) + 1)
        types += [I64.as_pointer()] * self.checks
        function = ir.Function(self.module, ir.FunctionType(VOID, types), kernel.name)
        function.calling_convention = "ptx_kernel"
        function.attributes.add("nounwind")
        b = self.b = ir.IRBuilder(function.append_basic_block("entry"))
        for buffer, arg in zip(kernel.buffers, function.args, strict=False):
            arg.add_attribute("noalias")
            if self.aligned:
                arg.attributes.align = _ALIGN
            self.pointers[buffer.name] = arg
        self._share()
        rest = function.args[len(kernel.buffers) :]
        self.symbols = dict(zip(self.sizes, rest, strict=False))
        count = rest[len(self.sizes)]
        for buffer in kernel.scratch:
            kind = ir.ArrayType(
                scalar.memory_type(buffer.dtype), math.prod(buffer.shape)
            )
            memory = b.alloca(kind, name=buffer.name)
            memory.align = _ALIGN
            self.pointers[buffer.name] = b.bitcast(memory, pointer_to(buffer))
        self._declare_locals(kernel.body)
        self._declare_flag()
        self.thread = special(b, "tid.x")
        position = special(b, "ctaid.x")
        if self.block == 1:
            first = b.mul(position, special(b, "ntid.x"), flags=["nsw"])
            position = b.add(first, self.thread, flags=["nsw"])
        with when(b, b.icmp_signed("<", position, count)):
            self._decode(position)
            with self._scope():
                self._body(kernel.body)
            if self.checks:
                self._report(rest[-1])
        b.ret_void()
        return function

    def _decode(self, position: Any) -> None:
        """The parallel variables at a position of the flattened loops."""
        *outer, first = reversed(self.kernel.parallel or (("", 1),))
        for name, extent in outer:
            size = self.index(extent)
            self.symbols[name] = self.b.urem(position, size)
            position = self.b.udiv(position, size)
        self.symbols[first[0]] = position

    # -- loops

    def _for(self, stmt: For) -> None:
        if stmt.threads:
            self._share_out(stmt)
        elif stmt.ahead:
            self._look_ahead(stmt)
        elif stmt.vector:
            self._unroll(stmt)
        else:
            super()._for(stmt)

    def _unroll(self, stmt: For) -> None:
        """A loop of a few neighbours: without a branch, where all of them exist."""
        if isinstance(stmt.extent, int):
            self._copies(stmt, stmt.extent)
            return
        b = self.b
        whole = b.icmp_signed("==", self.index(stmt.extent), i64(stmt.vector))
        with b.if_else(whole) as (all_there, some):
            with all_there:
                self._copies(stmt, stmt.vector)
            with some:
                super()._for(stmt)

    def _copies(self, stmt: For, count: int) -> None:
        for k in range(count):
            self.symbols[stmt.var] = i64(k)
            with self._scope():
                self._body(stmt.body)

    def _share_out(self, stmt: For) -> None:
        """A loop whose iterations the threads share; its totals are combined."""
        b, sets = self.b, combined(stmt)
        places = [self.locals[s.local.name] for s in sets]
        starts = [b.load(place) for place in places]
        for s, place in zip(sets, places, strict=True):
            start = identity(s.value.name, s.local.dtype)
            b.store(scalar.constant(start.value, start.dtype), place)
        if self.shared:
            barrier(b)
        self.apart = True
        extent, count = self.index(stmt.extent), max(stmt.vector, 1)
        first = b.mul(self.thread, i64(count), flags=["nsw"])
        if stmt.times and isinstance(stmt.extent, int):
            self._write_out(stmt, first)
            if not self.holds:
                self.held.clear()
        elif stmt.times:
            self._share_out_block(stmt, first)
        else:
            step = i64(stmt.threads * count)
            with loop(b, first, extent, step, name=stmt.var) as i:
                for _ in self._turns(stmt, i, range(count)):
                    self._body(stmt.body)  # the extent is a multiple
        self.apart = False
        for s, place, start in zip(sets, places, starts, strict=True):
            total = self._combined(s, b.load(place))
            b.store(self._pair(s, start, total), place)
        if self.shared:
            barrier(b)

    def _share_out_block(self, stmt: For, first: Any) -> None:
        """A loop that is written out, where all its iterations exist."""
        b, extent = self.b, self.index(stmt.extent)
        count = stmt.threads * stmt.vector * stmt.times
        whole = b.icmp_signed("==", extent, i64(count))
        with b.if_else(whole) as (all_there, some):
            with all_there:
                self._write_out(stmt, first)
                self.held.clear()
            with some, loop(b, self.thread, extent, i64(stmt.threads)) as i:
                for _ in self._turns(stmt._replace(times=0), i, [0]):
                    self._body(stmt.body)

    def _write_out(self, stmt: For, first: Any) -> None:
        """A thread's iterations; it loads what it can before all else."""
        step, count = stmt.threads * stmt.vector, stmt.vector
        turns = [n * step + k for n in range(stmt.times) for k in range(count)]
        values = list(subvalues(v for s in stmt.body for v in values_of(s)))
        loads = [v for v in values if self._may_be_held(v, stmt.var)]
        if not any(isinstance(v, Choice) for v in values):  # of what must not be read
            for _ in self._turns(stmt, first, turns):
                for load in dict.fromkeys(loads):
                    self._compute(load)
        for _ in self._turns(stmt, first, turns):
            self._body(stmt.body)

    def _turns(self, stmt: For, first: Any, turns: Sequence[int]) -> Iterator[int]:
        """Distances from a thread's first iteration, each with the loop's variable."""
        for turn in turns:
            at = self.b.add(first, i64(turn), flags=["nsw"]) if turn else first
            self.symbols[stmt.var] = at
            self.turn = (stmt.var, turn) if stmt.times else None
            with self._scope():
                yield turn
        self.turn = None

    def _may_be_held(self, value: Any, var: str) -> bool:
        """Whether it is an element whose place the loop's variable decides."""
        if not isinstance(value, Load):
            return False
        names = {name for n in value.at if isinstance(n, Size) for name in n.symbols}
        return var in names and names <= self.steady | {var}

    def _compute(self, value: Any) -> Any:
        if self.turn is None or not self._may_be_held(value, self.turn[0]):
            return super()._compute(value)
        buffer = value.buffer
        key = _Held(self._memory(buffer), buffer.dtype, value.at, self.turn)
        if key not in self.held:
            self.held[key] = super()._compute(value)
        return self.held[key]

    def _memory(self, buffer: Buffer) -> str:
        return self.kernel.takers.get(buffer.name, buffer.name)

    def _forget(self, stmt: Store) -> None:
        """Forget what was loaded from where a statement stores.

        Other turns of its loop store to other elements.
        """
        memory, kind = self._memory(stmt.buffer), stmt.buffer.dtype
        for key in list(self.held):
            alike = kind is key.dtype and same_shape(stmt.at, key.at)
            apart = alike and self.turn is not None and key.turn != self.turn
            if key.memory == memory and not apart:
                del self.held[key]

    def _look_ahead(self, stmt: For) -> None:
        """A loop over a condition, that as many threads as there are look for.

        Each warp leaves a word with a bit for each iteration where it holds.
        """
        b, (*lets, when_) = self.b, stmt.body
        extent, warps = self.index(stmt.extent), stmt.ahead // WARP
        name = f"{self.kernel.name}.ahead"
        memory = self.module.globals.get(name) or shared_memory(
            self.module, name, I32, warps
        )
        holds, word = b.alloca(I1), b.alloca(I32)
        with loop(b, i64(0), extent, i64(stmt.ahead), name=stmt.var) as base:
            mine = b.add(base, self.thread, flags=["nsw"])
            b.store(I1(0), holds)
            with when(b, b.icmp_signed("<", mine, extent)), self._scope():
                self.symbols[stmt.var] = mine
                self._body(lets)
                b.store(b.trunc(self.value(when_.condition), I1), holds)
            vote = declared(
                b.module, "llvm.nvvm.vote.ballot.sync", ir.FunctionType(I32, [I32, I1])
            )
            found = b.call(vote, [_ALL, b.load(holds)])
            b.store(found, self._slot(memory, b.lshr(self.thread, i64(5))))
            barrier(b)
            with loop(b, i64(0), i64(warps), name="warp") as warp:
                found = b.load(self._slot(memory, warp))
                b.store(found, word)
                first = b.add(base, b.mul(warp, i64(WARP)))
                count = b.zext(b.ctpop(found), I64)
                with loop(b, i64(0), count, name="found"), self._scope():
                    left = b.load(word)
                    b.store(b.and_(left, b.sub(left, I32(1))), word)
                    place = b.zext(b.cttz(left, I1(1)), I64)
                    self.symbols[stmt.var] = b.add(first, place)
                    self._body([*lets, *when_.body])
            barrier(b)

    def _store(self, stmt: Store) -> None:
        self._store_by_threads(stmt)
        self._forget(stmt)

    def _store_by_threads(self, stmt: Store) -> None:
        if self.block == 1 or self.apart or stmt.buffer.scratch:
            super()._store(stmt)
            return
        first = self.b.icmp_signed("==", self.thread, i64(0))
        with when(self.b, first), self._scope():
            super()._store(stmt)
        self.cache.clear()
        if self.shared:
            barrier(self.b)

    def _narrowed(self, value: Any, dtype: Any) -> Any:
        return narrowed(self.b, value, dtype, self.isa)

    def _rounded(self, value: Any, dtype: Any) -> Any:
        if dtype is not dtypes.bfloat16 or value.type != F32:
            return super()._rounded(value, dtype)
        b = self.b
        pattern = _bfloat16_pair(b, value, ir.Constant(F32, 0.0))
        found = b.bitcast(pattern, F32)
        self.patterns[found] = b.trunc(b.lshr(pattern, ir.Constant(I32, 16)), I16)
        return found

    # -- totals of threads

    def _pair(self, stmt: Set, one: Any, other: Any) -> Any:
        kind = stmt.local.dtype
        return scalar.emit(self.b, stmt.value.name, [one, other], [kind, kind], kind,
                           fused=self.isa.fused)  # fmt: skip

    def _combined(self, stmt: Set, value: Any) -> Any:
        """The totals of all threads, combined by halves; every thread gets the same.

        Warps exchange theirs in the block's memory, lanes in registers.
        """
        b, warps = self.b, self.block // WARP
        if warps > 1:
            memory = self._total_memory()
            b.store(_as_word(b, value), self._slot(memory, self.thread))
            barrier(b)
            lane = b.and_(self.thread, i64(WARP - 1))
            found = []
            for warp in range(warps):
                at = b.add(lane, i64(WARP * warp), flags=["nsw"])
                word = b.load(self._slot(memory, at))
                found.append(_from_word(b, word, value.type))
            while len(found) > 1:
                half = len(found) // 2
                pairs = zip(found[:half], found[half:], strict=True)
                found = [self._pair(stmt, *pair) for pair in pairs]
            (value,) = found
            barrier(b)  # before the memory is used again
        step = WARP // 2
        while step:
            value = self._pair(stmt, value, _from_lane(b, value, step))
            step //= 2
        return value

    def _total_memory(self) -> Any:
        if self.totals is None:
            name = f"{self.kernel.name}.totals"
            self.totals = shared_memory(self.module, name, I64, self.block)
        return self.totals

    def _slot(self, memory: Any, at: Any) -> Any:
        return self.b.gep(memory, [i64(0), at], inbounds=True)


def _is_reread(kernel: Kernel) -> bool:
    """Whether a kernel reads memory that it writes."""
    stmts = list(statements(kernel.body))
    written = {s.buffer.name for s in stmts if isinstance(s, Store)}
    values = subvalues(v for s in stmts for v in values_of(s))
    read = {v.buffer.name for v in values if isinstance(v, Load)}
    same = {given for given, made in kernel.shared if made in written}
    return bool(read & (written | same))


# -- values as words that threads exchange


def _as_word(b: Any, value: Any) -> Any:
    """A value's bits, as a 64-bit number."""
    if isinstance(value.type, ir.IntType):
        return value if value.type.width == 64 else b.zext(value, I64)
    bits = I64 if isinstance(value.type, ir.DoubleType) else I32
    word = b.bitcast(value, bits)
    return word if bits is I64 else b.zext(word, I64)


def _from_word(b: Any, word: Any, kind: Any) -> Any:
    if isinstance(kind, ir.IntType):
        return word if kind.width == 64 else b.trunc(word, kind)
    if isinstance(kind, ir.DoubleType):
        return b.bitcast(word, kind)
    return b.bitcast(b.trunc(word, I32), kind)


def _from_lane(b: Any, value: Any, step: int) -> Any:
    """The value of the lane whose number differs by ``step`` from this one's."""
    kind = ir.FunctionType(I32, [I32] * 4)
    shuffle = declared(b.module, "llvm.nvvm.shfl.sync.bfly.i32", kind)

    def moved(word: Any) -> Any:
        last = ir.Constant(I32, WARP - 1)
        return b.call(shuffle, [_ALL, word, ir.Constant(I32, step), last])

    word = _as_word(b, value)
    low = b.zext(moved(b.trunc(word, I32)), I64)
    wide = value.type.width if isinstance(value.type, ir.IntType) else 32
    if wide == 64 or isinstance(value.type, ir.DoubleType):
        high = b.zext(moved(b.trunc(b.lshr(word, i64(32)), I32)), I64)
        low = b.or_(low, b.shl(high, i64(32)))
    return _from_word(b, low, value.type)
