"""MNIST and data sets in its format.

idx file := 0 0 type rank size{rank} data
type     := 8 (uint8) | 9 (int8) | 11 (int16) | 12 (int32) | 13 | 14 (floats)
size     := 4 bytes                       numbers are big-endian
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.datasets.images import ImageArrays, broken, find_file

_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_MOST = 1 << 31  # bytes; larger files are not of this kind


def read_idx(path: Any) -> np.ndarray:
    """The array in an idx file, which may be compressed with gzip.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "labels-idx1-ubyte")
    >>> with open(path, "wb") as file:
    ...     _ = file.write(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))
    >>> weft.datasets.read_idx(path)
    array([7, 9], dtype=uint8)
    """
    content = _content(path)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _TYPES:
        raise broken(path, f"not an idx file: it begins with {content[:4].hex(' ')}")
    dtype, rank = np.dtype(_TYPES[content[2]]), content[3]
    start = 4 + 4 * rank
    if len(content) < start:
        raise broken(path, f"truncated: the header has {start} bytes, the file fewer")
    shape = struct.unpack(f">{rank}I", content[4:start])
    expected = start + math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        raise broken(
            path,
            f"expected {expected} bytes for shape {shape}, got {len(content)}",
        )
    array = np.frombuffer(content, dtype, offset=start).reshape(shape)
    return array.astype(dtype.newbyteorder("="))


def _content(path: Any) -> bytes:
    with open(path, "rb") as file:
        if file.read(2) != b"\x1f\x8b":
            file.seek(0)
            return file.read(_MOST)
    try:
        with gzip.open(path) as packed:
            return packed.read(_MOST)
    except (EOFError, OSError, zlib.error) as error:
        raise broken(path, f"damaged gzip data: {error}") from error


class MNIST(ImageArrays):
    """Handwritten digits, 28x28, from the four idx files (as they are, or gzipped).

    They are looked for in ``root`` and in ``root/MNIST/raw``. Files that a
    ``SHA256SUMS`` or ``MD5SUMS`` beside them lists must have the digests it says.

    >>> weft.datasets.MNIST("no/such/folder")
    Traceback (most recent call last):
    FileNotFoundError: MNIST: expected train-images-idx3-ubyte or ...
    """

    classes = [str(digit) for digit in range(10)]

    def __init__(
        self,
        root: Any,
        train: bool = True,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
    ) -> None:
        part = "train" if train else "t10k"
        images = self._read(root, f"{part}-images-idx3-ubyte", 3)
        labels = self._read(root, f"{part}-labels-idx1-ubyte", 1)
        if len(images) != len(labels):
            raise broken(root, f"{len(images)} {part} images, but {len(labels)} labels")
        if len(labels) and labels.max() >= len(self.classes):
            raise broken(root, f"a label of {labels.max()} among {part} labels")
        super().__init__(images, labels, transform, target_transform)
        self.train = train

    def _read(self, root: Any, name: str, rank: int) -> np.ndarray:
        who = type(self).__name__
        inner = os.path.join(who, "raw", name)
        path = find_file(who, root, [name, f"{name}.gz", inner, f"{inner}.gz"])
        array = read_idx(path)
        if array.ndim != rank or array.dtype != np.uint8:
            raise broken(
                path,
                f"expected uint8 of {rank} dimensions, got {array.dtype} of "
                f"shape {array.shape}",
            )
        return array


class FashionMNIST(MNIST):
    """Pieces of clothing, 28x28, in MNIST's format.

    >>> weft.datasets.FashionMNIST.classes[9]
    'Ankle boot'
    """

    classes = [
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt",
        "Sneaker", "Bag", "Ankle boot",
    ]  # fmt: skip
