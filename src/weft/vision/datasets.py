"""``weft.vision.datasets``: torchvision's data sets, read from files that are here.

Without a transform a sample's picture is a float tensor, where torchvision gives a PIL
image; a transform gets a NumPy array.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import datasets as _own
from weft.datasets.images import ImageArrays
from weft.ops.creation import tensor
from weft.ops.random import Generator, randint, randn
from weft.utils.data.dataset import Dataset as VisionDataset
from weft.utils.transforms import ToTensor

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "KMNIST",
    "MNIST",
    "FakeData",
    "FashionMNIST",
    "ImageFolder",
    "VisionDataset",
]


class _Local:
    """Adds ``download``: an error where the files are not there already."""

    def __init__(
        self, root: Any = None, train: bool = True, transform: Any = None,
        target_transform: Any = None, download: bool = False,
    ) -> None:  # fmt: skip
        try:
            super().__init__(root, train, transform, target_transform)  # type: ignore
        except FileNotFoundError as error:
            who = type(self).__name__
            asked = "download=True: Weft downloads nothing" if download else "not found"
            raise RuntimeError(
                f"{who}: {asked}. Put the files there: {error}"
            ) from None
        self.root = root


class MNIST(_Local, _own.MNIST):
    """Handwritten digits from ``root/MNIST/raw``.

    >>> weft.vision.datasets.MNIST("no/such/folder", download=True)
    Traceback (most recent call last):
        ...
    RuntimeError: MNIST: download=True: Weft downloads nothing. Put ...
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.data: Any = tensor(self.data)
        self.targets: Any = tensor(self.targets)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        label: Any = int(self.targets[index])
        if self.target_transform is not None:
            label = self.target_transform(label)
        return self.transform(self.data[index].numpy()), label


class FashionMNIST(MNIST):
    """Pieces of clothing from ``root/FashionMNIST/raw``."""

    classes = _own.FashionMNIST.classes


class KMNIST(MNIST):
    """Cursive Japanese characters from ``root/KMNIST/raw``."""

    classes = ["o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"]


class _Arrays(pickle.Unpickler):
    """Unpickles containers, numbers and arrays, and nothing that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module.startswith("numpy"):
            return np.empty(0).__reduce__()[0]
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):
            return str.encode
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a data set")


class CIFAR10(_Local, _own.CIFAR10):
    """Pictures of 32x32 from ``root/cifar-10-batches-py``, or from the binary files."""

    python_folder = "cifar-10-batches-py"
    python_files = {
        True: [f"data_batch_{k}" for k in range(1, 6)],
        False: ["test_batch"],
    }
    key = "labels"

    def __init__(
        self, root: Any = None, train: bool = True, transform: Any = None,
        target_transform: Any = None, download: bool = False,
    ) -> None:  # fmt: skip
        folder = os.path.join(root, self.python_folder)
        if not os.path.isdir(folder):
            super().__init__(root, train, transform, target_transform, download)
            return
        batches = [self._batch(folder, name) for name in self.python_files[train]]
        rows = np.concatenate([batch["data"] for batch in batches])
        images = rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        labels = np.concatenate([batch[self.key] for batch in batches])
        images = np.ascontiguousarray(images)
        ImageArrays.__init__(self, images, labels, transform, target_transform)
        self.root, self.train = root, train

    def _batch(self, folder: str, name: str) -> Any:
        with open(os.path.join(folder, name), "rb") as file:
            return _Arrays(file, encoding="latin1").load()


class CIFAR100(CIFAR10):
    """Pictures of 32x32 in a hundred classes, from ``root/cifar-100-python``."""

    python_folder = "cifar-100-python"
    python_files = {True: ["train"], False: ["test"]}
    key = "fine_labels"
    classes: list[str] = []
    folder, files, labels = (
        _own.CIFAR100.folder,
        _own.CIFAR100.files,
        _own.CIFAR100.labels,
    )

    def count(self) -> int:
        """The number of classes."""
        return 100


class ImageFolder(_own.ImageFolder):
    """Pictures in ``root/class/name.png``."""

    def __init__(
        self, root: Any, transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None, loader: Any = None,
        **_: Any,
    ) -> None:  # fmt: skip
        given = {} if loader is None else {"loader": loader}
        super().__init__(root, transform, target_transform, **given)
        self.imgs = self.samples
        self.targets = [label for _, label in self.samples]


class FakeData(VisionDataset):
    """Random pictures with random labels, the same for the same number.

    >>> image, label = weft.vision.datasets.FakeData(4, (3, 8, 8), 2)[1]
    >>> image.shape, 0 <= label < 2
    ((3, 8, 8), True)
    """

    def __init__(
        self, size: int = 1000, image_size: tuple[int, ...] = (3, 224, 224),
        num_classes: int = 10, transform: Any = None, target_transform: Any = None,
        random_offset: int = 0,
    ) -> None:  # fmt: skip
        self.size, self.image_size, self.num_classes = size, image_size, num_classes
        self.transform, self.target_transform = transform, target_transform
        self.random_offset = random_offset

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if not 0 <= index < self.size:
            raise IndexError(f"{type(self).__name__} index out of range")
        drawn = Generator().manual_seed(index + self.random_offset)
        image = randn(*self.image_size, generator=drawn)
        label: Any = int(randint(0, self.num_classes, (1,), generator=drawn))
        pixels = (image * 64 + 128).clamp(0, 255).numpy().astype(np.uint8)
        picture = np.ascontiguousarray(pixels.transpose(1, 2, 0))
        if self.target_transform is not None:
            label = self.target_transform(label)
        return (self.transform or ToTensor())(picture), label

    def __len__(self) -> int:
        return self.size
