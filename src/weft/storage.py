"""The memory behind tensors as objects, under PyTorch's names.

    x.untyped_storage()      the bytes that x and its views share
    x.storage()              the same, as elements of x's dtype

A storage is another look at the memory, not a copy: what is written through it shows in
the tensors.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from weft import dtype as dtypes
from weft.core.device import Device, cpu
from weft.core.dispatch import unable
from weft.core.tensor import Tensor
from weft.dtype import DType, as_dtype
from weft.errors import ArgumentError, DeviceError, DTypeError


def memory_of(x: Tensor) -> np.ndarray:
    """The bytes of the whole memory that a tensor looks at."""
    base = x if x._base is None else x._base
    array = base.layout_array()
    held, memory = vars(x).get("_resized", (None, None))
    if held is array:  # a smaller tensor than its memory, since resize_
        array = memory
    if not x.is_cpu or not isinstance(array, np.ndarray) or x._interpreter is not None:
        raise unable(
            DeviceError(
                "storage: expected a tensor of values in host memory, got a "
                f"{type(x).__name__} on {x.device.name!r}; move it with .cpu()"
            ),
            x,
        )
    x.storage_record.exposed = True
    low, high = np.lib.array_utils.byte_bounds(array)
    if array.size == 0:
        return np.empty(0, np.uint8)
    first = array[(slice(0, 1),) * array.ndim].reshape(1).view(np.uint8)
    return as_strided(first, (high - low,), (1,), writeable=array.flags.writeable)


class UntypedStorage:
    """A block of memory, as bytes.

    >>> x = weft.tensor([1.0, 2.0, 3.0])
    >>> x[1:].untyped_storage().nbytes()
    12
    >>> x[1:].untyped_storage().data_ptr() == x.data_ptr()
    True
    """

    device: Device = cpu
    is_cuda = False

    def __init__(self, given: Any = 0) -> None:
        if isinstance(given, int):
            given = np.zeros(given, np.uint8)
        elif not isinstance(given, np.ndarray):
            given = np.array(list(given), np.uint8)
        self._bytes = given

    @staticmethod
    def from_file(
        filename: Any, shared: bool = False, nbytes: int = 0
    ) -> UntypedStorage:
        """The first bytes of a file, read when they are used.

        Changes are written to the file if it is ``shared``.
        """
        mode: Any = "r+" if shared else "c"
        found = np.memmap(os.fspath(filename), np.uint8, mode, shape=(nbytes,))
        return UntypedStorage(found.view(np.ndarray))

    @property
    def __array_interface__(self) -> Any:
        return self._bytes.__array_interface__

    def nbytes(self) -> int:
        """The number of bytes.

        >>> weft.zeros(3).untyped_storage().nbytes()
        12
        """
        return self._bytes.size

    size = nbytes
    __len__ = nbytes

    def data_ptr(self) -> int:
        """The address of the first byte."""
        return int(self._bytes.ctypes.data)

    def element_size(self) -> int:
        """The bytes of an element, which is a byte."""
        return 1

    def __getitem__(self, index: Any) -> Any:
        found = self._bytes[index]
        return UntypedStorage(found) if isinstance(index, slice) else int(found)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._bytes[index] = value

    def __iter__(self) -> Iterator[int]:
        return iter(self._bytes.tolist())

    def tolist(self) -> list[int]:
        """The bytes as a list of numbers."""
        return self._bytes.tolist()

    def fill_(self, value: int) -> UntypedStorage:
        """Set every byte."""
        self._bytes[...] = value
        return self

    def copy_(self, source: UntypedStorage, non_blocking: bool = False) -> Any:
        """Take over another block's bytes."""
        self._bytes[...] = source._bytes
        return self

    def clone(self) -> UntypedStorage:
        """A block of its own with the same bytes."""
        return UntypedStorage(self._bytes.copy())

    def cpu(self) -> UntypedStorage:
        """This block, which is in host memory."""
        return self

    def is_pinned(self, device: Any = None) -> bool:
        """Whether the memory is pinned for a device; host memory here is not."""
        return False

    def is_shared(self) -> bool:
        """Whether other processes see the memory."""
        return False

    def untyped(self) -> UntypedStorage:
        """This block itself."""
        return self

    def __repr__(self) -> str:
        return f"UntypedStorage({self.nbytes()} bytes, device='cpu')"


class TypedStorage:
    """A block of memory, as elements of a dtype.

    >>> storage = weft.tensor([1.0, 2.0, 3.0])[1:].storage()
    >>> len(storage), storage[0], storage.dtype
    (3, 1.0, weft.float32)
    """

    dtype: DType
    device: Device = cpu
    is_cuda = False

    def __init__(
        self, *given: Any, wrap_storage: Any = None, dtype: Any = None
    ) -> None:
        chosen = as_dtype(dtype) if dtype is not None else self._own_dtype()
        self.dtype = chosen
        if wrap_storage is not None:
            self._untyped = wrap_storage
        elif len(given) == 1 and not isinstance(given[0], int):
            data = np.array(list(given[0]), chosen.np)
            self._untyped = UntypedStorage(data.view(np.uint8))
        else:
            count = given[0] if given else 0
            self._untyped = UntypedStorage(count * chosen.itemsize)

    @classmethod
    def _own_dtype(cls) -> DType:
        return getattr(cls, "dtype", None) or dtypes.default_dtype()

    @property
    def _elements(self) -> np.ndarray:
        return self._untyped._bytes.view(self.dtype.np)

    def untyped(self) -> UntypedStorage:
        """The same memory, as bytes."""
        return self._untyped

    def size(self) -> int:
        """The number of elements."""
        return self._elements.size

    __len__ = size

    def nbytes(self) -> int:
        """The number of bytes."""
        return self._untyped.nbytes()

    def element_size(self) -> int:
        """The bytes of one element."""
        return self.dtype.itemsize

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._untyped.data_ptr()

    def __getitem__(self, index: Any) -> Any:
        found = self._elements[index]
        if not isinstance(index, slice):
            return Tensor(np.asarray(found)).item()
        return TypedStorage(wrap_storage=UntypedStorage(found.view(np.uint8)),
                            dtype=self.dtype)  # fmt: skip

    def __setitem__(self, index: Any, value: Any) -> None:
        self._elements[index] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        """The elements as Python numbers."""
        return Tensor(self._elements).tolist()

    def fill_(self, value: Any) -> TypedStorage:
        """Set every element."""
        self._elements[...] = value
        return self

    def copy_(self, source: Any, non_blocking: bool = False) -> TypedStorage:
        """Take over another storage's elements."""
        self._elements[...] = source._elements
        return self

    def clone(self) -> TypedStorage:
        """Memory of its own with the same elements."""
        return TypedStorage(wrap_storage=self._untyped.clone(), dtype=self.dtype)

    def cpu(self) -> TypedStorage:
        """This storage, which is in host memory."""
        return self

    def is_pinned(self, device: Any = None) -> bool:
        """Whether the memory is pinned for a device; host memory here is not."""
        return False

    def is_shared(self) -> bool:
        """Whether other processes see the memory."""
        return False

    def type(self) -> str:
        """PyTorch's name of this storage's class."""
        return f"torch.{_NAMES[self.dtype.name]}Storage"

    def __repr__(self) -> str:
        return (
            f"TypedStorage(dtype={self.dtype}, device=cpu) of size {self.size()}: "
            f"{self.tolist()}"
        )


_NAMES = {
    "float32": "Float", "float64": "Double", "float16": "Half",
    "bfloat16": "BFloat16", "uint8": "Byte", "int8": "Char", "int16": "Short",
    "int32": "Int", "int64": "Long", "bool": "Bool", "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}  # fmt: skip


class _OfDType(type(TypedStorage)):  # type: ignore[misc]
    def __instancecheck__(cls, value: Any) -> bool:
        dtype = vars(cls).get("dtype")
        return isinstance(value, TypedStorage) and value.dtype is dtype


def _typed(name: str, prefix: str) -> type[TypedStorage]:
    own = {"dtype": as_dtype(name), "__doc__": f"Memory of {name} elements."}
    return _OfDType(f"{prefix}Storage", (TypedStorage,), own)


for _name, _prefix in _NAMES.items():
    globals()[f"{_prefix}Storage"] = _typed(_name, _prefix)


def is_storage(obj: Any) -> bool:
    """Whether an object is a storage.

    >>> weft.is_storage(weft.zeros(1).storage()), weft.is_storage(weft.zeros(1))
    (True, False)
    """
    return isinstance(obj, (TypedStorage, UntypedStorage))


def array_on(
    source: Any,
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    like: DType,
) -> np.ndarray:
    """The array of these sizes and steps (in elements) over a storage's memory."""
    untyped = source.untyped()
    dtype = source.dtype if isinstance(source, TypedStorage) else like
    if dtype is not like:
        raise DTypeError(f"set_: expected memory of {like.name}, got {dtype.name}")
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    empty = 0 in size
    if offset < 0 or (not empty and (last + 1) * like.itemsize > untyped.nbytes()):
        raise ArgumentError(
            f"set_: size {size} and stride {stride} from element {offset} reach "
            f"outside the storage of {untyped.nbytes()} bytes"
        )
    flat = untyped._bytes.view(like.np)[offset:]
    steps = [s * like.itemsize for s in stride]
    return as_strided(flat, size, steps, writeable=flat.flags.writeable)
