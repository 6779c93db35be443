"""Batches whose images, and labels with them, are mixed."""

from __future__ import annotations

import math

import numpy as np

from weft import dtype as dtypes
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.ops.masks import one_hot
from weft.utils.transforms import draws


class MixUp:
    """Each image blended with another one of its batch, and so the labels.

    Takes images (N, C, H, W) of floats and labels (N,) of integers, or (N, classes)
    of probabilities; gives both, with labels as probabilities. The share is drawn
    from Beta(alpha, alpha) (Zhang et al., 2018).

    >>> mix = weft.utils.transforms.MixUp(num_classes=10)
    >>> x, y = mix(weft.ones(4, 1, 2, 2), weft.arange(4))
    >>> y.shape, bool(weft.allclose(y.sum(1), weft.ones(4)))
    ((4, 10), True)
    """

    def __init__(self, alpha: float = 1.0, num_classes: int | None = None) -> None:
        if not alpha > 0:
            who = type(self).__name__
            raise ArgumentError(f"{who}: expected alpha above 0, got {alpha}")
        self.alpha = float(alpha)
        self.num_classes = num_classes

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        labels = self._probabilities(images, labels)
        share = float(draws.numpy_generator().beta(self.alpha, self.alpha))
        partner = draws.order(images.shape[0])
        mixed, share = self._mix(images.array(), partner, share)
        other = labels.array()[partner]
        return Tensor(mixed), labels * share + Tensor(other) * (1 - share)

    def _probabilities(self, images: Tensor, labels: Tensor) -> Tensor:
        who = type(self).__name__
        if images.ndim != 4 or images.shape[:1] != labels.shape[:1]:
            raise ShapeError(
                f"{who}: expected images (N, C, H, W) and N labels, got "
                f"{tuple(images.shape)} and {tuple(labels.shape)}"
            )
        if not images.dtype.is_floating_point:
            raise DTypeError(f"{who}: expected float images, got {images.dtype.name}")
        if labels.ndim == 2:
            return labels
        if self.num_classes is None:
            raise ArgumentError(f"{who}: integer labels need num_classes")
        return one_hot(labels, self.num_classes).to(dtypes.default_dtype())

    def _mix(
        self, images: np.ndarray, partner: list[int], share: float
    ) -> tuple[np.ndarray, float]:
        kind = images.dtype.type
        return images * kind(share) + images[partner] * kind(1 - share), share


class CutMix(MixUp):
    """A box of each image replaced by another image's, and the labels in proportion.

    Takes and gives what ``MixUp`` does (Yun et al., 2019).

    >>> mix = weft.utils.transforms.CutMix(num_classes=10)
    >>> x, y = mix(weft.ones(4, 1, 2, 2), weft.arange(4))
    >>> x.shape, y.shape
    ((4, 1, 2, 2), (4, 10))
    """

    def _mix(
        self, images: np.ndarray, partner: list[int], share: float
    ) -> tuple[np.ndarray, float]:
        height, width = images.shape[2:]
        side = math.sqrt(1 - share)
        y0, y1 = _interval(height, side)
        x0, x1 = _interval(width, side)
        mixed = images.copy()
        mixed[:, :, y0:y1, x0:x1] = images[partner][:, :, y0:y1, x0:x1]
        # The labels follow the area that was really replaced.
        return mixed, 1 - (y1 - y0) * (x1 - x0) / (height * width)


def _interval(length: int, part: float) -> tuple[int, int]:
    """An interval of a fraction of a length around a random point, cut at the ends."""
    centre, half = draws.integer(0, length - 1), int(length * part) // 2
    return max(0, centre - half), min(length, centre + half)
