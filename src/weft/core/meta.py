"""The meta device: tensors with a shape and a dtype, but without values.

Operators on them run their type rules alone, so a model that is made there costs no
memory, and its shapes can be looked at.

>>> with weft.device("meta"):
...     layer = weft.nn.Linear(1_000_000, 1_000_000)
>>> layer(weft.empty(3, 1_000_000, device="meta")).shape
(3, 1000000)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.core.device import BUILT_IN, Device, Kernel
from weft.core.op import Op, TensorType
from weft.core.tensor import DeviceTensor, Tensor
from weft.dtype import DType, of_array
from weft.errors import DeviceError


class NoValuesError(DeviceError, NotImplementedError):
    """A value is wanted of a tensor on the meta device."""


class Outline:
    """The buffer of a tensor without values: what an array tells about itself."""

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = tuple(shape), dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides of a contiguous array, in bytes."""
        found, step = [], self.itemsize
        for size in reversed(self.shape):
            found.append(step)
            step *= max(size, 1)
        return tuple(reversed(found))


def _typed(value: Any) -> Any:
    if isinstance(value, Outline):
        like: Any = value
        return TensorType(value.shape, of_array(like))
    return value


def _outline(kind: TensorType) -> Outline:
    return Outline(tuple(kind.shape), kind.dtype.np)


class Meta(Device):
    """The device of tensors without values."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("meta", {}, from_host=_outline_of, to_host=self._refuse)

    def _refuse(self, buffer: Outline) -> Any:
        raise NoValuesError(
            f"a tensor of shape {buffer.shape} on the meta device has no values to "
            "copy or to look at; make some with torch.empty_like(x, device='cpu'), "
            "module.to_empty(device='cpu'), or load_state_dict(..., assign=True)"
        )

    def kernel(self, op: Op) -> Kernel:
        def typed(*args: Any, **params: Any) -> Any:
            assert op.type is not None
            kind = op.type(*map(_typed, args), **params)
            return tuple(map(_outline, kind)) if type(kind) is tuple else _outline(kind)

        return typed

    def copy(self, buffer: Outline) -> Outline:
        return Outline(buffer.shape, buffer.dtype)

    def write(self, target: Any, source: Any) -> None:
        """Nothing: there is no memory."""

    def shares(self, view: Any, base: Any) -> bool:
        return True


def _outline_of(array: np.ndarray) -> Outline:
    return Outline(array.shape, array.dtype)


def without_values(shape: tuple[int, ...], dtype: DType) -> Tensor:
    """A tensor of this shape and dtype on the meta device."""
    return DeviceTensor(Outline(shape, dtype.np), meta)


meta = Meta()
BUILT_IN["meta"] = meta
