"""Images in folders, one for each class."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from weft.datasets.picture import is_image, read_image
from weft.utils.data.dataset import Dataset
from weft.utils.transforms import ToTensor


class ImageFolder(Dataset):
    """Images in ``root/class/name.png``; folders in alphabetical order are classes.

    A sample is an image and its class's number. ``transform`` gets the image as
    ``loader`` reads it (see ``read_image``); without one it becomes a float tensor.

    >>> import os, tempfile
    >>> root = tempfile.mkdtemp()
    >>> for name in ("cat", "dog"):
    ...     os.mkdir(os.path.join(root, name))
    ...     with open(os.path.join(root, name, "one.pgm"), "wb") as file:
    ...         _ = file.write(b"P5 2 1 255 " + bytes([0, 255]))
    >>> data = weft.datasets.ImageFolder(root)
    >>> data.classes, len(data), data[1]
    (['cat', 'dog'], 2, (tensor([[[0., 1.]]]), 1))
    """

    def __init__(
        self,
        root: Any,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        loader: Callable[[Any], Any] = read_image,
    ) -> None:
        self.root = os.fspath(root)
        self.transform = transform or ToTensor()
        self.target_transform = target_transform
        self.loader = loader
        if not os.path.isdir(self.root):
            raise FileNotFoundError(
                f"ImageFolder: expected a folder at {os.path.abspath(self.root)}"
            )
        self.classes = sorted(e.name for e in os.scandir(self.root) if e.is_dir())
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        self.samples = [
            (path, i)
            for name, i in self.class_to_idx.items()
            for path in self._in(name)
        ]
        if not self.samples:
            raise FileNotFoundError(
                "ImageFolder: expected images such as class/name.png in "
                f"{os.path.abspath(self.root)}, found none"
            )

    def _in(self, name: str) -> list[str]:
        """A class's images, in folders within its own too."""
        found = []
        for folder, inner, files in os.walk(os.path.join(self.root, name)):
            inner.sort()
            found += [os.path.join(folder, file) for file in sorted(files)
                      if is_image(file)]  # fmt: skip
        return found

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, label = self.samples[index]
        image = self.transform(self.loader(path))
        if self.target_transform is not None:
            return image, self.target_transform(label)
        return image, label

    def __len__(self) -> int:
        return len(self.samples)
