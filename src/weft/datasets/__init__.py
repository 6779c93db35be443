"""Data sets: digits that come with the package, and readers for files you have.

Nothing here downloads anything. Damaged files raise ``weft.errors.FileFormatError``
with the path and the reason.
"""

from weft.datasets.cifar import CIFAR10, CIFAR100
from weft.datasets.digits import Digits
from weft.datasets.folder import ImageFolder
from weft.datasets.images import ImageArrays
from weft.datasets.mnist import MNIST, FashionMNIST, read_idx
from weft.datasets.picture import read_image
from weft.datasets.table import CSV
from weft.datasets.text import TextCorpus

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "CSV",
    "MNIST",
    "Digits",
    "FashionMNIST",
    "ImageArrays",
    "ImageFolder",
    "TextCorpus",
    "read_idx",
    "read_image",
]
