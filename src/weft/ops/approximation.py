"""Series and pieces that the special functions share, in float64 inside."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

SQRT_PI = math.sqrt(math.pi)
Array = np.ndarray
_BLOCK = 8192  # elements at a time, so that intermediate results stay in the cache


def in_double(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Evaluate in float64 and give back the input's dtype."""

    @functools.wraps(fn)
    def wide(x: Any, **params: Any) -> Any:
        with np.errstate(all="ignore"):
            flat = np.ravel(x)
            out = np.empty(flat.shape, x.dtype)
            for k in range(0, flat.size, _BLOCK):
                part = flat[k : k + _BLOCK].astype(np.float64)
                out[k : k + _BLOCK] = fn(part, **params)
        return out.reshape(np.shape(x))

    return wide


def pieces(
    x: Array, *parts: tuple[Any, Callable[[Array], Array]], other: Any = np.nan
) -> Array:
    """A function defined piece by piece: each (mask, function of the elements)."""
    out = np.full(x.shape, other)
    for mask, fn in parts:
        if np.any(mask):
            out[mask] = fn(x[mask])
    return out


def horner(x: Array, coefficients: Sequence[float]) -> Array:
    """A polynomial, its highest coefficient first."""
    total = np.full(x.shape, coefficients[0])
    for c in coefficients[1:]:
        total *= x
        total += c
    return total


def by_element(fn: Callable[[float], float]) -> Callable[[Any], Any]:
    """A reference: Python's own function, one element at a time."""

    def each(x: Any) -> Any:
        flat = [fn(float(v)) for v in np.ravel(x)]
        return np.array(flat, np.float64).reshape(np.shape(x))

    return each


def bisected(y: float) -> float:
    """The x in [-6, 6] where ``math.erf(x) == y``."""
    low, high = -6.0, 6.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erf(middle) < y else (low, middle)
    return (low + high) / 2
