"""``weft.cuda``: NVIDIA GPUs, under PyTorch's names.

Questions are answered wherever Weft runs (without a GPU, ``is_available()`` is False,
``device_count()`` is 0 and no memory is in use); work that needs a GPU raises
``weft.errors.AbsentDeviceError``. Nothing is loaded and no memory is taken before a GPU
is asked for something.

All work on a GPU is in one queue, in the order of the program, so streams are names of
that queue and never need to wait for one another.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

from weft.core.absent import Absentee, AbsentEvent, needing
from weft.core.device import Device, absent, cpu, find_device
from weft.errors import AllocationError
from weft.runtime.cuda.driver import Mark, availability

OutOfMemoryError = AllocationError
CudaError = RuntimeError
AcceleratorError = RuntimeError
has_half = True
has_magma = False
default_generators: tuple[Any, ...] = ()

_cuda = Absentee("cuda")
seed, seed_all = _cuda.seed, _cuda.seed_all
get_rng_state_all, set_rng_state_all = _cuda.get_rng_state_all, _cuda.set_rng_state_all

_NEED_ONE = """
    init get_rng_state set_rng_state initial_seed memory_snapshot
    current_blas_handle is_current_stream_capturing make_graphed_callables
    graph_pool_handle get_sync_debug_mode set_sync_debug_mode utilization temperature
    power_draw clock_rate
"""
globals().update(needing("cuda", _NEED_ONE))
_current = [0]  # the number of the GPU that ``"cuda"`` means


def is_available() -> bool:
    """Whether there is a GPU, a driver for it and the package ``cuda-bindings``.

    >>> weft.cuda.is_available() == (weft.cuda.device_count() > 0)
    True
    """
    return availability().gpus > 0


def device_count() -> int:
    """The number of GPUs.

    >>> weft.cuda.device_count() >= 0
    True
    """
    return availability().gpus


def is_initialized() -> bool:
    """Whether a GPU has been used.

    >>> weft.cuda.is_initialized()
    False
    """
    from weft.core.device import devices

    return any(device.type == "cuda" for device in devices())


def _gpu(device: Any = None) -> Any:
    """A GPU as a device, by what users call it."""
    if isinstance(device, Device) and device is not cpu:
        index = device.index
    elif isinstance(device, str):
        index = find_device(device).index
    else:
        index = device
    found = find_device("cuda", _current[0] if index is None else int(index))
    if not hasattr(found, "pool"):
        raise absent("cuda" if index is None else found.name)
    return found


def _pool(device: Any) -> Any:
    """The memory of a GPU that was used; None otherwise."""
    return _gpu(device).pool if is_initialized() else None


def manual_seed(seed: int) -> None:
    """Take a seed: GPUs draw from the generator that ``weft.manual_seed`` seeds.

    >>> weft.cuda.manual_seed(0)
    """
    int(seed)


manual_seed_all = manual_seed


def current_device() -> int:
    """The number of the GPU that ``"cuda"`` means."""
    return _gpu().index


def set_device(device: Any) -> None:
    """Let ``"cuda"`` mean another GPU.

    >>> weft.cuda.set_device(-1)
    """
    if isinstance(device, int) and device < 0:
        return
    _current[0] = _gpu(device).index


def synchronize(device: Any = None) -> None:
    """Wait until a GPU has done all its work; raise the error of work that failed."""
    _gpu(device).pool.runtime.wait()


def get_device_name(device: Any = None) -> str:
    """The product's name of a GPU."""
    return _gpu(device).pool.runtime.title


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability of a GPU, such as (9, 0)."""
    return _gpu(device).pool.runtime.capability


class DeviceProperties(NamedTuple):
    """Facts about a GPU."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int = 32


def get_device_properties(device: Any = None) -> DeviceProperties:
    """Facts about a GPU."""
    runtime = _gpu(device).pool.runtime
    many = runtime.attribute("MULTIPROCESSOR_COUNT")
    total = runtime.memory_info()[1]
    major, minor = runtime.capability
    return DeviceProperties(runtime.title, major, minor, total, many)


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether one GPU may read another's memory; copies go by way of the host."""
    return _gpu(device) is _gpu(peer_device)


# -- memory


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes of a GPU."""
    return _gpu(device).pool.runtime.memory_info()


def memory_allocated(device: Any = None) -> int:
    """The bytes that tensors hold on a GPU.

    >>> weft.cuda.memory_allocated() >= 0
    True
    """
    pool = _pool(device)
    return pool.allocated if pool else 0


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that tensors held at once.

    >>> weft.cuda.max_memory_allocated() >= 0
    True
    """
    pool = _pool(device)
    return pool.peak_allocated if pool else 0


def memory_reserved(device: Any = None) -> int:
    """The bytes that Weft has taken of a GPU, in use or kept for later.

    >>> weft.cuda.memory_reserved() >= 0
    True
    """
    pool = _pool(device)
    return pool.reserved if pool else 0


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that Weft had taken at once.

    >>> weft.cuda.max_memory_reserved() >= 0
    True
    """
    pool = _pool(device)
    return pool.peak_reserved if pool else 0


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved
memory_usage = device_memory_used = memory_allocated


def reset_peak_memory_stats(device: Any = None) -> None:
    """Count the most bytes in use from now on."""
    pool = _gpu(device).pool
    pool.peak_allocated, pool.peak_reserved = pool.allocated, pool.reserved


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats
reset_accumulated_memory_stats = reset_peak_memory_stats


def empty_cache() -> None:
    """Give memory that no tensor uses back to all GPUs.

    >>> weft.cuda.empty_cache()
    """
    from weft.core.device import devices

    for device in devices():
        if device.type == "cuda":
            device.pool.release()  # type: ignore[attr-defined]


def ipc_collect() -> None:
    """Give back memory that other processes have used: the same as ``empty_cache``."""
    _gpu(None)  # an error without a GPU, as in PyTorch
    empty_cache()


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Take no more than a share of a GPU's memory."""
    pool = _gpu(device).pool
    pool.limit = int(fraction * pool.runtime.memory_info()[1])


def get_per_process_memory_fraction(device: Any = None) -> float:
    """The share of a GPU's memory that may be taken."""
    pool = _gpu(device).pool
    return 1.0 if pool.limit is None else pool.limit / pool.runtime.memory_info()[1]


def memory_stats(device: Any = None) -> OrderedDict[str, Any]:
    """The bytes in use and taken, now and at most; empty where no GPU was used.

    >>> weft.cuda.memory_stats()
    OrderedDict()
    """
    pool = _pool(device)
    if pool is None:
        return OrderedDict()
    return OrderedDict(
        {
            "allocated_bytes.all.current": pool.allocated,
            "allocated_bytes.all.peak": pool.peak_allocated,
            "reserved_bytes.all.current": pool.reserved,
            "reserved_bytes.all.peak": pool.peak_reserved,
        }
    )


memory_stats_as_nested_dict = memory_stats


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The bytes in use and taken, as lines of text."""
    _gpu(device)
    return "\n".join(f"{k}: {v:,}" for k, v in memory_stats(device).items())


# -- the queue


class Stream:
    """A name of a GPU's queue of work; a GPU has one."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.device = _gpu(device)
        self.priority = priority

    @property
    def cuda_stream(self) -> int:
        """The driver's handle, for other libraries."""
        return int(self.device.pool.runtime.stream)

    def synchronize(self) -> None:
        """Wait until all work is done."""
        self.device.pool.runtime.wait()

    def query(self) -> bool:
        """Whether all work is done; waits for it."""
        self.synchronize()
        return True

    def wait_stream(self, stream: Any) -> None:
        """Do nothing: there is one queue, in order."""

    def wait_event(self, event: Any) -> None:
        """Do nothing: there is one queue, in order."""

    def record_event(self, event: Any = None) -> Event:
        """Put an event into the queue."""
        event = event or Event()
        event.record(self)
        return event

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.device is self.device

    def __hash__(self) -> int:
        return hash(self.device)


ExternalStream = Stream


def current_stream(device: Any = None) -> Stream:
    """The queue of a GPU."""
    return Stream(device)


default_stream = current_stream


class StreamContext:
    """A block whose work is in one stream: that of the GPU."""

    def __init__(self, stream: Any) -> None:
        if stream is not None and not isinstance(stream, Stream):
            raise absent("cuda")

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


stream = StreamContext


def set_stream(stream: Any) -> None:
    """Choose a stream: there is one for each GPU.

    >>> weft.cuda.set_stream(None)
    """
    StreamContext(stream)


class Event:
    """A mark in a GPU's queue, which knows when it was passed."""

    def __init__(self, enable_timing: bool = False, **_: Any) -> None:
        self.mark = Mark(_gpu().pool.runtime)

    def record(self, stream: Any = None) -> None:
        """Put the mark at the end of the queue."""
        self.mark.record()

    def synchronize(self) -> None:
        """Wait until the mark was passed."""
        self.mark.wait()

    def query(self) -> bool:
        """Whether the mark was passed."""
        return self.mark.passed()

    def wait(self, stream: Any = None) -> None:
        """Do nothing: there is one queue, in order."""

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this mark to another."""
        return self.mark.until(end_event.mark)


class CUDAGraph(AbsentEvent):
    """A recorded run on a GPU; compiled functions record theirs (``weft.compile``)."""

    kind = "cuda"


graph = CUDAGraph


class device:
    """A block in which ``"cuda"`` means one GPU; None and -1 change nothing."""

    def __init__(self, device: Any) -> None:
        none = device is None or (isinstance(device, int) and device < 0)
        self.index = None if none else _gpu(device).index

    def __enter__(self) -> None:
        self.before = _current[0]
        _current[0] = self.before if self.index is None else self.index

    def __exit__(self, *error: object) -> None:
        _current[0] = self.before


class device_of(device):
    """A block on the GPU of a tensor."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device if obj.is_cuda else None)


# -- what it can do


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether there is a GPU: kernels compute with bfloat16 on each.

    >>> weft.cuda.is_bf16_supported() == weft.cuda.is_available()
    True
    """
    return is_available()


def is_tf32_supported() -> bool:
    """Whether there is a GPU with TF32.

    >>> weft.cuda.is_tf32_supported() == weft.cuda.is_available()
    True
    """
    return is_available()


def get_arch_list() -> list[str]:
    """The GPU architectures that code is made for: that of the GPU here.

    >>> len(weft.cuda.get_arch_list()) == weft.cuda.is_available()
    True
    """
    if not is_available():
        return []
    major, minor = get_device_capability()
    return [f"sm_{major}{minor}"]


def get_gencode_flags() -> str:
    """Options of NVIDIA's compiler: none, as Weft does not need it.

    >>> weft.cuda.get_gencode_flags()
    ''
    """
    return ""


def list_gpu_processes(device: Any = None) -> str:
    """A text that says what this process uses.

    >>> isinstance(weft.cuda.list_gpu_processes(), str)
    True
    """
    if not is_available():
        return "no GPU is available"
    return f"this process: {memory_reserved(device):,} bytes"


def __getattr__(name: str) -> Any:
    if name in ("amp", "nvtx"):
        import importlib

        return importlib.import_module(f"weft.cuda.{name}")
    raise AttributeError(f"module 'weft.cuda' has no attribute {name!r}")
