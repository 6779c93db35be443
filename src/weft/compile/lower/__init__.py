"""From a group of nodes to the loops of one kernel.

    flat      nothing is reduced
    rows      reductions, and what is computed from them
    base      the values of both; scatters, scans and sorting (``serial``,
              ``ordering``) use it too
    choose    the schedule: which form the plain loops get
    runs      what lies together in memory, in loops of its own

The plain loops are those of the group's shape; a short schedule
(``compile.loop.schedule``) says what becomes of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.compile.fusion.groups import Group
from weft.compile.loop.ir import Kernel
from weft.compile.loop.rewrite import replaced
from weft.compile.lower.base import Lowering
from weft.compile.lower.contiguous_runs import in_runs
from weft.compile.lower.elements import lowering_of
from weft.compile.lower.flat import FlatLoops
from weft.compile.lower.rows import RowLoops
from weft.compile.lower.values import as_dtype
from weft.compile.targets.cpu.schedules import BLOCK
from weft.compile.tuning.choices import Loops
from weft.graph.ir import Node

__all__ = ["BLOCK", "Lowering", "as_dtype", "lower", "replaced"]


def lower(
    group: Group,
    name: str,
    windows: Mapping[Node, Any] | None = None,
    cuts: Loops | None = None,
) -> tuple[Kernel, list[Node]]:
    """The kernel of a group, and the node that each of its buffers belongs to.

    Of values that have a window (``compile.alike``) it sees that part alone. ``cuts``
    are the numbers of its schedule.
    """
    lowering = _kind(group)(group, name, windows, cuts)
    return in_runs(lowering.loops()), lowering.owners


def _kind(group: Group) -> type[Lowering]:
    if group.alone:
        from weft.compile.lower.scans import serial_loops

        return serial_loops(lowering_of(group.nodes[0]))
    rows = group.reduced is not None or group.columns
    return RowLoops if rows else FlatLoops
