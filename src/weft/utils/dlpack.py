"""``weft.utils.dlpack``: tensors to and from other libraries without copying."""

from __future__ import annotations

from typing import Any

from weft.core.tensor import Tensor
from weft.interchange import from_dlpack

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule of the tensor's memory, which one other library may take.

    >>> type(weft.utils.dlpack.to_dlpack(weft.ones(2))).__name__
    'PyCapsule'
    """
    return tensor.__dlpack__()
