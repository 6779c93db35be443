"""Casts of arguments while autocast is on (``weft.amp``).

``mode.autocast`` has the dtype for products on each type of device, or is None.
Functions on PyTorch's list for the CPU ask for it: products and convolutions cast
floating-point arguments to it, losses and what needs precision to float32. float64 is
left as it is.
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
    dtype = _dtype_for(values)
    return values if dtype is None else tuple([_cast(v, dtype) for v in values])


def _dtype_for(values: Any) -> Any:
    """Autocast's dtype on the device of the first tensor; None where it is off."""
    first = next((v for v in values if isinstance(v, Tensor)), None)
    kind = "cpu" if first is None else first.device.type
    return dict(mode.autocast).get(kind)


def _cast(value: Any, dtype: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype in _CAST:
        return value.to(dtype)
    return value


def widened(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that computes in float32 while autocast is on."""

    @functools.wraps(fn)
    def wide(*args: Any, **kwargs: Any) -> Any:
        if mode.autocast is not None and _dtype_for((*args, *kwargs.values())):
            args = tuple([_cast(a, float32) for a in args])
            kwargs = {k: _cast(a, float32) for k, a in kwargs.items()}
        return fn(*args, **kwargs)

    return wide
