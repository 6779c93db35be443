"""``torch._subclasses.fake_tensor``, as far as packages ask it.

Where PyTorch traces a program with fake tensors, Weft captures it with symbols.
"""

from __future__ import annotations

from typing import Any

from weft.core.tensor import Tensor

__all__ = ["get_proxy_mode", "is_fake"]


def is_fake(x: Any) -> bool:
    """Whether a tensor has no value, because a program is being captured.

    >>> from weft.torch.fake_tensor import is_fake
    >>> is_fake(weft.ones(1))
    False
    """
    return isinstance(x, Tensor) and x._interpreter is not None


def get_proxy_mode() -> None:
    """None: no trace of PyTorch's kind is ever under way."""
