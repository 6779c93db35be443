"""Layers that rearrange, pad or resize images."""

from __future__ import annotations

from typing import Any, ClassVar

import weft
from weft import Tensor
from weft.nn import functional as F
from weft.nn.functional_module import REQUIRED, FunctionalModule
from weft.nn.module import Module


class Upsample(FunctionalModule):
    """Resizing to a size or by a factor.

    >>> weft.nn.Upsample(scale_factor=2)(weft.rand(1, 1, 3, 3)).shape
    (1, 1, 6, 6)
    """

    function = F.interpolate
    options = {
        "size": None, "scale_factor": None, "mode": "nearest", "align_corners": None,
        "recompute_scale_factor": None,
    }  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        factor = self.scale_factor
        if isinstance(factor, (tuple, list)):
            self.scale_factor = tuple(map(float, factor))
        elif factor:
            self.scale_factor = float(factor)

    def extra_repr(self) -> str:
        how = "size" if self.scale_factor is None else "scale_factor"
        mode = getattr(self, "mode", "nearest")
        return f"{how}={getattr(self, how)!r}, mode={mode!r}"


class UpsamplingNearest2d(Upsample):
    """Resizing by the nearest element."""

    options = {"size": None, "scale_factor": None}


class UpsamplingBilinear2d(Upsample):
    """Resizing by straight lines between corners."""

    options = {
        "size": None, "scale_factor": None, "mode": "bilinear", "align_corners": True,
    }  # fmt: skip


class PixelShuffle(FunctionalModule):
    """Channels rearranged into pixels."""

    function = F.pixel_shuffle
    options = {"upscale_factor": REQUIRED}


class PixelUnshuffle(FunctionalModule):
    """Pixels rearranged into channels."""

    function = F.pixel_unshuffle
    options = {"downscale_factor": REQUIRED}


class ChannelShuffle(FunctionalModule):
    """Channels of groups interleaved."""

    function = F.channel_shuffle
    options = {"groups": REQUIRED}


class Unfold(FunctionalModule):
    """Windows as columns."""

    function = F.unfold
    options = {"kernel_size": REQUIRED, "dilation": 1, "padding": 0, "stride": 1}


class Fold(FunctionalModule):
    """Columns added up into windows."""

    function = F.fold
    options = {
        "output_size": REQUIRED, "kernel_size": REQUIRED, "dilation": 1, "padding": 0,
        "stride": 1,
    }  # fmt: skip


class _Pad(Module):
    rank: ClassVar[int]
    mode: ClassVar[str]

    def __init__(self, padding: Any, value: float = 0.0) -> None:
        super().__init__()
        if isinstance(padding, int):
            padding = (padding,) * (2 * self.rank)
        self.padding, self.value = tuple(padding), value

    def forward(self, input: Tensor) -> Tensor:
        return weft.pad(input, self.padding, self.mode, self.value)

    def extra_repr(self) -> str:
        if type(self).__name__.startswith("Constant"):
            return f"padding={self.padding}, value={self.value}"
        return f"{self.padding}"


def _pad(name: str, rank: int, mode: str, text: str) -> type[_Pad]:
    doc = f"{text} of the last {rank} dimension{'s' if rank > 1 else ''}."
    return type(name, (_Pad,), {"rank": rank, "mode": mode, "__doc__": doc})


ConstantPad1d = _pad("ConstantPad1d", 1, "constant", "A value added at the ends")
ConstantPad2d = _pad("ConstantPad2d", 2, "constant", "A value added at the ends")
ConstantPad3d = _pad("ConstantPad3d", 3, "constant", "A value added at the ends")
ZeroPad1d = _pad("ZeroPad1d", 1, "constant", "Zeros added at the ends")
ZeroPad2d = _pad("ZeroPad2d", 2, "constant", "Zeros added at the ends")
ZeroPad3d = _pad("ZeroPad3d", 3, "constant", "Zeros added at the ends")
ReflectionPad1d = _pad("ReflectionPad1d", 1, "reflect", "Mirrored ends")
ReflectionPad2d = _pad("ReflectionPad2d", 2, "reflect", "Mirrored ends")
ReflectionPad3d = _pad("ReflectionPad3d", 3, "reflect", "Mirrored ends")
ReplicationPad1d = _pad("ReplicationPad1d", 1, "replicate", "Repeated ends")
ReplicationPad2d = _pad("ReplicationPad2d", 2, "replicate", "Repeated ends")
ReplicationPad3d = _pad("ReplicationPad3d", 3, "replicate", "Repeated ends")
CircularPad1d = _pad("CircularPad1d", 1, "circular", "Wrapped ends")
CircularPad2d = _pad("CircularPad2d", 2, "circular", "Wrapped ends")
CircularPad3d = _pad("CircularPad3d", 3, "circular", "Wrapped ends")
