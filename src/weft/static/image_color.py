"""Colours of images: spaces, and changes of hue, saturation and brightness."""

from __future__ import annotations

from typing import Any

import weft
from weft.errors import ShapeError
from weft.static.building import as_node, function
from weft.static.random import random_uniform


def _channels(images: Any, what: str, count: int = 3) -> Any:
    x = as_node(images)
    if x.shape[-1] != count:
        raise ShapeError(f"{what}: expected {count} channels last, got shape {x.shape}")
    return x


@function
def rgb_to_hsv(images: Any) -> Any:
    """Hue, saturation and value, all between 0 and 1, of red, green and blue.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.image.rgb_to_hsv([[[0.0, 1.0, 0.0]]])).round(3)
    array([[[0.333, 1.   , 1.   ]]], dtype=float32)
    """
    x = _channels(images, "rgb_to_hsv")
    r, g, b = x[..., 0], x[..., 1], x[..., 2]
    top, low = x.amax(-1), x.amin(-1)
    spread = top - low
    safe = weft.where(spread > 0, spread, 1.0)
    hue = weft.where(
        top == r, (g - b) / safe,
        weft.where(top == g, 2 + (b - r) / safe, 4 + (r - g) / safe),
    ) / 6  # fmt: skip
    hue = weft.where(hue < 0, hue + 1, hue)
    hue = weft.where(spread > 0, hue, 0.0)
    share = weft.where(top > 0, spread / weft.where(top > 0, top, 1.0), 0.0)
    return weft.stack([hue, share, top], -1)


@function
def hsv_to_rgb(images: Any) -> Any:
    """Red, green and blue of hue, saturation and value.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.image.hsv_to_rgb([[[0.5, 1.0, 1.0]]]))
    array([[[0., 1., 1.]]], dtype=float32)
    """
    x = _channels(images, "hsv_to_rgb")
    hue, share, top = x[..., 0] * 6, x[..., 1], x[..., 2]
    red = weft.clamp((hue - 3).abs() - 1, 0, 1)
    green = weft.clamp(2 - (hue - 2).abs(), 0, 1)
    blue = weft.clamp(2 - (hue - 4).abs(), 0, 1)
    return weft.stack([((c - 1) * share + 1) * top for c in (red, green, blue)], -1)


@function
def adjust_hue(image: Any, delta: Any) -> Any:
    """Images whose hues are moved by a share of the circle.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.image.adjust_hue([[[1.0, 0.0, 0.0]]], 0.5))
    array([[[0., 1., 1.]]], dtype=float32)
    """
    x = rgb_to_hsv(image)
    hue = weft.remainder(x[..., :1] + delta, 1.0)
    return hsv_to_rgb(weft.cat([hue, x[..., 1:]], -1))


@function
def adjust_saturation(image: Any, saturation_factor: Any) -> Any:
    """Images whose saturation is multiplied by a number.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.image.adjust_saturation([[[1.0, 0.5, 0.5]]], 0.0))
    array([[[1., 1., 1.]]], dtype=float32)
    """
    x = rgb_to_hsv(image)
    share = weft.clamp(x[..., 1:2] * saturation_factor, 0, 1)
    return hsv_to_rgb(weft.cat([x[..., :1], share, x[..., 2:]], -1))


@function
def adjust_gamma(image: Any, gamma: Any = 1, gain: Any = 1) -> Any:
    """``gain`` times images (between 0 and 1) to a power.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.image.adjust_gamma([[[0.5]]], 2.0)).item()
    0.25
    """
    return as_node(image) ** gamma * gain


def _random(name: str, change: Any, text: str) -> Any:
    def call(image: Any, lower: float, upper: float, seed: int | None = None) -> Any:
        return change(image, random_uniform([], lower, upper, seed=seed))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""{text} by a random number between two.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     image = np.ones((2, 2, 3), "f")
    ...     session.run(weft.static.image.{name}(image, 0.5, 1.5)).shape
    (2, 2, 3)
    """
    return function(call)


random_saturation = _random(
    "random_saturation", adjust_saturation, "Images whose saturation is multiplied"
)


@function
def random_hue(image: Any, max_delta: float, seed: int | None = None) -> Any:
    """Images whose hues are moved by a random share of the circle.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     image = np.ones((2, 2, 3), "f")
    ...     session.run(weft.static.image.random_hue(image, 0.1)).shape
    (2, 2, 3)
    """
    return adjust_hue(image, random_uniform([], -max_delta, max_delta, seed=seed))


@function
def grayscale_to_rgb(images: Any) -> Any:
    """Three equal channels of one.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.image.grayscale_to_rgb([[[2.0]]]))
    array([[[2., 2., 2.]]], dtype=float32)
    """
    x = _channels(images, "grayscale_to_rgb", 1)
    return weft.cat([x, x, x], -1)
