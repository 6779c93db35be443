"""Memory over time: what is live at each step of a program, and what makes the peak.

Kernels' values are in one arena, which is laid out before the first run. Results of
calls, and outputs, are allocated in each run and kept until its end.
"""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

from weft.compile.cost.work import size_of
from weft.compile.program.memory_layout import MemoryLayout
from weft.core.rows import Column, Rows, nbytes
from weft.graph.ir import Node, type_text


class Value(NamedTuple):
    """A value in memory, from one step to another, both included."""

    node: Node
    nbytes: int
    first: int
    last: int

    @property
    def line(self) -> str:
        """The source line's file and number, without its code."""
        return short_line(self.node)


class Memory:
    """The arena of a program for one set of sizes."""

    def __init__(self, layout: MemoryLayout) -> None:
        self.layout = layout.layout
        self.steps = len(layout.steps)
        last = self.steps - 1  # outputs are needed after it, too
        # Their ids are nodes, or steps that need memory while they run.
        buffers: Any = layout.layout.buffers
        waves = layout.order.waves  # steps of a wave run side by side
        first = {wave: at for at, wave in reversed(list(enumerate(waves)))}
        final = {wave: at for at, wave in enumerate(waves)}
        # A buffer that another one takes over ends when that begins.
        over = {b.shares: first[b.first] - 1 for b in buffers if b.shares is not None}
        ends = {b.id: over.get(b.id, final.get(b.last, last)) for b in buffers}
        self.values = [
            Value(getattr(b.id, "node", b.id), _aligned(b), first[b.first], ends[b.id])
            for b in buffers
            if b.nbytes
        ]
        apart = {*layout.offsets, *layout.joint, *layout.state.values()}
        begins: dict[Node, int] = {}  # several steps may make parts of one value
        for at, step in enumerate(layout.steps):
            for node in step.made:
                begins.setdefault(node, at)
        self.results = [  # of calls, and outputs
            Value(node, size_of(node, layout.sizes), at, last)
            for node, at in begins.items()
            if node not in apart
        ]

    @cached_property
    def live(self) -> list[int]:
        """Bytes of the arena that are needed, step by step."""
        return _over_time(self.values, self.steps)

    @cached_property
    def outside(self) -> list[int]:
        """Bytes that a run has allocated itself, step by step."""
        return _over_time(self.results, self.steps)

    @property
    def peak(self) -> int:
        """The most bytes of the arena that are needed in one step."""
        return max(self.live, default=0)

    @property
    def peak_step(self) -> int:
        return self.live.index(self.peak) if self.live else 0

    @property
    def total(self) -> int:
        """The bytes of all values, if no memory were reused."""
        return sum(value.nbytes for value in self.values)

    def at(self, step: int) -> Rows:
        """The values that are live in a step, largest first."""
        live = [v for v in self.values if v.first <= step <= v.last]
        return Rows(
            sorted(live, key=lambda v: -v.nbytes),
            Column("bytes", lambda v: nbytes(v.nbytes)),
            Column("value", lambda v: v.node.name, number=False),
            Column("type", lambda v: type_text(v.node.type), number=False),
            Column("steps", lambda v: f"{v.first}–{v.last}"),
            Column("module", lambda v: v.node.module, number=False),
            Column("line", lambda v: v.line, number=False),
        )

    @property
    def top(self) -> Rows:
        """The values that are live at the peak."""
        return self.at(self.peak_step)

    def __str__(self) -> str:
        head = (
            f"arena {nbytes(self.layout.nbytes)}, peak {nbytes(self.peak)} at step "
            f"{self.peak_step} of {self.steps}; {nbytes(self.total)} if no place were "
            f"used twice"
        )
        return f"{head}\n{self.top.table(12)}" if self.values else head

    __repr__ = __str__


def short_line(node: Node) -> str:
    """``file.py:12`` of the line that made a node."""
    if node.code is None:
        return ""
    path = node.line.partition(", in ")[0]
    return path.replace("\\", "/").rpartition("/")[2]


def _aligned(buffer: Any) -> int:
    return -(-buffer.nbytes // buffer.alignment) * buffer.alignment


def _over_time(values: list[Value], steps: int) -> list[int]:
    changes: list[Any] = [0] * (steps + 1)
    for value in values:
        changes[value.first] += value.nbytes
        changes[value.last + 1] -= value.nbytes
    return list(accumulate(changes))[:steps]
