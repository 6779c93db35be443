"""Phases of a compilation, and the seconds that each takes.

    with recording() as record:
        ...                           compilations here are recorded
    record.seconds                    {"capture": 0.2, "passes": 0.1, ...}

The time of a phase inside another one counts for the inner one alone. Where nobody
records, phases cost next to nothing.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class Record:
    """Seconds by phase, and how many modules were compiled or found in the cache."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.made = 0  # by LLVM
        self.found = 0  # in the cache
        self.stack: list[list[float]] = []  # of open phases: seconds of inner ones

    def add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    @property
    def cached(self) -> str:
        """The source of the machine code."""
        if not self.made + self.found:
            return "no kernels"
        if not self.made:
            return "from the cache"
        return "compiled" if not self.found else "partly from the cache"


class Compilation(NamedTuple):
    """A compilation: why it was needed, and what it took."""

    why: str
    seconds: float
    nodes: int
    kernels: int
    when: float  # in seconds, as ``time.time``
    phases: dict[str, float]  # seconds by phase
    cached: str  # where the machine code came from
    tuned: Any = None  # the result of tuning: a ``tuning.search.Tuned``

    def __str__(self) -> str:
        tuned = f"; tuned: {self.tuned}" if self.tuned is not None else ""
        return (
            f"{self.why}: {self.nodes} nodes, {self.kernels} kernels, "
            f"{self.seconds * 1e3:.0f} ms{tuned}"
        )


class _Local(threading.local):
    def __init__(self) -> None:
        self.records: list[Record] = []


_local = _Local()


@contextmanager
def recording() -> Iterator[Record]:
    """Record the phases of compilations in this block; records around it get them too.

    >>> from weft.compile.program.phases import phase, recording
    >>> with recording() as record:
    ...     with phase("passes"):
    ...         pass
    >>> list(record.seconds)
    ['passes']
    """
    record = Record()
    _local.records.append(record)
    try:
        yield record
    finally:
        _local.records.remove(record)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """A phase of the compilations that are being recorded; also a decorator."""
    records = list(_local.records)
    start = time.perf_counter()
    for record in records:
        record.stack.append([])
    try:
        yield
    finally:
        took = time.perf_counter() - start
        for record in records:
            record.add(name, took - sum(record.stack.pop()))
            if record.stack:
                record.stack[-1].append(took)


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause garbage collection, because little that a compilation makes is garbage.

    >>> import gc
    >>> from weft.compile.program.phases import uncollected
    >>> with uncollected():
    ...     gc.isenabled()
    False
    """
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def count_module(*, made: bool) -> None:
    """Record that a module was compiled, or found in the cache."""
    for record in _local.records:
        record.made += made
        record.found += not made
