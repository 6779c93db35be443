"""Kernels as C functions: the Loop IR, statement by statement.

    static int kernel0(void *const *p, const int64_t *n, int64_t begin, int64_t end)

``p`` are the buffers and then scratch memory, ``n`` the sizes that the kernel depends
on. The parallel loops run from ``begin`` to ``end``, so that threads can share them
out. The result is not 0 where an index or a divisor was wrong; memory outside the
buffers is never touched.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft import dtype as dtypes
from weft.compile.emit import random, scalar
from weft.compile.emit.kernel import is_extreme
from weft.compile.loop.depend import flat_position
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
    combined,
    divides,
    facts_of,
    statements,
    subvalues,
    sums_of,
    values_of,
)
from weft.compile.lower.values import identity
from weft.compile.targets.c.functions import (
    float_to_half,
    half_to_float,
    scalar_function,
)
from weft.compile.targets.c.source import (
    Indices,
    Source,
    memory_type,
    number,
    register_type,
    short_name,
)
from weft.dtype import DType

TOTALS = 16  # sums side by side, which compilers make vectors of
_LOOP_NAME = re.compile(r"[cdijkru][0-9]*|part|block|chunk", re.ASCII)


def write_kernel(source: Source, kernel: Kernel, name: str) -> str:
    """Define the function of a kernel; gives its name."""
    return source.define(name, lambda: _Writer(source, kernel, name).text())


def parallel_extent(kernel: Kernel) -> Any:
    """The number of iterations that ``begin`` and ``end`` are within."""
    return math.prod(extent for _, extent in kernel.parallel)


class _Writer:
    """One kernel."""

    def __init__(self, source: Source, kernel: Kernel, name: str) -> None:
        self.source, self.kernel, self.name = source, kernel, name
        self.names = {size: f"n{k}" for k, size in enumerate(kernel.sizes)}
        self.indices = Indices(source, self.names)
        self.buffers = {b.name: f"b{k}" for k, b in enumerate(self._all)}
        self.locals: dict[str, str] = {}
        self.cache: dict[Any, str] = {}
        self.lines: list[str] = []
        self.depth = 1
        self.temporaries = 0
        self.uses: Counter[int] = Counter()
        self.lane = ""  # the index of a total, inside a loop with several
        self.sums: dict[str, str] = {}

    @property
    def _all(self) -> list[Buffer]:
        return [*self.kernel.buffers, *self.kernel.scratch]

    def text(self) -> str:
        head = f"static int {self.name}(void *const *p, const int64_t *n, " \
            "int64_t begin, int64_t end) {"  # fmt: skip
        self._pointers()
        declared = len(self.lines)
        if self.kernel.checks:
            self._line("int failed = 0;")
        self._parallel()
        self._line(f"return {'failed' if self.kernel.checks else '0'};")
        self.lines[declared:declared] = self._sizes(self.lines[declared:])
        return "\n".join([head, *self.lines, "}\n"])

    def _sizes(self, lines: list[str]) -> list[str]:
        """Declarations of the sizes that lines mention."""
        used = set(re.findall(r"\bn\d+\b", "\n".join(lines)))
        sizes = [k for k in range(len(self.kernel.sizes)) if f"n{k}" in used]
        return [f"  const int64_t n{k} = n[{k}];" for k in sizes] or ["  (void)n;"]

    def _pointers(self) -> None:
        """Declare typed pointers: one for buffers of one type that share memory."""
        stored = {
            s.buffer.name for s in statements(self.kernel.body) if isinstance(s, Store)
        }
        used, kinds = self._accessed(), {b.name: b.dtype for b in self._all}
        shared: set[str] = set()
        for given, made in self.kernel.takers.items():
            if memory_type(kinds[given]) == memory_type(kinds[made]):
                self.buffers[given] = self.buffers[made]  # one pointer is enough
                used = (used - {given}) | {made}
                stored.add(made)
            else:
                shared |= {given, made}
        for k, buffer in enumerate(self._all):
            if buffer.name not in used:
                continue
            const = "" if buffer.name in stored else "const "
            strict = "" if buffer.name in shared else "restrict "
            kind = memory_type(buffer.dtype)
            self._line(f"{const}{kind} *{strict}b{k} = p[{k}];")
        if not used:
            self._line("(void)p;")

    def _accessed(self) -> set[str]:
        found = set()
        for stmt in statements(self.kernel.body):
            if isinstance(stmt, Store):
                found.add(stmt.buffer.name)
            for value in subvalues(values_of(stmt)):
                if isinstance(value, Load):
                    found.add(value.buffer.name)
        return found

    # -- lines

    def _line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        """A block; values computed inside are forgotten outside."""
        self._line(head + " {")
        before, self.cache = self.cache, {}
        self.depth += 1
        yield
        self.depth -= 1
        self.cache = before
        self._line("}")

    def _loop_name(self, var: str) -> str:
        plain = _LOOP_NAME.fullmatch(var)
        return self.names.setdefault(var, var if plain else f"x{len(self.names)}")

    # -- statements

    def _parallel(self) -> None:
        """The parallel loops as one, from ``begin`` to ``end``, and the body inside."""
        loops = self.kernel.parallel
        if len(loops) == 1:
            with self._counting(loops[0][0], "begin", "end"):
                self._inside()
        elif loops:
            with self._block("for (int64_t at = begin; at < end; at++)"):
                self._places(list(loops))
                self._inside()
        else:
            self._line("(void)begin, (void)end;")
            self._inside()

    def _places(self, loops: list[tuple[str, Any]]) -> None:
        """The variables of parallel loops, of which ``at`` counts all iterations."""
        rest = "at"
        for var, extent in reversed(loops[1:]):
            size = self.indices.inner(extent)
            self._line(f"const int64_t {self._loop_name(var)} = {rest} % {size};")
            rest = f"{rest} / {size}"
        self._line(f"const int64_t {self._loop_name(loops[0][0])} = {rest};")

    def _inside(self) -> None:
        self._declare()
        self._inner(self.kernel.body)

    def _counting(self, var: str, start: str, stop: str) -> Any:
        i = self._loop_name(var)
        return self._block(f"for (int64_t {i} = {start}; {i} < {stop}; {i}++)")

    def _declare(self) -> None:
        for stmt in statements(self.kernel.body):
            if isinstance(stmt, Set) and stmt.local.name not in self.locals:
                name = f"s{len(self.locals)}"
                self.locals[stmt.local.name] = name
                self._line(f"{register_type(stmt.local.dtype)} {name} = 0;")

    def _count(self, body: list[Any]) -> None:
        """Count how often each function's value is used by the statements of a body."""
        own = [s for s in body if not isinstance(s, For)]
        known: set[int] = set()
        for stmt in own:
            for value in values_of(stmt):
                self.uses[id(value)] += 1
            for value in subvalues(values_of(stmt), known):
                for arg in value.args if isinstance(value, Call) else ():
                    self.uses[id(arg)] += 1

    def _body(self, body: list[Any]) -> None:
        for stmt in body:
            if isinstance(stmt, For):
                self.cache.clear()
                self._for(stmt)
                self.cache.clear()
            elif isinstance(stmt, Set):
                self._set(stmt)
            elif isinstance(stmt, Let):
                self._let(stmt)
            elif isinstance(stmt, When):
                self._when(stmt)
            else:
                self._store(stmt)

    def _for(self, stmt: For) -> None:
        sums = _in_any_order(stmt) if stmt.totals else []
        extent = self.indices.text(stmt.extent)
        if sums:
            self._in_lanes(stmt, sums, extent)
            return
        with self._counting(stmt.var, "0", extent):
            self._inner(stmt.body)

    def _inner(self, body: list[Any]) -> None:
        self._count(body)
        self._body(body)

    def _in_lanes(self, stmt: For, sets: list[Set], extent: str) -> None:
        """A loop that accumulates several totals, side by side."""
        count = stmt.totals
        with self._block(""):
            for one in sets:
                name, kind = f"{self.locals[one.local.name]}_totals", one.local.dtype
                self.sums[one.local.name] = name
                first = self.value(identity(one.value.name, kind))
                self._line(f"{register_type(kind)} {name}[{count}];")
                self._line(f"for (int k = 0; k < {count}; k++) {name}[k] = {first};")
            self._line("int64_t first = 0;")
            i = self._loop_name(stmt.var)
            self.lane = "lane"
            with self._block(f"for (; first + {count} <= {extent}; first += {count})"):
                self._lane(f"lane < {count}", i, stmt.body)
            self._lane(f"first + lane < {extent}", i, stmt.body)
            self.lane = ""
            for one in sets:
                self._combine(one, self.sums.pop(one.local.name), count)

    def _combine(self, one: Set, name: str, count: int) -> None:
        """Combine totals by halves, and then with what was there before the loop."""
        half = count // 2
        while half:
            both = self._accumulated(one, f"{name}[k]", f"{name}[k + {half}]")
            self._line(f"for (int k = 0; k < {half}; k++) {name}[k] = {both};")
            half //= 2
        local = self.locals[one.local.name]
        self._line(f"{local} = {self._accumulated(one, local, f'{name}[0]')};")

    def _accumulated(self, one: Set, x: str, y: str) -> str:
        """The function with which a statement accumulates, of two values."""
        value = one.value
        if is_extreme(value):
            kind = short_name(value.dtype)
            return f"{self.source.helper(f'either_{value.name}_{kind}')}({x}, {y})"
        return self._call(value, [x, y], [a.dtype for a in value.args])

    def _lane(self, condition: str, i: str, body: list[Any]) -> None:
        """A loop over the totals; its iteration has a number where one is used."""
        with self._block(f"for (int lane = 0; {condition}; lane++)"):
            start = len(self.lines)
            self._inner(body)
            if any(re.search(rf"\b{i}\b", line) for line in self.lines[start:]):
                indent = "  " * self.depth
                self.lines.insert(start, f"{indent}const int64_t {i} = first + lane;")

    def _set(self, stmt: Set) -> None:
        if stmt.reorder and is_extreme(stmt.value):
            value = self._accumulated(stmt, *map(self.value, stmt.value.args))
        else:
            value = self.value(stmt.value)
        self._line(f"{self._local(stmt.local)} = {value};")
        self.cache.pop(stmt.local, None)

    def _local(self, local: Local) -> str:
        if local.name in self.sums:
            return f"{self.sums[local.name]}[{self.lane}]"
        return self.locals[local.name]

    def _let(self, stmt: Let) -> None:
        value = self.value(stmt.value)
        if stmt.value.dtype is not dtypes.int64:
            value = self._function("cast", [value], [stmt.value.dtype], dtypes.int64)
        limit = self.indices.text(stmt.limit)
        again = stmt.var in self.names
        self.temporaries += not again
        name = self.names.setdefault(stmt.var, f"w{self.temporaries}")
        if stmt.sure:
            self._line(f"const int64_t {name} = {value};")
            return
        self._line(f"int64_t {name} = {value};")
        if stmt.wrap:
            self._line(f"{name} += {name} < 0 ? {limit} : 0;")
        self._line(f"if ({name} < 0 || {name} >= {limit}) failed = 1, {name} = 0;")

    def _when(self, stmt: When) -> None:
        condition = self.value(stmt.condition)
        self.cache.clear()
        with self._block(f"if ({condition})"):
            self._inner(stmt.body)
        self.cache.clear()

    def _store(self, stmt: Store) -> None:
        value = self.value(stmt.value)
        if stmt.buffer.dtype.name in scalar.HALF:
            value = f"{float_to_half(self.source, stmt.buffer.dtype)}({value})"
        elif stmt.buffer.dtype is dtypes.bool_:
            value = f"(uint8_t)({value})"
        self._line(f"{self._element(stmt.buffer, stmt.at)} = {value};")
        stale = [
            key
            for key in self.cache
            if isinstance(key, Load) and key.buffer.name == stmt.buffer.name
        ]
        for key in stale:
            del self.cache[key]

    # -- values

    def value(self, value: Any) -> str:
        """A value as an expression; one that is used again has a name."""
        if isinstance(value, Const):
            text = number(value.value, value.dtype)
            return f"({text})" if text.startswith("-") else text
        if isinstance(value, Local):
            return self._local(value)
        if isinstance(value, Position):
            return self._position(value)
        key = value if isinstance(value, Load) else id(value)
        found = self.cache.get(key)
        if found is None:
            found = self._compute(value)
            if isinstance(value, Load) or self.uses[id(value)] > 1:
                found = self._named(found, value.dtype)
                self.cache[key] = found
        return found

    def _named(self, text: str, dtype: DType) -> str:
        name = f"t{self.temporaries}"
        self.temporaries += 1
        self._line(f"const {register_type(dtype)} {name} = {text};")
        return name

    def _position(self, value: Position) -> str:
        if value.dtype.is_inexact:
            text = self.indices.ratio(value.at)
            return f"(float)({text})" if value.dtype is not dtypes.float64 else text
        return self.indices.inner(value.at)

    def _compute(self, value: Any) -> str:
        if isinstance(value, Load):
            text = self._element(value.buffer, value.at)
            if value.dtype.name in scalar.HALF:
                return f"{half_to_float(self.source, value.dtype)}({text})"
            return f"{text} != 0" if value.dtype is dtypes.bool_ else text
        args = [self.value(a) for a in value.args]
        kinds = [a.dtype for a in value.args]
        if divides(value):
            args[1] = self._named(args[1], kinds[1])
            self._line(f"if ({args[1]} == 0) failed = 1;")
        text = self._call(value, args, kinds)
        if scalar.rounds(value.name, value.dtype):
            there = float_to_half(self.source, value.dtype)
            return f"{half_to_float(self.source, value.dtype)}({there}({text}))"
        return text

    def _call(self, value: Call, args: list[str], kinds: list[DType]) -> str:
        infix = facts_of(value.name).infix
        inexact = all(kind.is_inexact for kind in kinds)
        if infix in _C_SIGNS and inexact and len(args) == 2:
            return f"({args[0]} {infix} {args[1]})"
        if value.name == "where":
            return f"({args[0]} ? {args[1]} : {args[2]})"
        return self._function(value.name, args, kinds, value.dtype, value.args)

    def _function(
        self, name: str, args: list[str], kinds: list[DType], dtype: DType,
        values: Any = (),
    ) -> str:  # fmt: skip
        known: tuple[Any, ...] = ()
        if name in random.FUNCTIONS:
            known = tuple(v.value if isinstance(v, Const) else None for v in values)
        made = scalar_function(self.source, name, kinds, dtype, known)
        return f"{made}({', '.join(args)})"

    # -- memory

    def _element(self, buffer: Buffer, at: tuple[Any, ...]) -> str:
        position = flat_position(at, buffer.shape)
        return f"{self.buffers[buffer.name]}[{self.indices.text(position)}]"


def _in_any_order(loop: For) -> list[Set]:
    """The sums and extremes that a loop without others in it accumulates."""
    sums = sums_of(loop)
    if any(isinstance(s, For) for s in loop.body):
        return []
    return [s for s in combined(loop) if s.local in sums or is_extreme(s.value)]


def takes_totals(loop: For) -> bool:
    """Whether a loop accumulates what several totals make faster."""
    return bool(_in_any_order(loop))


_C_SIGNS = frozenset(["+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!="])
