"""Handing tensors to other libraries and taking theirs: DLPack and NumPy.

What leaves Weft leaves its derivatives behind, so a tensor that requires grad,
or that a transform is looking at, is refused with the way to do it instead.
NumPy's functions called on tensors are answered in ``weft.numpy_protocol``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import dlpack, late
from weft import dtype as dtypes
from weft.core.device import Device, absent, cpu
from weft.core.device import device as find_device
from weft.core.dispatch import unable
from weft.core.mode import mode
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, AutogradError, DeviceError, ExportError
from weft.ops.public import UFUNCS

API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")


def plain(name: str, x: Tensor, remedy: str = ".detach()") -> np.ndarray:
    """A tensor's values as an array, refused where derivatives would be lost."""
    if x._interpreter is not None:
        raise unable(
            AutogradError(
                f"{name}: this tensor is inside {x._interpreter.name}, which cannot "
                f"look into other libraries; use Weft's functions here, or {remedy}"
            ),
            x,
        )
    if x._node is not None:
        raise AutogradError(
            f"{name}: this tensor requires grad, and another library would not "
            f"record; use {remedy}"
        )
    if x.device is not cpu:
        raise DeviceError(
            f"{name}: this tensor is on {x.device.name!r}, where another library "
            "cannot read it; move it with .cpu()"
        )
    x.storage_record.exposed = True
    return x.array()


# -- arrays of GPUs


def cuda_array_interface(self: Tensor) -> dict[str, Any]:
    """The memory of a tensor on a GPU, for CuPy, PyTorch and Numba."""
    if not self.is_cuda or self._interpreter is not None:
        raise AttributeError(
            f"__cuda_array_interface__: expected a tensor on a GPU, got one on "
            f"{self.device.name!r}"
        )
    if self._node is not None:
        raise AutogradError(
            "__cuda_array_interface__: this tensor requires grad, and another library "
            "would not record; use .detach()"
        )
    buffer: Any = self._data
    dtype = buffer.dtype
    if dtype.kind not in "biufc":
        raise ExportError(
            f"__cuda_array_interface__: it has no {self.dtype.name}; use .view(int16)"
        )
    self.storage_record.exposed = True
    strides = None if buffer.contiguous else buffer.strides
    return {
        "shape": buffer.shape,
        "typestr": dtype.str,
        "data": (buffer.address, False),
        "strides": strides,
        "stream": int(buffer.pool.runtime.stream),
        "version": 3,
    }


def from_cuda_array(x: Any) -> Tensor:
    """A tensor over the memory of an object with ``__cuda_array_interface__``."""
    device: Any = find_device("cuda")
    if not hasattr(device, "pool"):
        raise absent("cuda")
    out = Tensor.on_device(device.pool.over(x.__cuda_array_interface__, x), device)
    out.storage_record.exposed = True
    return out


# -- DLPack


class _Capsule:
    """A capsule of DLPack's, as the object that made it."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.device_of(self.capsule)


def from_dlpack(
    x: Any, /, *, device: str | Device | None = None, copy: bool | None = None
) -> Tensor:
    """A tensor over the memory of any object with ``__dlpack__``.

    The memory is shared unless ``copy=True``.

    >>> array = np.zeros(2)
    >>> weft.from_dlpack(array)[0] = 5
    >>> array
    array([5., 0.])
    """
    if type(x).__name__ == "PyCapsule":
        x = _Capsule(x)
    if not callable(getattr(x, "__dlpack__", None)):
        raise ArgumentError(
            f"from_dlpack: expected an object with __dlpack__, got {type(x).__name__}"
        )
    kind, number = x.__dlpack_device__()
    if kind == dlpack.CPU:
        out = Tensor(_array_of(x))
    else:
        out = _on_gpu(x, kind, number)
    if copy:
        out = out.clone()
    out.storage_record.exposed = not copy
    return out if device is None else out.to(find_device(device))


def _array_of(x: Any) -> np.ndarray:
    """An array over memory of the CPU."""
    try:
        array = np.from_dlpack(x)
    except (BufferError, RuntimeError, ValueError, TypeError) as error:
        found = _bfloat16_of(x)
        if found is None:
            raise ExportError(f"from_dlpack: {type(x).__name__}: {error}") from error
        return found
    dtypes.of_array(array)
    return array


def _bfloat16_of(x: Any) -> np.ndarray | None:
    """An array of the type that NumPy takes from nobody."""
    try:
        found = dlpack.described(x.__dlpack__())
    except (BufferError, RuntimeError, ValueError, TypeError):
        return None
    return dlpack.array_of(found) if found.dtype == dtypes.bfloat16.np else None


def _on_gpu(x: Any, kind: int, number: int) -> Tensor:
    if kind != dlpack.CUDA:
        raise ExportError(
            f"from_dlpack: expected memory of the CPU or of an NVIDIA GPU, got "
            f"DLPack's device ({kind}, {number})"
        )
    device: Any = find_device(f"cuda:{number}")
    if not hasattr(device, "pool"):
        raise absent("cuda")
    pool = device.pool
    found = dlpack.described(x.__dlpack__(stream=int(pool.runtime.stream)))
    return Tensor.on_device(pool.over(found.interface, found.owner), device)


def to_dlpack(
    self: Tensor,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """A DLPack capsule of this tensor's memory, as ``from_dlpack`` asks for it.

    >>> x = weft.zeros(2)
    >>> np.from_dlpack(x)[0] = 5
    >>> x
    tensor([5., 0.])
    """
    place = dlpack_device(self)
    if dl_device is not None and tuple(dl_device) != place:
        raise ExportError(
            f"__dlpack__: expected dl_device {place}, where the tensor is, got "
            f"{dl_device!r}"
        )
    if place[0] == dlpack.CUDA:
        return _gpu_capsule(self, stream, copy)
    if stream is not None:
        raise ExportError(f"__dlpack__: the CPU has no streams, got {stream!r}")
    array = plain("__dlpack__", self)
    if not array.flags.writeable and max_version is None:
        array = array.copy()  # an old consumer could not be told it is read-only
    array = array.copy() if copy else array
    if self.dtype is not dtypes.bfloat16:
        return array.__dlpack__(max_version=max_version)
    return dlpack.capsule(array.ctypes.data, array.shape, array.strides, array.dtype,
                          place, array)  # fmt: skip


def _gpu_capsule(x: Tensor, stream: Any, copy: bool | None) -> Any:
    """A capsule of a GPU's memory, once what is written there is."""
    if x._interpreter is not None or x._node is not None:
        raise AutogradError(
            "__dlpack__: another library would not record what it does with this "
            "tensor; use .detach()"
        )
    x = x.clone() if copy else x
    buffer: Any = x._data
    if stream != -1:  # whose taker looks after the order itself
        buffer.pool.runtime.wait()
    x.storage_record.exposed = True
    return dlpack.capsule(
        buffer.address, buffer.shape, buffer.strides, buffer.dtype,
        dlpack_device(x), buffer,
    )  # fmt: skip


def dlpack_device(self: Tensor) -> tuple[int, int]:
    """DLPack's type and number of this tensor's device.

    >>> weft.zeros(2).__dlpack_device__()
    (1, 0)
    """
    if self.is_cuda:
        return dlpack.CUDA, self.device.index or 0
    if self.device is not cpu:
        raise ExportError(
            f"__dlpack__: expected a tensor on the CPU or on an NVIDIA GPU, got one on "
            f"{self.device.name!r}; move it with .cpu()"
        )
    return dlpack.CPU, 0


# -- NumPy


def to_array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    """This tensor's values for ``np.asarray``, sharing memory where possible.

    >>> np.asarray(weft.tensor([1.0, 2.0]))
    array([1., 2.], dtype=float32)
    """
    array = plain("np.asarray", self, ".detach() or .detach().numpy()")
    wanted = array.dtype if dtype is None else np.dtype(dtype)
    if copy is False and wanted != array.dtype:
        raise ArgumentError(
            f"np.asarray: copy=False, but {array.dtype} to {wanted} needs a copy"
        )
    return array.astype(wanted, copy=bool(copy))


def array_ufunc(
    self: Tensor, ufunc: Any, method: str, *args: Any, **kwargs: Any
) -> Any:
    """NumPy's ufuncs on tensors: the operator of the same name, differentiable.

    >>> np.add(np.ones(2), weft.tensor([1.0, 2.0]))
    tensor([2., 3.], dtype=weft.float64)
    """
    if method == "__call__" and not kwargs:
        found = plain_call(ufunc, args)
        if found is not None:
            return found
    numpy_protocol = late.find("numpy_protocol")

    return numpy_protocol.call_ufunc(ufunc, method, args, kwargs)


def array_function(self: Tensor, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """NumPy's functions on tensors: Weft's own, or NumPy's on their values.

    >>> np.concatenate([weft.tensor([1]), weft.tensor([2, 3])])
    tensor([1, 2, 3])
    """
    numpy_protocol = late.find("numpy_protocol")

    return numpy_protocol.call_function(func, args, kwargs)


# -- the array API standard


def array_namespace(self: Tensor, /, *, api_version: str | None = None) -> Any:
    """The namespace that code written against the standard uses.

    >>> weft.ones(2).__array_namespace__().__name__
    'weft.array_api'
    """
    if api_version is not None and api_version not in API_VERSIONS:
        raise ArgumentError(
            f"__array_namespace__: expected api_version to be one of "
            f"{', '.join(API_VERSIONS)}, got {api_version!r}"
        )
    array_api = late.find("array_api")

    return array_api


def to_device(self: Tensor, device: str | Device, /, *, stream: Any = None) -> Tensor:
    """The tensor on another device (the standard's name for ``.to(device)``).

    >>> weft.ones(2).to_device("cpu").device
    device(type='cpu')
    """
    if stream is not None:
        raise ArgumentError(f"to_device: streams are not supported, got {stream!r}")
    return self.to(find_device(device))


# -- copying


def shallow_copy(self: Tensor) -> Tensor:
    """``copy.copy``: another tensor over the same memory.

    >>> import copy
    >>> x = weft.zeros(2)
    >>> copy.copy(x).add_(1).data_ptr() == x.data_ptr()
    True
    """
    if mode.capture is not None:
        mode.capture.touch(self)
        if not self.is_leaf:
            return self.unsqueeze(0).squeeze(0)
        return self.detach().requires_grad_(self.requires_grad)
    twin = type(self).__new__(type(self))
    self.storage_record.version  # noqa: B018 - made now, so that both share it
    vars(twin).update(vars(self))
    if self.is_leaf and self._node is not None:
        twin._node = None
        twin.requires_grad_()
    return twin


def plain_call(ufunc: Any, args: tuple[Any, ...]) -> Any:
    """A ufunc of tensors and Python numbers; None where it takes more than that.

    >>> weft.interchange.plain_call(np.sqrt, (weft.tensor([4.0, 9.0]),))
    tensor([2., 3.])
    """
    name = UFUNCS.get(ufunc)
    if name is None:
        return None
    for a in args:
        if not isinstance(a, Tensor) and type(a) not in (int, float):
            return None
    import weft

    return getattr(weft, name)(*args)
