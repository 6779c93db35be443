"""Pooling layers."""

from __future__ import annotations

from typing import Any

from weft import Tensor
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


class MaxPool1d(FunctionalModule):
    """The largest element of each window of (N, C, L)."""

    function = F.max_pool1d
    options = _MAX


class MaxPool2d(FunctionalModule):
    """The largest element of each window of (N, C, H, W).

    >>> weft.nn.MaxPool2d(2)(weft.rand(1, 3, 8, 8)).shape
    (1, 3, 4, 4)
    """

    function = F.max_pool2d
    options = _MAX


class MaxPool3d(FunctionalModule):
    """The largest element of each window of (N, C, D, H, W)."""

    function = F.max_pool3d
    options = _MAX


class AvgPool1d(FunctionalModule):
    """The mean of each window of (N, C, L)."""

    function = F.avg_pool1d
    options = _AVERAGE


class AvgPool2d(FunctionalModule):
    """The mean of each window of (N, C, H, W).

    >>> weft.nn.AvgPool2d(2)(weft.ones(1, 1, 2, 2))
    tensor([[[[1.]]]])
    """

    function = F.avg_pool2d
    options = {**_AVERAGE, "divisor_override": None}


class AvgPool3d(FunctionalModule):
    """The mean of each window of (N, C, D, H, W)."""

    function = F.avg_pool3d
    options = {**_AVERAGE, "divisor_override": None}


class LPPool1d(FunctionalModule):
    """The p-norm of each window of (N, C, L)."""

    function = F.lp_pool1d
    options = _LP


class LPPool2d(FunctionalModule):
    """The p-norm of each window of (N, C, H, W)."""

    function = F.lp_pool2d
    options = _LP


class LPPool3d(FunctionalModule):
    """The p-norm of each window of (N, C, D, H, W)."""

    function = F.lp_pool3d
    options = _LP


class AdaptiveAvgPool1d(FunctionalModule):
    """Means of as many windows as the output has places."""

    function = F.adaptive_avg_pool1d
    options = {"output_size": REQUIRED}


class AdaptiveAvgPool2d(FunctionalModule):
    """Means of as many windows as the output has places.

    >>> weft.nn.AdaptiveAvgPool2d(1)(weft.rand(2, 3, 7, 5)).shape
    (2, 3, 1, 1)
    """

    function = F.adaptive_avg_pool2d
    options = {"output_size": REQUIRED}


class AdaptiveAvgPool3d(FunctionalModule):
    """Means of as many windows as the output has places."""

    function = F.adaptive_avg_pool3d
    options = {"output_size": REQUIRED}


class AdaptiveMaxPool1d(FunctionalModule):
    """Maxima of as many windows as the output has places."""

    function = F.adaptive_max_pool1d
    options = {"output_size": REQUIRED, "return_indices": False}


class AdaptiveMaxPool2d(FunctionalModule):
    """Maxima of as many windows as the output has places."""

    function = F.adaptive_max_pool2d
    options = {"output_size": REQUIRED, "return_indices": False}


class AdaptiveMaxPool3d(FunctionalModule):
    """Maxima of as many windows as the output has places."""

    function = F.adaptive_max_pool3d
    options = {"output_size": REQUIRED, "return_indices": False}


class _Unpool(FunctionalModule):
    options = {"kernel_size": REQUIRED, "stride": None, "padding": 0}

    def forward(
        self, input: Tensor, indices: Tensor, output_size: Any = None
    ) -> Tensor:
        return self.function(input, indices, **self.chosen(), output_size=output_size)


class MaxUnpool1d(_Unpool):
    """Maxima put back where they came from, zeros elsewhere."""

    function = F.max_unpool1d


class MaxUnpool2d(_Unpool):
    """Maxima put back where they came from, zeros elsewhere."""

    function = F.max_unpool2d


class MaxUnpool3d(_Unpool):
    """Maxima put back where they came from, zeros elsewhere."""

    function = F.max_unpool3d
