"""Loops in which an element depends on those before it.

    scatters   first every element's start, then the updates in their order; parallel
               over leading axes that updates never leave, or over blocks of rows, each
               of which takes its own updates from all
    scans      along one axis in order, parallel over the others

The order of what is combined never depends on how many threads there are.
"""

from __future__ import annotations

from typing import Any

from weft import dtype as dtypes
from weft.compile.elements import Builder, lowering_of
from weft.compile.loop.ir import (
    Buffer,
    Call,
    Const,
    For,
    Kernel,
    Load,
    Local,
    Position,
    Set,
    Store,
    When,
)
from weft.compile.lower import BLOCK, Lowering, replaced
from weft.core.size import smaller

PARTS = 8  # blocks of rows that a scatter is divided into
WIDE = 16  # elements behind an index from which on that is worth it


class ScatterLoops(Lowering):
    """One node that combines updates into elements."""

    def loops(self) -> Kernel:
        (self.node,) = self.group.nodes
        self.rule = lowering_of(self.node)
        build = Builder(self, self.node, 0, {})
        self.domain = self._sizes(self.rule.domain(*build.inputs, **self.node.params))
        self.shared = self.rule.shared(*build.inputs, **self.node.params)
        self.out = self.buffer(self.node)
        lead = self._leading()
        if not lead and self._by_rows():
            return self._in_parts()
        for axis in range(lead, len(self.domain)):
            self._variable(f"u{axis}", self.domain[axis])
        sizes = self.out.shape
        body = self._starts(lead) + self._updates(lead)
        return self._made(tuple((f"i{d}", sizes[d]) for d in range(lead)), body)

    def _variable(self, name: str, size: Any) -> Any:
        self.group.scope.bounds[name] = size
        return self.group.scope.symbol(name)

    def _leading(self) -> int:
        """How many leading axes every update stays in its place of."""
        count = 0
        while count < len(self.domain) - 1 and (count, count) in self.shared:
            count += 1
        return count

    def _by_rows(self) -> bool:
        """Whether all axes but the first are those of an update, and many."""
        rest = self.out.shape[1:]
        behind = len(self.domain) - len(rest)
        pairs = tuple((d + 1, d + behind) for d in range(len(rest)))
        if not rest or self.shared != pairs:
            return False
        known = [n for n in rest if isinstance(n, int)]
        return len(known) < len(rest) or _product(known) >= WIDE

    def _starts(self, lead: int) -> list[Any]:
        index = self.group.vars
        build = Builder(self, self.node, 0, {})
        store = Store(self.out, index, build.value(self.rule.start, index))
        sizes = self.out.shape
        return _nest([(f"i{d}", sizes[d]) for d in range(lead, len(sizes))], [store])

    def _update(self, at: Any) -> tuple[Any, Store]:
        """The index of an update, and its statement."""
        build = Builder(self, self.node, 0, {})
        index, value = build.value(self.rule.update, at)
        index = self._sizes(index)
        if self.rule.combine is not None:
            old = Load(self.out, index)
            value = Call(self.rule.combine, (old, value), self.node.dtype)
        return index, Store(self.out, index, value)

    def _updates(self, lead: int) -> list[Any]:
        scope = self.group.scope
        names = [f"{'i' if d < lead else 'u'}{d}" for d in range(len(self.domain))]
        _, store = self._update(tuple(map(scope.symbol, names)))
        loops = list(zip(names, self.domain, strict=True))[lead:]
        return _nest(loops, self.with_lets([store]))

    # -- blocks of rows

    def _in_parts(self) -> Kernel:
        scope, sizes = self.group.scope, self.out.shape
        part, row = scope.symbol("part"), scope.symbol("r")
        height = (sizes[0] + (PARTS - 1)) // PARTS
        (start,) = self._starts(0)
        moved = replaced(start, "i0", part * height + row, {})
        begin = For("r", smaller(sizes[0] - part * height, height), moved.body)
        return self._made((("part", PARTS),), [begin, *self._own_updates(part, height)])

    def _own_updates(self, part: Any, height: Any) -> list[Any]:
        """All updates, of which only those of the part's rows are made."""
        behind = len(self.out.shape) - 1
        outer = len(self.domain) - behind
        at = [self._variable(f"u{d}", n) for d, n in enumerate(self.domain)]
        index, store = self._update(tuple(at))
        row = _position(index[0])
        below = Call("lt", (row, _position(part * height + height)), dtypes.bool_)
        above = Call("ge", (row, _position(part * height)), dtypes.bool_)
        mine = Call("logical_and", (above, below), dtypes.bool_)
        names = [(f"u{d}", n) for d, n in enumerate(self.domain)]
        body = [When(mine, _nest(names[outer:], [store]))]
        return _nest(names[:outer], self.with_lets(body))


class ScanLoops(Lowering):
    """One node whose elements follow from one another along an axis."""

    def loops(self) -> Kernel:
        (self.node,) = self.group.nodes
        self.rule = lowering_of(self.node)
        dim, last = self.node.params["dim"], len(self.group.shape) - 1
        sizes = self._sizes(self.group.shape)
        outer = tuple((f"i{d}", n) for d, n in enumerate(sizes) if d not in (dim, last))
        start = Const(self.rule.start, self.node.dtype)
        if dim == last:
            state = Local("state", self.node.dtype)
            step = [Set(state, self._step(state)), self._stored(state)]
            along = For(f"i{dim}", sizes[dim], step)
            return self._made(outer, [Set(state, start), along])
        return self._in_columns(outer, start, dim, last)

    def _in_columns(self, outer: Any, start: Const, dim: int, last: int) -> Kernel:
        """A block of the last axis at a time, so that memory is read in order."""
        sizes = self._sizes(self.group.shape)
        place, block = self._block()
        states = Buffer("states", (BLOCK,), self.node.dtype, scratch=True)
        self.scratch.append(states)
        state = Load(states, (place,))
        extent = smaller(sizes[last] - block * BLOCK, BLOCK)
        step = [Store(states, (place,), self._step(state)), self._stored(state)]
        body = [
            For("j", extent, [Store(states, (place,), start)]),
            For(f"i{dim}", sizes[dim], [For("j", extent, step)]),
        ]
        memo: dict[int, Any] = {}
        column = block * BLOCK + place
        body = [replaced(stmt, f"i{last}", column, memo) for stmt in body]
        blocks = (sizes[last] + (BLOCK - 1)) // BLOCK
        return self._made((*outer, ("block", blocks)), body)

    def _block(self) -> tuple[Any, Any]:
        scope = self.group.scope
        scope.bounds["j"] = BLOCK
        return scope.symbol("j"), scope.symbol("block")

    def _step(self, state: Any) -> Any:
        build = Builder(self, self.node, 0, {})
        values = [x[self.group.vars] for x in build.inputs]
        return self.rule.step(build, state, *values)

    def _stored(self, state: Any) -> Store:
        return Store(self.buffer(self.node), self.group.home[self.node], state)


def _nest(loops: list[tuple[str, Any]], body: list[Any]) -> list[Any]:
    """Loops around a body, the last one innermost."""
    for var, extent in reversed(loops):
        body = [For(var, extent, body)]
    return body


def _position(index: Any) -> Position:
    return Position(index, dtypes.int64)


def _product(sizes: list[int]) -> int:
    total = 1
    for n in sizes:
        total *= n
    return total
