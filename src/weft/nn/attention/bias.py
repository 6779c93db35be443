"""Causal masks for queries and keys of different lengths."""

from __future__ import annotations

import enum
from typing import Any

import weft
from weft import Tensor
from weft.errors import ArgumentError

__all__ = ["CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(enum.IntEnum):
    """Which corner the diagonal of a causal mask meets."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


def _sizes(name: str, size: Any) -> tuple[int, int]:
    if len(size) != 2:
        raise ArgumentError(
            f"{name}: expected the lengths of queries and keys, got {list(size)}"
        )
    return size


def causal_upper_left(*size: int) -> Tensor:
    """A mask in which query i sees keys up to i.

    >>> weft.nn.attention.bias.causal_upper_left(2, 3).int().tolist()
    [[1, 0, 0], [1, 1, 0]]
    """
    queries, keys = _sizes("causal_upper_left", size)
    return weft.ones(queries, keys, dtype=weft.bool).tril()


def causal_lower_right(*size: int) -> Tensor:
    """A mask in which the last query sees all keys.

    >>> weft.nn.attention.bias.causal_lower_right(2, 3).int().tolist()
    [[1, 1, 0], [1, 1, 1]]
    """
    queries, keys = _sizes("causal_lower_right", size)
    return weft.ones(queries, keys, dtype=weft.bool).tril(keys - queries)
