"""The share of a loop that a thread takes at a time."""

from __future__ import annotations

from weft.runtime.cpu import pool

PIECES = 32  # of a long loop that a thread takes: memory is read fastest in order


def grain_of(count: int, operations: int, worth: int) -> int:
    """How many of ``count`` iterations a thread takes at a time.

    ``operations`` is what all of them do, ``worth`` what is worth handing to another
    thread. A thread that is late costs one piece of those it takes.
    """
    each = max(operations // max(count, 1), 1)
    return max(worth // each, count // (PIECES * pool.get_num_threads()), 1)
