"""Image transforms that compose, seeded by Weft's default generator.

An image is a NumPy array of shape (H, W) or (H, W, C), mostly of ``uint8``, or a
tensor of shape (C, H, W), mostly of floats in [0, 1]. A transform gives back what
it was given, except for ``ToTensor``. ``MixUp`` and ``CutMix`` work on batches.
"""

from weft.utils.transforms.color import ColorJitter, Normalize, ToTensor
from weft.utils.transforms.compose import Compose, Lambda
from weft.utils.transforms.crop import (
    CenterCrop,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
)
from weft.utils.transforms.mixing import CutMix, MixUp
from weft.utils.transforms.warp import RandomAffine, RandomRotation, Resize

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "CutMix",
    "Lambda",
    "MixUp",
    "Normalize",
    "RandomAffine",
    "RandomCrop",
    "RandomErasing",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomVerticalFlip",
    "Resize",
    "ToTensor",
]
