"""Sequences and optional values: lists of Python, and None."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.onnx.errors import ModelError
from weft.onnx.program import Program
from weft.onnx.registry import operator
from weft.onnx.types import number, numbers, tensor


@operator("SequenceConstruct", plain=True)
def construct(*xs: Any) -> Any:
    """A sequence of some tensors."""
    return ([tensor(x) for x in xs],)


@operator("SequenceEmpty", plain=True)
def empty(*, dtype: int = 1) -> Any:
    """A sequence without elements."""
    return ([],)


def _place(at: Any, size: int, end: bool) -> int:
    place = int(number(at, size if end else size - 1))
    if not -size <= place < size + end:
        raise ModelError(f"there is no place {place} in a sequence of {size}")
    return place + size if place < 0 else place


@operator("SequenceAt", plain=True)
def at(xs: list[Any], place: Any) -> Any:
    """One element of a sequence."""
    return xs[_place(place, len(xs), False)]


@operator("SequenceInsert", plain=True)
def insert(xs: list[Any], x: Any, place: Any = None) -> Any:
    """A sequence with one more element."""
    k = _place(place, len(xs), True)
    return ([*xs[:k], tensor(x), *xs[k:]],)


@operator("SequenceErase", plain=True)
def erase(xs: list[Any], place: Any = None) -> Any:
    """A sequence with one element less."""
    k = _place(place, len(xs), False)
    return ([*xs[:k], *xs[k + 1 :]],)


@operator("SequenceLength", plain=True)
def length(xs: list[Any]) -> Any:
    """The number of elements of a sequence."""
    return np.array(len(xs), np.int64)


@operator("ConcatFromSequence", plain=True)
def concat_from_sequence(xs: list[Any], *, axis: int, new_axis: int = 0) -> Tensor:
    """The elements of a sequence joined along an axis, or along a new one."""
    tensors = [tensor(x) for x in xs]
    return weft.stack(tensors, axis) if new_axis else weft.cat(tensors, axis)


@operator("SplitToSequence", plain=True)
def split_to_sequence(
    x: Any, split: Any = None, *, axis: int = 0, keepdims: int = 1
) -> Any:
    """The parts of a tensor along an axis, as a sequence."""
    x = tensor(x)
    if split is None:
        parts = x.split(1, axis)
        return ([p if keepdims else p.squeeze(axis) for p in parts],)
    sizes = numbers(split)
    if split.ndim == 0:
        return (list(x.split(sizes[0], axis)),)
    return (list(x.split(sizes, axis)),)


@operator("SequenceMap", plain=True)
def sequence_map(
    *xs: Any, body: Program, outside: Mapping[str, Any], model: Any
) -> Any:
    """A graph run for each element of a sequence."""
    rows = []
    for k in range(len(xs[0])):
        given = [x[k] if isinstance(x, list) else x for x in xs]
        rows.append(
            model.call(body, dict(zip(body.inputs, given, strict=True)), outside)
        )
    return tuple([tensor(row[k]) for row in rows] for k in range(len(body.outputs)))


@operator("Optional", plain=True)
def optional(x: Any = None, *, type: Any = None) -> Any:
    """A value that may be absent."""
    return (x,)


@operator("OptionalHasElement", plain=True)
def has_element(x: Any = None) -> Any:
    """Whether a value is there."""
    return np.array(x is not None)


@operator("OptionalGetElement", plain=True)
def get_element(x: Any = None) -> Any:
    """The value that is there."""
    if x is None:
        raise ModelError("the optional value is absent")
    return (x,)
