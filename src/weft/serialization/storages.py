"""Storages of saved tensors: memory that several tensors may share."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from weft.core.device import Device, cpu, find_device
from weft.core.tape import Storage
from weft.core.tensor import Tensor
from weft.dtype import DType, bool_, uint8
from weft.errors import DeviceError, DTypeError
from weft.ops.strided import overlaps
from weft.serialization.container import MAX_DIMS
from weft.serialization.text import Complain


class StorageKind(NamedTuple):
    """A class of storages in a pickle: its elements' dtype, None for plain bytes."""

    dtype: DType | None


class SavedStorage:
    """A storage from a file, as ``map_location`` is given it."""

    def __init__(self, raw: np.ndarray, dtype: DType | None, device: Device) -> None:
        self.raw = raw
        self.kind = dtype
        self.device = device
        self.record = Storage()  # of changes, which all tensors over it share

    @property
    def dtype(self) -> DType:
        return self.kind or uint8

    def nbytes(self) -> int:
        return self.raw.nbytes

    def size(self) -> int:
        return self.raw.nbytes // self.dtype.itemsize

    __len__ = size

    def to(self, device: Any) -> SavedStorage:
        """The same storage, whose tensors are to be on another device."""
        twin = SavedStorage(self.raw, self.kind, find_device(device))
        twin.record = self.record
        return twin

    def cpu(self) -> SavedStorage:
        return self.to(cpu)

    def cuda(self, device: Any = None) -> SavedStorage:
        if device is None:
            return self.to("cuda")
        return self.to(f"cuda:{device}" if isinstance(device, int) else device)

    def __repr__(self) -> str:
        return f"<saved storage of {self.size()} {self.dtype.name}>"

    def tensor(
        self,
        dtype: DType | None,
        offset: int,
        size: tuple[int, ...],
        stride: tuple[int, ...],
        bad: Complain,
    ) -> Tensor:
        """A tensor over this memory, with sizes, strides and offset in elements."""
        kind = dtype or self.dtype
        self._check(kind, offset, size, stride, bad)
        if 0 in size:
            array = np.zeros(size, kind.np)
        else:
            width = kind.itemsize
            steps = [s * width for s in stride]
            array = np.ndarray(size, kind.np, self.raw, offset * width, steps)
            array.flags.writeable = not overlaps(size, stride)
        made = Tensor(array)
        made._storage = self.record
        return made if self.device is cpu else made.to(self.device)

    def _check(
        self, kind: DType, offset: int, size: Any, stride: Any, bad: Complain
    ) -> None:
        if len(size) != len(stride) or len(size) > MAX_DIMS:
            raise bad(
                f"expected as many strides as sizes and at most {MAX_DIMS}, got "
                f"{len(size)} and {len(stride)}"
            )
        if kind is bool_ and self.kind is not bool_:
            raise bad("expected booleans in a storage of booleans")
        if math.prod(n for n in size if n) * kind.itemsize >= 1 << 63:
            raise bad(f"the shape {list(size)} is too large")
        if max(stride, default=0) * kind.itemsize >= 1 << 63:
            raise bad(f"the strides {list(stride)} are too large")
        if 0 in size:
            return
        reach = sum((n - 1) * s for n, s in zip(size, stride, strict=True))
        if (offset + reach + 1) * kind.itemsize > self.raw.nbytes:
            raise bad(
                f"a tensor of shape {list(size)}, strides {list(stride)} and offset "
                f"{offset} needs {offset + reach + 1:,} elements; its storage has "
                f"{self.raw.nbytes // kind.itemsize:,}"
            )


class Placement:
    """Where the tensors of a file are to be: what ``map_location`` says.

    >>> from weft.serialization.storages import Placement
    >>> Placement({"cuda:0": "cpu"}).device("cuda:0", None)
    device(type='cpu')
    """

    def __init__(self, map_location: Any = None) -> None:
        if not (
            map_location is None
            or isinstance(map_location, (str, Device, dict))
            or callable(map_location)
        ):
            raise DTypeError(
                "load: expected map_location to be a device, its name, a dictionary "
                f"of names or a function, got {type(map_location).__name__}"
            )
        self.given = map_location

    def mapped(self, location: str) -> Device | None:
        """The device that map_location gives without asking a function."""
        given = self.given
        if isinstance(given, dict):
            given = given.get(location)
        return find_device(given) if isinstance(given, (str, Device)) else None

    def device(self, location: str, storage: SavedStorage | None) -> Device:
        """The device for what was saved at a location."""
        found = self.mapped(location)
        asked = callable(self.given) and not isinstance(self.given, Device)
        if storage is not None and asked:
            moved = self.given(storage, location)
            if isinstance(moved, SavedStorage):
                return moved.device
            if moved is not None:
                raise DTypeError(
                    "load: expected map_location to return a storage or None, got "
                    f"{type(moved).__name__}"
                )
        return found or self._same(location)

    def _same(self, location: str) -> Device:
        try:
            return find_device(location)
        except DeviceError:
            raise DeviceError(
                f"load: the file was saved on {location[:50]!r}, which is not "
                "available here; pass map_location='cpu'"
            ) from None

    def tensor(self, x: Tensor) -> Tensor:
        """A tensor of a file that names no devices."""
        if self.given is None:
            return x
        device = self.device("cpu", SavedStorage(np.empty(0, np.uint8), None, cpu))
        return x.to(device)
