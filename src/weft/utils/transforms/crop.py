"""Parts of images: cut out, mirrored, erased."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.errors import ArgumentError, ShapeError
from weft.utils.transforms import draws
from weft.utils.transforms.image import like, pair, rows, top
from weft.utils.transforms.warp import resized


def _cut(array: np.ndarray, y: int, x: int, height: int, width: int) -> np.ndarray:
    return array[y : y + height, x : x + width]


def _check_fits(who: str, array: np.ndarray, size: tuple[int, int]) -> None:
    if array.shape[0] < size[0] or array.shape[1] < size[1]:
        raise ShapeError(
            f"{who}: expected an image of at least {size[0]}x{size[1]}, got "
            f"{array.shape[0]}x{array.shape[1]}"
        )


class CenterCrop:
    """The middle of an image.

    >>> weft.utils.transforms.CenterCrop(1)(np.arange(9).reshape(3, 3))
    array([[4]])
    """

    def __init__(self, size: Any) -> None:
        self.size = pair(size, "CenterCrop")

    def __call__(self, image: Any) -> Any:
        array = rows(image, "CenterCrop")
        _check_fits("CenterCrop", array, self.size)
        y = round((array.shape[0] - self.size[0]) / 2)
        x = round((array.shape[1] - self.size[1]) / 2)
        return like(_cut(array, y, x, *self.size), image)


class RandomCrop:
    """A crop at a random position, after padding on all sides.

    ``padding_mode`` is NumPy's: "constant" (with ``fill``), "reflect", "edge", ...

    >>> crop = weft.utils.transforms.RandomCrop(4, padding=1)
    >>> crop(np.zeros((4, 4, 3), np.uint8)).shape
    (4, 4, 3)
    """

    def __init__(
        self,
        size: Any,
        padding: int = 0,
        fill: float = 0,
        padding_mode: str = "constant",
    ) -> None:
        if padding < 0:
            raise ArgumentError(f"RandomCrop: expected padding >= 0, got {padding}")
        self.size = pair(size, "RandomCrop")
        self.padding, self.fill, self.mode = padding, fill, padding_mode

    def __call__(self, image: Any) -> Any:
        array = rows(image, "RandomCrop")
        if self.padding:
            options = {"constant_values": self.fill} if self.mode == "constant" else {}
            edges = ((self.padding,) * 2, (self.padding,) * 2, (0, 0))
            array = np.pad(array, edges, self.mode, **options)  # type: ignore
        _check_fits("RandomCrop", array, self.size)
        y = draws.integer(0, array.shape[0] - self.size[0])
        x = draws.integer(0, array.shape[1] - self.size[1])
        return like(_cut(array, y, x, *self.size), image)


class RandomResizedCrop:
    """A part of random area and aspect ratio, resized.

    >>> crop = weft.utils.transforms.RandomResizedCrop(8)
    >>> crop(np.zeros((20, 30, 3), np.uint8)).shape
    (8, 8, 3)
    """

    def __init__(
        self,
        size: Any,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
    ) -> None:
        if not 0 < scale[0] <= scale[1] or not 0 < ratio[0] <= ratio[1]:
            raise ArgumentError(
                "RandomResizedCrop: expected limits 0 < low <= high, got "
                f"scale={scale} and ratio={ratio}"
            )
        self.size = pair(size, "RandomResizedCrop")
        self.scale, self.ratio = scale, ratio

    def __call__(self, image: Any) -> Any:
        array = rows(image, "RandomResizedCrop")
        part = _cut(array, *self.box(array.shape[0], array.shape[1]))
        return like(resized(part, self.size), image)

    def box(self, height: int, width: int) -> tuple[int, int, int, int]:
        """The box of the crop: top, left, height and width."""
        found = random_box(height, width, self.scale, self.ratio)
        if found is not None:
            return found
        # The whole image, but for what its aspect ratio has too much.
        h = min(height, max(1, round(width / self.ratio[0])))
        w = min(width, max(1, round(height * self.ratio[1])))
        return (height - h) // 2, (width - w) // 2, h, w


def random_box(
    height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[int, int, int, int] | None:
    """A random part of an area; ``None`` if ten attempts did not fit."""
    for _ in range(10):
        area = height * width * draws.uniform(*scale)
        aspect = math.exp(draws.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            y, x = draws.integer(0, height - h), draws.integer(0, width - w)
            return y, x, h, w
    return None


class RandomHorizontalFlip:
    """Left and right exchanged, with probability ``p``.

    >>> weft.utils.transforms.RandomHorizontalFlip(1.0)(np.array([[1, 2]]))
    array([[2, 1]])
    """

    axis = 1

    def __init__(self, p: float = 0.5) -> None:
        self.p = draws.check_probability(type(self).__name__, p)

    def __call__(self, image: Any) -> Any:
        array = rows(image, type(self).__name__)
        return like(np.flip(array, self.axis), image) if draws.chance(self.p) else image


class RandomVerticalFlip(RandomHorizontalFlip):
    """Top and bottom exchanged, with probability ``p``.

    >>> weft.utils.transforms.RandomVerticalFlip(1.0)(np.array([[1], [2]]))
    array([[2],
           [1]])
    """

    axis = 0


class RandomErasing:
    """A random box filled with a value, or with noise for ``value="random"``.

    >>> erase = weft.utils.transforms.RandomErasing(p=1.0)
    >>> bool((erase(weft.ones(3, 8, 8)) == 0).any())
    True
    """

    def __init__(
        self,
        p: float = 0.5,
        scale: tuple[float, float] = (0.02, 0.33),
        ratio: tuple[float, float] = (0.3, 3.3),
        value: Any = 0,
    ) -> None:
        self.p = draws.check_probability("RandomErasing", p)
        self.scale, self.ratio, self.value = scale, ratio, value

    def __call__(self, image: Any) -> Any:
        array = rows(image, "RandomErasing")
        if not draws.chance(self.p):
            return image
        found = random_box(array.shape[0], array.shape[1], self.scale, self.ratio)
        if found is None:
            return image
        out = array.copy()
        part = _cut(out, *found)
        part[...] = self._noise(part) if self.value == "random" else self.value
        return like(out, image)

    def _noise(self, part: np.ndarray) -> np.ndarray:
        """Normal noise for floats, any value for integers."""
        generator = draws.numpy_generator()
        if part.dtype.kind in "iu":
            return generator.integers(
                0, int(top(part.dtype)), part.shape, endpoint=True
            )
        return generator.standard_normal(part.shape)
