"""Plain data as bytes: what object collectives send. Reading it runs nothing.

    value = null | true | number | "text" | [kind, …]
    kind  = list | tuple | set | dict | bytes | float | complex | array | tensor

JSON, with the numbers of arrays behind it. There is no pickle: an object of another
class is refused, with its path.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.dtype import as_dtype, of_array
from weft.errors import DTypeError, FileFormatError

_LENGTH = struct.Struct("<Q")
_SEQUENCES: dict[type, str] = {
    one: one.__name__ for one in (list, tuple, set, frozenset)
}
_MAKE: dict[str, Any] = {name: kind for kind, name in _SEQUENCES.items()}


def encode(value: Any) -> np.ndarray:
    """Plain data as bytes.

    >>> decode(encode({"loss": 0.5, "shape": (2, 3)}))
    {'loss': 0.5, 'shape': (2, 3)}
    """
    text, arrays = parted(value)
    pieces = [_LENGTH.pack(len(text)), text, *[one.tobytes() for one in arrays]]
    return np.frombuffer(b"".join(pieces), np.uint8)


def parted(value: Any, *, shared: bool = False) -> tuple[bytes, list[Any]]:
    """Plain data as JSON, and the arrays in it, which share their tensors' memory.

    Tensors that processes share out are refused, or with ``shared`` among the arrays.

    >>> parted({"w": weft.ones(2)})
    (b'["dict", ["w", ["tensor", "float32", [2]]]]', [array([1., 1.], dtype=float32)])
    """
    arrays: list[Any] = _Shared() if shared else []
    return json.dumps(_encoded(value, arrays, "the object")).encode(), [*arrays]


class _Shared(list[Any]):
    """Arrays, and tensors of which this process has a part."""


def _encoded(value: Any, arrays: list[Any], path: str) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return ["float", value.hex()]
    if kind is complex:
        return ["complex", value.real.hex(), value.imag.hex()]
    if kind is bytes:
        return ["bytes", base64.b64encode(value).decode()]
    if kind in _SEQUENCES:
        inner = [_encoded(v, arrays, f"{path}[{k}]") for k, v in enumerate(value)]
        return [_SEQUENCES[kind], *inner]
    if kind is dict:
        pairs = [
            [
                _encoded(k, arrays, f"a key of {path}"),
                _encoded(v, arrays, f"{path}[{k!r}]"),
            ]
            for k, v in value.items()
        ]
        return ["dict", *pairs]
    is_tensor = isinstance(value, Tensor)
    if is_tensor and value._part is not value:
        if type(arrays) is not _Shared:
            raise DTypeError(
                f"expected a tensor of this process, got a DTensor at {path}; take its "
                "to_local(), or its full_tensor()"
            )
        arrays.append(value)
        return ["tensor", value.dtype.name, list(value.shape)]
    array = value.detach().cpu().numpy() if is_tensor else value
    if isinstance(array, np.generic):
        array = np.asarray(array)
    if type(array) is np.ndarray and array.dtype.kind not in "OSUmM":
        arrays.append(np.ascontiguousarray(array))
        name = "tensor" if is_tensor else "array"
        return [name, of_array(array).name, list(array.shape)]
    raise DTypeError(
        f"expected plain data (numbers, texts, bytes, lists, tuples, sets, dicts, "
        f"arrays, tensors), got {kind.__name__} at {path}; send its state instead, "
        "such as a state_dict()"
    )


def decode(data: np.ndarray) -> Any:
    """The plain data of bytes; an error if they are no such data."""
    try:
        (length,) = _LENGTH.unpack(data[: _LENGTH.size].tobytes())
    except struct.error as error:
        raise FileFormatError(f"these bytes are no plain data: {error}") from None
    end = _LENGTH.size + length
    return joined(data[_LENGTH.size : end].tobytes(), data[end:])


def joined(text: bytes, data: np.ndarray) -> Any:
    """The plain data of JSON and the bytes of its arrays, one behind the other."""
    try:
        return _Reader(data).value(json.loads(text))
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise FileFormatError(f"these bytes are no plain data: {error}") from None


class _Reader:
    def __init__(self, data: np.ndarray) -> None:
        self.data, self.at = data, 0

    def value(self, one: Any) -> Any:
        if type(one) is not list:
            return one
        kind, *rest = one
        if kind in _MAKE:
            return _MAKE[kind](map(self.value, rest))
        if kind == "dict":
            return {self.value(k): self.value(v) for k, v in rest}
        if kind == "float":
            return float.fromhex(rest[0])
        if kind == "complex":
            return complex(*map(float.fromhex, rest))
        if kind == "bytes":
            return base64.b64decode(rest[0], validate=True)
        array = self.array(*rest)
        return {"array": lambda: array, "tensor": lambda: Tensor(array)}[kind]()

    def array(self, name: str, shape: list[int]) -> np.ndarray:
        kind = as_dtype(name).np
        if any(type(n) is not int or n < 0 for n in shape):
            raise ValueError(f"shape {shape}")
        size = kind.itemsize
        for n in shape:
            size *= n
        if self.at + size > len(self.data):
            raise ValueError("an array ends behind the end")
        found = self.data[self.at : self.at + size].copy().view(kind).reshape(shape)
        self.at += size
        return found
