"""Images and labels that are in memory as arrays."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.dtype import default_dtype
from weft.errors import FileFormatError, ShapeError
from weft.utils.data.dataset import Dataset
from weft.utils.transforms import ToTensor


class ImageArrays(Dataset):
    """Images (N, H, W) or (N, H, W, C) of ``uint8``, with labels.

    A sample is an image and its label. ``transform`` gets the image as a NumPy
    array; without one it becomes a float tensor (C, H, W) between 0 and 1.

    >>> data = weft.datasets.ImageArrays(np.zeros((5, 8, 8), np.uint8), np.arange(5))
    >>> image, label = data[3]
    >>> image.shape, label
    ((1, 8, 8), 3)
    """

    classes: list[str] = []

    def __init__(
        self,
        data: np.ndarray,
        targets: np.ndarray,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
    ) -> None:
        if len(data) != len(targets) or data.ndim not in (3, 4):
            raise ShapeError(
                f"{type(self).__name__}: expected images (N, H, W) or (N, H, W, C) and "
                f"N labels, got {data.shape} and {targets.shape}"
            )
        self.data = data
        self.targets = targets.astype(np.int64)
        self.transform = transform or ToTensor()
        self.target_transform = target_transform

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        label: Any = int(self.targets[index])
        if self.target_transform is not None:
            label = self.target_transform(label)
        return self.transform(self.data[index]), label

    def __len__(self) -> int:
        return len(self.data)

    def tensors(self) -> tuple[Tensor, Tensor]:
        """All images as floats (N, C, H, W) between 0 and 1, and all labels.

        Transforms are not applied.

        >>> x, y = weft.datasets.Digits(train=False).tensors()
        >>> x.shape, y.shape
        ((360, 1, 8, 8), (360,))
        """
        data = self.data if self.data.ndim == 4 else self.data[..., None]
        moved = np.ascontiguousarray(data.transpose(0, 3, 1, 2), default_dtype().np)
        return Tensor(moved / moved.dtype.type(255)), Tensor(self.targets.copy())


def find_file(who: str, root: Any, names: list[str]) -> str:
    """The first of some files that is there, looked for below ``root``.

    If a list of checksums is beside it, the file must agree with it.
    """
    for name in names:
        path = os.path.join(os.fspath(root), name)
        if os.path.isfile(path):
            check_digest(path)
            return path
    wanted = " or ".join(names)
    raise FileNotFoundError(
        f"{who}: expected {wanted} in {os.path.abspath(root)}; nothing is downloaded, "
        "so put the files there first"
    )


_LISTS = {"SHA256SUMS": "sha256", "MD5SUMS": "md5"}


def check_digest(path: str) -> None:
    """Compare a file with a list beside it, as ``sha256sum`` or ``md5sum`` write it."""
    folder, name = os.path.split(path)
    for listed, kind in _LISTS.items():
        expected = _digest_in(os.path.join(folder, listed), name)
        if expected is None:
            continue
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, kind).hexdigest()
        if found != expected.lower():
            raise broken(path, f"expected {kind} {expected} ({listed}), got {found}")


def _digest_in(listed: str, name: str) -> str | None:
    """A name's digest in a list: lines of digest, space, space or star, name."""
    if not os.path.isfile(listed):
        return None
    with open(listed, encoding="utf-8", errors="replace") as file:
        rows = (line.rstrip("\n").partition(" ") for line in file)
        said = {found.lstrip(" *").removeprefix("./"): row for row, _, found in rows}
    return said.get(name)


def broken(path: Any, reason: str) -> FileFormatError:
    """The error for a damaged file."""
    return FileFormatError(f"{os.fspath(path)}: {reason}")
