"""``weft.cuda``: what PyTorch's CPU build says about GPUs, namely that there is none.

Questions are answered (``is_available()`` is False, ``device_count()`` 0, memory in use
0) and seeds are taken; what needs a GPU raises ``weft.errors.AbsentDeviceError``.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from weft.core.absent import Absentee, AbsentEvent, AbsentStream, needing
from weft.core.device import absent
from weft.errors import AllocationError

OutOfMemoryError = AllocationError
CudaError = RuntimeError
AcceleratorError = RuntimeError
has_half = True
has_magma = False
default_generators: tuple[Any, ...] = ()

_cuda = Absentee("cuda")
is_available, device_count = _cuda.is_available, _cuda.device_count
is_initialized = _cuda.is_initialized
manual_seed, manual_seed_all = _cuda.manual_seed, _cuda.manual_seed_all
seed, seed_all = _cuda.seed, _cuda.seed_all
get_rng_state_all, set_rng_state_all = _cuda.get_rng_state_all, _cuda.set_rng_state_all
memory_allocated = max_memory_allocated = _cuda.memory_allocated
memory_reserved = max_memory_reserved = _cuda.memory_allocated
memory_cached = max_memory_cached = _cuda.memory_allocated
empty_cache = _cuda.empty_cache
device, device_of = _cuda.device, _cuda.device_of

_NEED_ONE = """
    synchronize current_device set_device init get_device_name get_device_properties
    get_device_capability get_rng_state set_rng_state initial_seed mem_get_info
    memory_summary memory_snapshot reset_peak_memory_stats reset_max_memory_allocated
    reset_max_memory_cached reset_accumulated_memory_stats
    set_per_process_memory_fraction get_per_process_memory_fraction ipc_collect
    current_stream default_stream can_device_access_peer current_blas_handle
    is_current_stream_capturing make_graphed_callables graph_pool_handle
    get_sync_debug_mode set_sync_debug_mode utilization temperature power_draw
    clock_rate device_memory_used memory_usage
"""
globals().update(needing("cuda", _NEED_ONE))


class Stream(AbsentStream):
    """A queue of work on a GPU; there is none to make it on."""

    kind = "cuda"


class ExternalStream(Stream):
    """A queue of work that another library made; there is none."""


class Event(AbsentEvent):
    """A mark in a GPU's queue of work; there is none to put it in."""

    kind = "cuda"


class CUDAGraph(AbsentEvent):
    """A recorded run on a GPU; compiled functions need none (``weft.compile``)."""

    kind = "cuda"


graph = CUDAGraph
StreamContext = _cuda.StreamContext
stream = StreamContext


def set_stream(stream: Any) -> None:
    """Take None alone, as there are no streams.

    >>> weft.cuda.set_stream(None)
    """
    if stream is not None:
        raise absent("cuda")


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """False: there is no GPU.

    >>> weft.cuda.is_bf16_supported()
    False
    """
    return False


def is_tf32_supported() -> bool:
    """False: there is no GPU.

    >>> weft.cuda.is_tf32_supported()
    False
    """
    return False


def get_arch_list() -> list[str]:
    """The GPU architectures that there is code for: none.

    >>> weft.cuda.get_arch_list()
    []
    """
    return []


def get_gencode_flags() -> str:
    """The compiler's options for them: none.

    >>> weft.cuda.get_gencode_flags()
    ''
    """
    return ""


def memory_stats(device: Any = None) -> OrderedDict[str, Any]:
    """An empty table, as PyTorch gives where CUDA was never started.

    >>> weft.cuda.memory_stats()
    OrderedDict()
    """
    return OrderedDict()


memory_stats_as_nested_dict = memory_stats


def list_gpu_processes(device: Any = None) -> str:
    """A text that says that no process uses a GPU.

    >>> weft.cuda.list_gpu_processes()
    'no GPU is available'
    """
    return "no GPU is available"


def __getattr__(name: str) -> Any:
    if name in ("amp", "nvtx"):
        import importlib

        return importlib.import_module(f"weft.cuda.{name}")
    raise AttributeError(f"module 'weft.cuda' has no attribute {name!r}")
