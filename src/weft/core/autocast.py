"""Casts of arguments while autocast is on (``weft.amp``).

``mode.autocast`` is the dtype for products, or None. Functions on PyTorch's list for
the CPU ask for it: products and convolutions cast floating-point arguments to it,
losses and what needs precision to float32. float64 is left as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft.core.mode import mode
from weft.core.tensor import Tensor
from weft.dtype import bfloat16, float16, float32

_CAST = (float32, float16, bfloat16)


def lowered(*values: Any) -> tuple[Any, ...]:
    """Arguments of a product, in autocast's dtype."""
    return tuple([_cast(value, mode.autocast) for value in values])


def _cast(value: Any, dtype: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype in _CAST:
        return value.to(dtype)
    return value


def widened(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that computes in float32 while autocast is on."""

    @functools.wraps(fn)
    def wide(*args: Any, **kwargs: Any) -> Any:
        if mode.autocast is not None:
            args = tuple([_cast(a, float32) for a in args])
            kwargs = {k: _cast(a, float32) for k, a in kwargs.items()}
        return fn(*args, **kwargs)

    return wide
