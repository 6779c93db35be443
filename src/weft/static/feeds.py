"""Fed values, as arrays of a node's type."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.errors import DTypeError, ShapeError
from weft.graph.ir import Node


def feed_array(node: Node, value: Any) -> np.ndarray:
    """A fed value as an array of the node's type.

    Python's numbers and lists become arrays of that dtype. Arrays are converted to it
    where numbers widen, and floats may narrow to floats; nothing else is converted.
    """
    want = node.type
    array = value if type(value) is np.ndarray else _array(node, value)
    if array.dtype != want.dtype.np:
        array = _cast(node, array)
    if not _fits(array.shape, want.shape):
        raise ShapeError(
            f"run: feed of {node.name!r}: expected {want}, got shape {array.shape}"
            f"\n  made at {node.line}"
        )
    return array


def _fits(have: tuple[int, ...], want: tuple[Any, ...]) -> bool:
    return len(have) == len(want) and all(
        n == size for n, size in zip(have, want, strict=True) if type(size) is not Size
    )


def _array(node: Node, value: Any) -> np.ndarray:
    if not isinstance(value, Tensor):
        return np.asarray(value)
    if value._interpreter is not None:
        raise DTypeError(
            f"run: feed of {node.name!r}: expected a value, got the node "
            f"{value.name!r}"  # type: ignore[attr-defined]
        )
    return value.to_host()


def _cast(node: Node, array: np.ndarray) -> np.ndarray:
    """The array in the dtype of the node; see ``feed_array``."""
    want = node.type.dtype.np
    order = "biufc"
    kinds = [("b" if d == np.bool_ else d.kind) for d in (array.dtype, want)]
    ranks = [order.find("f" if k == "V" else k) for k in kinds]  # V: bfloat16
    if min(ranks) < 0 or ranks[0] > ranks[1]:
        raise DTypeError(
            f"run: feed of {node.name!r}: expected {node.type}, got {array.dtype} "
            f"values; convert them first\n  made at {node.line}"
        )
    return array.astype(want)
