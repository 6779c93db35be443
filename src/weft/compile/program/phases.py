"""Phases of a compilation, and the seconds that each takes.

    with recording() as record:       what is compiled inside is noted
        ...
    record.seconds                    {"capture": 0.2, "passes": 0.1, ...}

A phase inside another one is counted as its own alone. Nothing is noted, and next
to nothing spent, where nobody records.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Record:
    """Seconds by phase, and how many modules of machine code were made or found."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.made = 0  # by LLVM
        self.found = 0  # in the cache
        self.stack: list[list[float]] = []  # the phases that run: seconds inside them

    def add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    @property
    def cached(self) -> str:
        """Where the machine code came from."""
        if not self.made + self.found:
            return "no kernels"
        if not self.made:
            return "from the cache"
        return "compiled" if not self.found else "partly from the cache"


class _Local(threading.local):
    def __init__(self) -> None:
        self.records: list[Record] = []


_local = _Local()


@contextmanager
def recording() -> Iterator[Record]:
    """Note the phases of what is compiled inside, for those around it too.

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
    """Without garbage collection: of all that a compilation makes, little is garbage.

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
    """Note that machine code was made, or found in the cache."""
    for record in _local.records:
        record.made += made
        record.found += not made
