"""Choices between index ranges, settled before code is emitted.

    for i < n + m:                     for i < n:
      y[i] = i < n ? a[i] : b[i-n]  →    y[i] = a[i]
                                       for i < m:
                                         y[n+i] = b[i]

An innermost loop is split at the bound. Elsewhere both values are computed and one is
selected; the indices of their loads are then clamped, so that they stay in bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft import dtype as dtypes
from weft.compile.loop.ir import (
    Call,
    Choice,
    For,
    Load,
    Position,
    When,
    subvalues,
    values_of,
)
from weft.compile.loop.rewrite import mapped, mapped_value, replaced
from weft.core.size import Atom, Size, larger, same, smaller

SPLITS = 8  # loops that one may become


class Settling:
    """The statements of one kernel; ``positive`` collects the sizes of what is clamped.

    ``variables`` are those of the parallel loops, at which nothing can be split.
    """

    def __init__(self, variables: set[str]) -> None:
        self.variables = variables
        self.positive: list[Any] = []
        self.memo: dict[int, Any] = {}

    def body(self, body: list[Any]) -> list[Any]:
        """The statements without choices."""
        found: list[Any] = []
        for stmt in body:
            found += self._statement(stmt)
        return found

    def _statement(self, stmt: Any) -> list[Any]:
        if isinstance(stmt, For):
            if not any(isinstance(s, (For, When)) for s in stmt.body):
                found = self._pieces(stmt, SPLITS)
                pieces = [p for p in found if not same(p.extent, 0)]
                return [self._settled(piece) for piece in pieces]
            inner = Settling({*self.variables, stmt.var})
            inner.positive = self.positive
            return [stmt._replace(body=inner.body(stmt.body))]
        return [self._settled(stmt)]

    # -- splitting

    def _pieces(self, loop: For, most: int) -> list[For]:
        """A loop split into several, with fewer choices in each."""
        for choice in _choices(loop):
            if most == 1:
                break
            bound = self._bound(choice, loop)
            if bound is not None:
                first, second = _split(loop, choice, bound)
                return [
                    *self._pieces(first, most // 2), *self._pieces(second, most // 2)
                ]  # fmt: skip
        return [loop]

    def _bound(self, choice: Choice, loop: For) -> Any:
        """The iteration at which a choice changes, if it is the same in all runs."""
        if not isinstance(choice.at, Size) or loop.var not in choice.at.symbols:
            return None
        rest = choice.at - _symbol(loop.var, choice.at)
        found = choice.bound - rest
        inside = {loop.var, *self.variables}
        if isinstance(found, Size) and found.symbols & inside:
            return None
        return smaller(larger(found, 0), loop.extent)

    # -- selecting

    def _settled(self, stmt: Any) -> Any:
        return mapped(stmt, self._select, self.memo)

    def _select(self, value: Any) -> Any:
        if not isinstance(value, Choice):
            return value
        at, bound = (Position(i, dtypes.int64) for i in (value.at, value.bound))
        below = Call("lt", (at, bound), dtypes.bool_)
        branches = [self._clamped(v) for v in (value.low, value.high)]
        return Call("where", (below, *branches), value.dtype)

    def _clamped(self, value: Any) -> Any:
        return mapped_value(value, self._clamp, {})

    def _clamp(self, value: Any) -> Any:
        if not isinstance(value, Load):
            return value
        pairs = zip(value.at, value.buffer.shape, strict=True)
        return value._replace(at=tuple([self._inside(i, n) for i, n in pairs]))

    def _inside(self, index: Any, size: Any) -> Any:
        """``max(min(index, size - 1), 0)``, written as proofs expect it."""
        if not isinstance(index, Size) or is_clamped(index) or _plain(index, size):
            return index
        self.positive.append(size)
        top = Size(((Atom("min", index, size - 1),), 1), scope=index.scope)
        return Size(((Atom("max", top, 0),), 1), scope=index.scope)


def is_clamped(index: Any) -> Any:
    """The size that a clamped index stays below, else nothing."""
    if not isinstance(index, Size) or len(index.terms) != 1:
        return None
    ((atoms, factor),) = index.terms
    if factor != 1 or len(atoms) != 1 or atoms[0].kind != "max" or atoms[0].b != 0:
        return None
    top = atoms[0].a
    if not isinstance(top, Size) or len(top.terms) != 1:
        return None
    ((inner, factor),) = top.terms
    if factor != 1 or len(inner) != 1 or inner[0].kind != "min":
        return None
    return inner[0].b + 1


def _plain(index: Size, size: Any) -> bool:
    """Whether an index is a variable of a loop over just these elements."""
    name = index.symbol_name
    return bool(name) and same(index.scope.bounds.get(name), size)


def _symbol(name: str, like: Size) -> Size:
    return Size(((Atom(name),), 1), scope=like.scope)


def _choices(loop: For) -> Iterator[Choice]:
    for value in subvalues([v for stmt in loop.body for v in values_of(stmt)]):
        if isinstance(value, Choice):
            yield value


def _split(loop: For, choice: Choice, bound: Any) -> tuple[For, For]:
    def side(low: bool) -> list[Any]:
        def settle(value: Any) -> Any:
            if not isinstance(value, Choice) or not _alike(value, choice):
                return value
            return value.low if low else value.high

        memo: dict[int, Any] = {}
        return [mapped(stmt, settle, memo) for stmt in loop.body]

    moved = _symbol(loop.var, choice.at) + bound
    memo: dict[int, Any] = {}
    late = [replaced(stmt, loop.var, moved, memo) for stmt in side(False)]
    return loop._replace(extent=bound, body=side(True)), loop._replace(
        extent=loop.extent - bound, body=late
    )


def _alike(a: Choice, b: Choice) -> bool:
    return same(a.at, b.at) and same(a.bound, b.bound)
