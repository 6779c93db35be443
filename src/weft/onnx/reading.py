"""Models and tensors from ONNX files: each size is checked before it is believed."""

from __future__ import annotations

import math
import os
from typing import Any

import ml_dtypes
import numpy as np

from weft.onnx.errors import ModelError, library
from weft.onnx.types import TYPES, dtype_of

# Fields of numbers, by element type; narrow types are held in int32_data.
_FIELDS = {1: "float_data", 7: "int64_data", 11: "double_data", 12: "uint64_data",
           13: "uint64_data", 14: "float_data", 15: "double_data"}  # fmt: skip
_HALVES = {10, 16, 17, 18, 19, 20, 24}  # bits of floats, held as whole numbers
_PACKED = {21: ml_dtypes.uint4, 22: ml_dtypes.int4}  # two elements a byte
_WIDENED = {21: np.uint8, 22: np.int8}


def model_of(source: Any) -> tuple[Any, str | None]:
    """The model of a path, bytes or a ``ModelProto``; and the folder of its data."""
    onnx = library()
    if isinstance(source, onnx.ModelProto):
        return source, None
    folder = None
    if isinstance(source, (str, os.PathLike)):
        folder = os.path.dirname(os.path.abspath(source))
        with open(source, "rb") as file:
            source = file.read()
    if not isinstance(source, (bytes, bytearray, memoryview)):
        raise ModelError(
            f"expected a path, bytes or a ModelProto, got {type(source).__name__}"
        )
    model = onnx.ModelProto()
    try:
        model.ParseFromString(bytes(source))
    except Exception as error:  # protobuf's implementations differ in the class
        raise ModelError(f"expected an ONNX model, but {error}") from None
    if not model.HasField("graph"):
        raise ModelError("expected an ONNX model with a graph, and there is none")
    return model, folder


def array_of(proto: Any, folder: str | None = None) -> np.ndarray:
    """The array of a ``TensorProto``, whose sizes and data must agree."""
    name = proto.name or "a tensor"
    shape = tuple(proto.dims)
    if any(n < 0 for n in shape) or len(shape) > 32:
        raise ModelError(f"{name}: expected sizes of 0 or more, got {list(shape)}")
    if proto.HasField("segment"):
        raise ModelError(f"{name}: segments of tensors are not supported")
    kind = proto.data_type
    if kind == 8:
        return _strings(proto, name, shape)
    dtype = None if kind in _PACKED else dtype_of(kind).np
    count = math.prod(shape)
    if proto.data_location == 1:
        content = _external(proto, name, folder, _bytes(dtype, count))
    elif proto.HasField("raw_data"):
        content = proto.raw_data
    else:
        return _listed(proto, name, shape)
    if len(content) != _bytes(dtype, count):
        raise ModelError(
            f"{name}: expected {_bytes(dtype, count)} bytes for the shape "
            f"{list(shape)}, got {len(content)}"
        )
    if dtype is None:
        return _unpacked(np.frombuffer(content, np.uint8), kind, shape)
    values = np.frombuffer(content, dtype.newbyteorder("<"))
    return values.astype(dtype).reshape(shape)


def _bytes(dtype: Any, count: int) -> int:
    return (count + 1) // 2 if dtype is None else count * dtype.itemsize


def _unpacked(pairs: np.ndarray, kind: int, shape: Any) -> np.ndarray:
    """Elements of four bits, one a byte."""
    halves = np.stack([pairs & 15, pairs >> 4], -1).ravel()[: math.prod(shape)]
    if kind == 22:
        halves = ((halves ^ 8).astype(np.int16) - 8).astype(np.int8)
    return halves.astype(_WIDENED[kind]).reshape(shape)


def _listed(proto: Any, name: str, shape: tuple[int, ...]) -> np.ndarray:
    kind = proto.data_type
    values = getattr(proto, _FIELDS.get(kind, "int32_data"))
    count, complex_ = math.prod(shape), kind in (14, 15)
    if kind in _PACKED:
        pairs = np.array(values, np.int64).astype(np.uint8)
        if len(pairs) != (count + 1) // 2:
            raise ModelError(f"{name}: its elements do not match {list(shape)}")
        return _unpacked(pairs, kind, shape)
    if len(values) != count * (2 if complex_ else 1):
        raise ModelError(
            f"{name}: expected {count} elements for the shape {list(shape)}, got "
            f"{len(values)}"
        )
    dtype = TYPES[kind].np
    if complex_:
        real = np.array(values, np.float32 if kind == 14 else np.float64)
        return real.view(dtype).reshape(shape)
    if kind in _HALVES:
        bits = np.array(values, np.int64).astype(f"uint{dtype.itemsize * 8}")
        return bits.view(dtype).reshape(shape)
    return np.array(list(values)).astype(dtype).reshape(shape)


def _strings(proto: Any, name: str, shape: tuple[int, ...]) -> np.ndarray:
    if len(proto.string_data) != math.prod(shape):
        raise ModelError(f"{name}: its strings do not match the shape {list(shape)}")
    texts = [text.decode("utf-8", "replace") for text in proto.string_data]
    return np.array(texts, dtype=np.str_).reshape(shape)


def _external(proto: Any, name: str, folder: str | None, size: int) -> bytes:
    """Data of a file beside the model, and nowhere else."""
    where = {entry.key: entry.value for entry in proto.external_data}
    if folder is None:
        raise ModelError(f"{name}: its data is in another file; load the model's path")
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, where.get("location", "")))
    if os.path.commonpath([root, path]) != root or not os.path.isfile(path):
        raise ModelError(
            f"{name}: expected a file in the model's folder, got "
            f"{where.get('location', '')!r}"
        )
    try:
        offset = int(where.get("offset", 0))
        length = int(where.get("length", size))
    except ValueError:
        raise ModelError(f"{name}: its offset or length is no number") from None
    have = os.path.getsize(path)
    if offset < 0 or length != size or offset + length > have:
        raise ModelError(
            f"{name}: expected {size} bytes at {offset} of {os.path.basename(path)}, "
            f"which has {have}, got the length {length}"
        )
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(length)
