"""Loops in which an element depends on those before it.

    scatters   first every element's start, then the updates in their order; parallel
               over leading axes that updates never leave, or over blocks of rows, each
               of which takes its own updates from all
    runs       along one axis in order, parallel over the others
    folds      a loop for every element, parallel over all
    rows       see ``sorts``

The order in which values are combined never depends on the number of threads.
"""

from __future__ import annotations

from typing import Any

from weft import dtype as dtypes
from weft.compile import targets
from weft.compile.fusion.elements import Builder, lowering_of
from weft.compile.loop.ir import (
    Buffer,
    Call,
    For,
    Kernel,
    Load,
    Local,
    Position,
    Set,
    Store,
    When,
    subvalues,
)
from weft.compile.loop.rewrite import replaced
from weft.compile.lower.base import Lowering
from weft.compile.lower.values import as_dtype
from weft.compile.tuning.choices import Loops
from weft.core.lowering import Fold, Rowwise, Running, Scatter
from weft.core.size import Size, smaller

BLOCK = Loops().block


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
            return self._in_columns() if self._own_indices() else self._in_row_blocks()
        for axis in range(lead, len(self.domain)):
            self._variable(f"u{axis}", self.domain[axis])
        sizes = self.out.shape
        body = self._starts(lead) + self._updates(lead)
        return self._made(tuple((f"i{d}", sizes[d]) for d in range(lead)), body)

    def _variable(self, name: str, size: Any) -> Any:
        self.group.scope.bounds[name] = size
        return self.group.scope.symbol(name)

    def _leading(self) -> int:
        """The number of leading axes along which updates stay at their own index."""
        count = 0
        while count < len(self.domain) - 1 and (count, count) in self.shared:
            count += 1
        return count

    def _by_rows(self) -> bool:
        """Whether all axes but the first are those of an update, and fill vectors."""
        rest = self.out.shape[1:]
        behind = len(self.domain) - len(rest)
        pairs = tuple((d + 1, d + behind) for d in range(len(rest)))
        if not rest or self.shared != pairs:
            return False
        known = [n for n in rest if isinstance(n, int)]
        least = targets.current().cost.ordering.scatter_width
        return len(known) < len(rest) or _product(known) >= least

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

    # -- blocks of columns

    def _own_indices(self) -> bool:
        """Whether each element of an update has an index of its own."""
        outer = len(self.domain) - len(self.out.shape) + 1
        scope, self.lets = self.group.scope, []
        at = tuple(scope.symbol(f"u{d}") for d in range(len(self.domain)))
        Builder(self, self.node, 0, {}).value(self.rule.update, at)
        inner = {f"u{d}" for d in range(outer, len(self.domain))}
        lets, self.lets = self.lets, []
        found = subvalues([let.value for let in lets])
        loads = [v for v in found if isinstance(v, Load)]
        indices = [i for v in loads for i in v.at if isinstance(i, Size)]
        return any(i.symbols & inner for i in indices)

    def _in_columns(self) -> Kernel:
        """All updates of a block of the last axis, in order."""
        scope, last = self.group.scope, len(self.domain) - 1
        for axis, size in enumerate(self.domain):
            self._variable(f"u{axis}", size)
        width = self.out.shape[-1]
        column = scope.symbol("block") * BLOCK + self._variable("j", BLOCK)
        extent = smaller(width - scope.symbol("block") * BLOCK, BLOCK)
        sizes, behind = self.out.shape, len(self.out.shape) - 1
        index, build = self.group.vars, Builder(self, self.node, 0, {})
        start = Store(self.out, index, build.value(self.rule.start, index))
        begin = [(f"i{d}", sizes[d]) for d in range(behind)]
        names = [(f"u{d}", n) for d, n in enumerate(self.domain[:last])]
        _, store = self._update(tuple(scope.symbol(f"u{d}") for d in range(last + 1)))
        body = [
            *_nest([*begin, ("j", extent)], [start]),
            *_nest([*names, ("j", extent)], self.with_lets([store])),
        ]
        memo: dict[int, Any] = {}
        body = [replaced(stmt, f"i{behind}", column, memo) for stmt in body]
        memo = {}
        body = [replaced(stmt, f"u{last}", column, memo) for stmt in body]
        blocks = (width + (BLOCK - 1)) // BLOCK
        return self._made((("block", blocks),), body)

    # -- blocks of rows

    def _in_row_blocks(self) -> Kernel:
        scope, sizes = self.group.scope, self.out.shape
        part, row = scope.symbol("part"), scope.symbol("r")
        blocks = targets.current().cost.ordering.scatter_blocks
        height = (sizes[0] + (blocks - 1)) // blocks
        (start,) = self._starts(0)
        moved = replaced(start, "i0", part * height + row, {})
        begin = For("r", smaller(sizes[0] - part * height, height), moved.body)
        body = [begin, *self._own_updates(part, height)]
        if isinstance(height, int) and height:
            blocks = -(-sizes[0] // height)  # each has rows
        return self._made((("part", blocks),), body)

    def _own_updates(self, part: Any, height: Any) -> list[Any]:
        """All updates, of which only those to the block's rows are made."""
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


class RunningLoops(Lowering):
    """One node whose elements depend on those before them along an axis."""

    def loops(self) -> Kernel:
        (self.node,) = self.group.nodes
        self.rule = lowering_of(self.node)
        dim, last = self.node.params["dim"], len(self.group.shape) - 1
        sizes = self._sizes(self.group.shape)
        outer = tuple((f"i{d}", n) for d, n in enumerate(sizes) if d not in (dim, last))
        build = Builder(self, self.node, 0, {})
        starts = self.rule.start(build, *build.inputs)
        if dim == last:
            states = _states(starts)
            step = [*_all_set(states, self._step(states)), self._stored(states[-1])]
            along = For(f"i{dim}", sizes[dim], step)
            return self._made(outer, [*_all_set(states, starts), along])
        return self._in_columns(outer, starts, dim, last)

    def _in_columns(self, outer: Any, starts: Any, dim: int, last: int) -> Kernel:
        """A block of the last axis at a time, so that memory is read in order."""
        sizes = self._sizes(self.group.shape)
        place, block = self._block()
        for k, start in enumerate(starts):
            kept = Buffer(f"states{k}", (BLOCK,), start.dtype, scratch=True)
            self.scratch.append(kept)
        states = [Load(kept, (place,)) for kept in self.scratch]
        extent = smaller(sizes[last] - block * BLOCK, BLOCK)
        locals_ = _states(starts)
        step = [*_all_set(locals_, self._step(states))]
        step += [Store(s.buffer, s.at, v) for s, v in zip(states, locals_, strict=True)]
        step.append(self._stored(locals_[-1]))
        begin = [Store(s.buffer, s.at, v) for s, v in zip(states, starts, strict=True)]
        body = [
            For("j", extent, begin),
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

    def _step(self, states: Any) -> Any:
        build = Builder(self, self.node, 0, {})
        values = [x[self.group.vars] for x in build.inputs]
        at = self.group.vars[self.node.params["dim"]]
        return self.rule.step(build, at, states, *values)

    def _stored(self, state: Any) -> Store:
        value = as_dtype(state, self.node.dtype)  # half types may run in float32
        return Store(self.buffer(self.node), self.group.home[self.node], value)


class FoldLoops(Lowering):
    """One node whose elements are each the final state of a loop."""

    def loops(self) -> Kernel:
        (node,) = self.group.nodes
        rule, out = lowering_of(node), self.group.vars
        build = Builder(self, node, 0, {})
        domain = self._sizes(rule.domain(*build.inputs, **node.params))
        names = [f"u{d}" for d in range(len(domain))]
        self.group.scope.bounds |= dict(zip(names, domain, strict=True))
        starts = build.value(rule.start, out)
        states = _states(starts)
        begin = self.with_lets(_all_set(states, starts))
        at = tuple(map(self.group.scope.symbol, names))
        build = Builder(self, node, 0, {})
        step = self.with_lets(_all_set(states, build.value(rule.step, out, at, states)))
        build = Builder(self, node, 0, {})
        loops = _nest(list(zip(names, domain, strict=True)), step)
        found = build.value(rule.end, out, states)
        store = Store(self.buffer(node), self.group.home[node], found)
        sizes = self._sizes(self.group.shape)
        *outer, last = [(f"i{d}", n) for d, n in enumerate(sizes)] or [("i0", 1)]
        return self._made(tuple(outer), [For(*last, [*begin, *loops, store])])


def serial_loops(rule: Any) -> type[Lowering]:
    """The lowering of a rule whose node is a group of its own."""
    from weft.compile.lower.sorts import SortLoops, TopLoops

    if isinstance(rule, Rowwise):
        return {"sort": SortLoops, "top": TopLoops}[rule.routine]
    kinds = {Scatter: ScatterLoops, Running: RunningLoops, Fold: FoldLoops}
    return kinds[type(rule)]


def _states(starts: Any) -> list[Local]:
    """The scalars that a loop carries."""
    return [Local(f"state{k}", start.dtype) for k, start in enumerate(starts)]


def _all_set(states: list[Local], values: Any) -> list[Any]:
    """Statements that change all states at once."""
    if len(states) == 1:
        return [Set(states[0], *values)]
    new = [Local(f"{s.name}n", s.dtype) for s in states]
    pairs = [*zip(new, values, strict=True), *zip(states, new, strict=True)]
    return [Set(local, value) for local, value in pairs]


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
