"""Element types by ONNX's numbers, and values on their way between the two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
from weft.core.mode import mode
from weft.core.tensor import Tensor
from weft.dtype import DType
from weft.onnx.errors import ModelError

TYPES: dict[int, DType] = {
    1: weft.float32,
    2: weft.uint8,
    3: weft.int8,
    4: weft.uint16,
    5: weft.int16,
    6: weft.int32,
    7: weft.int64,
    9: weft.bool,
    10: weft.float16,
    11: weft.float64,
    12: weft.uint32,
    13: weft.uint64,
    14: weft.complex64,
    15: weft.complex128,
    16: weft.bfloat16,
    17: weft.float8_e4m3fn,
    18: weft.float8_e4m3fnuz,
    19: weft.float8_e5m2,
    20: weft.float8_e5m2fnuz,
    24: weft.float8_e8m0fnu,
}
NUMBERS = {dtype: number for number, dtype in TYPES.items()}
LARGEST = 1 << 31  # elements that one operator of a model may make from nothing


def dtype_of(number: int) -> DType:
    """The element type of one of ONNX's numbers.

    >>> weft.onnx.types.dtype_of(10)
    weft.float16
    """
    found = TYPES.get(number)
    if found is None:
        name = _named(number)
        raise ModelError(
            f"element type {name}: expected one of {sorted(t.name for t in NUMBERS)}"
        )
    return found


def _named(number: int) -> str:
    from onnx import TensorProto

    names = {v: k for k, v in TensorProto.DataType.items()}
    return names.get(number, str(number))


def tensor(value: Any) -> Tensor:
    """A tensor of a value: an array that is known, or a tensor as it is."""
    if isinstance(value, np.ndarray):
        if value.dtype != object:
            made = weft.from_numpy(value)
            return made if mode.device is None else made.to(mode.device)
        flat = [weft.full((), n, dtype=weft.int64) for n in value.ravel().tolist()]
        return weft.stack(flat).reshape(value.shape) if flat else weft.empty(0).long()
    if isinstance(value, Tensor):
        return value
    kind = "nothing" if value is None else f"a {type(value).__name__}"
    raise ModelError(f"expected a tensor, got {kind}")


def numbers(value: Any) -> list[Any]:
    """The elements of a vector, such as a shape, as Python's numbers or sizes."""
    found = value.tolist()
    return found if isinstance(found, list) else [found]


def number(value: Any, default: Any = None) -> Any:
    """The one element of a value, as Python's number; ``default`` for nothing."""
    if value is None:
        return default
    found = numbers(value.reshape(-1))
    if len(found) != 1:
        raise ModelError(f"expected one element, got {len(found)}")
    return found[0]


def bounded(shape: Sequence[Any]) -> tuple[Any, ...]:
    """A shape that a model asks for, if it is one and not too large."""
    count = 1
    for size in shape:
        if isinstance(size, int):
            if size < 0:
                raise ModelError(f"expected sizes of 0 or more, got {list(shape)}")
            count *= size
    if count > LARGEST:
        raise ModelError(
            f"expected at most {LARGEST} elements, got the shape {list(shape)}"
        )
    return tuple(shape)
