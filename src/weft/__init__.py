"""Weft: a deep-learning framework in Python, with its own compiler."""

from __future__ import annotations

import importlib as _importlib
import warnings as _warnings
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

# NumPy warns about overflow and NaN where PyTorch's semantics are silent.
_warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"weft\.")

from weft import late as _late

_late.provide(
    Module="nn.module:Module",
    Optimizer="optim.optimizer:Optimizer",
    SummaryWriter="training.events:SummaryWriter",
    RemovableHandle="nn.module:RemovableHandle",
    array_api="array_api",
    eager_kernels="compile.eager",
    hub="hub",
    memory_report="memory.report",
    native_body="compile.program.bodies:native_of",
    numpy_protocol="numpy_protocol",
    pool_code="compile.targets.cpu.pool_code",
    tensor="ops.creation:tensor",
    zeros="ops.creation:zeros",
)

from weft import autograd, core
from weft.autograd import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from weft.config import config
from weft.core.argument_errors import guard as _guard
from weft.ops.public import EXPORTED as _EXPORTED
from weft.ops.public import LATER as _LATER
from weft.core.tensor import Tensor
from weft import methods as _methods
from weft.ops.elementwise import result_type
from weft.core.pytree import tree_flatten, tree_map, tree_unflatten
from weft.core.device import (
    Device,
    device,
    devices,
    get_default_device,
    register_device,
    set_default_device,
    unregister_device,
)
from weft.dtype import (
    DType,
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    get_default_dtype,
    int8,
    int16,
    int32,
    int64,
    promote_types,
    set_default_dtype,
    uint8,
    uint16,
    uint32,
    uint64,
)
from weft.dtype import bool_ as bool
from weft.dtype_info import finfo, iinfo
from weft.interchange import from_dlpack
from weft.ops.memory_format import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    preserve_format,
)
from weft.ops.random import Generator, default_generator
from weft.printing import set_printoptions

if _TYPE_CHECKING:
    from weft._declared import *
else:
    globals().update(_EXPORTED)

double, half, long, short = float64, float16, int64, int16
cfloat, cdouble = complex64, complex128

_guard(globals())

__version__ = "0.1.0"

# Loaded when first used, so that importing weft stays light.
_LAZY = (
    "accelerator",
    "array_api",
    "backends",
    "cli",
    "compile",
    "compiler",
    "cpu",
    "cuda",
    "datasets",
    "distributed",
    "fft",
    "func",
    "futures",
    "fx",
    "graph",
    "hub",
    "jit",
    "layers",
    "library",
    "linalg",
    "memory",
    "metrics",
    "models",
    "mps",
    "mtia",
    "multiprocessing",
    "nn",
    "optim",
    "overrides",
    "profiler",
    "runtime",
    "special",
    "static",
    "symbolic",
    "testing",
    "torch",
    "training",
    "types",
    "utils",
    "version",
    "vision",
    "xpu",
)
_LAZY_NAMES = {
    "Trainer": "training",
    "cond": "graph.control",
    "fori_loop": "graph.control",
    "switch": "graph.control",
    "get_num_threads": "runtime.cpu.pool",
    "load": "serialization",
    "map": "graph.control",
    "plan": "compile.recompute.prediction",
    "save": "serialization",
    "scan": "graph.control",
    "set_memory_limit": "memory",
    "set_num_threads": "runtime.cpu.pool",
    "while_loop": "graph.control",
    **dict.fromkeys(
        [
            "are_deterministic_algorithms_enabled",
            "compiled_with_cxx11_abi",
            "get_deterministic_debug_mode",
            "get_device_module",
            "get_float32_matmul_precision",
            "get_num_interop_threads",
            "is_deterministic_algorithms_warn_only_enabled",
            "is_warn_always_enabled",
            "set_deterministic_debug_mode",
            "set_float32_matmul_precision",
            "set_flush_denormal",
            "set_num_interop_threads",
            "set_warn_always",
            "use_deterministic_algorithms",
        ],
        "switches",
    ),
    "AcceleratorError": "cuda",
    "Event": "cpu",
    "OutOfMemoryError": "cuda",
    "Stream": "cpu",
}

if _TYPE_CHECKING:
    from weft.memory import set_memory_limit
    from weft.compile.recompute.prediction import plan
    from weft.graph.control import cond, fori_loop, map, scan, switch, while_loop
    from weft.runtime.cpu.pool import get_num_threads, set_num_threads
    from weft.serialization import load, save
    from weft.training import Trainer


def __getattr__(name: str) -> _Any:
    if name in _LAZY:
        return _importlib.import_module(f"weft.{name}")
    if name in _LAZY_NAMES:
        found = getattr(_importlib.import_module(f"weft.{_LAZY_NAMES[name]}"), name)
        globals()[name] = found
        return found
    if name in _LATER:
        _importlib.import_module(_LATER[name])
        _guard(found := {name: _EXPORTED[name]})
        globals().update(found)
        return found[name]
    if name in _EXPORTED:  # declared since
        return _EXPORTED[name]
    if name == "__config__":
        return _importlib.import_module("weft.__config__")
    raise AttributeError(f"module 'weft' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_LAZY_NAMES, *_EXPORTED, *_LATER})
