"""NVIDIA's driver: which GPUs there are, their memory, their code and their work.

Nothing is loaded before a GPU is asked for, and no memory is taken before it is used.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.errors import DeviceError
from weft.runtime import system
from weft.runtime.cpu.address import address

OLDEST_DRIVER = 12000  # of CUDA 12.0: what PTX 8.0 needs
QUICK = {  # functions of 64-bit arguments, and how many they have
    "cuLaunchKernelEx": 4, "cuGraphLaunch": 2, "cuStreamSynchronize": 1,
    "cuMemcpyHtoDAsync_v2": 4, "cuMemcpyDtoHAsync_v2": 4, "cuMemcpyDtoDAsync_v2": 4,
    "cuMemsetD8Async": 4,
}  # fmt: skip


@functools.cache
def _bindings() -> Any:
    from cuda.bindings import driver

    return driver


def _checked(result: Any, doing: str) -> Any:
    """The values of a call of the driver; its error in words, if it failed."""
    code, *values = result
    if int(code):
        driver = _bindings()
        if code == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            raise MemoryError
        _, text = driver.cuGetErrorString(code)
        words = text.decode() if text else str(code)
        raise DeviceError(f"cuda: {doing} failed: {words} ({code.name})")
    return values[0] if len(values) == 1 else values


class Availability(NamedTuple):
    """The number of GPUs, and why there is none."""

    gpus: int
    why: str


@functools.cache
def availability() -> Availability:
    """How many GPUs can be used."""
    try:
        driver = _bindings()
        (code,) = driver.cuInit(0)
    except ImportError:
        why = "the package cuda-bindings is not installed: pip install weft[cuda]"
        return Availability(0, why)
    except Exception as error:
        return Availability(0, f"NVIDIA's driver cannot be loaded: {error}")
    if int(code):
        return Availability(0, f"NVIDIA's driver does not start: {code.name}")
    version = _checked(driver.cuDriverGetVersion(), "asking for the driver's version")
    if version < OLDEST_DRIVER:
        have = f"{version // 1000}.{version % 1000 // 10}"
        why = f"NVIDIA's driver is too old: expected CUDA 12.0 or newer, got {have}"
        return Availability(0, why)
    count = _checked(driver.cuDeviceGetCount(), "counting GPUs")
    return Availability(count, "" if count else "there is no GPU")


class _LaunchConfig(ctypes.Structure):
    """The driver's ``CUlaunchConfig``: the grid, the blocks and the queue."""

    _fields_ = [
        *((name, ctypes.c_uint) for name in (
            "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "memory")),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    ]  # fmt: skip


@functools.cache
def _quick_functions() -> Any:
    """The driver's functions that are called most, without the bindings' objects.

    Their arguments are numbers, and they return an error's number.
    """
    library = ctypes.CDLL("nvcuda.dll" if system.WINDOWS else "libcuda.so.1")
    for name, count in QUICK.items():
        getattr(library, name).argtypes = [ctypes.c_void_p] * count
    return library


class _Here(threading.local):
    """Whether the driver knows which GPU this thread's calls are about."""

    entered = False


class CudaRuntime:
    """One GPU: see ``weft.runtime.Runtime``."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.name = f"cuda:{index}"
        driver = self.driver = _bindings()
        self.handle = _checked(driver.cuDeviceGet(index), f"opening {self.name}")
        self.context = _checked(
            driver.cuDevicePrimaryCtxRetain(self.handle), f"opening {self.name}"
        )
        self.quick = _quick_functions()
        self._here = _Here()
        self._forked = False
        system.at_fork(after_in_child=self._forget)
        self.enter()
        self.stream = _checked(driver.cuStreamCreate(0), "making a stream")
        self.queue = int(self.stream)
        self.modules: list[Any] = []  # code lives as long as the process
        self.recording = False

    def enter(self) -> None:
        """Let this thread's calls of the driver be about this GPU."""
        if self._here.entered:
            return
        if self._forked:
            raise DeviceError(
                f"{self.name} was used before this process was forked, and cannot be "
                "used in it; start processes with the method 'spawn'"
            )
        _checked(self.driver.cuCtxSetCurrent(self.context), f"entering {self.name}")
        self._here.entered = True

    def _forget(self) -> None:
        self._here.__dict__.clear()
        self._forked = True

    # -- questions

    def attribute(self, name: str) -> int:
        """A number that the driver knows of this GPU."""
        kind = getattr(self.driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return _checked(self.driver.cuDeviceGetAttribute(kind, self.handle), name)

    @functools.cached_property
    def capability(self) -> tuple[int, int]:
        """The compute capability, such as (9, 0)."""
        major, minor = (
            self.attribute(f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR")
        )
        return major, minor

    @functools.cached_property
    def multiprocessors(self) -> int:
        """How many multiprocessors it has."""
        return self.attribute("MULTIPROCESSOR_COUNT")

    @functools.cached_property
    def title(self) -> str:
        """The product's name."""
        found = _checked(self.driver.cuDeviceGetName(256, self.handle), "its name")
        return found.split(b"\0")[0].decode()

    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes."""
        self.enter()
        free, total = _checked(self.driver.cuMemGetInfo(), "asking for free memory")
        return free, total

    # -- memory

    def allocate(self, nbytes: int) -> int:
        self.enter()
        return int(_checked(self.driver.cuMemAlloc(nbytes), "allocating memory"))

    def free(self, address: int) -> None:
        self.enter()
        _checked(self.driver.cuMemFree(address), "freeing memory")

    def host_memory(self, nbytes: int) -> np.ndarray:
        self.enter()
        made = self.driver.cuMemHostAlloc(nbytes, 0)
        at = _checked(made, "allocating memory of the host")
        memory = (ctypes.c_uint8 * nbytes).from_address(at)
        weakref.finalize(memory, self.driver.cuMemFreeHost, at).atexit = False
        found = np.ctypeslib.as_array(memory)
        found[:] = 0
        return found

    def upload(self, to: int, array: np.ndarray) -> None:
        given = to, address(array), array.nbytes, self.queue
        self._do("copying to the GPU", self.quick.cuMemcpyHtoDAsync_v2, *given)

    def download(self, array: np.ndarray, source: int) -> None:
        given = address(array), source, array.nbytes, self.queue
        self._do("copying from the GPU", self.quick.cuMemcpyDtoHAsync_v2, *given)
        self.wait()

    def copy(self, to: int, source: int, nbytes: int) -> None:
        given = to, source, nbytes, self.queue
        self._do("copying on the GPU", self.quick.cuMemcpyDtoDAsync_v2, *given)

    def clear(self, at: int, nbytes: int) -> None:
        given = at, 0, nbytes, self.queue
        self._do("clearing memory", self.quick.cuMemsetD8Async, *given)

    def _do(self, doing: str, function: Any, *args: Any) -> None:
        """Call one of the quick functions for this GPU."""
        self.enter()
        code = function(*args)
        if code:
            self.failed(code, doing)

    def failed(self, code: int, doing: str) -> None:
        """Raise the error that a quick function has returned."""
        _checked((self.driver.CUresult(code),), doing)

    # -- work

    def load(self, code: str, kernels: Sequence[Any]) -> dict[str, Any]:
        self.enter()
        module = _checked(
            self.driver.cuModuleLoadData(code.encode() + b"\0"), "loading kernels"
        )
        self.modules.append(module)
        return {kernel.name: self._function(module, kernel) for kernel in kernels}

    def _function(self, module: Any, kernel: Any) -> Any:
        driver, name = self.driver, kernel.name
        found = driver.cuModuleGetFunction(module, name.encode())
        function = _checked(found, f"finding {name}")
        memory = getattr(kernel, "block_memory", 0)
        if memory:
            kinds = driver.CUfunction_attribute
            kind = kinds.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            result = driver.cuFuncSetAttribute(function, kind, memory)
            _checked(result, f"giving {name} {memory} bytes of a block's memory")
        return function

    def launch(
        self,
        function: Any,
        blocks: int,
        threads: int,
        arguments: np.ndarray,
        block_memory: int = 0,
    ) -> None:
        self.prepared(function, blocks, threads, arguments, block_memory)()

    def prepared(
        self,
        function: Any,
        blocks: int,
        threads: int,
        arguments: np.ndarray,
        block_memory: int = 0,
    ) -> Callable[[], None]:
        how = _LaunchConfig(blocks, 1, 1, threads, 1, 1, block_memory, self.queue, 0, 0)
        words = address(arguments) + arguments.nbytes // 2
        given = ctypes.byref(how), int(function), words, 0
        call, here = self.quick.cuLaunchKernelEx, self._here

        def launch() -> None:
            if not here.entered:
                self.enter()
            code = call(*given)
            if code:
                self.failed(code, "launching a kernel")

        return launch

    def tensor_map(
        self, address: int, dtype: str, shape: Sequence[int], strides: Sequence[int],
        box: Sequence[int],
    ) -> np.ndarray:  # fmt: skip
        """An array as the copy engine is told of it, in 16 words of 64 bits.

        Axes are given from the contiguous one on, and ``strides`` in bytes for all but
        that one. A copy brings a ``box``, swizzled by 128 bytes, with zeros for what
        is outside of the array.
        """
        self.enter()
        d = self.driver
        kinds = d.CUtensorMapDataType
        kind = getattr(kinds, f"CU_TENSOR_MAP_DATA_TYPE_{dtype.upper()}")
        whole, short = d.cuuint64_t, d.cuuint32_t
        result = d.cuTensorMapEncodeTiled(
            kind, len(shape), address, [whole(n) for n in shape],
            [whole(n) for n in strides], [short(n) for n in box],
            [short(1)] * len(shape),
            d.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            d.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            d.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            d.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )  # fmt: skip
        made = _checked(result, "describing an array to the copy engine")
        return np.array([int(word) for word in made.opaque], np.uint64).view(np.int64)

    def recorded(self, run: Callable[[], None]) -> Callable[[], None] | None:
        driver = self.driver
        self.enter()
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        _checked(driver.cuStreamBeginCapture(self.stream, mode), "recording launches")
        self.recording = True
        try:
            run()
        finally:
            self.recording = False
            graph = _checked(driver.cuStreamEndCapture(self.stream), "recording")
        return _Recording(self, graph)

    def seconds(self, run: Callable[[], None]) -> float:
        start, stop = Mark(self), Mark(self)
        start.record()
        run()
        stop.record()
        return start.until(stop) / 1e3

    def wait(self) -> None:
        self._do("a kernel", self.quick.cuStreamSynchronize, self.queue)


class _Recording:
    """Launches that the driver repeats as a whole."""

    def __init__(self, runtime: CudaRuntime, graph: Any) -> None:
        driver = runtime.driver
        self.runtime = runtime
        made = driver.cuGraphInstantiate(graph, 0)
        self.executable = _checked(made, "preparing a recording")
        self.launch = functools.partial(
            runtime.quick.cuGraphLaunch, int(self.executable), runtime.queue
        )
        _checked(driver.cuGraphDestroy(graph), "preparing a recording")

    def __call__(self) -> None:
        self.runtime.enter()
        code = self.launch()
        if code:
            self.runtime.failed(code, "repeating a recording")

    def __del__(self) -> None:
        self.runtime.driver.cuGraphExecDestroy(self.executable)


class Mark:
    """A mark in the queue of a GPU."""

    def __init__(self, runtime: CudaRuntime) -> None:
        self.runtime = runtime
        runtime.enter()
        self.event = _checked(runtime.driver.cuEventCreate(0), "making an event")

    def record(self) -> None:
        """Put it at the end of the queue."""
        self.runtime.enter()
        result = self.runtime.driver.cuEventRecord(self.event, self.runtime.stream)
        _checked(result, "recording an event")

    def wait(self) -> None:
        """Wait until the work before it is done."""
        self.runtime.enter()
        _checked(self.runtime.driver.cuEventSynchronize(self.event), "a kernel")

    def passed(self) -> bool:
        """Whether the work before it is done."""
        self.runtime.enter()
        return not int(self.runtime.driver.cuEventQuery(self.event)[0])

    def until(self, other: Mark) -> float:
        """Milliseconds from this mark to another."""
        other.wait()
        elapsed = self.runtime.driver.cuEventElapsedTime
        return _checked(elapsed(self.event, other.event), "timing")


@functools.cache
def runtime(index: int) -> CudaRuntime:
    """The GPU of a number; an error says which exist."""
    count, why = availability()
    if index >= count:
        have = ", ".join(f"'cuda:{k}'" for k in range(count)) or f"none ({why})"
        raise DeviceError(f"device 'cuda:{index}' is not available; GPUs: {have}")
    return CudaRuntime(index)
