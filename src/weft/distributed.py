"""``weft.distributed``: Weft runs in one process, and says so."""

from __future__ import annotations


def is_available() -> bool:
    """Whether processes can train together: not yet.

    >>> weft.distributed.is_available()
    False
    """
    return False


def is_initialized() -> bool:
    """Whether there is a process group.

    >>> weft.distributed.is_initialized()
    False
    """
    return False


def is_torchelastic_launched() -> bool:
    """Whether a launcher of several processes started this one.

    >>> weft.distributed.is_torchelastic_launched()
    False
    """
    return False
