"""Dimensions as users write them: negative, one or several, none for all."""

from __future__ import annotations

from typing import Any

from weft.core.size import Size
from weft.errors import ArgumentError, DTypeError, OutOfRangeError, RankError


def as_int(name: str, n: Any, what: str = "integers") -> Any:
    """A whole number: an int, a size, a NumPy integer or an integer tensor of one."""
    if isinstance(n, Size):
        return n
    try:
        return n.__index__()
    except AttributeError:
        raise DTypeError(
            f"{name}: expected {what}, got {type(n).__name__} ({n!r})"
        ) from None


def normalize_dim(name: str, dim: Any, ndim: int) -> int:
    """A dimension in 0..ndim-1 (a 0-d tensor counts as having one)."""
    if type(dim) is int and -ndim <= dim < ndim:
        return dim if dim >= 0 else dim + ndim
    try:
        index = dim.__index__()
    except AttributeError:
        raise DTypeError(
            f"{name}: expected dim to be an int, got {type(dim).__name__} ({dim!r})"
        ) from None
    limit = max(ndim, 1)
    if not -limit <= index < limit:
        raise OutOfRangeError(
            f"{name}: dim {index} is out of range for a {ndim}-d tensor "
            f"(expected {-limit} to {limit - 1})"
        )
    return index % limit


def existing_dim(name: str, dim: Any, ndim: int) -> int:
    """The same, of a tensor that must have dimensions."""
    if ndim == 0:
        raise RankError(f"{name}: expected at least 1 dimension, got a 0-d tensor")
    return normalize_dim(name, dim, ndim)


def normalize_dims(name: str, dim: Any, ndim: int) -> tuple[int, ...]:
    """Several dimensions; None means all of them, a repeated one is refused."""
    if dim is None:
        return tuple(range(ndim))
    if not isinstance(dim, (tuple, list)):
        dim = (dim,)
    dims = tuple(normalize_dim(name, d, ndim) for d in dim)
    if len(set(dims)) != len(dims):
        raise ArgumentError(f"{name}: a dimension appears twice in {tuple(dim)}")
    return dims if ndim else ()


def reduced_dims(name: str, dim: Any, ndim: int) -> tuple[int, ...]:
    """The dimensions of a reduction: none named (None or an empty tuple) is all."""
    if isinstance(dim, (tuple, list)) and not dim:
        dim = None
    return normalize_dims(name, dim, ndim)
