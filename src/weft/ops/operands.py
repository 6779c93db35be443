"""Arguments as users give them: a tensor or what stands for one, several, sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.elementwise import _wrap_int
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError
from weft.ops.creation import as_tensor


def as_tensorlike(value: Any) -> Tensor:
    """A tensor of whatever can stand for one."""
    if isinstance(value, Tensor):
        return value

    return as_tensor(value)


def scalar(value: Any, dtype: Any) -> Tensor:
    """A 0-d tensor of a Python number."""
    return Tensor(np.asarray(_wrap_int(value, dtype), dtype.np))


def tensor_list(name: str, tensors: Any) -> list[Tensor]:
    xs = list(tensors) if isinstance(tensors, (list, tuple)) else None
    if not xs:
        what = "an empty sequence" if xs == [] else type(tensors).__name__
        raise ArgumentError(f"{name}: expected a list of tensors, got {what}")
    for k, x in enumerate(xs):
        if not isinstance(x, Tensor):
            raise DTypeError(
                f"{name}: expected tensors, got {type(x).__name__} at position {k}"
            )
    return xs


def flat_sizes(
    name: str, sizes: tuple[Any, ...], keyword: Any = None
) -> tuple[int, ...]:
    """Sizes given one by one, as one sequence, or by keyword."""
    if keyword is not None:
        sizes = (keyword,)
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    return tuple([n if type(n) is int else _as_int(name, n) for n in sizes])


def _as_int(name: str, n: Any) -> int:
    try:
        return n.__index__()
    except AttributeError:
        raise DTypeError(
            f"{name}: expected integers, got {type(n).__name__} ({n!r})"
        ) from None
