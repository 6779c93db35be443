"""From the Loop IR to LLVM: statements, values and indices, for every target.

A target's emitter makes the function around the body, and says how a loop runs: one
after the other here, as vectors on a CPU, by the threads of a block on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from weft import dtype as dtypes
from weft.compile.emit import scalar
from weft.compile.emit.control_flow import F64, I1, I8, I64, i64, loop
from weft.compile.emit.isa import Isa
from weft.compile.loop.ir import (
    Buffer,
    Call,
    Const,
    For,
    Kernel,
    Let,
    Load,
    Local,
    Position,
    Set,
    Store,
    When,
    divides,
    facts_of,
    statements,
)
from weft.core.size import Size, may_be_negative


class KernelEmitter:
    """The body of one kernel."""

    def __init__(self, module: ir.Module, kernel: Kernel, isa: Isa) -> None:
        self.module = module
        self.kernel = kernel
        self.isa = isa
        self.pointers: dict[str, Any] = {}
        self.symbols: dict[str, Any] = {}
        self.locals: dict[str, Any] = {}
        self.sizes, self.checks = kernel.sizes, kernel.checks
        self.cache: dict[Any, Any] = {}
        self.patterns: dict[Any, Any] = {}  # of half types' values that are rounded
        self.failed: Any = None  # memory of this function's own error flag
        self.b: Any = None

    def _share(self) -> None:
        """Use one pointer for buffers that share memory."""
        kinds = {buffer.name: pointer_to(buffer) for buffer in self.kernel.buffers}
        for given, made in self.kernel.takers.items():
            self.pointers[given] = self.b.bitcast(self.pointers[made], kinds[given])

    def _declare_flag(self) -> None:
        """Memory in which errors are noted until the end."""
        if self.checks:
            self.failed = self.b.alloca(I64, name="failed")
            self.b.store(i64(0), self.failed)

    def _report(self, flag: Any) -> None:
        """Pass errors on to the launch's flag: threads only ever write one number."""
        some = self.b.icmp_signed("!=", self.b.load(self.failed), i64(0))
        with self.b.if_then(some, likely=False):
            self.b.store_atomic(i64(1), flag, "monotonic", 8)

    def _declare_locals(self, body: list[Any]) -> None:
        for stmt in statements(body):
            if isinstance(stmt, Set) and stmt.local.name not in self.locals:
                kind = scalar.register_type(stmt.local.dtype)
                self.locals[stmt.local.name] = self.b.alloca(kind, name=stmt.local.name)

    # -- statements

    @contextmanager
    def _scope(self) -> Iterator[None]:
        """A scope: values computed inside are forgotten outside."""
        before, self.cache = self.cache, {}
        try:
            yield
        finally:
            self.cache = before

    def _body(self, body: list[Any]) -> None:
        for stmt in body:
            if isinstance(stmt, For):
                self.cache.clear()
                self._for(stmt)
                self.cache.clear()
            elif isinstance(stmt, Set):
                self._set(stmt)
            elif isinstance(stmt, Let):
                self._let(stmt, branches(body))
            elif isinstance(stmt, When):
                self._when(stmt)
            else:
                self._store(stmt)

    def _for(self, stmt: For) -> None:
        """A loop, one iteration after the other."""
        with loop(self.b, i64(0), self.index(stmt.extent), name=stmt.var) as i:
            self.symbols[stmt.var] = i
            with self._scope():
                self._body(stmt.body)

    def _let(self, stmt: Let, branch: bool) -> None:
        kinds = [stmt.value.dtype]
        index = scalar.cast(self.b, [self.value(stmt.value)], kinds, dtypes.int64)
        limit = self.index(stmt.limit)
        if branch and not stmt.sure:
            index = self._branched(index, limit, stmt.wrap)
        else:
            if stmt.wrap:  # a negative number is large without its sign
                index = scalar.smaller(self.b, index, self.b.add(index, limit))
            index = index if stmt.sure else self._clamped(index, limit)
        if stmt.var in self.symbols:  # another copy of an unrolled body
            self.cache.clear()
        self.symbols[stmt.var] = index

    def _clamped(self, given: Any, limit: Any) -> Any:
        """An index clamped to its bounds, in a loop that may become one of vectors."""
        inside = scalar.smaller(self.b, given, self.b.sub(limit, i64(1)))
        self._note(self.b.xor(inside, given))
        return inside

    def _branched(self, given: Any, limit: Any, wrap: bool) -> Any:
        """An index kept in its bounds by a branch, in a loop of scalars.

        Most are inside: only others are counted from the end, or are errors.
        """
        b, before = self.b, self.b.block
        with b.if_then(b.icmp_unsigned(">=", given, limit), likely=False):
            place = b.add(given, limit) if wrap else given
            wrong = b.icmp_unsigned(">=", place, limit)
            self._note(b.zext(wrong, I64))
            place = b.select(wrong, i64(0), place)
            outside = b.block
        inside = b.phi(I64)
        inside.add_incoming(given, before)
        inside.add_incoming(place, outside)
        return inside

    def _when(self, stmt: When) -> None:
        condition = self.value(stmt.condition)
        self.cache.clear()
        with self.b.if_then(condition), self._scope():
            self._body(stmt.body)
        self.cache.clear()

    def _set(self, stmt: Set) -> None:
        value = self.value(stmt.value)
        if stmt.reorder and is_extreme(stmt.value):
            value.fastmath.add("nsz")  # of two zeros, either
        self.b.store(value, self.locals[stmt.local.name])
        self.cache.pop(stmt.local, None)

    def _store(self, stmt: Store) -> None:
        value = self._in_memory(self.value(stmt.value), stmt.buffer.dtype)
        self.b.store(value, self._place(stmt))
        stale = [
            key
            for key in self.cache
            if isinstance(key, Load) and key.buffer.name == stmt.buffer.name
        ]
        for key in stale:
            del self.cache[key]

    def _place(self, stmt: Store) -> Any:
        """The address that a statement stores to."""
        return self._address(stmt.buffer, stmt.at)

    # -- values

    def value(self, value: Any) -> Any:
        if isinstance(value, Const):
            return scalar.constant(value.value, value.dtype)
        key = value if isinstance(value, (Load, Local, Position)) else id(value)
        found = self.cache.get(key)
        if found is None:
            found = self.cache[key] = self._compute(value)
        return found

    def _compute(self, value: Any) -> Any:
        if isinstance(value, Load):
            found = self.b.load(self._address(value.buffer, value.at))
            return self._in_register(found, value.dtype)
        if isinstance(value, Local):
            return self.b.load(self.locals[value.name])
        if isinstance(value, Position):
            if value.dtype.is_inexact:
                return self.ratio(value.at)
            return self.index(value.at)
        return self._call(value)

    def _call(self, value: Any) -> Any:
        args = [self.value(a) for a in value.args]
        if chooses(value) and isinstance(value.args[0], Local):
            args[1] = _hidden(self.b, args[1])
        kinds = [a.dtype for a in value.args]
        if divides(value):
            self._note(self.b.zext(scalar.is_zero(self.b, args[1]), I64))
        name, dtype, fused = value.name, value.dtype, self.isa.fused
        found = scalar.emit(self.b, name, args, kinds, dtype, fused=fused)
        return self._rounded(found, dtype) if scalar.rounds(name, dtype) else found

    def _note(self, error: Any) -> None:
        """Note an error where a number is not 0; no branch, for vectors' sake."""
        self.b.store(self.b.or_(self.b.load(self.failed), error), self.failed)

    # -- memory

    def _in_memory(self, value: Any, dtype: Any) -> Any:
        """A value as it is stored."""
        if dtype is dtypes.bool_:
            return self.b.zext(value, I8)
        if dtype.name not in scalar.HALF:
            return value
        found = self.patterns.get(value)
        return self._narrowed(value, dtype) if found is None else found

    def _in_register(self, found: Any, dtype: Any) -> Any:
        """A value from how it is stored."""
        if dtype is dtypes.bool_:
            return self.b.trunc(found, I1)
        if dtype.name not in scalar.HALF:
            return found
        native = self.isa.converts_half
        value = scalar.widened(self.b, found, dtype, native=native)
        self.patterns[value] = found
        return value

    def _narrowed(self, value: Any, dtype: Any) -> Any:
        native = self.isa.converts_half
        return scalar.narrowed(self.b, value, dtype, native=native)

    def _rounded(self, value: Any, dtype: Any) -> Any:
        """A float32 that is a half type's number, as every function's result is."""
        return self._in_register(self._narrowed(value, dtype), dtype)

    # -- indices

    def _address(self, buffer: Buffer, index: tuple[Any, ...]) -> Any:
        position: Any = 0
        for i, n in zip(index, buffer.shape, strict=True):
            position = position * n + i
        return self.b.gep(
            self.pointers[buffer.name], [self.index(position)], inbounds=True
        )

    def index(self, size: Any) -> Any:
        """An index expression as a 64-bit integer."""
        if not isinstance(size, Size):
            return i64(int(size))
        total = None
        for atoms, factor in size.terms:
            term = None if factor == 1 and atoms else i64(factor)
            for atom in atoms:
                one = self._atom(atom)
                term = one if term is None else self.b.mul(term, one, flags=["nsw"])
            total = term if total is None else self.b.add(total, term, flags=["nsw"])
        return total

    def _atom(self, atom: Any) -> Any:
        if atom.a is None:
            return self.symbols[atom.kind]
        a, c = self.index(atom.a), self.index(atom.b)
        if atom.kind == "//":
            return self._floor_divided(a, c, may_be_negative(atom.a))
        if atom.kind == "%":
            return self._remainder(a, c, may_be_negative(atom.a))
        sign = "<" if atom.kind == "min" else ">"
        return self.b.select(self.b.icmp_signed(sign, a, c), a, c)

    def _floor_divided(self, a: Any, c: Any, signed: bool) -> Any:
        """a // c for c > 0; the machine's quotient is rounded towards zero."""
        if signed:  # -((c - 1 - a) // c) where a is negative
            low = self.b.sub(self.b.add(a, i64(1)), c)
            a = self.b.select(self.b.icmp_signed("<", a, i64(0)), low, a)
        return self.b.sdiv(a, c)

    def _remainder(self, a: Any, c: Any, signed: bool) -> Any:
        """a % c for c > 0, which is not negative either."""
        rest = self.b.srem(a, c)
        if not signed:
            return rest
        below = self.b.icmp_signed("<", rest, i64(0))
        return self.b.select(below, self.b.add(rest, c), rest)

    def ratio(self, size: Any) -> Any:
        """An expression with quotients, in double precision."""
        if not isinstance(size, Size):
            return ir.Constant(F64, float(size))
        total = ir.Constant(F64, 0.0)
        for atoms, factor in size.terms:
            term = ir.Constant(F64, float(factor))
            for atom in atoms:
                if atom.kind == "/" and atom.a is not None:
                    one = self.b.fdiv(self.ratio(atom.a), self.ratio(atom.b))
                else:
                    one = self.b.sitofp(self._atom(atom), F64)
                term = self.b.fmul(term, one)
            total = self.b.fadd(total, term)
        return total


def is_extreme(value: Any) -> bool:
    """Whether a value is the larger or smaller of two numbers that may be NaN."""
    return isinstance(value, Call) and chooses(value) and (
        value.dtype.name in ("float32", "float64")
    )  # fmt: skip


def chooses(value: Call) -> bool:
    """Whether a value is one of its two operands, as a reduction combines them."""
    facts = facts_of(value.name)
    return facts.idempotent and facts.exact


def branches(body: list[Any]) -> bool:
    """Whether a body's indices may be checked by branches: it becomes no vectors."""
    lets = {stmt.var for stmt in body if isinstance(stmt, Let)}
    places = [i for stmt in body if isinstance(stmt, Store) for i in stmt.at]
    scatters = any(isinstance(i, Size) and lets & set(i.symbols) for i in places)
    loops = any(isinstance(stmt, (For, When)) for stmt in body)
    return scatters or loops or moves(body)


def moves(body: list[Any]) -> bool:
    """Whether a body only gathers elements at indices from memory.

    They are loaded one by one: vectors would have to be taken apart and put together.
    """
    lets = {stmt.var for stmt in body if isinstance(stmt, Let)}
    loads = [stmt.value for stmt in body if isinstance(stmt, Store)]
    return len(lets) + len(loads) == len(body) and all(
        isinstance(load, Load)
        and any(isinstance(i, Size) and lets & set(i.symbols) for i in load.at)
        for load in loads
    )


def _hidden(b: Any, value: Any) -> Any:
    """A value that LLVM does not know the origin of.

    Else it makes the maximum of ``where(mask, x, -inf)`` a branch on the mask, which
    it cannot vectorise.
    """
    return scalar.freeze(b, value)


def pointer_to(buffer: Buffer) -> Any:
    return scalar.memory_type(buffer.dtype).as_pointer()
