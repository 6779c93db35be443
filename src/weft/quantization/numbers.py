"""Numbers as integers: scales, zero points, and weights rounded to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import Tensor
from weft.errors import ArgumentError
from weft.ops.quantized import pack_int4

GROUP = 64  # numbers of four bits that share a scale
MOST_TERMS = (2**31 - 1) // (255 * 128)  # products of bytes whose sum fits int32


def affine(low: Any, high: Any) -> tuple[np.ndarray, np.ndarray]:
    """The scale and the zero point of uint8 for numbers from ``low`` to ``high``.

    Zero is always among the numbers, so that padding is exact.

    >>> from weft.quantization.numbers import affine
    >>> scale, zero_point = affine(-1.0, 1.55)
    >>> round(float(scale), 6), float(zero_point)
    (0.01, 100.0)
    """
    low, high = np.minimum(np.float32(low), 0), np.maximum(np.float32(high), 0)
    scale = np.asarray((high - low) / np.float32(255), np.float32)
    if not scale > np.finfo(np.float32).tiny:  # numbers that are all 0
        scale = np.asarray(1, np.float32)
    zero_point = np.clip(np.rint(-low / scale), 0, 255)
    return scale, np.asarray(zero_point, np.float32)


def finite_array(name: str, tensor: Tensor) -> np.ndarray:
    """A layer's weight as float32; a weight that is no number is refused."""
    array = tensor.detach().float().cpu().numpy()
    if not np.isfinite(array).all():
        raise ArgumentError(
            f"quantize: expected finite numbers in {name}, got infinities or NaN; go "
            "back to a state of the model that is finite, or leave the layer out by "
            "skip"
        )
    return np.asarray(array)


def symmetric(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows as int8 from -127 to 127, and a scale for each.

    >>> from weft.quantization.numbers import symmetric
    >>> symmetric(np.array([[0.0, -2.54]], np.float32))
    (array([[   0, -127]], dtype=int8), array([0.02], dtype=float32))
    """
    flat = rows.reshape(len(rows), -1)
    most = np.abs(flat).max(1, initial=0).astype(np.float32)
    scale = _not_zero(most / np.float32(127))
    numbers = np.clip(np.rint(flat / scale[:, None]), -127, 127)
    return numbers.astype(np.int8).reshape(rows.shape), scale


def grouped(rows: np.ndarray, group: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows as four bits in bytes (n, bytes), and a scale for each group (n, groups).

    The number of the largest size is -8 times its scale, which may be negative. Groups
    are of equal even lengths, of at most ``group`` numbers.

    >>> from weft.quantization.numbers import grouped
    >>> packed, scale = grouped(np.array([[8.0, 1, 2, 3]], np.float32), 4)
    >>> packed.shape, scale
    ((1, 2), array([[-1.]], dtype=float32))
    """
    flat = rows.reshape(len(rows), -1)
    length = flat.shape[1]
    count = max(-(-length // group), 1)
    width = max(-(-length // (2 * count)) * 2, 2)
    whole = np.zeros((len(flat), count * width), np.float32)
    whole[:, :length] = flat
    split = whole.reshape(len(flat), count, width)
    at = np.abs(split).argmax(-1)[..., None]
    scale = _not_zero(np.take_along_axis(split, at, -1)[..., 0] / np.float32(-8))
    numbers = np.clip(np.rint(split / scale[..., None]), -8, 7).astype(np.int8)
    return pack_int4(numbers.reshape(whole.shape), width), scale


def _not_zero(scale: np.ndarray) -> np.ndarray:
    """Scales, with 1 for rows of zeros."""
    small = np.abs(scale) <= np.finfo(np.float32).tiny
    return np.where(small, np.float32(1), scale)
