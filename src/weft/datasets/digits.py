"""Handwritten digits that come with the package."""

from __future__ import annotations

import importlib.resources
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.datasets.images import ImageArrays


class Digits(ImageArrays):
    """1797 handwritten digits of 8x8 pixels: 1437 to train with, 360 to test.

    They are the test part of "Optical Recognition of Handwritten Digits" (Alpaydin
    and Kaynak, 1998; CC BY 4.0), whose grey levels 0 to 16 are spread over 0 to
    255. Every fifth image, beginning with the first, is in the test part.

    >>> image, label = weft.datasets.Digits()[0]
    >>> image.shape, label
    ((1, 8, 8), 1)
    """

    classes = [str(digit) for digit in range(10)]

    def __init__(
        self,
        train: bool = True,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
    ) -> None:
        source = importlib.resources.files("weft.datasets") / "data" / "digits.npz"
        with source.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            images, labels = stored["images"], stored["labels"]
        chosen = (np.arange(len(labels)) % 5 != 0) == train
        spread = np.rint(images[chosen] * (255 / 16)).astype(np.uint8)
        super().__init__(spread, labels[chosen], transform, target_transform)
        self.train = train
