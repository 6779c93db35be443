"""``weft.vision.io``: pictures from files as tensors (C, H, W)."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.datasets import read_image as _read
from weft.errors import ArgumentError
from weft.ops.creation import tensor


class ImageReadMode(enum.Enum):
    """The channels of a picture that is read."""

    UNCHANGED, GRAY, GRAY_ALPHA, RGB, RGB_ALPHA = range(5)


def read_image(path: Any, mode: ImageReadMode = ImageReadMode.UNCHANGED) -> Tensor:
    """The picture in a file, of bytes.

    >>> weft.vision.io.read_image("no.png")
    Traceback (most recent call last):
        ...
    FileNotFoundError: [Errno 2] No such file or directory: 'no.png'
    """
    pixels = _read(path)
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    if mode is ImageReadMode.RGB and pixels.shape[2] == 1:
        pixels = pixels.repeat(3, 2)
    wanted = {ImageReadMode.GRAY: 1, ImageReadMode.RGB: 3}.get(mode, pixels.shape[2])
    if pixels.shape[2] != wanted:
        raise ArgumentError(
            f"read_image: {path} has {pixels.shape[2]} channels, not {wanted}; read it "
            "unchanged and convert it with torchvision.transforms.functional"
        )
    return tensor(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
