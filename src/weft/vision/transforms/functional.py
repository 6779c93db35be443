"""``weft.vision.transforms.functional``: transforms as functions.

A tensor (..., C, H, W) is transformed by operators, with a gradient; a NumPy array
(H, W, C) gives an array.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.dtype import DType
from weft.errors import ArgumentError, ShapeError
from weft.nn import functional as F
from weft.ops.creation import tensor as make
from weft.utils import transforms as _own
from weft.utils.transforms.image import is_picture, like, rows
from weft.utils.transforms.warp import resize_weights


class InterpolationMode(enum.Enum):
    """Ways to compute pixels between pixels; Weft resizes by BILINEAR."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


def bilinear_only(who: str, interpolation: Any) -> None:
    """Refuse what is not bilinear (2 in PIL's numbers).

    >>> from weft.vision.transforms.functional import bilinear_only
    >>> bilinear_only("Resize", InterpolationMode.BILINEAR)
    """
    if interpolation not in (InterpolationMode.BILINEAR, 2, None):
        raise ArgumentError(
            f"{who}: expected InterpolationMode.BILINEAR, got {interpolation}; "
            "nn.functional.interpolate has others"
        )


def _sizes(img: Any) -> tuple[int, int]:
    """The height and width of an image."""
    if isinstance(img, Tensor):
        return int(img.shape[-2]), int(img.shape[-1])
    if is_picture(img):
        return img.height, img.width
    height, width = np.shape(img)[:2]
    return height, width


def get_image_size(img: Any) -> list[int]:
    """The width and height of an image.

    >>> get_image_size(weft.zeros(3, 2, 5))
    [5, 2]
    """
    return list(_sizes(img)[::-1])


def to_tensor(pic: Any) -> Tensor:
    """A picture as a tensor (C, H, W) of floats from 0 to 1.

    >>> to_tensor(np.full((1, 1), 255, np.uint8)).item()
    1.0
    """
    return _own.ToTensor()(np.asarray(pic))


def pil_to_tensor(pic: Any) -> Tensor:
    """A picture as a tensor (C, H, W) of the same numbers.

    >>> pil_to_tensor(np.full((1, 1), 255, np.uint8)).item()
    255
    """
    array = rows(np.asarray(pic), "pil_to_tensor").transpose(2, 0, 1)
    return make(np.ascontiguousarray(array))


def to_pil_image(pic: Any, mode: Any = None) -> Any:
    """A picture of Pillow's; it needs that package.

    >>> callable(to_pil_image)
    True
    """
    from PIL import Image

    array = rows(pic, "to_pil_image")
    if array.dtype.kind == "f":
        array = (array * 255).astype(np.uint8)
    return Image.fromarray(array[..., 0] if array.shape[2] == 1 else array, mode)


def normalize(tensor: Tensor, mean: Any, std: Any, inplace: bool = False) -> Tensor:
    """``(tensor - mean) / std`` for each channel.

    >>> normalize(weft.ones(1, 1, 1), [0.5], [0.5]).item()
    1.0
    """
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        raise TypeError(f"normalize: expected a tensor of floats, got {tensor}")
    shift, scale = (make(v, dtype=tensor.dtype).reshape(-1, 1, 1) for v in (mean, std))
    if (scale == 0).any():
        raise ValueError(f"normalize: expected no zero in std, got {std}")
    out = (tensor - shift) / scale
    return tensor.copy_(out) if inplace else out


def resize(
    img: Any, size: Any, interpolation: Any = InterpolationMode.BILINEAR,
    max_size: Any = None, antialias: bool | None = True,
) -> Any:  # fmt: skip
    """An image at another size, by bilinear interpolation.

    >>> resize(weft.zeros(3, 4, 4), [2, 2]).shape
    (3, 2, 2)
    """
    bilinear_only("resize", interpolation)
    sizes = [size] if isinstance(size, int) else list(size)
    if not isinstance(img, Tensor) and not is_picture(img):
        return _own.Resize(*sizes if len(sizes) == 1 else [tuple(sizes)])(img)
    height, width = _sizes(img)
    if len(sizes) == 1:  # the shorter side's
        short, long = sorted((height, width))
        long = int(sizes[0] * long / short)
        sizes = [sizes[0], long] if height <= width else [long, sizes[0]]
    if is_picture(img):
        return img.resize((sizes[1], sizes[0]), 2)  # Pillow's number of bilinear
    floats = img if img.is_floating_point() else img.float()
    down, across = (
        make(resize_weights(old, new, bool(antialias))).to(floats.dtype)
        for old, new in ((height, sizes[0]), (width, sizes[1]))
    )
    out = down @ floats @ across.mT
    return out if img.is_floating_point() else out.round().clamp(0, 255).to(img.dtype)


def crop(img: Any, top: int, left: int, height: int, width: int) -> Any:
    """A part of an image.

    >>> crop(weft.zeros(3, 4, 4), 1, 1, 2, 3).shape
    (3, 2, 3)
    """
    down, right = top + height, left + width
    tall, wide = _sizes(img)
    if min(top, left) < 0 or down > tall or right > wide:
        raise ShapeError(
            f"crop: rows {top} to {down} and columns {left} to {right} are not all in "
            f"an image of {tall} x {wide}; pad it first"
        )
    if isinstance(img, Tensor):
        return img[..., top:down, left:right]
    if is_picture(img):
        return img.crop((left, top, right, down))
    return img[top:down, left:right]


def center_crop(img: Any, output_size: Any) -> Any:
    """The middle of an image.

    >>> center_crop(weft.zeros(2, 3, 4, 4), 2).shape
    (2, 3, 2, 2)
    """
    both = [output_size] * 2 if isinstance(output_size, int) else list(output_size)
    height, width = both * 2 if len(both) == 1 else both
    tall, wide = _sizes(img)
    top, left = round((tall - height) / 2), round((wide - width) / 2)
    return crop(img, top, left, height, width)


def hflip(img: Any) -> Any:
    """An image with left and right exchanged.

    >>> hflip(weft.tensor([[[1.0, 2.0]]])).tolist()
    [[[2.0, 1.0]]]
    """
    return img.flip(-1) if isinstance(img, Tensor) else _flipped(img, 1)


def vflip(img: Any) -> Any:
    """An image with top and bottom exchanged.

    >>> vflip(weft.tensor([[[1.0], [2.0]]])).tolist()
    [[[2.0], [1.0]]]
    """
    return img.flip(-2) if isinstance(img, Tensor) else _flipped(img, 0)


def _flipped(img: Any, axis: int) -> Any:
    flipped = np.flip(rows(img, "flip"), axis)
    return like(flipped, img)


def pad(img: Any, padding: Any, fill: float = 0, padding_mode: str = "constant") -> Any:
    """An image with a border: of one width, of (x, y), or left, top, right, bottom.

    >>> pad(weft.ones(1, 1, 1), [0, 1]).shape
    (1, 3, 1)
    """
    sizes = [padding] if isinstance(padding, int) else list(padding)
    left, top, right, bottom = sizes * (4 // len(sizes))
    if isinstance(img, Tensor):
        mode = {"edge": "replicate"}.get(padding_mode, padding_mode)
        return F.pad(img, (left, right, top, bottom), mode, fill)
    options = {"constant_values": fill} if padding_mode == "constant" else {}
    edges = ((top, bottom), (left, right), (0, 0))
    array = np.pad(rows(img, "pad"), edges, padding_mode, **options)  # type: ignore
    return like(array, img)


def rgb_to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """An image in grey, by the weights of ITU-R 601.

    >>> round(rgb_to_grayscale(weft.ones(3, 1, 1)).item(), 4)
    0.9999
    """
    if isinstance(img, Tensor):
        r, g, b = img.unbind(-3)
        grey = (0.2989 * r + 0.587 * g + 0.114 * b).to(img.dtype).unsqueeze(-3)
        return grey.expand(*grey.shape[:-3], num_output_channels, *grey.shape[-2:])
    if is_picture(img):
        grey = img.convert("L")
        return grey if num_output_channels == 1 else grey.convert("RGB")
    array = rows(img, "rgb_to_grayscale")
    grey = (array * np.array([0.2989, 0.587, 0.114])).sum(-1, keepdims=True)
    return like(np.repeat(grey.astype(array.dtype), num_output_channels, -1), img)


def convert_image_dtype(image: Tensor, dtype: DType) -> Tensor:
    """A tensor of pixels in another dtype; white stays white.

    >>> convert_image_dtype(weft.ones(1, 1, 1), weft.uint8).item()
    255
    """
    floats = image.is_floating_point()
    if image.dtype is dtype or (floats and dtype.is_floating_point):
        return image.to(dtype)
    if dtype.is_floating_point:
        return image.to(dtype) / np.iinfo(image.dtype.np).max
    if floats:
        return (image * (np.iinfo(dtype.np).max + 1.0 - 1e-3)).to(dtype)
    raise ArgumentError(f"convert_image_dtype: {image.dtype} to {dtype} is not there")
