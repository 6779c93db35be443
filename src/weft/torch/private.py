"""PyTorch's private names that packages import, by the modules that have them.

Each does what it does in PyTorch; an alias looks here for a name that Weft's own module
has not.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

import weft
from weft.core.device import absent
from weft.core.device import device as find_device
from weft.core.size import Size
from weft.dtype import COMPLEX, INT, DType, Named
from weft.errors import ArgumentError, DTypeError
from weft.utils.data import loader

_BY_MODULE: dict[str, dict[str, Any]] = {}


def _of(module: str, **names: Any) -> None:
    _BY_MODULE.setdefault(module, {}).update(names)


def _in(module: str) -> Callable[[Any], Any]:
    def keep(fn: Any) -> Any:
        _of(module, **{fn.__name__: fn})
        return fn

    return keep


def find(module: str, name: str) -> Any:
    """The value of a name; a ``KeyError`` where there is none.

    >>> weft.torch.private.find("torch", "_check")(True)
    """
    return _BY_MODULE[module][name]


def names(module: str) -> list[str]:
    """The names of a module that are found here.

    >>> "_check" in weft.torch.private.names("torch")
    True
    """
    return list(_BY_MODULE.get(module, ()))


# -- assertions


def _fail(kind: type[Exception], message: Any) -> None:
    text = message() if callable(message) else message
    default = "Expected cond to be True, but got False"
    raise kind(default if text is None else str(text))


@_in("torch")
def _check(cond: Any, message: Any = None) -> None:
    if not cond:
        _fail(RuntimeError, message)


@_in("torch")
def _check_with(kind: type[Exception], cond: Any, message: Any) -> None:
    if not cond:
        _fail(kind, message)


@_in("torch")
def _check_index(cond: Any, message: Any = None) -> None:
    _check_with(IndexError, cond, message)


@_in("torch")
def _check_value(cond: Any, message: Any = None) -> None:
    _check_with(ValueError, cond, message)


@_in("torch")
def _check_type(cond: Any, message: Any = None) -> None:
    _check_with(TypeError, cond, message)


@_in("torch")
def _check_not_implemented(cond: Any, message: Any = None) -> None:
    _check_with(NotImplementedError, cond, message)


@_in("torch")
def _check_tensor_all(cond: Any, message: Any = None) -> None:
    _check_tensor_all_with(RuntimeError, cond, message)


@_in("torch")
def _check_tensor_all_with(
    kind: type[Exception], cond: Any, message: Any = None
) -> None:
    if not weft.is_tensor(cond) or cond.dtype is not weft.bool:
        raise DTypeError("_check_tensor_all: expected a tensor of bools")
    _check_with(kind, bool(cond.all()), message)


@_in("torch")
def _check_is_size(i: Any, message: Any = None, *, max: Any = None) -> None:
    _check(i >= 0 and (max is None or i <= max), message)


@_in("torch")
def _assert(condition: Any, message: Any = "") -> None:
    assert condition, message


@_in("torch")
def _assert_async(input: Any, msg: str = "") -> None:
    if not bool(input):
        _fail(RuntimeError, msg or "Expected Tensor with nonzero value")


# -- functions


@_in("torch")
def _shape_as_tensor(input: Any) -> Any:
    return weft.tensor(list(input.shape), dtype=weft.int64)


@_in("torch")
def _softmax_backward_data(
    grad_output: Any, output: Any, dim: int, input_dtype: Any
) -> Any:
    inner = grad_output * output
    return (inner - output * inner.sum(dim, keepdim=True)).to(input_dtype)


@_in("torch")
def _convert_indices_from_csr_to_coo(
    crow_indices: Any, col_indices: Any, *, out_int32: bool = False,
    transpose: bool = False,
) -> Any:  # fmt: skip
    rows = weft.arange(crow_indices.numel() - 1, device=crow_indices.device)
    rows = rows.repeat_interleave(crow_indices.diff())
    pair = (col_indices, rows) if transpose else (rows, col_indices)
    kind = weft.int32 if out_int32 else weft.int64
    return weft.stack([index.to(kind) for index in pair])


@_in("torch")
def _convert_indices_from_coo_to_csr(
    input: Any, size: int, *, out_int32: bool = False
) -> Any:
    counts = weft.bincount(input, minlength=size)
    starts = weft.cat([counts.new_zeros(1), counts.cumsum(0)])
    return starts.to(weft.int32 if out_int32 else weft.int64)


@_in("torch.nn.init")
def _no_grad_uniform_(tensor: Any, a: float, b: float, generator: Any = None) -> Any:
    return weft.nn.init.uniform_(tensor, a, b, generator)


@_in("torch.nn.init")
def _no_grad_normal_(
    tensor: Any, mean: float, std: float, generator: Any = None
) -> Any:
    return weft.nn.init.normal_(tensor, mean, std, generator)


@_in("torch.distributions.utils")
def _standard_normal(shape: Any, dtype: Any, device: Any) -> Any:
    return weft.randn(shape, dtype=dtype, device=device)


@_in("torch.distributions.utils")
def _sum_rightmost(value: Any, dim: int) -> Any:
    return weft.distributions.utils.sum_rightmost(value, dim)


@_in("torch._utils")
def _get_device_index(
    device: Any, optional: bool = False, allow_cpu: bool = False
) -> int:
    """The number of a device; -1 for the CPU, where it may be one."""
    if isinstance(device, int):
        return device
    if device is None and optional:
        return 0
    found = find_device(device)
    if found.type == "cpu":
        if allow_cpu:
            return -1
        raise ArgumentError(f"expected a device that has a number, got {found}")
    return found.index or 0


@_in("torch._utils")
def _element_size(dtype: Any) -> int:
    return dtype.itemsize


@_in("torch.hub")
def _get_torch_home() -> str:
    return os.path.dirname(weft.hub.get_dir())


@_in("torch.optim.optimizer")
def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """None: capturable optimizers are for CUDA graphs."""
    return []


@_in("torch.optim.optimizer")
def _default_to_fused_or_foreach(
    params: Any, differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Neither: PyTorch chooses the plain loop for the CPU as well."""
    return False, False


@_in("torch.optim.optimizer")
def _get_value(x: Any) -> Any:
    return x.item() if weft.is_tensor(x) else x


@_in("torch.optim.optimizer")
def _view_as_real(params: Any, *lists: Any) -> None:
    for i, p in enumerate(params):
        if p.is_complex():
            for tensors in (params, *lists):
                tensors[i] = weft.view_as_real(tensors[i])


@_in("torch.autograd")
def _profiler_enabled() -> bool:
    return False


@_in("torch.amp.autocast_mode")
def _cast(value: Any, device_type: str, dtype: Any) -> Any:
    """Floating-point tensors of nested containers in another dtype."""
    if weft.is_tensor(value):
        wide = value.dtype is weft.float64
        return value if wide or not value.is_floating_point() else value.to(dtype)
    if isinstance(value, dict):
        return {k: _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_cast(v, device_type, dtype) for v in value])
    return value


@_in("torch.nn.modules.transformer")
def _get_activation_fn(activation: str) -> Any:
    if activation not in ("relu", "gelu"):
        raise ArgumentError(f"expected 'relu' or 'gelu', got {activation!r}")
    return getattr(weft.nn.functional, activation)


@_in("torch.nn.modules.transformer")
def _get_clones(module: Any, N: int) -> Any:
    import copy

    return weft.nn.ModuleList([copy.deepcopy(module) for _ in range(N)])


@_in("torch.utils.checkpoint")
def get_device_states(*args: Any) -> tuple[list[int], list[Any]]:
    """The states of the GPUs' generators: there are no GPUs."""
    return [], []


@_in("torch.utils.checkpoint")
def set_device_states(devices: Any, states: Any, *, device_type: Any = None) -> None:
    if devices:
        raise ArgumentError(f"set_device_states: there are no devices {devices}")


@_in("torch.profiler.profiler")
def _default_schedule_fn(step: int) -> Any:
    return weft.profiler.ProfilerAction.RECORD


class _OfCuda:
    """A profiler of CUDA's, which refuses to start."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.options = options

    def __enter__(self) -> Any:
        raise absent("cuda")

    def __exit__(self, *error: object) -> None:
        pass


_of("torch.autograd.profiler", emit_nvtx=_OfCuda, emit_itt=_OfCuda)


def _parse_to(*args: Any, **options: Any) -> tuple[Any, Any, bool, Any]:
    """The device, dtype, and two options of ``module.to(...)``."""
    device, dtype = options.get("device"), options.get("dtype")
    for given in args:
        if weft.is_tensor(given):
            device, dtype = given.device, given.dtype
        elif isinstance(given, DType):
            dtype = given
        elif given is not None and not isinstance(given, bool):
            device = find_device(given)
    found = None if device is None else find_device(device)
    blocking = bool(options.get("non_blocking", False))
    return found, dtype, blocking, options.get("memory_format")


# -- types


class PyTorchFileReader:
    """PyTorch's reader of files, which is written in C++."""

    def __init__(self, *args: Any) -> None:
        raise NotImplementedError("PyTorchFileReader: use torch.load(path, mmap=True)")


class SymFloat:
    """A float that a traced program computes: there is none here."""


class SymBool:
    """A truth value that a traced program computes: there is none here."""


_HALVES = np.dtype([("real", np.float16), ("imag", np.float16)])
_complex32 = Named("complex32", _HALVES, COMPLEX)
_of("torch", complex32=_complex32, chalf=_complex32)
for _bits in range(1, 8):
    for _sign in ("int", "uint"):
        _name = f"{_sign}{_bits}"
        _of("torch", **{_name: Named(_name, np.dtype(f"{_sign}8"), INT)})
MAP_LOCATION: TypeAlias = Any
ParamsT: TypeAlias = Any
_of("torch", PyTorchFileReader=PyTorchFileReader)
_of("torch", SymInt=Size, SymFloat=SymFloat, SymBool=SymBool)
_of("torch", Future=weft.futures.Future, ScriptModule=weft.jit.ScriptModule)
_of("torch", DisableTorchFunction=weft.overrides.DisableTorchFunction)
_of("torch", DisableTorchFunctionSubclass=weft.overrides.DisableTorchFunctionSubclass)
_of("torch.serialization", MAP_LOCATION=MAP_LOCATION)
_of("torch.optim.optimizer", ParamsT=ParamsT)
_of("torch.jit", TracerWarning=type("TracerWarning", (Warning,), {}))
_of(
    "torch.utils.data.dataloader",
    _collate_fn_t=Callable[[list[Any]], Any],
    _worker_init_fn_t=Callable[[int], None],
    _BaseDataLoaderIter=loader.BaseDataLoaderIter,
    _SingleProcessDataLoaderIter=loader.SingleProcessDataLoaderIter,
    _MultiProcessingDataLoaderIter=loader.MultiProcessingDataLoaderIter,
)
_of("torch.nn.modules.module", _EXTRA_STATE_KEY_SUFFIX="_extra_state")
