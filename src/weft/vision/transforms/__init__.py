"""``weft.vision.transforms``: ``weft.utils.transforms`` under torchvision's names."""

from __future__ import annotations

from typing import Any

from weft.dtype import DType
from weft.utils import transforms as _own
from weft.utils.transforms import (
    ColorJitter,
    Compose,
    Lambda,
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


class _Plain:
    """A transform that is a function with options."""

    def __init__(self, *options: Any) -> None:
        self.options = options

    def __call__(self, image: Any) -> Any:
        return getattr(functional, self.function)(image, *self.options)

    function = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.options))})"


class Resize(_Plain):
    """An image at another size, by bilinear interpolation.

    >>> weft.vision.transforms.Resize((2, 2))(weft.zeros(3, 4, 4)).shape
    (3, 2, 2)
    """

    function = "resize"

    def __init__(
        self, size: Any, interpolation: Any = InterpolationMode.BILINEAR,
        max_size: int | None = None, antialias: bool | None = True,
    ) -> None:  # fmt: skip
        bilinear_only("Resize", interpolation)
        if max_size is not None:
            raise ValueError("Resize: max_size is not there; give both sizes")
        super().__init__(size, interpolation, max_size, antialias)


class CenterCrop(_Plain):
    """The middle of an image.

    >>> weft.vision.transforms.CenterCrop(2)(weft.zeros(3, 4, 4)).shape
    (3, 2, 2)
    """

    function = "center_crop"

    def __init__(self, size: Any) -> None:
        super().__init__(size)


class Normalize(_Plain):
    """``(image - mean) / std`` for each channel of a tensor.

    >>> weft.vision.transforms.Normalize(0.5, 0.5)(weft.ones(1, 1, 1)).item()
    1.0
    """

    function = "normalize"

    def __init__(self, mean: Any, std: Any, inplace: bool = False) -> None:
        super().__init__(mean, std, inplace)


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


class Pad(_Plain):
    """An image with a border.

    >>> weft.vision.transforms.Pad(1)(weft.ones(1, 2, 2)).shape
    (1, 4, 4)
    """

    function = "pad"

    def __init__(
        self, padding: Any, fill: float = 0, padding_mode: str = "constant"
    ) -> None:
        super().__init__(padding, fill, padding_mode)


class Grayscale(_Plain):
    """An image in grey, with one channel or three equal ones.

    >>> weft.vision.transforms.Grayscale()(weft.ones(3, 1, 1)).shape
    (1, 1, 1)
    """

    function = "rgb_to_grayscale"

    def __init__(self, num_output_channels: int = 1) -> None:
        super().__init__(num_output_channels)


class PILToTensor(_Plain):
    """A picture (H, W, C) as a tensor (C, H, W) of the same numbers.

    >>> weft.vision.transforms.PILToTensor()(np.zeros((2, 3), np.uint8)).shape
    (1, 2, 3)
    """

    function = "pil_to_tensor"


class ConvertImageDtype(_Plain):
    """A tensor of pixels in another dtype; white stays white.

    >>> convert = weft.vision.transforms.ConvertImageDtype(weft.float32)
    >>> convert(weft.tensor([[[255]]], dtype=weft.uint8)).item()
    1.0
    """

    function = "convert_image_dtype"

    def __init__(self, dtype: DType) -> None:
        super().__init__(dtype)
