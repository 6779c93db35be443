"""``weft.accelerator``: the accelerator of this machine, which is none so far."""

from __future__ import annotations

from typing import Any

from weft.core.absent import needing

_NEED_ONE = """
    current_device_index current_device_idx set_device_index set_device_idx
    current_stream set_stream synchronize device_index empty_cache memory_allocated
    max_memory_allocated memory_reserved max_memory_reserved memory_stats
    get_memory_info get_device_capability reset_peak_memory_stats
    reset_accumulated_memory_stats
"""
globals().update(needing("accelerator", _NEED_ONE))


def is_available() -> bool:
    """Whether there is an accelerator.

    >>> weft.accelerator.is_available()
    False
    """
    return False


def device_count() -> int:
    """The number of accelerators.

    >>> weft.accelerator.device_count()
    0
    """
    return 0


def current_accelerator(check_available: bool = False) -> Any:
    """The accelerator, or None.

    >>> weft.accelerator.current_accelerator() is None
    True
    """
    return None
