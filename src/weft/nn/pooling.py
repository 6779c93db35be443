"""Pooling layers."""

from __future__ import annotations

from typing import Any, ClassVar

from weft import Tensor
from weft.errors import ArgumentError
from weft.nn import functional as F
from weft.nn.functional_module import REQUIRED, FunctionalModule

_MAX = {
    "kernel_size": REQUIRED, "stride": None, "padding": 0, "dilation": 1,
    "return_indices": False, "ceil_mode": False,
}  # fmt: skip
_AVERAGE = {
    "kernel_size": REQUIRED, "stride": None, "padding": 0, "ceil_mode": False,
    "count_include_pad": True,
}  # fmt: skip
_LP = {
    "norm_type": REQUIRED,
    "kernel_size": REQUIRED,
    "stride": None,
    "ceil_mode": False,
}


def _tuple(value: Any, rank: int) -> Any:
    return (value,) * rank if isinstance(value, int) else value


_WINDOWS = "kernel_size={kernel_size}, stride={stride}, padding={padding}"


class _MaxPool(FunctionalModule):
    """The base of max pooling: windows as PyTorch shows them."""

    options = _MAX
    shows = (
        "kernel_size={kernel_size}, stride={stride}, padding={padding}, "
        "dilation={dilation}, ceil_mode={ceil_mode}"
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.stride is None:
            self.stride = self.kernel_size


class _AvgPool(FunctionalModule):
    """The base of average pooling: windows as PyTorch shows them."""

    options = _AVERAGE
    shows = _WINDOWS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.stride is None:
            self.stride = self.kernel_size


class _LPPool(FunctionalModule):
    """The base of pooling by a norm."""

    options = _LP
    shows = (
        "norm_type={norm_type}, kernel_size={kernel_size}, stride={stride}, "
        "ceil_mode={ceil_mode}"
    )


class _Adaptive(FunctionalModule):
    options = {"output_size": REQUIRED}
    shows = "output_size={output_size}"


class _AdaptiveAvgPool(_Adaptive):
    """The base of means of as many windows as the output has places."""


class _AdaptiveMaxPool(_Adaptive):
    """The base of maxima of as many windows as the output has places."""

    options = {"output_size": REQUIRED, "return_indices": False}


class MaxPool1d(_MaxPool):
    """The largest element of each window of (N, C, L)."""

    function = F.max_pool1d


class MaxPool2d(_MaxPool):
    """The largest element of each window of (N, C, H, W).

    >>> weft.nn.MaxPool2d(2)(weft.rand(1, 3, 8, 8)).shape
    (1, 3, 4, 4)
    """

    function = F.max_pool2d


class MaxPool3d(_MaxPool):
    """The largest element of each window of (N, C, D, H, W)."""

    function = F.max_pool3d


class AvgPool1d(_AvgPool):
    """The mean of each window of (N, C, L)."""

    function = F.avg_pool1d

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("kernel_size", "stride", "padding"):
            setattr(self, name, _tuple(getattr(self, name), 1))


class AvgPool2d(_AvgPool):
    """The mean of each window of (N, C, H, W).

    >>> weft.nn.AvgPool2d(2)(weft.ones(1, 1, 2, 2))
    tensor([[[[1.]]]])
    """

    function = F.avg_pool2d
    options = {**_AVERAGE, "divisor_override": None}


class AvgPool3d(_AvgPool):
    """The mean of each window of (N, C, D, H, W)."""

    function = F.avg_pool3d
    options = {**_AVERAGE, "divisor_override": None}


class LPPool1d(_LPPool):
    """The p-norm of each window of (N, C, L)."""

    function = F.lp_pool1d


class LPPool2d(_LPPool):
    """The p-norm of each window of (N, C, H, W)."""

    function = F.lp_pool2d


class LPPool3d(_LPPool):
    """The p-norm of each window of (N, C, D, H, W)."""

    function = F.lp_pool3d


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Means of as many windows as the output has places."""

    function = F.adaptive_avg_pool1d


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Means of as many windows as the output has places.

    >>> weft.nn.AdaptiveAvgPool2d(1)(weft.rand(2, 3, 7, 5)).shape
    (2, 3, 1, 1)
    """

    function = F.adaptive_avg_pool2d


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Means of as many windows as the output has places."""

    function = F.adaptive_avg_pool3d


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Maxima of as many windows as the output has places."""

    function = F.adaptive_max_pool1d


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Maxima of as many windows as the output has places."""

    function = F.adaptive_max_pool2d


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Maxima of as many windows as the output has places."""

    function = F.adaptive_max_pool3d


class _Unpool(FunctionalModule):
    rank: ClassVar[int]
    options = {"kernel_size": REQUIRED, "stride": None, "padding": 0}
    shows = _WINDOWS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.stride is None:
            self.stride = self.kernel_size
        for name in ("kernel_size", "stride", "padding"):
            setattr(self, name, _tuple(getattr(self, name), self.rank))

    def forward(
        self, input: Tensor, indices: Tensor, output_size: Any = None
    ) -> Tensor:
        return self.function(input, indices, **self.chosen(), output_size=output_size)


class MaxUnpool1d(_Unpool):
    """Maxima put back where they came from, zeros elsewhere."""

    function = F.max_unpool1d
    rank = 1


class MaxUnpool2d(_Unpool):
    """Maxima put back where they came from, zeros elsewhere."""

    function = F.max_unpool2d
    rank = 2


class MaxUnpool3d(_Unpool):
    """Maxima put back where they came from, zeros elsewhere."""

    function = F.max_unpool3d
    rank = 3


class _Fractional(FunctionalModule):
    """The base of pooling whose windows are drawn at random."""

    options = {
        "kernel_size": REQUIRED, "output_size": None, "output_ratio": None,
        "return_indices": False, "_random_samples": None,
    }  # fmt: skip
    shows = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if (self.output_size is None) == (self.output_ratio is None):
            raise ArgumentError(
                f"{type(self).__name__}: expected either output_size or output_ratio, "
                f"got {self.output_size} and {self.output_ratio}"
            )


class FractionalMaxPool2d(_Fractional):
    """The largest elements of windows of (N, C, H, W) at random places."""

    function = F.fractional_max_pool2d


class FractionalMaxPool3d(_Fractional):
    """The largest elements of windows of (N, C, D, H, W) at random places."""

    function = F.fractional_max_pool3d
