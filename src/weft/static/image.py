"""Images: (batch, height, width, channels), or without the batch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import weft
from weft.dtype import as_dtype
from weft.errors import ArgumentError, ShapeError
from weft.static.building import as_node, function
from weft.static.graph import constant
from weft.static.image_color import (
    adjust_gamma,
    adjust_hue,
    adjust_saturation,
    grayscale_to_rgb,
    hsv_to_rgb,
    random_hue,
    random_saturation,
    rgb_to_hsv,
)
from weft.static.image_windows import (
    crop_and_resize,
    extract_image_patches,
    image_gradients,
    psnr,
    rot90,
    sobel_edges,
    total_variation,
)
from weft.static.random import random_crop, random_uniform

__all__ = [
    "ResizeMethod", "adjust_brightness", "adjust_contrast", "adjust_gamma",
    "adjust_hue", "adjust_saturation", "central_crop", "convert_image_dtype",
    "crop_and_resize", "crop_to_bounding_box", "extract_image_patches",
    "extract_patches", "flip_left_right", "flip_up_down", "grayscale_to_rgb",
    "hsv_to_rgb", "image_gradients", "pad_to_bounding_box",
    "per_image_standardization", "psnr", "random_brightness", "random_contrast",
    "random_crop", "random_flip_left_right", "random_flip_up_down", "random_hue",
    "random_saturation", "resize", "resize_area", "resize_bicubic", "resize_bilinear",
    "resize_image_with_crop_or_pad", "resize_images", "resize_nearest_neighbor",
    "resize_with_crop_or_pad", "rgb_to_grayscale", "rgb_to_hsv", "rot90",
    "sobel_edges", "total_variation", "transpose_image",
]  # fmt: skip


class ResizeMethod:
    """How an image is resized.

    >>> int(weft.static.image.ResizeMethod.NEAREST_NEIGHBOR)
    1
    """

    BILINEAR = 0
    NEAREST_NEIGHBOR = 1
    BICUBIC = 2
    AREA = 3


def _axes(x: Any) -> tuple[int, int]:
    """The axes of height and width."""
    if x.ndim not in (3, 4):
        raise ShapeError(f"expected an image or a batch of images, got shape {x.shape}")
    return x.ndim - 3, x.ndim - 2


def _places(have: Any, want: int, align_corners: bool) -> np.ndarray:
    """Where the new elements of an axis stand among the old ones."""
    if not isinstance(have, int):
        raise ShapeError("resize: the size of an image must be known, got " + str(have))
    rate = have / want
    if align_corners and want > 1:
        rate = (have - 1) / (want - 1)
    return np.arange(want, dtype=np.float32) * np.float32(rate)


def _bilinear(x: Any, axis: int, want: int, align_corners: bool) -> Any:
    have = x.shape[axis]
    at = _places(have, want, align_corners)
    low = np.minimum(np.floor(at).astype(np.int64), have - 1)
    share = (at - low).reshape(-1, *[1] * (x.ndim - axis - 1)).astype(np.float32)
    below = weft.index_select(x, axis, constant(low))
    above = weft.index_select(x, axis, constant(np.minimum(low + 1, have - 1)))
    return below + (above - below) * constant(share)


def _nearest(x: Any, axis: int, want: int, align_corners: bool) -> Any:
    at = _places(x.shape[axis], want, align_corners)
    pick = np.floor(at + 0.5) if align_corners else np.floor(at)
    pick = np.minimum(pick.astype(np.int64), x.shape[axis] - 1)
    return weft.index_select(x, axis, constant(pick))


@function
def resize_bilinear(images: Any, size: Any, align_corners: bool = False) -> Any:
    """Images of another size, between whose elements lines are drawn.

    As in TensorFlow 1, new element ``i`` stands at ``i`` times the ratio of the sizes.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     image = np.array([[[[0.0], [2.0]]]], "f")
    ...     session.run(weft.static.image.resize_bilinear(image, [1, 4])).ravel()
    array([0., 1., 2., 2.], dtype=float32)
    """
    x = as_node(images).to(weft.float32)
    for axis, n in zip(_axes(x), size, strict=True):
        x = _bilinear(x, axis, n, align_corners)
    return x


@function
def resize_nearest_neighbor(images: Any, size: Any, align_corners: bool = False) -> Any:
    """Images of another size, each new element being an old one.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     image = np.array([[[[0.0], [2.0]]]], "f")
    ...     wide = weft.static.image.resize_nearest_neighbor(image, [1, 4])
    ...     session.run(wide).ravel()
    array([0., 0., 2., 2.], dtype=float32)
    """
    x = as_node(images)
    for axis, n in zip(_axes(x), size, strict=True):
        x = _nearest(x, axis, n, align_corners)
    return x


def _resampled(x: Any, axis: int, weights: np.ndarray) -> Any:
    """An axis multiplied by a matrix (new, old)."""
    last = weft.movedim(x, axis, -1)
    return weft.movedim(last @ constant(weights.T.astype(np.float32)), -1, axis)


def _cubic(have: Any, want: int, align_corners: bool) -> np.ndarray:
    """The weights of the four elements around each new one, as in TensorFlow 1."""
    at = _places(have, want, align_corners)
    low = np.floor(at).astype(np.int64)
    share = np.rint((at - low) * 1024) / 1024  # from a table
    out = np.zeros((want, have))
    for tap in range(-1, 3):
        d, a = np.abs(share - tap), -0.75
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        weight = np.where(d <= 1, near, far)
        np.add.at(out, (np.arange(want), np.clip(low + tap, 0, have - 1)), weight)
    return out


def _shares(have: Any, want: int, align_corners: bool) -> np.ndarray:
    """The share that each old element has of a new one's extent."""
    starts = _places(have, want, align_corners).astype(np.float64)
    rate = (have - 1) / (want - 1) if align_corners and want > 1 else have / want
    cells = np.arange(have)
    right = np.minimum(starts[:, None] + rate, cells + 1)
    return np.clip(right - np.maximum(starts[:, None], cells), 0, None) / rate


def _resize(name: str, weights: Any, text: str) -> Any:
    def call(images: Any, size: Any, align_corners: bool = False) -> Any:
        x = as_node(images).to(weft.float32)
        for axis, n in zip(_axes(x), size, strict=True):
            x = _resampled(x, axis, weights(x.shape[axis], n, align_corners))
        return x

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""Images of another size, {text}.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     image = np.ones((1, 4, 4, 1), "f")
    ...     session.run(weft.static.image.{name}(image, [2, 2])).ravel().round(4)
    array([1., 1., 1., 1.], dtype=float32)
    """
    return function(call)


resize_bicubic = _resize("resize_bicubic", _cubic, "between whose elements cubics run")
resize_area = _resize("resize_area", _shares, "each new element the mean of its extent")


@function
def resize_images(
    images: Any,
    size: Any,
    method: int = ResizeMethod.BILINEAR,
    align_corners: bool = False,
    preserve_aspect_ratio: bool = False,
) -> Any:
    """Images of another size, by one of TensorFlow's four methods.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     image = np.ones((4, 4, 3), "f")
    ...     session.run(weft.static.image.resize_images(image, [2, 2])).shape
    (2, 2, 3)
    """
    if preserve_aspect_ratio:
        raise ArgumentError("resize_images: give the size; there is no aspect ratio")
    ways = {
        ResizeMethod.BILINEAR: resize_bilinear,
        ResizeMethod.NEAREST_NEIGHBOR: resize_nearest_neighbor,
        ResizeMethod.BICUBIC: resize_bicubic,
        ResizeMethod.AREA: resize_area,
    }
    if method not in ways:
        raise ArgumentError(
            f"resize_images: expected a ResizeMethod (0 to 3), got {method!r}"
        )
    return ways[method](images, size, align_corners)


def _flip(name: str, which: int, text: str) -> Any:
    def call(image: Any) -> Any:
        x = as_node(image)
        return weft.flip(x, (_axes(x)[which],))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""Images {text}.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     image = np.arange(4.0).reshape(2, 2, 1)
    ...     session.run(weft.static.image.{name}(image)).ravel()[0].item()
    {1.0 if which else 2.0}
    """
    return function(call)


flip_left_right = _flip("flip_left_right", 1, "with left and right exchanged")
flip_up_down = _flip("flip_up_down", 0, "with up and down exchanged")


def _random_flip(name: str, flip: Any) -> Any:
    def call(image: Any, seed: int | None = None) -> Any:
        x = as_node(image)
        _axes(x)
        lead = x.shape[:1] if x.ndim == 4 else ()
        drawn = random_uniform((*lead, *[1] * 3), seed=seed)
        return weft.where(drawn < 0.5, flip(x), x)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""Images of which each is flipped with a chance of one half.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     image = np.ones((4, 2, 2, 1))
    ...     session.run(weft.static.image.{name}(image)).shape
    (4, 2, 2, 1)
    """
    return function(call)


random_flip_left_right = _random_flip("random_flip_left_right", flip_left_right)
random_flip_up_down = _random_flip("random_flip_up_down", flip_up_down)


@function
def transpose_image(image: Any) -> Any:
    """Images with height and width exchanged.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.image.transpose_image(np.ones((2, 3, 1)))).shape
    (3, 2, 1)
    """
    x = as_node(image)
    return x.transpose(*_axes(x))


@function
def per_image_standardization(image: Any) -> Any:
    """Each image with mean zero and variance one.

    The deviation is taken to be no less than one over the root of the number of
    elements.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     image = np.array([[[0.0], [2.0]]], "f")
    ...     session.run(weft.static.image.per_image_standardization(image)).ravel()
    array([-1.,  1.], dtype=float32)
    """
    x = as_node(image).to(weft.float32)
    _axes(x)
    dims = (-3, -2, -1)
    count = x.shape[-1] * x.shape[-2] * x.shape[-3]
    mean = x.mean(dims, keepdim=True)
    deviation = ((x - mean) ** 2).mean(dims, keepdim=True).sqrt()
    least = 1 / math.sqrt(count) if isinstance(count, int) else 1 / (count**0.5)
    return (x - mean) / weft.clamp(deviation, least)


@function
def rgb_to_grayscale(images: Any) -> Any:
    """Three channels as one: 0.2989 red, 0.587 green, 0.114 blue.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     image = np.ones((1, 1, 3), "f")
    ...     session.run(weft.static.image.rgb_to_grayscale(image)).round(4).ravel()
    array([0.9999], dtype=float32)
    """
    weights = constant(np.array([0.2989, 0.587, 0.114], np.float32))
    return (as_node(images) * weights).sum(-1, keepdim=True)


@function
def crop_to_bounding_box(
    image: Any, offset_height: int, offset_width: int, target_height: int,
    target_width: int,
) -> Any:  # fmt: skip
    """A block of images.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     image = np.ones((4, 4, 1))
    ...     crop = weft.static.image.crop_to_bounding_box(image, 1, 1, 2, 3)
    ...     session.run(crop).shape
    (2, 3, 1)
    """
    x = as_node(image)
    high, wide = _axes(x)
    x = x.narrow(high, offset_height, target_height)
    return x.narrow(wide, offset_width, target_width)


@function
def pad_to_bounding_box(
    image: Any, offset_height: int, offset_width: int, target_height: int,
    target_width: int,
) -> Any:  # fmt: skip
    """Images within larger ones of zeros.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     image = np.ones((2, 2, 1))
    ...     padded = weft.static.image.pad_to_bounding_box(image, 1, 1, 4, 5)
    ...     session.run(padded).shape
    (4, 5, 1)
    """
    x = as_node(image)
    high, wide = _axes(x)
    below = target_height - offset_height - x.shape[high]
    right = target_width - offset_width - x.shape[wide]
    return weft.nn.functional.pad(x, [0, 0, offset_width, right, offset_height, below])


@function
def resize_image_with_crop_or_pad(
    image: Any, target_height: int, target_width: int
) -> Any:
    """Images cut or filled with zeros around their middle.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     image = np.ones((2, 6, 1))
    ...     cut = weft.static.image.resize_image_with_crop_or_pad(image, 4, 4)
    ...     session.run(cut).shape
    (4, 4, 1)
    """
    x = as_node(image)
    high, wide = (x.shape[d] for d in _axes(x))
    h, w = min(high, target_height), min(wide, target_width)
    x = crop_to_bounding_box(x, (high - h) // 2, (wide - w) // 2, h, w)
    return pad_to_bounding_box(x, (target_height - h) // 2, (target_width - w) // 2,
                               target_height, target_width)  # fmt: skip


@function
def central_crop(image: Any, central_fraction: float) -> Any:
    """The middle part of images.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     image = np.ones((4, 4, 1))
    ...     session.run(weft.static.image.central_crop(image, 0.5)).shape
    (2, 2, 1)
    """
    x = as_node(image)
    sizes = [x.shape[d] for d in _axes(x)]
    first = [int((n - n * central_fraction) / 2) for n in sizes]
    return crop_to_bounding_box(
        x, *first, *[n - 2 * k for n, k in zip(sizes, first, strict=True)]
    )


@function
def adjust_brightness(image: Any, delta: Any) -> Any:
    """A number added to every element.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     image = np.ones((1, 1, 1), "f")
    ...     session.run(weft.static.image.adjust_brightness(image, 0.5)).item()
    1.5
    """
    return as_node(image) + delta


@function
def random_brightness(image: Any, max_delta: float, seed: int | None = None) -> Any:
    """A random number, between plus and minus ``max_delta``, added to every element.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     image = np.ones((1, 1, 1), "f")
    ...     session.run(weft.static.image.random_brightness(image, 0.5)).shape
    (1, 1, 1)
    """
    return as_node(image) + random_uniform([], -max_delta, max_delta, seed=seed)


@function
def adjust_contrast(images: Any, contrast_factor: Any) -> Any:
    """Distances from each channel's mean times a number.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     image = np.array([[[0.0], [2.0]]], "f")
    ...     session.run(weft.static.image.adjust_contrast(image, 2.0)).ravel()
    array([-1.,  3.], dtype=float32)
    """
    x = as_node(images)
    mean = x.mean(_axes(x), keepdim=True)
    return (x - mean) * contrast_factor + mean


@function
def convert_image_dtype(image: Any, dtype: Any, saturate: bool = False) -> Any:
    """Images in another dtype, in which white is one or the largest number.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     image = np.full((1, 1, 1), 255, "uint8")
    ...     node = weft.static.image.convert_image_dtype(image, weft.float32)
    ...     session.run(node).item()
    1.0
    """
    x, wanted = as_node(image), as_dtype(dtype)
    if x.dtype is wanted or (x.dtype.is_inexact and wanted.is_inexact):
        return x.to(wanted)
    if wanted.is_inexact:
        return x.to(wanted) * (1 / np.iinfo(x.dtype.np).max)
    if not x.dtype.is_inexact:
        raise ArgumentError(
            "convert_image_dtype: whole numbers to other whole numbers; cast instead"
        )
    top = np.iinfo(wanted.np).max
    scaled = x * (top + 0.5)
    return (weft.clamp(scaled, 0, top) if saturate else scaled).to(wanted)


@function
def random_contrast(
    image: Any, lower: float, upper: float, seed: int | None = None
) -> Any:
    """Distances from each channel's mean times a random number.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     image = np.ones((2, 2, 3), "f")
    ...     session.run(weft.static.image.random_contrast(image, 0.5, 1.5)).shape
    (2, 2, 3)
    """
    return adjust_contrast(image, random_uniform([], lower, upper, seed=seed))


resize = resize_images
resize_with_crop_or_pad = resize_image_with_crop_or_pad
extract_patches = extract_image_patches


def __getattr__(name: str) -> Any:
    from weft.static import absent

    raise absent.error("image", name)
