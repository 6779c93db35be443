"""Fed values, as arrays of a node's type."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.dtype import of_array
from weft.errors import DTypeError, ShapeError
from weft.graph.ir import Node


def feed_array(node: Node, value: Any) -> np.ndarray:
    """A fed value as an array of the node's type.

    Values of another dtype are converted if none of them changes; floats may be
    rounded to floats of fewer bits, and large whole numbers to floats.
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
    if len(have) != len(want):
        return False
    for n, size in zip(have, want, strict=True):
        if type(size) is int and n != size:
            return False
    return True


def _array(node: Node, value: Any) -> np.ndarray:
    if not isinstance(value, Tensor):
        try:
            return np.asarray(value)
        except ValueError:
            raise ShapeError(
                f"run: feed of {node.name!r}: expected {node.type}, got rows of "
                f"different lengths\n  made at {node.line}"
            ) from None
    if value._interpreter is not None:
        raise DTypeError(
            f"run: feed of {node.name!r}: expected a value, got the node {value.name!r}"  # type: ignore[attr-defined]
        )
    return value.to_host()


def _cast(node: Node, array: np.ndarray) -> np.ndarray:
    """The array in the dtype of the node; see ``feed_array``."""
    want = node.type.dtype
    try:
        have = of_array(array)
    except DTypeError:  # texts, objects
        raise _refused(node, f"{array.dtype} values") from None
    if have.is_complex and not want.is_complex:
        raise _refused(node, f"{have.name} values")
    if want.is_inexact:
        return array.astype(want.np)
    with np.errstate(invalid="ignore"):
        cast = array.astype(want.np)
    changed = array[cast != array]
    if changed.size:
        raise _refused(node, f"{have.name} values such as {changed.flat[0]}")
    return cast


def _refused(node: Node, got: str) -> DTypeError:
    return DTypeError(
        f"run: feed of {node.name!r}: expected {node.type}, got {got}; convert them "
        f"first\n  made at {node.line}"
    )
