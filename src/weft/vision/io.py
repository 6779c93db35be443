"""Pictures in files, as tensors of bytes: torchvision's ``io``, by Pillow."""

from __future__ import annotations

import enum
import io
import os
from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.errors import ShapeError
from weft.ops.creation import from_numpy

__all__ = [
    "ImageReadMode", "decode_image", "encode_jpeg", "encode_png", "read_file",
    "read_image", "write_file", "write_jpeg", "write_png",
]  # fmt: skip


class ImageReadMode(enum.Enum):
    """The channels that a picture is read with."""

    UNCHANGED = None
    GRAY = "L"
    GRAY_ALPHA = "LA"
    RGB = "RGB"
    RGB_ALPHA = "RGBA"


def read_file(path: Any) -> Tensor:
    """The bytes of a file."""
    with open(os.fspath(path), "rb") as file:
        return from_numpy(np.frombuffer(file.read(), np.uint8).copy())


def write_file(filename: Any, data: Tensor) -> None:
    """Write bytes to a file."""
    with open(os.fspath(filename), "wb") as file:
        file.write(data.numpy().tobytes())


def decode_image(input: Any, mode: Any = ImageReadMode.UNCHANGED) -> Tensor:
    """A picture (channels, height, width) from the bytes of a file, or its path."""
    from PIL import Image

    data = input if isinstance(input, Tensor) else read_file(input)
    wanted = mode.value if isinstance(mode, ImageReadMode) else mode
    with Image.open(io.BytesIO(data.numpy().tobytes())) as picture:
        found = np.array(picture if wanted is None else picture.convert(wanted))
    found = found[:, :, None] if found.ndim == 2 else found
    return from_numpy(np.ascontiguousarray(found.transpose(2, 0, 1)))


def read_image(path: Any, mode: Any = ImageReadMode.UNCHANGED) -> Tensor:
    """A picture (channels, height, width) from a file."""
    return decode_image(read_file(path), mode)


def _encoded(name: str, input: Tensor, kind: str, **options: Any) -> Tensor:
    from PIL import Image

    if input.ndim != 3 or input.shape[0] not in (1, 3):
        raise ShapeError(
            f"{name}: expected (1, height, width) or (3, height, width), got "
            f"{tuple(input.shape)}"
        )
    pixels = np.ascontiguousarray(input.numpy().transpose(1, 2, 0))
    picture = Image.fromarray(pixels[:, :, 0] if input.shape[0] == 1 else pixels)
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return from_numpy(np.frombuffer(out.getvalue(), np.uint8).copy())


def encode_png(input: Tensor, compression_level: int = 6) -> Tensor:
    """The bytes of a PNG file."""
    return _encoded("encode_png", input, "PNG", compress_level=compression_level)


def encode_jpeg(input: Tensor, quality: int = 75) -> Tensor:
    """The bytes of a JPEG file."""
    return _encoded("encode_jpeg", input, "JPEG", quality=quality)


def write_png(input: Tensor, filename: Any, compression_level: int = 6) -> None:
    """Write a picture as a PNG file."""
    write_file(filename, encode_png(input, compression_level))


def write_jpeg(input: Tensor, filename: Any, quality: int = 75) -> None:
    """Write a picture as a JPEG file."""
    write_file(filename, encode_jpeg(input, quality))
