"""Element types: casts, constants and copies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.dtype import DType
from weft.onnx.errors import ModelError
from weft.onnx.reading import array_of
from weft.onnx.registry import operator
from weft.onnx.types import bounded, dtype_of, numbers, tensor

_MIXED: dict[DType, float] = {weft.float8_e4m3fn: 448.0, weft.float8_e4m3fnuz: 240.0,
          weft.float8_e5m2: 57344.0, weft.float8_e5m2fnuz: 57344.0}  # fmt: skip


def cast_to(x: Tensor, wanted: DType, saturate: int) -> Tensor:
    largest = _MIXED.get(wanted)
    if largest is None or x.dtype == wanted:
        return x.to(wanted)
    wide = x.to(weft.float32)
    if saturate:
        inside = wide.clamp(-largest, largest)
        return weft.where(weft.isnan(wide), wide, inside).to(wanted)
    if wanted in (weft.float8_e4m3fnuz, weft.float8_e5m2fnuz, weft.float8_e4m3fn):
        half_step = largest * (1 + 2.0 ** -(4 if largest != 57344.0 else 3))
        wide = weft.where(wide.abs() >= half_step, wide * float("nan"), wide)
    return wide.to(wanted)


@operator("Cast")
def cast(x: Tensor, *, to: Any, saturate: int = 1, round_mode: str = "up") -> Tensor:
    """Elements as another type."""
    if isinstance(to, str):  # opset 1 names the type
        from onnx import TensorProto

        to = TensorProto.DataType.Value(to)
    return cast_to(x, dtype_of(to), saturate)


@operator("CastLike")
def cast_like(
    x: Tensor, like: Tensor, *, saturate: int = 1, round_mode: str = "up"
) -> Tensor:
    """Elements as those of another tensor."""
    return cast_to(x, like.dtype, saturate)


@operator("BitCast")
def bit_cast(x: Tensor, *, to: int) -> Tensor:
    """The same bits as another type of the same width."""
    return x.view(dtype_of(to))


@operator("Identity", plain=True)
def identity(x: Any) -> Any:
    """The value itself."""
    return x


@operator("Constant", plain=True)
def constant(
    *,
    value: Any = None,
    value_float: Any = None,
    value_floats: Any = None,
    value_int: Any = None,
    value_ints: Any = None,
    value_string: Any = None,
    value_strings: Any = None,
    sparse_value: Any = None,
) -> Any:
    """A value of the program."""
    if value is not None:
        return value
    if sparse_value is not None:
        return _dense(sparse_value)
    for one, kind in ((value_float, np.float32), (value_floats, np.float32),
                      (value_int, np.int64), (value_ints, np.int64),
                      (value_string, np.str_), (value_strings, np.str_)):  # fmt: skip
        if one is not None:
            return np.array(one, kind)
    raise ModelError("expected one of the attributes value, value_float, …")


def _dense(proto: Any) -> np.ndarray:
    shape = bounded(tuple(proto.dims))
    if math.prod(shape) > 1 << 26:
        raise ModelError(f"a sparse constant of the shape {list(shape)} is too large")
    values, places = array_of(proto.values), array_of(proto.indices)
    if places.ndim == 2:
        places = np.ravel_multi_index(tuple(places.T), shape)
    out = np.zeros(shape, values.dtype)
    out.reshape(-1)[places] = values
    return out


@operator("ConstantOfShape", static=(0,))
def constant_of_shape(shape: Any, *, value: Any = None) -> Tensor:
    """A tensor of one number."""
    fill = np.zeros(1, np.float32) if value is None else value.reshape(-1)
    return tensor(fill[:1]).reshape(()).expand(bounded(numbers(shape))).clone()


@operator("EyeLike")
def eye_like(x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    """Ones on a diagonal of a matrix."""
    rows, columns = (weft.arange(n) for n in x.shape)
    found = columns == rows.unsqueeze(1) + k
    return found.to(x.dtype if dtype is None else dtype_of(dtype))


@operator("Shape", plain=True)
def shape(x: Any, *, start: int = 0, end: int | None = None) -> np.ndarray:
    """The sizes of a tensor; known where they are."""
    sizes = list(tensor(x).shape)[start:end]
    plain = all(type(n) is int for n in sizes)
    return np.array(sizes, dtype=np.int64 if plain else object)


@operator("Size", plain=True)
def size(x: Any) -> np.ndarray:
    """The number of elements."""
    count = math.prod(tensor(x).shape)
    return np.array(count, dtype=np.int64 if type(count) is int else object)
