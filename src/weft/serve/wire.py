"""Arrays in requests and answers: as JSON, or as safetensors."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import weft
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, WeftError
from weft.serve.program import Field

RAW = "application/x-safetensors"
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def read_json(body: bytes) -> dict[str, Any]:
    """The object that a body holds."""
    try:
        found = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"the body is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ArgumentError("the body must be a JSON object")
    return found


def _no_constant(word: str) -> Any:
    raise ValueError(f'{word} is no JSON; write it as the string "{word}"')


def arrays_of_json(
    found: Mapping[str, Any], fields: Sequence[Field]
) -> list[np.ndarray]:
    """Arrays from ``{"inputs": {"x": [[1, 2]]}}``, or a list where names are clear."""
    inputs = found.get("inputs")
    unknown = sorted(set(found) - {"inputs"})
    if unknown or inputs is None:
        raise ArgumentError(
            f'the body must be {{"inputs": …}}, got the keys {sorted(found)}'
        )
    if not isinstance(inputs, dict):
        if len(fields) != 1:
            raise ArgumentError(
                f"inputs must be an object with {[f.name for f in fields]}"
            )
        inputs = {fields[0].name: inputs}
    _check_names(inputs, fields)
    return [_array(inputs[field.name], field) for field in fields]


def _check_names(inputs: Mapping[str, Any], fields: Sequence[Field]) -> None:
    names = [field.name for field in fields]
    if set(inputs) != set(names):
        raise ArgumentError(f"expected the inputs {names}, got {sorted(inputs)}")


def _array(value: Any, field: Field) -> np.ndarray:
    dtype = field.dtype.np
    floating = field.dtype.is_floating_point
    try:
        plain = np.array(value)
        if plain.dtype.kind == "U" and floating:
            plain = np.array(_with_words(value), np.float64)
    except (ValueError, OverflowError, RecursionError) as error:
        raise ArgumentError(f"{field.name}: {error}") from None
    kinds = "iuf" if floating else "b" if field.dtype is weft.bool else "iu"
    if plain.size and plain.dtype.kind not in kinds:
        raise DTypeError(
            f"{field.name}: expected numbers that are {field.dtype.name}, got "
            f"{plain.dtype if plain.dtype.kind != 'O' else 'rows of different lengths'}"
        )
    if plain.size and plain.dtype.kind in "iu" and not floating:
        info = np.iinfo(dtype) if dtype.kind in "iu" else None
        if info and (plain.min() < info.min or plain.max() > info.max):
            raise DTypeError(f"{field.name}: a number is out of range for {dtype}")
    array = plain.astype(dtype)
    field.check(array)
    return array


def _with_words(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_words(one) for one in value]
    if isinstance(value, str):
        if value not in _WORDS:
            raise ValueError(f"expected a number, got {value[:40]!r}")
        return _WORDS[value]
    return value


def arrays_of_raw(body: bytes, fields: Sequence[Field]) -> list[np.ndarray]:
    """Arrays from a safetensors file of the inputs by their names."""
    if body[8:9] != b"{":
        raise ArgumentError("the body is no safetensors file")
    try:
        found = weft.load(io.BytesIO(body))
    except WeftError as error:
        raise ArgumentError(str(error).partition("\n")[0]) from None
    if not isinstance(found, dict):
        raise ArgumentError("the body must hold tensors by name")
    _check_names(found, fields)
    arrays = []
    for field in fields:
        tensor = found[field.name]
        if not isinstance(tensor, Tensor):
            raise ArgumentError(f"{field.name} must be a tensor")
        arrays.append(tensor.numpy())
        field.check(arrays[-1])
    return arrays


def to_raw(arrays: Sequence[np.ndarray], fields: Sequence[Field]) -> bytes:
    named = {f.name: Tensor(a) for f, a in zip(fields, arrays, strict=True)}
    file = io.BytesIO()
    weft.save(named, file, format="safetensors")
    return file.getvalue()


def to_json(arrays: Sequence[np.ndarray], fields: Sequence[Field]) -> dict[str, Any]:
    """Lists of numbers; what is not finite becomes "NaN", "Infinity", "-Infinity"."""
    return {
        field.name: _plain(array) for field, array in zip(fields, arrays, strict=True)
    }


def _plain(array: np.ndarray) -> Any:
    if array.dtype.kind not in "iub":
        # float32 as its shortest decimal, not as that of the float64 it widens to
        short = array if array.dtype in (np.float32, np.float64) else array.astype("f4")
        if short.dtype == np.float32:
            short = short.astype(str).astype(np.float64)
        return (
            _finite(short.tolist()) if not np.isfinite(short).all() else short.tolist()
        )
    return array.tolist()


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(one) for one in value]
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
