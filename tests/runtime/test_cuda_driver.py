"""NVIDIA's driver, replaced by functions that note their calls."""

import ctypes
import types

import numpy as np
import pytest

from weft.errors import DeviceError
from weft.runtime import argument_words
from weft.runtime.cpu.address import address
from weft.runtime.cuda import driver


class Handle(int):
    """A handle, as the bindings have them."""


class Quick:
    """The functions that are called directly."""

    def __init__(self):
        self.calls, self.code = [], 0

    def __getattr__(self, name):
        def call(*args):
            self.calls.append((name, args))
            return self.code

        return call


@pytest.fixture
def gpu(monkeypatch):
    library, calls = ctypes.CDLL(None), []
    library.malloc.restype = ctypes.c_void_p

    def bound(name, *made):
        def call(*args):
            calls.append(name)
            return (0, *made)

        return call

    names = {
        "cuDeviceGet": (0,), "cuDevicePrimaryCtxRetain": (Handle(7),),
        "cuCtxSetCurrent": (), "cuStreamCreate": (Handle(99),),
        "cuStreamBeginCapture": (), "cuStreamEndCapture": (Handle(1),),
        "cuGraphInstantiate": (Handle(55),), "cuGraphDestroy": (),
        "cuGraphExecDestroy": (), "cuMemFreeHost": (),
    }  # fmt: skip
    bindings = types.SimpleNamespace(
        **{name: bound(name, *made) for name, made in names.items()},
        cuMemHostAlloc=lambda n, _: (0, library.malloc(ctypes.c_size_t(n))),
        CUresult=lambda code: types.SimpleNamespace(
            name="CUDA_ERROR_ILLEGAL_ADDRESS", value=code
        ),
        CUstreamCaptureMode=types.SimpleNamespace(
            CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1
        ),
    )
    monkeypatch.setattr(driver, "_bindings", lambda: bindings)
    monkeypatch.setattr(driver, "_quick_functions", Quick)
    runtime = driver.CudaRuntime(0)
    runtime.bound = calls
    return runtime


def test_a_prepared_launch_has_the_arguments_of_its_time(gpu):
    words = argument_words([1, 2])
    launch = gpu.prepared(Handle(5), 3, 64, words, 128)
    words[0] = 7
    launch()
    ((name, (config, function, where, extra)),) = gpu.quick.calls
    assert (name, function, extra) == ("cuLaunchKernelEx", 5, 0)
    how = config._obj
    grid = how.grid_x, how.grid_y, how.grid_z
    assert grid == (3, 1, 1)
    assert (how.block_x, how.memory, how.stream, how.count) == (64, 128, 99, 0)
    assert where == address(words) + 16
    first = ctypes.c_int64.from_address(ctypes.c_int64.from_address(where).value)
    assert first.value == 7


def test_copies_are_put_into_the_queue(gpu):
    array = np.arange(4.0)
    gpu.upload(1000, array)
    gpu.copy(1, 2, 8)
    gpu.clear(3, 16)
    gpu.download(array, 1000)
    assert gpu.quick.calls == [
        ("cuMemcpyHtoDAsync_v2", (1000, address(array), 32, 99)),
        ("cuMemcpyDtoDAsync_v2", (1, 2, 8, 99)),
        ("cuMemsetD8Async", (3, 0, 16, 99)),
        ("cuMemcpyDtoHAsync_v2", (address(array), 1000, 32, 99)),
        ("cuStreamSynchronize", (99,)),
    ]


def test_recordings_are_repeated(gpu):
    again = gpu.recorded(lambda: None)
    again()
    again()
    assert gpu.quick.calls == [("cuGraphLaunch", (55, 99))] * 2
    del again
    assert "cuGraphExecDestroy" in gpu.bound


def test_each_thread_enters_once(gpu):
    gpu.wait()
    gpu.wait()
    assert gpu.bound.count("cuCtxSetCurrent") == 1
    gpu._forget()
    with pytest.raises(DeviceError, match="before this process was forked"):
        gpu.wait()


def test_errors_have_the_drivers_words(gpu, monkeypatch):
    seen = []
    monkeypatch.setattr(driver, "_checked", lambda *args: seen.append(args))
    gpu.quick.code = 700
    gpu.wait()
    gpu.prepared(Handle(5), 1, 32, argument_words([1]))()
    assert [doing for _, doing in seen] == ["a kernel", "launching a kernel"]
    assert seen[0][0][0].value == 700


def test_memory_of_the_host_begins_with_zeros(gpu):
    memory = gpu.host_memory(64)
    assert memory.shape == (64,)
    assert not memory.any()
    memory[3] = 1
    part = memory[2:]
    del memory
    assert part[1] == 1
    assert "cuMemFreeHost" not in gpu.bound
    del part
    assert "cuMemFreeHost" in gpu.bound
