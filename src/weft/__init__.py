"""Weft: a deep-learning framework in Python, with its own compiler."""

from __future__ import annotations

import importlib as _importlib
import math as _math
import warnings as _warnings
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

# NumPy warns about overflow and NaN where PyTorch's semantics are silent.
_warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"weft\.")

from weft import late as _late

_late.provide(
    HookHandle="autograd.engine:HookHandle",
    Module="nn.module:Module",
    Optimizer="optim.optimizer:Optimizer",
    SummaryWriter="training.events:SummaryWriter",
    RemovableHandle="nn.module:RemovableHandle",
    array_api="array_api",
    collective_functions="distributed.nn",
    cuda_device="compile.targets.cuda.device:cuda_device",
    distributed="distributed",
    eager_kernels="compile.eager",
    from_cuda_array="interchange:from_cuda_array",
    hub="hub",
    matrix_norm="linalg:matrix_norm",
    memory_report="memory.report",
    models="models",
    native_body="compile.program.bodies:native_of",
    refusal="graph.symbol:refusal",
    numpy_protocol="numpy_protocol",
    onnx="onnx",
    overrides="overrides",
    pool_code="compile.targets.cpu.pool_code",
    quantization="quantization",
    sparse="sparse",
    tensor="ops.creation:tensor",
    vmap="func:vmap",
    write_out="ops.inplace:write_out",
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
from weft.core.size import Shape as Size
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
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
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
from weft.ops.memory_format import MemoryFormat as memory_format
from weft.ops.memory_format import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    preserve_format,
)
from weft.ops.random import Generator, default_generator

if _TYPE_CHECKING:
    from weft._declared import *
else:
    globals().update(_EXPORTED)

double, half, long, short = float64, float16, int64, int16
cfloat, cdouble = complex64, complex128
float, int = float32, int32
e, inf, nan, pi, newaxis = _math.e, _math.inf, _math.nan, _math.pi, None

_guard(globals())

__version__ = "0.1.0"

# Loaded when first used, so that importing weft stays light.
_LAZY = (
    "accelerator",
    "amp",
    "array_api",
    "backends",
    "cli",
    "compile",
    "compiler",
    "cpu",
    "cuda",
    "datasets",
    "distributed",
    "distributions",
    "export",
    "fft",
    "func",
    "futures",
    "fx",
    "graph",
    "hub",
    "jit",
    "kernels",
    "language",
    "layers",
    "library",
    "linalg",
    "masked",
    "memory",
    "metrics",
    "models",
    "mps",
    "mtia",
    "multiprocessing",
    "nested",
    "nn",
    "onnx",
    "optim",
    "overrides",
    "profiler",
    "quantization",
    "random",
    "return_types",
    "runtime",
    "serialization",
    "serve",
    "signal",
    "sparse",
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
    "from_dlpack": "interchange",
    "parallel": "distributed.planning.search",
    "set_printoptions": "printing",
    "tree_flatten": "core.pytree",
    "tree_map": "core.pytree",
    "tree_unflatten": "core.pytree",
    "typename": "ops.compositions",
    "vmap": "func",
    "GradScaler": "amp",
    "autocast": "amp",
    "clear_autocast_cache": "amp",
    "get_autocast_cpu_dtype": "amp",
    "get_autocast_dtype": "amp",
    "is_autocast_cache_enabled": "amp",
    "is_autocast_cpu_enabled": "amp",
    "is_autocast_enabled": "amp",
    "set_autocast_cache_enabled": "amp",
    "set_autocast_dtype": "amp",
    "set_autocast_enabled": "amp",
    "Trainer": "training",
    "cond": "graph.control",
    "fori_loop": "graph.control",
    "switch": "graph.control",
    "get_num_threads": "runtime.cpu.pool",
    "load": "serialization",
    "map": "graph.control",
    "plan": "compile.recompute.prediction",
    "quantize": "quantization",
    "save": "serialization",
    "scan": "graph.control",
    "set_memory_limit": "memory",
    "set_num_threads": "runtime.cpu.pool",
    "sparse_bsc_tensor": "sparse",
    "sparse_bsr_tensor": "sparse",
    "sparse_compressed_tensor": "sparse",
    "sparse_coo_tensor": "sparse",
    "sparse_csc_tensor": "sparse",
    "sparse_csr_tensor": "sparse",
    "while_loop": "graph.control",
    "AcceleratorError": "cuda",
    "Event": "cpu",
    "OutOfMemoryError": "cuda",
    "Stream": "cpu",
    "compiled_with_cxx11_abi": "version",
    "get_device_module": "accelerator",
}

_LAZY_GROUPS = {
    "functional_names": "adaptive_avg_pool1d adaptive_max_pool1d alpha_dropout "
    "avg_pool1d batch_norm bilinear binary_cross_entropy_with_logits celu celu_ "
    "channel_shuffle native_channel_shuffle conv1d conv2d conv3d conv_transpose1d "
    "conv_transpose2d conv_transpose3d cosine_embedding_loss cosine_similarity "
    "ctc_loss dropout "
    "dropout_ embedding feature_alpha_dropout group_norm hardshrink "
    "hinge_embedding_loss instance_norm kl_div layer_norm margin_ranking_loss "
    "max_pool1d max_pool2d max_pool3d "
    "pairwise_distance pdist pixel_shuffle pixel_unshuffle poisson_nll_loss "
    "prelu rms_norm rrelu rrelu_ selu selu_ threshold threshold_ triplet_margin_loss",
    "layouts": "jagged layout sparse_bsc sparse_bsr sparse_coo sparse_csc sparse_csr "
    "strided",
    "ops.view_copies": "alias_copy as_strided_copy detach_copy diagonal_copy "
    "expand_copy permute_copy select_copy slice_copy split_copy split_with_sizes_copy "
    "squeeze_copy t_copy transpose_copy unbind_copy unfold_copy unsqueeze_copy "
    "view_as_complex_copy view_as_real_copy view_copy",
    "sparse": "dsmm hsmm hspmm saddmm smm spmm sspaddmm",
    "kernels": "kernel",
    "sizes": "sym_float sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum",
    "storage": "BFloat16Storage BoolStorage ByteStorage CharStorage "
    "ComplexDoubleStorage ComplexFloatStorage DoubleStorage FloatStorage HalfStorage "
    "IntStorage LongStorage ShortStorage TypedStorage UntypedStorage is_storage",
    "switches": "_assert are_deterministic_algorithms_enabled "
    "get_deterministic_debug_mode get_float32_matmul_precision get_num_interop_threads "
    "is_deterministic_algorithms_warn_only_enabled is_warn_always_enabled "
    "set_deterministic_debug_mode set_float32_matmul_precision set_flush_denormal "
    "set_num_interop_threads set_warn_always use_deterministic_algorithms",
    "tensor_types": "BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor "
    "FloatTensor HalfTensor IntTensor LongTensor ShortTensor set_default_tensor_type",
}
for _module, _names in _LAZY_GROUPS.items():
    _LAZY_NAMES.update(dict.fromkeys(_names.split(), _module))

if _TYPE_CHECKING:
    from weft.amp import (
        GradScaler,
        autocast,
        clear_autocast_cache,
        get_autocast_cpu_dtype,
        get_autocast_dtype,
        is_autocast_cache_enabled,
        is_autocast_cpu_enabled,
        is_autocast_enabled,
        set_autocast_cache_enabled,
        set_autocast_dtype,
        set_autocast_enabled,
    )
    from weft.core.pytree import tree_flatten, tree_map, tree_unflatten
    from weft.interchange import from_dlpack
    from weft.kernels import kernel
    from weft.memory import set_memory_limit
    from weft.printing import set_printoptions
    from weft.compile.recompute.prediction import plan
    from weft.graph.control import cond, fori_loop, map, scan, switch, while_loop
    from weft.quantization import quantize
    from weft.runtime.cpu.pool import get_num_threads, set_num_threads
    from weft.serialization import load, save
    from weft.sparse import (
        sparse_bsc_tensor,
        sparse_bsr_tensor,
        sparse_compressed_tensor,
        sparse_coo_tensor,
        sparse_csc_tensor,
        sparse_csr_tensor,
    )
    from weft.training import Trainer


# Functions that are a tensor's method.
_OF_TENSOR = (
    "get_device", "is_conj", "is_distributed", "is_inference", "is_neg", "resolve_conj",
    "resolve_neg",
)  # fmt: skip


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
    if name[-1] == "_" != name[0] and hasattr(Tensor, name):  # weft.relu_(x)
        return getattr(Tensor, name)
    if name in _OF_TENSOR:
        return getattr(Tensor, name)
    if name.startswith("_foreach_"):
        return _importlib.import_module("weft.foreach").find(name)
    if name in _EXPORTED:  # declared since
        return _EXPORTED[name]
    if name == "__config__":
        return _importlib.import_module("weft.__config__")
    raise AttributeError(f"module 'weft' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_LAZY_NAMES, *_EXPORTED, *_LATER})
