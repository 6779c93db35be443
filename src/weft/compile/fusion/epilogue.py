"""Kernels that follow routines: run on each part of a result while it is in a cache.

    h = x @ w                 the product writes some rows and columns of h,
    y = gelu(h + b)           and at once the kernel replaces them by those of y

A group follows the routine that it reads, if each of its rows needs only that row of
the result, and all else that it reads is there before. Without reductions it runs on
any columns; with them, on whole rows. Routines say what their rows are: those of a
convolution are the channels of each image, its columns pixels.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, NamedTuple

from weft.compile.fusion.groups import Call, Fusion, Group, Operand, indices_of
from weft.compile.loop.depend import flat_position
from weft.compile.loop.ir import For, Kernel, Store
from weft.compile.loop.rewrite import replaced
from weft.compile.loop.schedule import fuse
from weft.compile.lower.base import Lowering
from weft.compile.lower.deduplicate import Alike, Windows
from weft.compile.program.steps import Use
from weft.compile.targets.cpu.library import routine_of
from weft.core.lowering import Reduction
from weft.core.size import Size, same, smaller
from weft.graph.ir import GraphError, Node

SMALL = 1 << 14  # elements of a group that may be computed before its turn
FIRST, WIDTH = "first", "width"  # of the columns that a call is for


class Following(NamedTuple):
    """A group that follows a routine, and small ones that must come before both."""

    group: Group
    before: list[Group]


def followers(fusion: Fusion) -> dict[Call, Following]:
    """The group that follows each routine, if one does."""
    found: dict[Call, Following] = {}
    for group in fusion.units:
        if not isinstance(group, Group) or group.alone:
            continue
        calls = [u for u in _made_by(fusion, group) if isinstance(u, Call)]
        last = max(calls, key=lambda u: u.order, default=None)
        if last is None or last in found or not follows(group, last):
            continue
        before = _before(fusion, group, last)
        if before is not None:
            found[last] = Following(group, before)
    return found


def _made_by(fusion: Fusion, group: Group) -> list[Any]:
    """The units that make what a group reads."""
    return [fusion.unit[b] for b in group.reads() if b in fusion.unit]


def _before(fusion: Fusion, group: Group, call: Call) -> list[Group] | None:
    """Groups to run before a call, so that another can follow it; None if it cannot.

    Such are an optimizer's numbers, which all its updates read, and what a batch norm
    computes for each channel.
    """
    found: list[Group] = []
    for unit in _made_by(fusion, group):
        if unit.order <= call.order or unit in found:
            continue
        if not isinstance(unit, Group) or not _small(unit):
            return None
        more = _before(fusion, unit, call)
        if more is None or any(u is call for u in _made_by(fusion, unit)):
            return None
        found += [one for one in (*more, unit) if one not in found]
    return found


def _small(group: Group) -> bool:
    known = not any(isinstance(n, Size) for n in group.shape)
    return known and math.prod(group.shape) <= SMALL and not group.alone


def follows(group: Group, unit: Call) -> bool:
    """Whether a group's rows need only the same rows of a routine's result."""
    node = unit.node
    if group.length or _lead(group, node) is None:
        return False
    return all(
        _reads_here(group, one, operand, place)
        for one in group.nodes
        for operand, place in zip(
            group.operands[one], indices_of(one, group.home[one]), strict=True
        )
        if isinstance(operand, Operand) and operand.base is node
    )


def _reads_here(group: Group, node: Node, operand: Operand, place: Any) -> bool:
    if place is None or (node in group.rows and node not in _reductions(group)):
        return False
    index = operand.index(group.vars if node in group.rows else place)
    here = flat_position(group.vars, group.shape)
    return same(flat_position(index, operand.base.shape), here)


def _reductions(group: Group) -> set[Node]:
    return {n for n in group.rows if isinstance(n.op.lower, Reduction)}


def _lead(group: Group, node: Node) -> int | None:
    """How many of a group's axes number the result's rows; None if none do."""
    routine = routine_of(node)
    axes = None if routine is None else routine.row_axes(node)
    if axes is None:
        return None
    rows, columns = math.prod(node.shape[:axes]), math.prod(node.shape[axes:])
    for lead in range(len(group.shape) - 1, -1, -1):
        if same(math.prod(group.shape[lead:]), columns):
            fits = same(math.prod(group.shape[:lead]), rows)
            inside = all(d >= lead for d in group.reduced or ())
            return lead if fits and inside else None
    return None


class Follower(Use):
    """The use of a kernel that follows a routine."""

    def __init__(self, group: Group, node: Node, alike: Alike) -> None:
        lead = _lead(group, node)
        assert lead is not None
        if group.reduced is None:
            strips = functools.partial(_in_strips, lead)
            super().__init__(alike.lowered(group, strips, kind=lead), group)
            inner: list[int] = []
        else:
            super().__init__(alike.lowered(group), group)
            inner = [d for d in group.kept if d >= lead]
        self.whole = FIRST not in dict(self.kernel.given)
        self.each = math.prod(group.shape[d] for d in inner)  # iterations of a row

    @property
    def fits(self) -> bool:
        """Whether the kernel's iterations are the result's rows, in order."""
        names = [name for name, _ in self.kernel.parallel]
        rows = names == [f"i{d}" for d in self.group.kept]
        return not self.checks and (rows or self.group.reduced is None)


def _in_strips(lead: int, group: Group, windows: Windows) -> tuple[Kernel, list[Node]]:
    lowering = StripLoops(group, "kernel", windows)
    lowering.lead = lead
    return lowering.loops(), lowering.owners


class StripLoops(Lowering):
    """A group without reductions: parallel over rows, some columns of each."""

    lead = 0  # axes that are rows

    def loops(self) -> Kernel:
        group = self.group
        memo: dict[Any, Any] = {}
        body: list[Any] = [
            Store(self.buffer(n), group.home[n], self.value(n, 0, memo))
            for n in group.nodes
            if n in self.stored
        ]
        body = self.with_lets(body)
        pairs = [(f"i{d}", n) for d, n in enumerate(self._sizes(group.shape))]
        for var, extent in reversed(pairs[self.lead :]):
            body = [For(var, extent, body)]
        names = [var for var, _ in pairs[self.lead :]]
        schedule = functools.partial(_by_columns, names)
        return self._made(tuple(pairs[: self.lead]), body, schedule)


def _by_columns(names: list[str], kernel: Kernel) -> Kernel:
    """Loops over a row's axes as one over columns, of which each call gives a range.

    Where the axes do not lie one behind the other everywhere, they stay loops.
    """
    try:
        for outer, inner in reversed(list(itertools.pairwise(names))):
            kernel = fuse(kernel, outer, inner, name=outer)
    except GraphError:
        return kernel
    (loop,), scope = kernel.body, kernel.scope
    scope.bounds[FIRST] = loop.extent
    first, width, place = (scope.symbol(name) for name in (FIRST, WIDTH, "j"))
    memo: dict[int, Any] = {}
    moved = [replaced(s, loop.var, first + place, memo) for s in loop.body]
    some = For("j", smaller(loop.extent - first, width), moved)
    return kernel._replace(body=[some], given=((FIRST, 0), (WIDTH, loop.extent)))
