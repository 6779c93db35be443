"""DLPack's functions under PyTorch's names."""

from __future__ import annotations

from typing import Any

from weft.core.tensor import Tensor
from weft.interchange import from_dlpack

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule that another library takes a tensor over from, without a copy.

    >>> type(weft.utils.dlpack.to_dlpack(weft.ones(2))).__name__
    'PyCapsule'
    """
    return tensor.__dlpack__()
