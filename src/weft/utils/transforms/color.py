"""Values of pixels: to floats, normalised, and with other colours."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.blas import one_thread
from weft.core.tensor import Tensor
from weft.dtype import default_dtype
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.utils.transforms import draws
from weft.utils.transforms.image import like, rounded, rows, top, wide

_GREY = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601


class ToTensor:
    """An array (H, W, C) or (H, W) as a float tensor (C, H, W).

    Integers are divided by their largest value, so white is 1.

    >>> weft.utils.transforms.ToTensor()(np.full((1, 2), 255, np.uint8))
    tensor([[[1., 1.]]])
    """

    def __call__(self, image: Any) -> Tensor:
        array = rows(image, "ToTensor").transpose(2, 0, 1)
        floats = np.ascontiguousarray(array, default_dtype().np)
        if array.dtype.kind in "iu":
            floats = floats / floats.dtype.type(top(array.dtype))
        elif floats is array:
            floats = floats.copy()
        return Tensor(floats)


class Normalize:
    """``(image - mean) / std``, channel by channel, of a float image.

    >>> normalize = weft.utils.transforms.Normalize([0.5], [0.25])
    >>> normalize(weft.ones(1, 1, 2))
    tensor([[[2., 2.]]])
    """

    def __init__(self, mean: Any, std: Any) -> None:
        self.mean = np.atleast_1d(np.asarray(mean, np.float64))
        self.std = np.atleast_1d(np.asarray(std, np.float64))
        if not (self.std > 0).all():
            raise ArgumentError(f"Normalize: expected std above 0, got {std}")

    def __call__(self, image: Any) -> Any:
        array = rows(image, "Normalize")
        if array.dtype.kind in "iub":
            raise DTypeError(
                f"Normalize: expected floats, got {array.dtype}; use ToTensor first"
            )
        channels = array.shape[-1]
        for values in (self.mean, self.std):
            if len(values) not in (1, channels):
                raise ShapeError(
                    f"Normalize: expected mean and std of {channels} channels, got "
                    f"{len(values)}"
                )
        out = (array - self.mean.astype(array.dtype)) / self.std.astype(array.dtype)
        return like(out, image)


class ColorJitter:
    """Brightness, contrast, saturation and hue changed at random, in random order.

    A number ``b`` stands for factors between ``1 - b`` and ``1 + b`` (for hue:
    shifts between ``-b`` and ``b`` of a full turn); a pair gives both limits.

    >>> image = np.full((2, 2, 3), 100, np.uint8)
    >>> weft.utils.transforms.ColorJitter(brightness=(2, 2))(image)[0, 0]
    array([200, 200, 200], dtype=uint8)
    """

    def __init__(
        self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0
    ) -> None:
        self.brightness = _limits("brightness", brightness, 1, 0, np.inf)
        self.contrast = _limits("contrast", contrast, 1, 0, np.inf)
        self.saturation = _limits("saturation", saturation, 1, 0, np.inf)
        self.hue = _limits("hue", hue, 0, -0.5, 0.5)

    def __call__(self, image: Any) -> Any:
        array = rows(image, "ColorJitter")
        if array.shape[-1] not in (1, 3):
            raise ShapeError(
                f"ColorJitter: expected 1 or 3 channels, got {array.shape[-1]}"
            )
        steps = [
            (_brighter, self.brightness, 1), (_contrasted, self.contrast, 1),
            (_saturated, self.saturation, 1), (_rotated, self.hue, 0),
        ]  # fmt: skip
        white = top(array.dtype)
        values = wide(array) / white
        for place in draws.order(4):
            change, (low, high), neutral = steps[place]
            amount = draws.uniform(low, high)
            if amount != neutral:
                values = np.clip(change(values, amount), 0, 1)
        return like(rounded(values * white, array.dtype), image)


def _limits(
    name: str, value: Any, centre: float, least: float, most: float
) -> tuple[float, float]:
    if isinstance(value, (int, float)):
        if value < 0:
            raise ArgumentError(f"ColorJitter: expected {name} >= 0, got {value}")
        value = (max(least, centre - value), centre + value)
    low, high = map(float, value)
    if not least <= low <= high <= most:
        raise ArgumentError(
            f"ColorJitter: expected {name} between {least} and {most}, got {value}"
        )
    return low, high


def _grey(values: np.ndarray) -> np.ndarray:
    if values.shape[-1] == 1:
        return values
    with one_thread():  # a worker's bits are those of any other process
        return (values @ _GREY.astype(values.dtype))[..., None]


def _brighter(values: np.ndarray, factor: float) -> np.ndarray:
    return values * factor


def _contrasted(values: np.ndarray, factor: float) -> np.ndarray:
    mean = _grey(values).mean()
    return mean + factor * (values - mean)


def _saturated(values: np.ndarray, factor: float) -> np.ndarray:
    grey = _grey(values)
    return grey + factor * (values - grey)


def _rotated(values: np.ndarray, shift: float) -> np.ndarray:
    """The color with its hue rotated by a fraction of the circle; grey has none."""
    if values.shape[-1] == 1:
        return values
    hue, saturation, value = _to_hsv(values)
    return _from_hsv((hue + shift) % 1.0, saturation, value)


def _to_hsv(rgb: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    red, green, blue = np.moveaxis(rgb, -1, 0)
    value = rgb.max(-1)
    span = value - rgb.min(-1)
    safe = np.where(span > 0, span, 1)
    hue = np.where(
        value == red,
        (green - blue) / safe % 6,
        np.where(value == green, (blue - red) / safe + 2, (red - green) / safe + 4),
    )
    saturation = span / np.where(value > 0, value, 1)
    return hue / 6, saturation, value


def _from_hsv(hue: np.ndarray, saturation: np.ndarray, value: np.ndarray) -> np.ndarray:
    def channel(offset: int) -> np.ndarray:
        k = (offset + hue * 6) % 6
        return value - value * saturation * np.clip(np.minimum(k, 4 - k), 0, 1)

    return np.stack([channel(5), channel(3), channel(1)], -1).astype(value.dtype)
