"""Sums in several levels, so that rounding errors stay small.

    for i < n:                    wide = 0 : float64
      for j < 5:                  for io < ⌈n/512⌉:
        t = t + x[i, j]             s = 0
                            →       for ii < min(n - 512*io, 512):
                                      p = 0
                                      for j < 5:
                                        p = p + x[ii + 512*io, j]
                                      s = s + p
                                    wide = wide + float64(s)
                                  t = t + float32(wide)

Each loop has a total of its own, and a long one is cut into blocks, whose totals are
added up in float64. The order depends on the shape alone.
"""

from __future__ import annotations

import math
from typing import Any

from weft import dtype as dtypes
from weft.compile import targets
from weft.compile.loop.ir import Call, Const, For, Kernel, Local, Set
from weft.compile.loop.rewrite import replaced
from weft.compile.lower.values import as_dtype
from weft.core.size import Size, smaller


def in_levels(kernel: Kernel, long: int = 0) -> Kernel:
    """A kernel whose sums of many numbers have several levels.

    ``long`` is how many are added up in one loop, if not as the cost model says.
    """
    return kernel._replace(body=_Levels(kernel.scope, long).body(kernel.body))


class _Levels:
    """One kernel's loops."""

    def __init__(self, scope: Any, long: int) -> None:
        self.scope = scope
        self.cost = targets.current().cost.reductions
        self.long = long or self.cost.serial
        self.count = 0

    def body(self, body: list[Any]) -> list[Any]:
        return [x for stmt in body for x in self._statement(stmt)]

    def _statement(self, stmt: Any) -> list[Any]:
        if not isinstance(stmt, For) or not (sums := _sums(stmt.body)):
            return [stmt]
        size = self.long
        if not _innermost(stmt):
            size = min(size, self.cost.serial_totals)
        long = isinstance(stmt.extent, Size) or stmt.extent > size
        return self._blocks(stmt, sums, size) if long else [self._levels(stmt)]

    def _levels(self, loop: For) -> For:
        """Totals of each iteration's own, where there are loops inside."""
        if _innermost(loop) or _few(loop, self.cost.nested):
            return loop
        starts, body, adds = self._apart(loop.body, _sums(loop.body))
        return loop._replace(body=[*starts, *self.body(body), *adds])

    def _blocks(self, loop: For, sums: list[Local], size: int) -> list[Any]:
        """Blocks of a loop, each with totals of its own."""
        wide = {local: self._local(dtypes.float64) for local in sums}
        outer, inner = self._name("o"), self._name("i")
        blocks = (loop.extent + (size - 1)) // size
        self.scope.bounds |= {outer: blocks, inner: size}
        first = self.scope.symbol(outer) * size
        index = first + self.scope.symbol(inner)
        memo: dict[int, Any] = {}
        moved = [replaced(stmt, loop.var, index, memo) for stmt in loop.body]
        starts, body, _ = self._apart(moved, sums)
        below = For(inner, _rest(loop.extent, first, size), body, loop.vector)
        adds = [
            _added(wide[local], start.local)
            for local, start in zip(sums, starts, strict=True)
        ]
        return [
            *[Set(one, Const(0, one.dtype)) for one in wide.values()],
            For(outer, blocks, [*starts, self._levels(below), *adds]),
            *[_added(local, one) for local, one in wide.items()],
        ]

    def _apart(self, body: list[Any], sums: list[Local]) -> Any:
        """Totals set to 0, statements that use them, and their addition to others."""
        own = {local: self._local(local.dtype) for local in sums}
        starts = [Set(part, Const(0, part.dtype)) for part in own.values()]
        adds = [_added(local, part) for local, part in own.items()]
        return starts, _into(body, own), adds

    def _local(self, dtype: Any) -> Local:
        return Local(self._name("t"), dtype)

    def _name(self, lead: str) -> str:
        self.count += 1
        return f"{lead}{self.count}_"


def _rest(extent: Any, first: Any, size: int) -> Any:
    """The number of iterations of a block."""
    whole = not isinstance(extent, Size) and extent % size == 0
    return size if whole else smaller(extent - first, size)


def _sums(body: list[Any]) -> list[Local]:
    """The floating-point totals that loops inside one another add to."""
    totals = []
    for stmt in body:
        if isinstance(stmt, For):
            totals += _sums(stmt.body)
        elif isinstance(stmt, Set) and stmt.reorder and _adds(stmt):
            totals.append(stmt.local)
    return list(dict.fromkeys(totals))


def _adds(stmt: Set) -> bool:
    value = stmt.value
    same = isinstance(value, Call) and value.name == "add"
    return same and value.args[0] == stmt.local and value.dtype.is_inexact


def _few(loop: For, limit: int) -> bool:
    """Whether nested loops have at most ``limit`` iterations altogether."""
    inner = [s for s in loop.body if isinstance(s, For)]
    extents = [loop.extent, *[s.extent for s in inner]]
    known = not any(isinstance(n, Size) for n in extents)
    return known and math.prod(extents) <= limit and all(map(_innermost, inner))


def _innermost(loop: For) -> bool:
    return not any(isinstance(stmt, For) for stmt in loop.body)


def _into(body: list[Any], own: dict[Local, Local]) -> list[Any]:
    """Statements that add to other totals."""
    stmts = []
    for stmt in body:
        if isinstance(stmt, For):
            stmt = stmt._replace(body=_into(stmt.body, own))
        elif isinstance(stmt, Set) and stmt.local in own and _adds(stmt):
            part = own[stmt.local]
            total = Call("add", (part, stmt.value.args[1]), part.dtype)
            stmt = Set(part, total, reorder=True)
        stmts.append(stmt)
    return stmts


def _added(total: Local, part: Local) -> Set:
    value = as_dtype(part, total.dtype)
    return Set(total, Call("add", (total, value), total.dtype), reorder=True)
