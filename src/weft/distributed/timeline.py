"""``Timeline``: when each process computes, waits for others, and sends meanwhile.

    rank 0   compute ████████ all_reduce ██ compute █████     a Chrome trace with a row
    rank 1   compute █████ all_reduce █████ compute █████     of a kind for each rank

What is neither communication nor outside of steps is computing. Communication that a
thread of its own does is ``behind``: the program goes on meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from weft.core.rows import Column, Rows, nbytes, percent, seconds
from weft.distributed import groups
from weft.distributed.collectives import barrier
from weft.distributed.objects import all_gather_object
from weft.errors import ArgumentError
from weft.profiler import profile, trace_row, write_trace

KINDS = ("step", "compute", "communication", "behind", "operators")


class Span(NamedTuple):
    """Something that was going on: its kind, name, begin and end in seconds, bytes."""

    kind: str
    name: str
    begin: float
    end: float
    size: int = 0


class Process(NamedTuple):
    """One rank's steps: their number, and the means of what they consist of."""

    rank: int
    steps: int
    step: float
    compute: float
    waits: float
    behind: float
    sent: float


class Timeline:
    """Records a block of a program on every process; all call its methods alike.

    >>> dist = weft.distributed
    >>> dist.init_process_group(rank=0, world_size=1)
    >>> with dist.Timeline() as timeline:
    ...     for _ in range(3):
    ...         with timeline.step():
    ...             _ = weft.ones(100) + 1
    >>> timeline.processes[0].steps, timeline.slowest
    (3, 0)
    >>> dist.destroy_process_group()
    """

    def __init__(self, *, operators: bool = False) -> None:
        self.spans: list[Span] = []
        self.operators = profile() if operators else None
        self._every: list[list[Span]] | None = None
        self._sent: list[int] = []

    def __enter__(self) -> Timeline:
        self.world = groups.world()
        if self.world.timeline is not None:
            raise ArgumentError(
                "Timeline: expected one at a time, and another is recording"
            )
        barrier()
        self.zero = time.perf_counter()  # the same moment on all processes
        self._thread = threading.get_ident()
        self.world.timeline = self
        if self.operators is not None:
            self.operators.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.world.timeline = None
        if self.operators is not None:
            self.operators.stop()
            self.spans += [
                Span("operators", e.name, e.start / 1e6 - self.zero,
                     e.end / 1e6 - self.zero, e.nbytes)
                for e in self.operators.found
            ]  # fmt: skip

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """A step of training, in a block."""
        begin, sent = self._now(), self.world.links.sent
        known = len(self.spans)
        yield
        end = self._now()
        self._sent.append(self.world.links.sent - sent)
        waits = [s for s in self.spans[known:] if s.kind == "communication"]
        at = begin
        for one in (*waits, Span("", "", end, end)):
            if one.begin > at:
                self.spans.append(Span("compute", "compute", at, one.begin))
            at = max(at, one.end)
        self.spans.append(Span("step", f"step {len(self._sent)}", begin, end))

    def _now(self) -> float:
        return time.perf_counter() - self.zero

    @contextlib.contextmanager
    def communication(self, name: str, size: int) -> Iterator[None]:
        """A call that sends and receives, in a block."""
        begin = self._now()
        try:
            yield
        finally:
            mine = threading.get_ident() == self._thread
            kind = "communication" if mine else "behind"
            self.spans.append(Span(kind, name, begin, self._now(), size))

    # -- what all processes did

    def gathered(self) -> list[list[Span]]:
        """The spans of every rank; the first time, all processes call this."""
        if self._every is None:
            found: list[Any] = [None] * self.world.links.size
            all_gather_object(found, [list(one) for one in self.spans])
            self._every = [[Span(*one) for one in some] for some in found]
            sent: list[Any] = [None] * self.world.links.size
            all_gather_object(sent, self._sent)
            self._all_sent = sent
        return self._every

    @property
    def processes(self) -> Rows:
        """Every rank's mean step; prints as a table. All processes call this."""
        return Rows(
            [self._process(k, some) for k, some in enumerate(self.gathered())],
            Column("rank", lambda p: str(p.rank)),
            Column("steps", lambda p: str(p.steps)),
            Column("a step", lambda p: seconds(p.step)),
            Column("computes", lambda p: percent(p.compute / p.step)),
            Column("waits", lambda p: percent(p.waits / p.step)),
            Column("sends behind", lambda p: percent(p.behind / p.step)),
            Column("sent", lambda p: nbytes(p.sent)),
        )

    def _process(self, rank: int, spans: list[Span]) -> Process:
        steps = [one for one in spans if one.kind == "step"]
        if not steps:
            raise ArgumentError(
                f"Timeline: rank {rank} has no steps; put each into a block of step()"
            )
        inside = [
            one for one in spans
            if any(s.begin <= one.begin and one.end <= s.end for s in steps)
        ]  # fmt: skip
        times = {
            kind: sum(s.end - s.begin for s in inside if s.kind == kind) / len(steps)
            for kind in KINDS
        }
        return Process(
            rank, len(steps), times["step"], times["compute"], times["communication"],
            times["behind"], statistics.mean(self._all_sent[rank]),
        )  # fmt: skip

    @property
    def slowest(self) -> int:
        """The rank that computes longest in a step, on which the others wait."""
        return int(max(self.processes, key=lambda p: p.compute).rank)

    def __str__(self) -> str:
        rows, slowest = self.processes, self.slowest
        middle = statistics.median(p.compute for p in rows)
        times = rows[slowest].compute / middle if middle else 1.0
        return (
            f"{rows}\nthe slowest is rank {slowest}: it computes "
            f"{seconds(rows[slowest].compute)} in a step, {times:.2f} times the median"
        )

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write all ranks as one file, for chrome://tracing and Perfetto; rank 0 does.

        All processes call this.
        """
        every = self.gathered()
        if self.world.links.rank:
            return
        rows = [
            trace_row(
                s.name, s.begin * 1e6, s.end * 1e6, rank, KINDS.index(s.kind), s.kind,
                {"bytes": s.size},
            )
            for rank, some in enumerate(every)
            for s in some
        ]  # fmt: skip
        for rank in range(len(every)):
            rows.append({"ph": "M", "pid": rank, "name": "process_name",
                         "args": {"name": f"rank {rank}"}})  # fmt: skip
            for tid, kind in enumerate(KINDS):
                rows.append({"ph": "M", "pid": rank, "tid": tid, "name": "thread_name",
                             "args": {"name": kind}})  # fmt: skip
        write_trace(path, rows)
