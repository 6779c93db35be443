"""Samples become a batch."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.tensor import Tensor
from weft.errors import DTypeError, ShapeError
from weft.ops.creation import as_tensor, tensor
from weft.ops.joining import stack


def default_collate(batch: Sequence[Any]) -> Any:
    """Samples put together, part by part.

    Tensors and NumPy arrays are stacked, numbers become a tensor, strings stay a
    list; dictionaries, tuples and lists are gone into.

    >>> weft.utils.data.default_collate([{"x": 1, "name": "a"}, {"x": 2, "name": "b"}])
    {'x': tensor([1, 2]), 'name': ['a', 'b']}
    """
    if not len(batch):
        raise ShapeError("default_collate: expected at least one sample, got none")
    return _collate(batch, "")


def _collate(batch: Sequence[Any], where: str) -> Any:
    first = batch[0]
    if isinstance(first, Tensor):
        return _stack(batch, where)
    if isinstance(first, np.ndarray):
        return _stack([as_tensor(a) for a in _same(batch, np.ndarray, where)], where)
    if isinstance(first, (str, bytes)):
        return list(batch)
    if isinstance(first, (numbers.Number, np.generic)):
        return _numbers(batch, where)
    if isinstance(first, Mapping):
        return _mappings(_same(batch, Mapping, where), where)
    if isinstance(first, Sequence):
        return _sequences(_same(batch, Sequence, where), where)
    raise DTypeError(
        f"default_collate{where}: expected tensors, NumPy arrays, numbers, strings, "
        f"dictionaries, tuples or lists, got {type(first).__name__}; "
        "pass a collate_fn of your own"
    )


def _same(batch: Sequence[Any], kind: type, where: str) -> Sequence[Any]:
    if not all(isinstance(sample, kind) for sample in batch):
        names = sorted({type(sample).__name__ for sample in batch})
        raise DTypeError(
            f"default_collate{where}: expected samples of one type, got {names}"
        )
    return batch


def _stack(batch: Sequence[Tensor], where: str) -> Tensor:
    shapes = {tuple(t.shape): None for t in _same(batch, Tensor, where)}
    if len(shapes) > 1:
        found = ", ".join(map(str, shapes))
        raise ShapeError(
            f"default_collate{where}: expected samples of one shape, got {found}; "
            "pass a collate_fn that pads them, or a batch_size of 1"
        )
    if any(t.requires_grad or type(t) is not Tensor for t in batch):
        return stack(list(batch))
    return Tensor(np.stack([t.array() for t in batch]))


def _numbers(batch: Sequence[Any], where: str) -> Tensor:
    _same(batch, (numbers.Number, np.generic), where)  # type: ignore[arg-type]
    plain = all(type(v) is float for v in batch)
    if plain:  # Python's floats keep their precision, as in PyTorch
        return tensor(list(batch), dtype=dtypes.float64)
    return as_tensor(np.asarray(batch))


def _mappings(batch: Sequence[Any], where: str) -> Any:
    first = batch[0]
    for sample in batch:
        if sample.keys() != first.keys():
            raise DTypeError(
                f"default_collate{where}: expected dictionaries with equal keys, got "
                f"{list(first)} and {list(sample)}"
            )
    parts = {k: _collate([s[k] for s in batch], f"{where}[{k!r}]") for k in first}
    return parts if type(first) is dict else type(first)(parts)


def _sequences(batch: Sequence[Any], where: str) -> Any:
    first = batch[0]
    lengths = sorted({len(sample) for sample in batch})
    if len(lengths) > 1:
        raise ShapeError(
            f"default_collate{where}: expected sequences of one length, got {lengths}"
        )
    parts = [
        _collate(column, f"{where}[{i}]")
        for i, column in enumerate(zip(*batch, strict=True))
    ]
    return _like(first, parts)


def _like(first: Any, parts: list[Any]) -> Any:
    """Parts in a named tuple like the sample's; otherwise a list, as in PyTorch."""
    if hasattr(type(first), "_fields"):
        make: Callable[..., Any] = type(first)
        return make(*parts)
    return parts


def default_convert(data: Any) -> Any:
    """One sample, with NumPy arrays as tensors; the rest stays as it is.

    >>> weft.utils.data.default_convert({"x": np.zeros(2, np.float32), "name": "a"})
    {'x': tensor([0., 0.]), 'name': 'a'}
    """
    if isinstance(data, (np.ndarray, np.generic)):
        return as_tensor(np.asarray(data))
    if isinstance(data, Mapping):
        return {k: default_convert(v) for k, v in data.items()}
    if hasattr(type(data), "_fields"):
        return type(data)(*map(default_convert, data))
    if isinstance(data, (list, tuple)):
        return type(data)(map(default_convert, data))
    return data
