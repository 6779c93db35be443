"""DLPack's capsules: arrays that libraries give one another without a copy.

A capsule holds a description in C of an array's memory, its device, shape and strides,
and a function that its taker calls when it is done.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft import dtype as dtypes
from weft.errors import ExportError

CPU, CUDA = 1, 2  # types of devices
_NAME, _USED = b"dltensor", b"used_dltensor"
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}  # of NumPy's kinds
_BFLOAT = 4


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (
    ("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)
)  # fmt: skip


class _Held(NamedTuple):
    """A capsule, and the memory that it describes."""

    capsule: Any
    memory: Any


_held: dict[int, _Held] = {}  # by the description's address, until takers are done


def _api(name: str, result: Any, *kinds: Any) -> Any:
    found = getattr(ctypes.pythonapi, name)
    found.restype, found.argtypes = result, kinds
    return found


_new = _api(
    "PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)
_is_valid = _api("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_pointer = _api(
    "PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p
)
_rename = _api("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)


@_Deleter
def _release(managed: Any) -> None:
    """A taker is done."""
    _held.pop(ctypes.addressof(managed.contents), None)


def _sweep() -> None:
    """Forget capsules that nobody has taken and nobody can take any more.

    A destructor cannot do that: it would run while an error of the taker is raised.
    """
    for place, held in list(_held.items()):
        unclaimed = _is_valid(held.capsule, _NAME)
        if unclaimed and sys.getrefcount(held.capsule) <= _OURS:
            del _held[place]


_OURS = 2  # references to a capsule: of ``_held``, and of the call that counts


class Described(NamedTuple):
    """An array as a capsule tells of it."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None  # in elements; None: row by row
    dtype: np.dtype
    device: tuple[int, int]
    owner: Any  # keeps the memory

    @property
    def interface(self) -> dict[str, Any]:
        """The same as ``__cuda_array_interface__`` has it."""
        steps = self.strides
        if steps is not None:
            steps = tuple(step * self.dtype.itemsize for step in steps)
        return {
            "shape": self.shape, "typestr": self.dtype, "data": (self.address, False),
            "strides": steps,
        }  # fmt: skip


def array_of(found: Described) -> np.ndarray:
    """An array over described memory of the CPU."""
    return np.asarray(_Words(found)).view(found.dtype)


class _Words:
    """Memory as NumPy asks for it: as integers, since it knows few other types."""

    def __init__(self, found: Described) -> None:
        self.__array_interface__ = {
            **found.interface, "typestr": f"<u{found.dtype.itemsize}", "version": 3,
        }  # fmt: skip
        self.found = found


def capsule(
    address: int,
    shape: Sequence[int],
    strides: Sequence[int],
    dtype: np.dtype,
    device: tuple[int, int],
    owner: Any,
) -> Any:
    """A capsule of an array; strides are in bytes, ``owner`` is kept with it.

    >>> from weft import dlpack
    >>> x = np.arange(3.0)
    >>> given = dlpack.capsule(x.ctypes.data, x.shape, x.strides, x.dtype, (1, 0), x)
    >>> dlpack.described(given).shape
    (3,)
    """
    sizes = (ctypes.c_int64 * len(shape))(*shape)
    steps = (ctypes.c_int64 * len(shape))(*[s // dtype.itemsize for s in strides])
    code = _BFLOAT if dtype == dtypes.bfloat16.np else _CODES[dtype.kind]
    tensor = _Tensor(
        address or None,
        *device,
        len(shape),
        code,
        8 * dtype.itemsize,
        1,
        sizes,
        steps,
        0,
    )
    managed = _Managed(tensor, None, _release)
    place = ctypes.addressof(managed)
    _sweep()
    made = _new(place, _NAME, None)
    _held[place] = _Held(made, (managed, sizes, steps, owner))
    return made


def _place_of(given: Any) -> int:
    if not _is_valid(given, _NAME):
        raise ExportError("from_dlpack: expected a capsule that nobody has taken")
    return _pointer(given, _NAME)


def device_of(given: Any) -> tuple[int, int]:
    """The device of a capsule's array."""
    one = _Managed.from_address(_place_of(given)).tensor
    return one.device_type, one.device_id


def described(given: Any) -> Described:
    """Take the array of a capsule."""
    place = _place_of(given)
    one = _Managed.from_address(place).tensor
    dtype = _dtype(one.code, one.bits, one.lanes)
    shape = tuple(one.shape[k] for k in range(one.ndim))
    strides = tuple(one.strides[k] for k in range(one.ndim)) if one.strides else None
    _rename(given, _USED)
    return Described(
        (one.data or 0) + one.byte_offset, shape, strides, dtype,
        (one.device_type, one.device_id), _Taken(place),
    )  # fmt: skip


def _dtype(code: int, bits: int, lanes: int) -> np.dtype:
    kinds = {number: kind for kind, number in _CODES.items()}
    if lanes == 1 and (code, bits) == (_BFLOAT, 16):
        return np.dtype(dtypes.bfloat16.np)
    if lanes != 1 or code not in kinds or bits % 8:
        raise ExportError(
            f"from_dlpack: expected numbers of a type that tensors have, got code "
            f"{code} of {bits} bits in {lanes} lanes"
        )
    try:
        found = np.dtype(f"{kinds[code]}{bits // 8}")
        dtypes.of_array(np.empty(0, found))
    except TypeError:
        raise ExportError(
            f"from_dlpack: there is no {kinds[code]} of {bits} bits"
        ) from None
    return found


class _Taken:
    """The memory of a capsule that was taken; its giver is told when it is done."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __del__(self) -> None:
        managed = _Managed.from_address(self.place)
        if managed.deleter:
            managed.deleter(ctypes.pointer(managed))
