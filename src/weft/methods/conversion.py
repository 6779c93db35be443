"""A tensor as something else: other dtypes and devices, Python values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import dtype as dtypes
from weft.autograd.function import Function
from weft.core.device import Device
from weft.core.device import device as find_device
from weft.core.mode import mode
from weft.core.tensor import Tensor as _Tensor
from weft.errors import (
    ArgumentError,
    AutogradError,
    DeviceError,
    ShapeError,
)
from weft.ops import (
    copies,
    creation,
)
from weft.ops.memory_format import check_format, laid_out

if TYPE_CHECKING:
    from weft.core.tensor import Tensor

_NUMBERS = {bool, int, float, complex}  # not those of NumPy's extensions


class Conversion:
    """Conversions, and new tensors like this one."""

    # -- conversions

    def type(self: Any, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The tensor converted to a dtype or type; without one, PyTorch's type name.

        >>> weft.ones(1).type(weft.int64).type(), weft.ones(1).type("torch.ByteTensor")
        ('torch.LongTensor', tensor([1], dtype=weft.uint8))
        """
        from weft.tensor_types import meant, type_name

        if dtype is None:
            return type_name(self)
        kind, device = meant(dtype)
        out = copies.cast(self, kind)
        return out if device is None else _moved(out, device)

    def to(self: Any, *args: Any, **options: Any) -> Tensor:
        """The tensor with another dtype or on another device; itself if unchanged.

        >>> weft.tensor([1.7]).to(weft.int64)
        tensor([1])
        """
        out = self
        options.pop("non_blocking", None)
        copy = options.pop("copy", False)
        form = options.pop("memory_format", None)
        for spec in (*args, options.pop("dtype", None), options.pop("device", None)):
            if spec is None or isinstance(spec, bool):
                continue
            if isinstance(spec, _Tensor):
                out = _moved(copies.cast(out, spec.dtype), spec.device)
            elif isinstance(spec, Device) or (
                isinstance(spec, str) and spec not in dtypes._BY_NAME
            ):
                out = _moved(out, find_device(spec))
            else:
                out = copies.cast(out, dtypes.as_dtype(spec))
        if options:
            raise ArgumentError(f"to: unknown options {sorted(options)}")
        if form is not None:
            copy = copy and out is self
            return laid_out("to", out, check_format("to", form), copy=copy)
        return copies.clone(out) if copy and out is self else out

    def type_as(self: Any, other: Tensor) -> Tensor:
        """The tensor converted to another's dtype.

        >>> weft.ones(1).type_as(weft.tensor(1)).dtype
        weft.int64
        """
        return copies.cast(self, other.dtype)

    def cpu(self: Any) -> Tensor:
        """The tensor on the CPU.

        >>> weft.ones(1).cpu().device
        device(type='cpu')
        """
        return _moved(self, find_device("cpu"))

    def item(self: Any) -> Any:
        """The one element as a Python number.

        >>> weft.tensor([3]).item()
        3
        """
        array = self.to_host()
        if array.size != 1:
            raise ShapeError(
                f"item: expected one element, got shape {tuple(self.shape)}; "
                "use tolist()"
            )
        value = array.item()
        return value if type(value) in _NUMBERS else float(value)

    def tolist(self: Any) -> Any:
        """The elements as nested Python lists.

        >>> weft.tensor([[1, 2]]).tolist()
        [[1, 2]]
        """
        array = self.to_host()
        if self.dtype.name == "bfloat16":
            array = array.astype(np.float32)
        return array.tolist()

    def numpy(self: Any, *, force: bool = False) -> np.ndarray:
        """The values as a NumPy array that shares this tensor's memory.

        >>> weft.tensor([1.0, 2.0]).numpy()
        array([1., 2.], dtype=float32)
        """
        if self._node is not None and mode.recording and not force:
            raise AutogradError(
                "numpy: this tensor requires grad, and NumPy would not record; use "
                ".detach().numpy()"
            )
        if self.device.name != "cpu" and not force:
            raise DeviceError(
                f"numpy: this tensor is on {self.device.name!r}; move it with .cpu()"
            )
        self.storage_record.exposed = True
        return self.to_host()

    # -- new tensors like this one

    def new_tensor(self: Any, data: Any, **options: Any) -> Tensor:
        """A tensor of other data with this one's dtype.

        >>> weft.ones(1).new_tensor([1, 2])
        tensor([1., 2.])
        """
        return creation.tensor(data, **_like(self, options))

    def new_zeros(self: Any, *size: Any, **options: Any) -> Tensor:
        """Zeros with this tensor's dtype.

        >>> weft.tensor([1]).new_zeros(2)
        tensor([0, 0])
        """
        return creation.zeros(*size, **_like(self, options))

    def new_ones(self: Any, *size: Any, **options: Any) -> Tensor:
        """Ones with this tensor's dtype.

        >>> weft.tensor([1]).new_ones(2)
        tensor([1, 1])
        """
        return creation.ones(*size, **_like(self, options))

    def new_full(self: Any, size: Any, fill_value: Any, **options: Any) -> Tensor:
        """One value with this tensor's dtype.

        >>> weft.tensor([1]).new_full((2,), 5)
        tensor([5, 5])
        """
        return creation.full(size, fill_value, **_like(self, options))

    def new_empty(self: Any, *size: Any, **options: Any) -> Tensor:
        """Unset elements with this tensor's dtype.

        >>> weft.tensor([1]).new_empty(2).dtype
        weft.int64
        """
        return creation.empty(*size, **_like(self, options))


def _like(x: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Options of a new tensor like this one."""
    return {"dtype": x.dtype, "device": x.device, **options}


def _moved(x: Any, device: Device) -> Any:
    """A tensor on another device, by way of the host."""
    if x.device is device:
        return x
    capture = mode.capture
    if capture is not None and x._capture is capture and device is capture.device:
        return x  # a constant of the program, which runs there
    if x.requires_grad and mode.recording:
        return _Move.apply(x, device)
    return x._moved(device)


class _Move(Function):
    """``apply(tensor, device)``: a copy; its gradient goes back to the first device."""

    @staticmethod
    def forward(ctx: Any, x: _Tensor, device: Any) -> _Tensor:
        ctx.home = x.device
        return x._moved(device)

    @staticmethod
    def backward(ctx: Any, g: _Tensor) -> tuple[Any, ...]:
        return g.to(ctx.home), None


def _cast(name: str, dtype: dtypes.DType) -> Callable[..., Any]:
    def method(self: Any, *, memory_format: Any = None) -> Any:
        if memory_format is not None:
            return self.to(dtype, memory_format=memory_format)
        return copies.cast(self, dtype)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"""The tensor converted to {dtype.name}.

    >>> weft.ones(1).{name}().dtype
    weft.{dtype.name}
    """
    return method


class Casts:
    """Conversions to a dtype by its name: ``x.float()``, ``x.long()``."""

    float = _cast("float", dtypes.float32)
    double = _cast("double", dtypes.float64)
    half = _cast("half", dtypes.float16)
    bfloat16 = _cast("bfloat16", dtypes.bfloat16)
    byte = _cast("byte", dtypes.uint8)
    char = _cast("char", dtypes.int8)
    short = _cast("short", dtypes.int16)
    int = _cast("int", dtypes.int32)
    long = _cast("long", dtypes.int64)
    bool = _cast("bool", dtypes.bool_)
    cfloat = _cast("cfloat", dtypes.complex64)
    cdouble = _cast("cdouble", dtypes.complex128)
