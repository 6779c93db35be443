"""``weft.xpu``: what PyTorch's CPU build says about XPU devices: there is none."""

from __future__ import annotations

from typing import Any

from weft.core.absent import Absentee, AbsentEvent, AbsentStream, needing

_own = Absentee("xpu")
is_available, device_count = _own.is_available, _own.device_count
is_initialized = _own.is_initialized
manual_seed, manual_seed_all = _own.manual_seed, _own.manual_seed_all
seed, seed_all = _own.seed, _own.seed_all
get_rng_state_all, set_rng_state_all = _own.get_rng_state_all, _own.set_rng_state_all
device, device_of, StreamContext = _own.device, _own.device_of, _own.StreamContext
stream = StreamContext
memory_allocated = max_memory_allocated = _own.memory_allocated
memory_reserved = max_memory_reserved = _own.memory_allocated
empty_cache = _own.empty_cache

_NEED_ONE = """
    synchronize current_device set_device init get_device_name get_device_properties
    get_device_capability get_rng_state set_rng_state initial_seed mem_get_info
    reset_peak_memory_stats current_stream default_stream set_stream
"""
globals().update(needing("xpu", _NEED_ONE))


class Stream(AbsentStream):
    """A queue of work on a device; there is none to make it on."""

    kind = "xpu"


class Event(AbsentEvent):
    """A mark in a queue of work; there is none to put it in."""

    kind = "xpu"


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """False: there is no such device.

    >>> weft.xpu.is_bf16_supported()
    False
    """
    return False


def memory_stats(device: Any = None) -> dict[str, Any]:
    """An empty table: no memory is in use.

    >>> weft.xpu.memory_stats()
    {}
    """
    return {}
