"""``weft.vision.transforms``: ``weft.utils.transforms`` under torchvision's names."""

from __future__ import annotations

from typing import Any

from weft.core.tensor import Tensor
from weft.dtype import DType
from weft.utils import transforms as _own
from weft.utils.transforms import (
    CenterCrop,
    ColorJitter,
    Compose,
    Lambda,
    Normalize,
    RandomAffine,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomRotation,
    RandomVerticalFlip,
    ToTensor,
)
from weft.utils.transforms import draws as _draws
from weft.vision.transforms import functional
from weft.vision.transforms.functional import InterpolationMode, bilinear_only

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "ConvertImageDtype",
    "Grayscale",
    "InterpolationMode",
    "Lambda",
    "Normalize",
    "PILToTensor",
    "Pad",
    "RandomAffine",
    "RandomApply",
    "RandomCrop",
    "RandomErasing",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomVerticalFlip",
    "Resize",
    "ToTensor",
    "functional",
]


class Resize(_own.Resize):
    """An image at another size, by bilinear interpolation.

    >>> weft.vision.transforms.Resize((2, 2))(weft.zeros(3, 4, 4)).shape
    (3, 2, 2)
    """

    def __init__(
        self, size: Any, interpolation: Any = InterpolationMode.BILINEAR,
        max_size: int | None = None, antialias: bool | None = True,
    ) -> None:  # fmt: skip
        bilinear_only("Resize", interpolation)
        if max_size is not None:
            raise ValueError("Resize: max_size is not there; give both sizes")
        size = size[0] if isinstance(size, (list, tuple)) and len(size) == 1 else size
        super().__init__(size, bool(antialias))


class RandomResizedCrop(_own.RandomResizedCrop):
    """A random part of an image, at one size.

    >>> weft.vision.transforms.RandomResizedCrop(2)(weft.zeros(3, 4, 4)).shape
    (3, 2, 2)
    """

    def __init__(
        self, size: Any, scale: Any = (0.08, 1.0), ratio: Any = (3 / 4, 4 / 3),
        interpolation: Any = InterpolationMode.BILINEAR, antialias: bool | None = True,
    ) -> None:  # fmt: skip
        bilinear_only("RandomResizedCrop", interpolation)
        super().__init__(size, scale, ratio)


class RandomApply:
    """Transforms that are applied with a probability.

    >>> weft.vision.transforms.RandomApply([lambda x: -x], p=1.0)(3)
    -3
    """

    def __init__(self, transforms: Any, p: float = 0.5) -> None:
        self.transforms, self.p = transforms, p

    def __call__(self, image: Any) -> Any:
        if not _draws.chance(self.p):
            return image
        for transform in self.transforms:
            image = transform(image)
        return image


class Pad:
    """An image with a border.

    >>> weft.vision.transforms.Pad(1)(weft.ones(1, 2, 2)).shape
    (1, 4, 4)
    """

    def __init__(
        self, padding: Any, fill: float = 0, padding_mode: str = "constant"
    ) -> None:
        self.options = padding, fill, padding_mode

    def __call__(self, image: Any) -> Any:
        return functional.pad(image, *self.options)


class Grayscale:
    """An image in grey, with one channel or three equal ones.

    >>> weft.vision.transforms.Grayscale()(weft.ones(3, 1, 1)).shape
    (1, 1, 1)
    """

    def __init__(self, num_output_channels: int = 1) -> None:
        self.count = num_output_channels

    def __call__(self, image: Any) -> Any:
        return functional.rgb_to_grayscale(image, self.count)


class PILToTensor:
    """A picture (H, W, C) as a tensor (C, H, W) of the same numbers.

    >>> weft.vision.transforms.PILToTensor()(np.zeros((2, 3), np.uint8)).shape
    (1, 2, 3)
    """

    def __call__(self, image: Any) -> Tensor:
        return functional.pil_to_tensor(image)


class ConvertImageDtype:
    """A tensor of pixels in another dtype; white stays white.

    >>> convert = weft.vision.transforms.ConvertImageDtype(weft.float32)
    >>> convert(weft.tensor([[[255]]], dtype=weft.uint8)).item()
    1.0
    """

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype

    def __call__(self, image: Tensor) -> Tensor:
        return functional.convert_image_dtype(image, self.dtype)
