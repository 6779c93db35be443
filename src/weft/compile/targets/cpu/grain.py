"""The share of a loop that a thread takes at a time."""

from __future__ import annotations

from weft.compile.targets.cpu.cost_model import COST
from weft.runtime.cpu import pool


def grain_of(count: int, operations: int, worth: int) -> int:
    """The iterations, of ``count``, that a thread takes at a time.

    ``operations`` counts those of all iterations; ``worth`` of them are worth handing
    to another thread. A thread that is late delays the loop by one grain.
    """
    each = max(operations // max(count, 1), 1)
    return max(worth // each, count // (COST.loops.chunks * pool.get_num_threads()), 1)
