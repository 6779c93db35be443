"""One view of all kinds of images: an array of shape (H, W, C)."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, ShapeError


def rows(image: Any, who: str) -> np.ndarray:
    """An image as an array of shape (H, W, C), which may be a view of it."""
    if isinstance(image, Tensor):
        array = image.array()
        if array.ndim != 3:
            raise ShapeError(
                f"{who}: expected a tensor of shape (C, H, W), got {tuple(image.shape)}"
            )
        return array.transpose(1, 2, 0)
    if is_picture(image):
        image = np.asarray(image)
    if not isinstance(image, np.ndarray):
        raise DTypeError(
            f"{who}: expected a NumPy array (H, W, C), a tensor (C, H, W) or a picture "
            f"of Pillow's, got {type(image).__name__}"
        )
    if image.ndim not in (2, 3):
        raise ShapeError(
            f"{who}: expected an array of shape (H, W) or (H, W, C), got {image.shape}"
        )
    return image if image.ndim == 3 else image[:, :, None]


def is_picture(image: Any) -> bool:
    """Whether an image is one of Pillow's, which need not be installed."""
    return type(image).__module__.partition(".")[0] == "PIL"


def like(array: np.ndarray, image: Any) -> Any:
    """An array of shape (H, W, C) in the type and layout of an image."""
    if isinstance(image, Tensor):
        return Tensor(np.ascontiguousarray(array.transpose(2, 0, 1)))
    if is_picture(image):
        from PIL import Image

        one = array.shape[2] == 1
        return Image.fromarray(np.ascontiguousarray(array[:, :, 0] if one else array))
    return np.ascontiguousarray(array if image.ndim == 3 else array[:, :, 0])


def top(dtype: np.dtype) -> float:
    """The value of white: the largest integer, or 1."""
    return float(np.iinfo(dtype).max) if dtype.kind in "iu" else 1.0


def rounded(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Computed values in an image's dtype."""
    if dtype.kind in "iu":
        values = np.clip(np.rint(values), 0, top(dtype))
    return values.astype(dtype)


def wide(array: np.ndarray) -> np.ndarray:
    """An image's values in the precision to compute in."""
    return array.astype(np.float64 if array.dtype == np.float64 else np.float32)


def pair(size: Any, who: str) -> tuple[int, int]:
    """Height and width from one number or two."""
    both = (size, size) if isinstance(size, (int, np.integer)) else tuple(size)
    if len(both) != 2 or not all(int(n) == n and n > 0 for n in both):
        raise ArgumentError(f"{who}: expected one or two sizes above 0, got {size}")
    return int(both[0]), int(both[1])
