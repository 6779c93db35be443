"""CIFAR-10 and CIFAR-100 in their binary versions.

file   := record{n}
record := label{1 or 2} red{1024} green{1024} blue{1024}      bytes, row by row
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.datasets.images import ImageArrays, broken, find_file

_PIXELS = 3 * 32 * 32


class CIFAR10(ImageArrays):
    """Colour images of 32x32 in ten classes, from the binary version's files.

    They are looked for in ``root`` and in ``root/cifar-10-batches-bin``. Files that a
    ``SHA256SUMS`` or ``MD5SUMS`` beside them lists must have the digests it says.
    (The "python version" is made of pickles, which could run any code.)

    >>> weft.datasets.CIFAR10.classes[:3]
    ['airplane', 'automobile', 'bird']
    """

    classes = [
        "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse",
        "ship", "truck",
    ]  # fmt: skip
    folder = "cifar-10-batches-bin"
    files = {True: [f"data_batch_{i}.bin" for i in range(1, 6)],
             False: ["test_batch.bin"]}  # fmt: skip
    labels = 1  # bytes before the pixels; the last one counts

    def __init__(
        self,
        root: Any,
        train: bool = True,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
    ) -> None:
        records = np.concatenate([self._read(root, f) for f in self.files[train]])
        pixels = records[:, self.labels :].reshape(-1, 3, 32, 32)
        images = np.ascontiguousarray(pixels.transpose(0, 2, 3, 1))
        labels = records[:, self.labels - 1]
        super().__init__(images, labels, transform, target_transform)
        self.train = train

    def _read(self, root: Any, name: str) -> np.ndarray:
        inner = os.path.join(self.folder, name)
        path = find_file(type(self).__name__, root, [name, inner])
        size, record = os.path.getsize(path), self.labels + _PIXELS
        if size == 0 or size % record:
            raise broken(path, f"expected records of {record} bytes, got {size} bytes")
        records = np.fromfile(path, np.uint8).reshape(-1, record)
        worst = int(records[:, self.labels - 1].max())
        if worst >= self.count():
            raise broken(path, f"expected labels below {self.count()}, got {worst}")
        return records

    def count(self) -> int:
        """The number of classes."""
        return 10


class CIFAR100(CIFAR10):
    """Colour images of 32x32 in a hundred classes, from the binary version's files.

    They are looked for in ``root`` and in ``root/cifar-100-binary``.

    >>> weft.datasets.CIFAR100.files[False]
    ['test.bin']
    """

    classes: list[str] = []  # the files name them by number only
    folder = "cifar-100-binary"
    files = {True: ["train.bin"], False: ["test.bin"]}
    labels = 2  # the coarse label, and the fine one

    def count(self) -> int:
        """The number of classes."""
        return 100
