"""The kernels of epilogues: for some rows, and some columns of them."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

from weft.compile.fusion.epilogue import row_axes
from weft.compile.fusion.groups import Group
from weft.compile.loop.ir import For, Kernel, Store
from weft.compile.loop.rewrite import replaced
from weft.compile.loop.schedule import fuse
from weft.compile.lower.base import Lowering
from weft.compile.lower.deduplicate import KernelTable, Windows
from weft.compile.program.steps import KernelLaunch, LibraryCall
from weft.core.size import smaller
from weft.graph.ir import GraphError, Node

FIRST, WIDTH = "first", "width"  # of the columns that a call is for


@dataclass(frozen=True, eq=False)
class Epilogue(KernelLaunch):
    """The launch of a kernel as the epilogue of a library call."""

    each: Any  # iterations of a row

    @property
    def whole(self) -> bool:
        """Whether it runs on whole rows."""
        return FIRST not in dict(self.kernel.given)

    @property
    def fits(self) -> bool:
        """Whether the kernel's iterations are the result's rows, in order."""
        names = [name for name, _ in self.kernel.parallel]
        rows = names == [f"i{d}" for d in self.group.kept]
        return not self.checks and (rows or self.group.reduced is None)


def lower_epilogue(
    group: Group, node: Node, kind: type[LibraryCall], table: KernelTable
) -> Epilogue:
    """The epilogue that a group is of a node's library call."""
    lead = row_axes(group, node, kind)
    assert lead is not None
    if group.reduced is None:
        strips = functools.partial(_in_strips, lead)
        return Epilogue(*table.lowered(group, strips, kind=lead), group, 1)
    inner = [d for d in group.kept if d >= lead]
    each = math.prod(group.shape[d] for d in inner)
    return Epilogue(*table.lowered(group), group, each)


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

    Axes that are not contiguous together in every buffer stay loops.
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
