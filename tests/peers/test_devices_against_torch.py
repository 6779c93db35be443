"""What is said about devices that are not here, and global switches: as PyTorch does.

Each expression gives the same value, or both sides raise; Weft's error is of PyTorch's
class, unless that one shows a missing part of PyTorch's own (``AttributeError``).
"""

from __future__ import annotations

import builtins
import enum
import warnings
from typing import Any

import pytest

import weft
import weft.testing

torch = pytest.importorskip("torch", reason="compares with PyTorch")

CASES = (
    """
device("cuda").type
device("cuda").index
device("cuda", 1).index
device("cuda:1") == device("cuda", 1)
device("cuda") == device("cpu")
device("mps").type
device("foo")
device(0)
device("cpu:x")
zeros(2, device="cuda")
zeros(2, device=device("cuda:0"))
zeros(2).to("cuda")
zeros(2, device="xpu")
zeros(2).to("mps")
cuda.is_available()
cuda.device_count()
cuda.current_device()
cuda.get_device_name()
cuda.get_device_name(0)
cuda.get_device_properties(0)
cuda.get_device_capability()
cuda.memory_allocated()
cuda.max_memory_allocated()
cuda.memory_reserved()
cuda.memory_stats()
cuda.mem_get_info()
cuda.empty_cache()
cuda.ipc_collect()
cuda.synchronize()
cuda.manual_seed(1)
cuda.manual_seed_all(1)
cuda.manual_seed("x")
cuda.seed()
cuda.initial_seed()
cuda.get_rng_state()
cuda.get_rng_state_all()
cuda.set_rng_state_all([])
cuda.Stream()
cuda.Event(enable_timing=True)
cuda.CUDAGraph()
cuda.current_stream()
cuda.default_stream()
cuda.is_bf16_supported()
cuda.is_tf32_supported()
cuda.is_initialized()
cuda.get_arch_list()
cuda.get_gencode_flags()
cuda.init()
cuda.device(0).__enter__()
cuda.stream(None).__enter__()
cuda.nvtx.range_push("a")
cuda.default_generators
cuda.has_half
cuda.can_device_access_peer(0, 1)
issubclass(cuda.OutOfMemoryError, RuntimeError)
accelerator.is_available()
accelerator.device_count()
accelerator.current_accelerator()
accelerator.current_device_index()
accelerator.synchronize()
mps.is_available()
mps.device_count()
mps.manual_seed(0)
mps.empty_cache()
mps.synchronize()
mps.current_allocated_memory()
xpu.is_available()
xpu.device_count()
xpu.manual_seed_all(0)
xpu.empty_cache()
xpu.synchronize()
xpu.current_device()
xpu.Stream()
xpu.memory_allocated()
xpu.is_bf16_supported()
mtia.is_available()
mtia.device_count()
mtia.synchronize()
mtia.manual_seed(0)
cpu.is_available()
cpu.device_count()
cpu.current_device()
cpu.synchronize()
cpu.set_device(0)
cpu.is_initialized()
backends.cudnn.enabled
backends.cudnn.benchmark
backends.cudnn.deterministic
backends.cudnn.allow_tf32
backends.cudnn.is_available()
backends.cudnn.version()
backends.cuda.matmul.allow_tf32
backends.cuda.is_built()
backends.cuda.flash_sdp_enabled()
backends.cuda.matmul.fp32_precision
backends.mps.is_available()
backends.mps.is_built()
backends.mha.get_fastpath_enabled()
backends.cpu.get_cpu_capability()
version.cuda
version.hip
version.debug
get_float32_matmul_precision()
are_deterministic_algorithms_enabled()
is_deterministic_algorithms_warn_only_enabled()
get_deterministic_debug_mode()
set_deterministic_debug_mode("foo")
is_warn_always_enabled()
use_deterministic_algorithms("x")
set_float32_matmul_precision("x")
set_num_interop_threads(0)
distributed.is_initialized()
compiler.is_compiling()
jit.is_scripting()
jit.is_tracing()
jit.annotate(int, 3)
jit.isinstance([1, 2], list[int])
jit.isinstance({"a": 1}, dict[str, int])
jit.isinstance((1, "a"), tuple[int, str])
jit.isinstance([1], list[str])
multiprocessing.get_sharing_strategy()
multiprocessing.get_all_sharing_strategies()
multiprocessing.set_sharing_strategy("zork")
overrides.is_tensor_like(3)
overrides.is_tensor_like(zeros(1))
overrides.has_torch_function((zeros(1),))
get_default_device()
set_default_device("cpu")
[profiler.schedule(wait=1, warmup=1, active=2, repeat=1, skip_first=1)(k).name \
for k in range(7)]
[profiler.schedule(wait=0, warmup=1, active=2)(k).name for k in range(7)]
[a.name for a in profiler.supported_activities()]
hub.get_dir()
""".replace("\\\n", "")
    .strip()
    .splitlines()
)


def outcome(expression: str, lib: Any) -> Any:
    names = {name: getattr(lib, name) for name in _names(expression, lib)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value = eval(expression, names)
        except Exception as error:
            return error
    return str(value) if isinstance(value, (enum.Enum, lib.device)) else value


def _names(expression: str, lib: Any) -> list[str]:
    words = compile(expression, "", "eval").co_names
    consts = compile(expression, "", "eval").co_consts
    inner = [c.co_names for c in consts if hasattr(c, "co_names")]
    every = {*words, *sum(inner, ())} - {*vars(builtins)}
    return [n for n in every if hasattr(lib, n)]


@pytest.mark.parametrize("expression", CASES)
def test_weft_says_what_pytorch_says(expression: str) -> None:
    theirs, ours = outcome(expression, torch), outcome(expression, weft)
    if isinstance(theirs, AttributeError):
        assert isinstance(ours, Exception)
    elif isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs)), (ours, theirs)
    else:
        assert ours == theirs, (ours, theirs)


CUDNN_FLAGS = ("enabled", "benchmark", "deterministic", "allow_tf32")


@pytest.mark.parametrize("name", CUDNN_FLAGS)
def test_flags_are_kept_and_restored(name: str) -> None:
    flags = weft.backends.cudnn
    before = getattr(flags, name)
    with flags.flags(**{name: not before}):
        assert getattr(flags, name) is (not before)
    assert getattr(flags, name) is before
