"""The share of a loop that a thread takes at a time."""

from __future__ import annotations

from weft.compile.targets.cpu.cost_model import COST
from weft.runtime.cpu import pool


def grain_of(count: int, operations: int, worth: int) -> int:
    """How many of ``count`` iterations a thread takes at a time.

    ``operations`` is what all of them do, ``worth`` what is worth handing to another
    thread. A thread that is late costs one piece of those it takes.
    """
    each = max(operations // max(count, 1), 1)
    return max(worth // each, count // (COST.loops.chunks * pool.get_num_threads()), 1)
