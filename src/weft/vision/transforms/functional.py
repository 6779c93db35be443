"""``weft.vision.transforms.functional``: transforms as functions."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.dtype import DType
from weft.errors import ArgumentError
from weft.ops.creation import tensor
from weft.utils import transforms as _own
from weft.utils.transforms.image import like, rows


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
    return tensor(np.ascontiguousarray(array))


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
    out = _own.Normalize(mean, std)(tensor)
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
    size = tuple(size) if isinstance(size, list) and len(size) == 2 else size
    size = size[0] if isinstance(size, list) else size
    return _own.Resize(size, bool(antialias))(img)


def crop(img: Any, top: int, left: int, height: int, width: int) -> Any:
    """A part of an image.

    >>> crop(weft.zeros(3, 4, 4), 1, 1, 2, 3).shape
    (3, 2, 3)
    """
    array = rows(img, "crop")
    return like(array[top : top + height, left : left + width], img)


def center_crop(img: Any, output_size: Any) -> Any:
    """The middle of an image.

    >>> center_crop(weft.zeros(3, 4, 4), 2).shape
    (3, 2, 2)
    """
    return _own.CenterCrop(output_size)(img)


def hflip(img: Any) -> Any:
    """An image with left and right exchanged.

    >>> hflip(weft.tensor([[[1.0, 2.0]]])).tolist()
    [[[2.0, 1.0]]]
    """
    return like(np.flip(rows(img, "hflip"), 1), img)


def vflip(img: Any) -> Any:
    """An image with top and bottom exchanged.

    >>> vflip(weft.tensor([[[1.0], [2.0]]])).tolist()
    [[[2.0], [1.0]]]
    """
    return like(np.flip(rows(img, "vflip"), 0), img)


def pad(img: Any, padding: Any, fill: float = 0, padding_mode: str = "constant") -> Any:
    """An image with a border: of one width, of (x, y), or left, top, right, bottom.

    >>> pad(weft.ones(1, 1, 1), [0, 1]).shape
    (1, 3, 1)
    """
    sizes = [padding] if isinstance(padding, int) else list(padding)
    left, top, right, bottom = (sizes * 4)[:4] if len(sizes) < 4 else sizes
    options = {"constant_values": fill} if padding_mode == "constant" else {}
    edges = ((top, bottom), (left, right), (0, 0))
    array = np.pad(rows(img, "pad"), edges, padding_mode, **options)  # type: ignore
    return like(array, img)


def rgb_to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """An image in grey, by the weights of ITU-R 601.

    >>> round(rgb_to_grayscale(weft.ones(3, 1, 1)).item(), 4)
    0.9999
    """
    array = rows(img, "rgb_to_grayscale")
    grey = (array * np.array([0.2989, 0.587, 0.114])).sum(-1, keepdims=True)
    grey = np.repeat(grey.astype(array.dtype), num_output_channels, -1)
    return like(grey, img)


def convert_image_dtype(image: Tensor, dtype: DType) -> Tensor:
    """A tensor of pixels in another dtype; white stays white.

    >>> convert_image_dtype(weft.ones(1, 1, 1), weft.uint8).item()
    255
    """
    array = image.numpy()
    if array.dtype.kind in "iu" and dtype.is_floating_point:
        return image.to(dtype) / np.iinfo(array.dtype).max
    if array.dtype.kind == "f" and not dtype.is_floating_point:
        most = np.iinfo(dtype.np).max
        return (image * (most + 1.0 - 1e-3)).to(dtype)
    if array.dtype == dtype.np or (array.dtype.kind == "f"):
        return image.to(dtype)
    raise ArgumentError(f"convert_image_dtype: {image.dtype} to {dtype} is not there")
