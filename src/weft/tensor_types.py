"""PyTorch's older names for tensors of a dtype, such as ``FloatTensor``.

    weft.LongTensor(2, 3)              a tensor of that shape
    weft.LongTensor([1, 2])            a tensor of that data
    isinstance(x, weft.LongTensor)     whether x is on the CPU and of that dtype

They make plain tensors: a tensor's class does not depend on its dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.device import Device
from weft.core.device import device as find_device
from weft.core.tensor import Tensor
from weft.dtype import DType, as_dtype, set_default_dtype
from weft.errors import ArgumentError, DTypeError
from weft.ops.creation import empty, tensor
from weft.storage import _NAMES, TypedStorage, UntypedStorage

_PREFIXES = {name: prefix for name, prefix in _NAMES.items() if "complex" not in name}


class TensorType(type(Tensor)):  # type: ignore[misc]
    """The class of the classes ``FloatTensor``, ``LongTensor``, …"""

    dtype: DType
    device: Device

    def __instancecheck__(cls, value: Any) -> bool:
        return (
            isinstance(value, Tensor)
            and value.dtype is cls.dtype
            and value.device.type == cls.device.type
        )

    def __call__(cls, *given: Any, device: Any = None) -> Tensor:
        return make(cls.dtype, cls.device if device is None else device, given)


def make(dtype: DType, device: Any, given: tuple[Any, ...]) -> Tensor:
    """The tensor of PyTorch's older constructor: of sizes, of data, or empty."""
    where = find_device(device)
    if len(given) == 1 and isinstance(given[0], Tensor):
        if given[0].dtype is not dtype:
            raise DTypeError(
                f"expected a {dtype.name} tensor, got {given[0].dtype.name}; convert "
                f"it with .to(weft.{dtype.name})"
            )
        return given[0].view_as(given[0])
    if len(given) == 1 and isinstance(given[0], (TypedStorage, UntypedStorage)):
        array = given[0].untyped()._bytes.view(dtype.np)
        return Tensor(array)
    if len(given) == 1 and not isinstance(given[0], (int, np.integer)):
        size = type(given[0]) is not list and type(given[0]) is not tuple
        if size and isinstance(given[0], tuple):  # a weft.Size
            return empty(given[0], dtype=dtype, device=where)
        return tensor(given[0], dtype=dtype, device=where)
    return empty(*given or (0,), dtype=dtype, device=where)


def _kind(name: str, prefix: str) -> TensorType:
    """The class of CPU tensors of a dtype."""
    own = {
        "dtype": as_dtype(name),
        "device": find_device("cpu"),
        "__doc__": f"PyTorch's older name for {name} tensors on the CPU.",
    }
    return TensorType(f"{prefix}Tensor", (Tensor,), own)


KINDS: dict[str, TensorType] = {
    f"{prefix}Tensor": _kind(name, prefix) for name, prefix in _PREFIXES.items()
}
globals().update(KINDS)


def type_name(x: Tensor) -> str:
    """PyTorch's older name of a tensor's type: ``torch.FloatTensor``."""
    where = "" if x.is_cpu else f"{x.device.type}."
    prefix = _NAMES.get(x.dtype.name, x.dtype.name)
    return f"torch.{where}{prefix}Tensor"


def meant(spec: Any) -> tuple[DType, Device | None]:
    """The dtype, and the device if any, that ``Tensor.type`` is asked for."""
    if isinstance(spec, TensorType):
        return spec.dtype, spec.device
    if isinstance(spec, str) and spec.endswith("Tensor"):
        *path, kind = spec.split(".")
        if kind == "Tensor":
            return dtypes.default_dtype(), None
        if kind in KINDS and path in (["torch"], ["weft"]):
            return KINDS[kind].dtype, find_device("cpu")
        if kind in KINDS and len(path) == 2:
            return KINDS[kind].dtype, find_device(path[1])
    if isinstance(spec, str) and spec not in dtypes._BY_NAME:
        raise ArgumentError(
            f"type: expected a dtype or a name as 'torch.FloatTensor', got {spec!r}"
        )
    return as_dtype(spec), None


def set_default_tensor_type(t: Any) -> None:
    """Let Python floats become tensors of a type's dtype.

    >>> weft.set_default_tensor_type(weft.DoubleTensor)
    >>> weft.tensor(1.0).dtype
    weft.float64
    >>> weft.set_default_tensor_type("torch.FloatTensor")
    """
    dtype, device = meant(t)
    if device is not None and device.type != "cpu":
        raise DTypeError(
            f"set_default_tensor_type: expected a type of the CPU, got {t!r}; use "
            "weft.set_default_device for another device"
        )
    set_default_dtype(dtype)
