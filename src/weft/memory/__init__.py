"""Memory use: live tensors by purpose, peaks, limits and timelines.

weft.memory.live()                  bytes by kind, now
with weft.memory.record() as r:     every array that is made: r.peak, r.top
weft.memory.pool_bytes()            memory that arrays use, and that waits for others
weft.memory.release()               give back what waits
weft.set_memory_limit("8GB")        refuse more, and say who has it
"""

from __future__ import annotations

import gc
from typing import Any

from weft.core.rows import Rows
from weft.memory.ledger import ledger as _ledger
from weft.memory.recording import Recording
from weft.memory.scan import Held, Scan, Usage
from weft.memory.sizes import parse_bytes
from weft.runtime.cpu.buffers import pool_bytes, release

__all__ = [
    "Held", "Recording", "Usage", "get_memory_limit", "live", "parse_bytes", "peak",
    "pool_bytes", "record", "release", "reset_peak", "set_memory_limit", "snapshot",
]  # fmt: skip


def live() -> Usage:
    """The bytes of all live tensors of this process, by purpose.

    >>> before = weft.memory.live().total
    >>> x = weft.zeros(1000)
    >>> weft.memory.live().total - before
    4000
    """
    usage = Scan().usage()
    _ledger.peak = max(_ledger.peak, usage.total)
    return usage


def snapshot() -> Rows:
    """The live tensors' memory, largest first; prints as a table.

    Inside of ``record()``, and while there is a limit, each has the module and the
    line that made it. Otherwise parameters have their paths, and activations the line
    of their operator and the parameter that comes before it.

    >>> x = weft.nn.Linear(100, 100)
    >>> weft.memory.snapshot()[0].nbytes >= 40000
    True
    """
    return Scan().held()


def peak() -> int:
    """The most bytes that were live at once, as far as they were counted.

    Every array is counted inside of ``record()`` and while there is a limit; else only
    what ``live()`` finds when it is called.

    >>> weft.memory.reset_peak()
    >>> before = weft.memory.peak()
    >>> with weft.memory.record():
    ...     _ = weft.zeros(1000) + 1
    >>> weft.memory.peak() - before >= 8000
    True
    """
    return _ledger.peak


def reset_peak() -> None:
    """Set the peak to the bytes that are live now, without uncollected garbage.

    >>> weft.memory.reset_peak()
    >>> weft.memory.peak() >= weft.memory.live().parameters
    True
    """
    gc.collect()
    _ledger.peak = Scan().usage().total


def record() -> Recording:
    """Count every array that is made in a block, with the line that made it.

    The result has the ``peak``, what was live then (``top``), a timeline (``bytes``),
    and prints as text; ``to_html`` gives a page. Operators are slower meanwhile.

    >>> with weft.memory.record() as memory:
    ...     x = weft.zeros(1000).exp()
    >>> memory.peak - memory.start
    8000
    """
    return Recording()


def set_memory_limit(limit: Any) -> int | None:
    """Refuse operators whose results would bring live tensors above a limit.

    ``limit`` is a number of bytes, a text such as "8GB", or None for no limit.
    Returns the limit before. The error says who has the memory and what would help;
    what an operator needs beside its results is not counted.

    >>> weft.set_memory_limit("1GB")
    >>> weft.zeros(10**9)
    Traceback (most recent call last):
    weft.errors.AllocationError: full: 4.00 GB (4,000,000,000 bytes) more would ...
    >>> weft.set_memory_limit(None)
    1000000000
    """
    before = _ledger.limit
    _ledger.limit = None if limit is None else parse_bytes(limit, "set_memory_limit")
    _ledger.settle()
    if _ledger.limit is not None:
        _ledger.survey()
    return before


def get_memory_limit() -> int | None:
    """The limit that ``set_memory_limit`` has set.

    >>> weft.memory.get_memory_limit() is None
    True
    """
    return _ledger.limit
