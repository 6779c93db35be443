"""``weft.mps``: what PyTorch's CPU build says about Apple GPUs: there is none."""

from weft.core.absent import Absentee, AbsentEvent, needing

_own = Absentee("mps")
is_available, device_count = _own.is_available, _own.device_count
manual_seed = _own.manual_seed

_NEED_ONE = """
    seed synchronize empty_cache get_rng_state set_rng_state current_allocated_memory
    driver_allocated_memory recommended_max_memory set_per_process_memory_fraction
    compile_shader
"""
globals().update(needing("mps", _NEED_ONE))


class Event(AbsentEvent):
    """A mark in a GPU's queue of work; there is none to put it in."""

    kind = "mps"
