"""Transforms one after the other, and transforms from functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.errors import DTypeError


class Compose:
    """Transforms one after the other.

    >>> T = weft.utils.transforms
    >>> T.Compose([T.CenterCrop(2), T.ToTensor()])(np.zeros((4, 4), np.uint8)).shape
    (1, 2, 2)
    """

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        for transform in transforms:
            _check_callable("Compose", transform)
        self.transforms = list(transforms)

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image

    def __repr__(self) -> str:
        return f"Compose([{', '.join(map(repr, self.transforms))}])"


class Lambda:
    """A transform from a function.

    >>> weft.utils.transforms.Lambda(lambda image: 255 - image)(np.uint8(5))
    np.uint8(250)
    """

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        _check_callable("Lambda", lambd)
        self.lambd = lambd

    def __call__(self, image: Any) -> Any:
        return self.lambd(image)


def _check_callable(who: str, transform: Any) -> None:
    if not callable(transform):
        kind = type(transform).__name__
        raise DTypeError(f"{who}: expected a function or transform, got {kind}")
