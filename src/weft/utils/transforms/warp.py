"""Images resampled: resized, rotated, sheared."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from weft.core.blas import one_thread
from weft.errors import ArgumentError
from weft.utils.transforms import draws
from weft.utils.transforms.image import like, pair, rounded, rows, wide


@functools.lru_cache(64)
def resize_weights(size: int, out: int, antialias: bool) -> np.ndarray:
    """A matrix (out, size) of triangular weights around each pixel's centre."""
    scale = size / out
    reach = max(scale, 1.0) if antialias else 1.0
    centres = (np.arange(out) + 0.5) * scale - 0.5
    if not antialias:  # beyond the last centre the edge goes on
        centres = np.clip(centres, 0, size - 1)
    distance = np.abs(np.arange(size) - centres[:, None]) / reach
    weights = np.clip(1 - distance, 0, None)
    return weights / weights.sum(1, keepdims=True)


def resized(
    array: np.ndarray, size: tuple[int, int], antialias: bool = True
) -> np.ndarray:
    """An array (H, W, C) at another size, by bilinear weights."""
    values = wide(array)
    down = resize_weights(array.shape[0], size[0], antialias).astype(values.dtype)
    across = resize_weights(array.shape[1], size[1], antialias).astype(values.dtype)
    with one_thread():  # a worker's bits are those of any other process
        values = np.tensordot(down, values, 1)  # (h, W, C)
        values = np.moveaxis(np.tensordot(across, values, (1, 1)), 0, 1)  # (h, w, C)
    return rounded(values, array.dtype)


class Resize:
    """An image at another size, bilinear; one number is the shorter side's length.

    ``antialias`` averages over all pixels that fall into one when it shrinks.

    >>> weft.utils.transforms.Resize((1, 2))(np.array([[0.0, 4.0], [2.0, 6.0]]))
    array([[1., 5.]])
    """

    def __init__(self, size: Any, antialias: bool = True) -> None:
        self.both = pair(size, "Resize")
        self.shorter = isinstance(size, (int, np.integer))
        self.antialias = antialias

    def __call__(self, image: Any) -> Any:
        array = rows(image, "Resize")
        size = self.both
        if self.shorter:
            factor = size[0] / min(array.shape[:2])
            longer = int(max(array.shape[:2]) * factor)
            tall = array.shape[0] > array.shape[1]
            size = (longer, size[0]) if tall else (size[0], longer)
        return like(resized(array, size, self.antialias), image)


def _warped(
    array: np.ndarray, inverse: np.ndarray, interpolation: str, fill: float
) -> np.ndarray:
    """Each pixel from where the inverse map sends it, measured from the middle."""
    height, width = array.shape[:2]
    y, x = np.mgrid[:height, :width].astype(np.float64)
    y, x = y - (height - 1) / 2, x - (width - 1) / 2
    (a, b, c), (d, e, f) = inverse
    from_x = a * x + b * y + c + (width - 1) / 2
    from_y = d * x + e * y + f + (height - 1) / 2
    take = _nearest if interpolation == "nearest" else _bilinear
    return rounded(take(wide(array), from_y, from_x, fill), array.dtype)


def _at(values: np.ndarray, y: np.ndarray, x: np.ndarray, fill: float) -> np.ndarray:
    height, width = values.shape[:2]
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    found = values[np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)]
    return np.where(inside[..., None], found, values.dtype.type(fill))


def _nearest(values: np.ndarray, y: Any, x: Any, fill: float) -> np.ndarray:
    return _at(values, np.rint(y).astype(int), np.rint(x).astype(int), fill)


def _bilinear(values: np.ndarray, y: Any, x: Any, fill: float) -> np.ndarray:
    top, left = np.floor(y).astype(int), np.floor(x).astype(int)
    v, u = (y - top)[..., None], (x - left)[..., None]
    upper = (1 - u) * _at(values, top, left, fill) + u * _at(
        values, top, left + 1, fill
    )
    lower = (1 - u) * _at(values, top + 1, left, fill) + u * _at(
        values, top + 1, left + 1, fill
    )
    return (1 - v) * upper + v * lower


def _span(who: str, name: str, value: Any) -> tuple[float, float]:
    """Limits from a pair, or from one number on both sides of 0."""
    if isinstance(value, (int, float)):
        if value < 0:
            raise ArgumentError(f"{who}: expected {name} >= 0, got {value}")
        value = (-value, value)
    low, high = map(float, value)
    if low > high:
        raise ArgumentError(f"{who}: expected {name} as (low, high), got {value}")
    return low, high


class RandomAffine:
    """Rotated (in degrees, counter-clockwise), moved, scaled and sheared at random.

    ``translate`` gives the largest shifts as fractions of width and height; ``shear``
    is in degrees, along x.

    >>> move = weft.utils.transforms.RandomAffine(10, (0.1, 0.1), (0.9, 1.1), 5)
    >>> move(np.zeros((6, 6), np.uint8)).shape
    (6, 6)
    """

    def __init__(
        self,
        degrees: Any,
        translate: tuple[float, float] | None = None,
        scale: tuple[float, float] | None = None,
        shear: Any = 0,
        interpolation: str = "bilinear",
        fill: float = 0,
    ) -> None:
        who = type(self).__name__
        self.degrees = _span(who, "degrees", degrees)
        self.shear = _span(who, "shear", shear)
        self.translate = translate or (0.0, 0.0)
        self.scale = scale or (1.0, 1.0)
        if not all(0 <= part <= 1 for part in self.translate):
            raise ArgumentError(
                f"{who}: expected translate between 0 and 1, got {translate}"
            )
        if not 0 < self.scale[0] <= self.scale[1]:
            raise ArgumentError(f"{who}: expected 0 < low <= high, got scale={scale}")
        if interpolation not in ("nearest", "bilinear"):
            raise ArgumentError(
                f"{who}: expected interpolation 'nearest' or 'bilinear', got "
                f"{interpolation!r}"
            )
        self.interpolation, self.fill = interpolation, fill

    def __call__(self, image: Any) -> Any:
        array = rows(image, type(self).__name__)
        height, width = array.shape[:2]
        forward = np.eye(3)
        forward[:2, :2] = self._linear()
        forward[0, 2] = width * draws.uniform(-self.translate[0], self.translate[0])
        forward[1, 2] = height * draws.uniform(-self.translate[1], self.translate[1])
        inverse = np.linalg.inv(forward)[:2]
        return like(_warped(array, inverse, self.interpolation, self.fill), image)

    def _linear(self) -> np.ndarray:
        """Scale times rotation times shear; y points down."""
        angle = math.radians(draws.uniform(*self.degrees))
        shear = math.tan(math.radians(draws.uniform(*self.shear)))
        cos, sin = math.cos(angle), math.sin(angle)
        turn = np.array([[cos, sin], [-sin, cos]])
        return draws.uniform(*self.scale) * turn @ np.array([[1.0, shear], [0.0, 1.0]])


class RandomRotation(RandomAffine):
    """Rotated about the middle by a random angle in degrees, counter-clockwise.

    >>> turn = weft.utils.transforms.RandomRotation((90, 90), interpolation="nearest")
    >>> turn(np.array([[1, 2], [3, 4]]))
    array([[2, 4],
           [1, 3]])
    """

    def __init__(
        self, degrees: Any, interpolation: str = "bilinear", fill: float = 0
    ) -> None:
        super().__init__(degrees, interpolation=interpolation, fill=fill)
