"""The kernel of a group of nodes."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from weft.compile.fusion.elements import lowering_of
from weft.compile.fusion.groups import Group
from weft.compile.loop.ir import For, Kernel, Store
from weft.compile.lower.base import Lowering
from weft.compile.lower.contiguous_runs import in_runs
from weft.compile.lower.rows import RowLoops
from weft.compile.targets import Target, current
from weft.compile.tuning.choices import Loops
from weft.graph.ir import Node


def lower(
    group: Group,
    name: str,
    windows: Mapping[Node, Any] | None = None,
    cuts: Loops | None = None,
    target: Target | None = None,
) -> tuple[Kernel, list[Node]]:
    """The kernel of a group, and the node that each of its buffers belongs to.

    Of values that have a window (``deduplicate``) it reads that alone. ``cuts``
    are the numbers of its schedule, which is the target's.
    """
    lowering = _kind(group)(group, name, windows, cuts, target or current())
    return in_runs(lowering.loops()), lowering.owners


def _kind(group: Group) -> type[Lowering]:
    if group.alone:
        from weft.compile.lower.scans import serial_loops

        return serial_loops(lowering_of(group.nodes[0]))
    rows = group.reduced is not None or group.columns
    return RowLoops if rows else FlatLoops


class FlatLoops(Lowering):
    """A group without reductions: one store for each index of the shape."""

    def loops(self) -> Kernel:
        group = self.group
        memo: dict[Any, Any] = {}
        body: list[Any] = [
            Store(self.buffer(n), group.home[n], self.value(n, 0, memo))
            for n in group.nodes
            if n in self.stored
        ]
        body = self.with_lets(body)
        sizes = self._sizes(group.shape)
        for d in reversed(range(len(sizes))):
            body = [For(f"i{d}", sizes[d], body)]
        schedule = functools.partial(self.target.flat_schedule, loops=self.cuts)
        return self._made((), body, schedule)
