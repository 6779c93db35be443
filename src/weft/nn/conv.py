"""Convolution layers of one to three dimensions, and their transposes."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import weft
from weft import Tensor
from weft.errors import ArgumentError
from weft.nn import functional as F
from weft.nn import init
from weft.nn.lazy import LazyMixin
from weft.nn.linear import Initializer, fill, uniform_by_fan
from weft.nn.module import Module
from weft.nn.parameter import Parameter


def _tuple(value: Any, n: int) -> Any:
    """A size for each dimension from one or several (names stay names)."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return (value,) * n
    if len(value) not in (1, n):
        raise ArgumentError(f"expected one size or {n}, got {value!r}")
    return tuple(value) * (n // len(value))


class _Conv(Module):
    """The common base of convolutions."""

    rank: ClassVar[int]
    transposed: ClassVar[bool] = False

    _initialisers: Any = (None, None)  # a default, for modules that PyTorch saved

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
        *,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ArgumentError(
                f"{name}: groups {groups} must divide in_channels {in_channels} and "
                f"out_channels {out_channels}"
            )
        if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
            raise ArgumentError(
                f"{name}: padding_mode must be 'zeros', 'reflect', 'replicate' or "
                f"'circular', got {padding_mode!r}"
            )
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ArgumentError(
                f"{name}: padding must be sizes, 'same' or 'valid', got {padding!r}"
            )
        self.in_channels, self.out_channels, self.groups = (
            in_channels, out_channels, groups,
        )  # fmt: skip
        self.kernel_size = _tuple(kernel_size, self.rank)
        self.stride = _tuple(stride, self.rank)
        self.padding = _tuple(padding, self.rank)
        self.dilation = _tuple(dilation, self.rank)
        self.padding_mode = padding_mode
        self._initialisers = (w_init, b_init)
        out, per_group = out_channels, in_channels // groups
        if self.transposed:
            out, per_group = in_channels, out_channels // groups
        shape = (out, per_group, *self.kernel_size)
        self.weight: Any = Parameter(weft.empty(shape, device=device, dtype=dtype))
        self.bias: Any = None
        if bias:
            self.bias = Parameter(weft.empty(out_channels, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise anew."""
        w_init, b_init = self._initialisers
        fill(self.weight, w_init, lambda p: init.kaiming_uniform_(p, a=math.sqrt(5)))
        if self.bias is not None:
            fan_in = self.weight.shape[1] * math.prod(self.kernel_size)
            fill(self.bias, b_init, uniform_by_fan(fan_in))

    def _padded(self, input: Tensor) -> tuple[Tensor, Any]:
        """The input after a padding that is not zeros, and the padding that is left."""
        if self.padding_mode == "zeros" or self.padding == "valid":
            return input, self.padding
        amounts: list[int] = []
        for k in reversed(range(self.rank)):
            if self.padding == "same":
                total = self.dilation[k] * (self.kernel_size[k] - 1)
                amounts += [total // 2, total - total // 2]
            else:
                amounts += [self.padding[k]] * 2
        return weft.pad(input, amounts, mode=self.padding_mode), (0,) * self.rank

    def forward(self, input: Tensor) -> Tensor:
        convolve = (F.conv1d, F.conv2d, F.conv3d)[self.rank - 1]
        padded, padding = self._padded(input)
        return convolve(
            padded, self.weight, self.bias, self.stride, padding, self.dilation,
            self.groups,
        )  # fmt: skip

    def extra_repr(self) -> str:
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        )
        plain = (0,) * self.rank
        if self.padding != plain:
            text += f", padding={self.padding!r}"
        if self.dilation != (1,) * self.rank:
            text += f", dilation={self.dilation}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


class Conv1d(_Conv):
    """Convolution over (N, C, L).

    >>> weft.nn.Conv1d(3, 8, 5, padding="same")(weft.zeros(2, 3, 16)).shape
    (2, 8, 16)
    """

    rank = 1


class Conv2d(_Conv):
    """Convolution over (N, C, H, W).

    >>> weft.nn.Conv2d(3, 8, 3, stride=2, padding=1)(weft.zeros(2, 3, 16, 16)).shape
    (2, 8, 8, 8)
    """

    rank = 2


class Conv3d(_Conv):
    """Convolution over (N, C, D, H, W).

    >>> weft.nn.Conv3d(1, 2, 3)(weft.zeros(1, 1, 4, 4, 4)).shape
    (1, 2, 2, 2, 2)
    """

    rank = 3


class _ConvTranspose(_Conv):
    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
        *,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
    ) -> None:
        if padding_mode != "zeros" or isinstance(padding, str):
            raise ArgumentError(
                f"{type(self).__name__}: only zero padding given by sizes is defined"
            )
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups,
            bias, padding_mode, device, dtype, w_init=w_init, b_init=b_init,
        )  # fmt: skip
        self.output_padding = _tuple(output_padding, self.rank)

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
        extra = self.output_padding
        if output_size is not None:
            extra = self._extra_for(input, tuple(output_size)[-self.rank :])
        return convolve[self.rank - 1](
            input, self.weight, self.bias, self.stride, self.padding, extra,
            self.groups, self.dilation,
        )  # fmt: skip

    def _extra_for(self, input: Tensor, size: tuple[int, ...]) -> tuple[int, ...]:
        """The output padding that gives a wanted size."""
        extra = []
        for k, n in enumerate(input.shape[-self.rank :]):
            least = (
                (n - 1) * self.stride[k]
                - 2 * self.padding[k]
                + self.dilation[k] * (self.kernel_size[k] - 1)
                + 1
            )
            limit = max(self.stride[k], self.dilation[k])
            if not least <= size[k] < least + limit:
                raise ArgumentError(
                    f"{type(self).__name__}: output size {size[k]} is not possible "
                    f"along dimension {k}; it can be {least} to {least + limit - 1}"
                )
            extra.append(size[k] - least)
        return tuple(extra)


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution over (N, C, L).

    >>> weft.nn.ConvTranspose1d(3, 8, 2, stride=2)(weft.zeros(2, 3, 5)).shape
    (2, 8, 10)
    """

    rank = 1


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution over (N, C, H, W).

    >>> weft.nn.ConvTranspose2d(3, 8, 2, stride=2)(weft.zeros(2, 3, 5, 5)).shape
    (2, 8, 10, 10)
    """

    rank = 2


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution over (N, C, D, H, W).

    >>> weft.nn.ConvTranspose3d(1, 2, 2)(weft.zeros(1, 1, 2, 2, 2)).shape
    (1, 2, 3, 3, 3)
    """

    rank = 3


class _LazyConv(LazyMixin):
    missing = "in_channels"

    def size(self, input: Tensor) -> int:
        rank = self.becomes.rank  # type: ignore[attr-defined]
        return input.shape[-rank - 1]


class LazyConv1d(_LazyConv, Conv1d):
    """A ``Conv1d`` that learns ``in_channels`` from its first input."""

    becomes = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """A ``Conv2d`` that learns ``in_channels`` from its first input.

    >>> weft.nn.LazyConv2d(8, 3)(weft.zeros(2, 3, 16, 16)).shape
    (2, 8, 14, 14)
    """

    becomes = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """A ``Conv3d`` that learns ``in_channels`` from its first input."""

    becomes = Conv3d


class LazyConvTranspose1d(_LazyConv, ConvTranspose1d):
    """A ``ConvTranspose1d`` that learns ``in_channels`` from its first input."""

    becomes = ConvTranspose1d


class LazyConvTranspose2d(_LazyConv, ConvTranspose2d):
    """A ``ConvTranspose2d`` that learns ``in_channels`` from its first input.

    >>> weft.nn.LazyConvTranspose2d(8, 2, stride=2)(weft.zeros(2, 3, 5, 5)).shape
    (2, 8, 10, 10)
    """

    becomes = ConvTranspose2d


class LazyConvTranspose3d(_LazyConv, ConvTranspose3d):
    """A ``ConvTranspose3d`` that learns ``in_channels`` from its first input."""

    becomes = ConvTranspose3d
