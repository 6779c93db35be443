"""Choices of attention kernels, attention by score functions, and causal masks.

``scaled_dot_product_attention`` has one way of computing here, so ``sdpa_kernel``
changes nothing: PyTorch's kernels give the same values up to rounding.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
from collections.abc import Iterator
from typing import Any

from weft.errors import ArgumentError, DTypeError

__all__ = [
    "WARN_FOR_UNFUSED_KERNELS",
    "SDPBackend",
    "bias",
    "flex_attention",
    "sdpa_kernel",
]

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(enum.IntEnum):
    """PyTorch's ways of computing attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextlib.contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """A block for programs that choose a kernel; there is one here.

    >>> from weft.nn.attention import SDPBackend, sdpa_kernel
    >>> q = weft.rand(1, 2, 4, 8)
    >>> with sdpa_kernel(SDPBackend.MATH):
    ...     weft.nn.functional.scaled_dot_product_attention(q, q, q).shape
    (1, 2, 4, 8)
    """
    chosen = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(chosen, list) or not all(
        isinstance(one, SDPBackend) for one in chosen
    ):
        raise DTypeError(
            "sdpa_kernel: backends must be an instance of SDPBackend or a list of "
            f"SDPBackend instances, got {backends!r}"
        )
    if not chosen:
        raise ArgumentError("sdpa_kernel: At least one backend must be provided")
    yield


def __getattr__(name: str) -> Any:
    if name in ("bias", "flex_attention"):
        return importlib.import_module(f"weft.nn.attention.{name}")
    raise AttributeError(f"module 'weft.nn.attention' has no attribute {name!r}")
