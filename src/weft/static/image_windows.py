"""Windows, differences and measures of images (batch, height, width, channels)."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.nn import functional as F
from weft.static.building import as_node, function
from weft.static.convolution import padded
from weft.static.graph import constant


@function
def extract_image_patches(
    images: Any, ksizes: Any = None, strides: Any = None, rates: Any = None,
    padding: str = "VALID", sizes: Any = None,
) -> Any:  # fmt: skip
    """Windows of images, each as the channels of one place.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x, two, one = np.ones((1, 4, 4, 3), "f"), [1, 2, 2, 1], [1, 1, 1, 1]
    ...     y = weft.static.extract_image_patches(x, two, two, one, "VALID")
    ...     session.run(y).shape
    (1, 2, 2, 12)
    """
    x = as_node(images).permute(0, 3, 1, 2)
    _, *window, _ = ksizes if sizes is None else sizes
    steps, apart = list(strides)[1:3], list(rates)[1:3]
    reach = [(k - 1) * d + 1 for k, d in zip(window, apart, strict=True)]
    x = padded(x, reach, steps, padding, 0.0)
    high, wide = (
        (n - r) // s + 1 for n, r, s in zip(x.shape[2:], reach, steps, strict=True)
    )
    taps = [
        x[:, :, i * apart[0] :: steps[0], j * apart[1] :: steps[1]][:, :, :high, :wide]
        for i in range(window[0])
        for j in range(window[1])
    ]
    return weft.cat(taps, 1).permute(0, 2, 3, 1)


def _differences(x: Any) -> tuple[Any, Any]:
    return x[:, 1:] - x[:, :-1], x[:, :, 1:] - x[:, :, :-1]


@function
def total_variation(images: Any) -> Any:
    """The sum of the differences between neighbours, of each image.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     image = np.array([[[1.0], [3.0]]], "f")
    ...     float(session.run(weft.static.image.total_variation(image)))
    2.0
    """
    x = as_node(images)
    batched = x if x.ndim == 4 else x.unsqueeze(0)
    found = sum(d.abs().sum((1, 2, 3)) for d in _differences(batched))
    return found if x.ndim == 4 else found[0]


@function
def image_gradients(image: Any) -> tuple[Any, Any]:
    """Differences to the next row and to the next column; zero at the ends.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     image = np.array([[[[1.0], [3.0]]]], "f")
    ...     session.run(weft.static.image.image_gradients(image)[1]).ravel()
    array([2., 0.], dtype=float32)
    """
    down, right = _differences(as_node(image))
    return F.pad(down, (0, 0, 0, 0, 0, 1)), F.pad(right, (0, 0, 0, 1))


_SOBEL = np.array([[-1, -2, -1], [0, 0, 0], [1, 2, 1]], np.float32)


@function
def sobel_edges(image: Any) -> Any:
    """Sobel's vertical and horizontal differences, along a new last axis.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.image.sobel_edges(np.ones((1, 4, 4, 3), "f"))).shape
    (1, 4, 4, 3, 2)
    """
    x = as_node(image).permute(0, 3, 1, 2)
    channels = x.shape[1]
    wide = F.pad(x, (1, 1, 1, 1), mode="reflect")
    edges = [
        F.conv2d(wide, constant(np.tile(k, (channels, 1, 1, 1))), groups=channels)
        for k in (_SOBEL, _SOBEL.T)
    ]
    return weft.stack(edges, -1).permute(0, 2, 3, 1, 4)


@function
def psnr(a: Any, b: Any, max_val: Any) -> Any:
    """The peak signal-to-noise ratio of each image beside another, in decibels.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = np.zeros((1, 2, 2, 1), "f")
    ...     session.run(weft.static.image.psnr(x, x + 0.1, 1.0)).round(2)
    array([20.], dtype=float32)
    """
    error = ((as_node(a) - as_node(b)) ** 2).mean((-3, -2, -1))
    return 20 * float(np.log10(max_val)) - 10 * weft.log10(error)


@function
def rot90(image: Any, k: int = 1) -> Any:
    """Images turned by quarters of a circle, against the clock.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.image.rot90(np.ones((2, 3, 1), "f"))).shape
    (3, 2, 1)
    """
    x = as_node(image)
    return weft.rot90(x, k, (x.ndim - 3, x.ndim - 2))


@function
def crop_and_resize(
    image: Any, boxes: Any = None, box_ind: Any = None, crop_size: Any = None,
    method: str = "bilinear", extrapolation_value: float = 0.0, box_indices: Any = None,
) -> Any:  # fmt: skip
    """Boxes of images (y1, x1, y2, x2 between 0 and 1) as images of one size.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x, box = np.ones((1, 4, 4, 1), "f"), [[0.0, 0.0, 1.0, 1.0]]
    ...     y = weft.static.image.crop_and_resize(x, box, [0], [2, 2])
    ...     session.run(y).shape
    (1, 2, 2, 1)
    """
    x, box = as_node(image).to(weft.float32), as_node(boxes)
    which = as_node(box_ind if box_indices is None else box_indices).to(weft.int64)
    ways = [
        _steps(box[:, k], box[:, k + 2], x.shape[1 + k], n)
        for k, n in enumerate(crop_size)
    ]
    (low_y, high_y, share_y, in_y), (low_x, high_x, share_x, in_x) = ways
    rows = which.reshape(-1, 1, 1)

    def at(y: Any, z: Any) -> Any:
        return x[rows, y.unsqueeze(2), z.unsqueeze(1)]

    right, down = share_x.unsqueeze(1).unsqueeze(3), share_y.unsqueeze(2).unsqueeze(3)
    top = at(low_y, low_x) + (at(low_y, high_x) - at(low_y, low_x)) * right
    end = at(high_y, low_x) + (at(high_y, high_x) - at(high_y, low_x)) * right
    inside = (in_y.unsqueeze(2) & in_x.unsqueeze(1)).unsqueeze(3)
    return weft.where(inside, top + (end - top) * down, extrapolation_value)


def _steps(first: Any, last: Any, have: Any, want: int) -> tuple[Any, ...]:
    """The two elements around each new one, its share, and whether it is inside."""
    if want > 1:
        way = constant(np.arange(want, dtype=np.float32) / (want - 1))
        place = first.unsqueeze(1) + (last - first).unsqueeze(1) * way
    else:
        place = ((first + last) / 2).unsqueeze(1)
    place = place * (have - 1)
    inside = (place >= 0) & (place <= have - 1)
    low = weft.clamp(weft.floor(place), 0, have - 1)
    high = weft.clamp(weft.ceil(place), 0, have - 1)
    return low.to(weft.int64), high.to(weft.int64), place - low, inside
