"""Convolution and its transpose over images (N, C, H, W)."""

from __future__ import annotations

from typing import Any

from weft.core.tensor import Tensor
from weft.errors import ArgumentError, ShapeError
from weft.layers.fillers import filled
from weft.layers.layer import Layer
from weft.layers.linear import check_size
from weft.layers.registry import register
from weft.nn import functional as F
from weft.nn.functional.conv import sizes_of
from weft.ops.conv import conv_input_grad_op, conv_weight_grad_op


class _Convolving(Layer):
    """The common base of both directions: sizes, and the parameters ``w`` and ``b``."""

    def __init__(
        self, num_in: int | None, num_out: int | None, kernel: Any, stride: Any,
        padding: Any, dilation: Any, groups: int, bias: bool, w_init: Any, b_init: Any,
        name: str | None,
    ) -> None:  # fmt: skip
        super().__init__(name)
        check_size(self, "the number of output channels", num_out)
        kind = type(self).__name__
        self.num_out: Any = num_out
        self.groups, self.bias = groups, bias
        self.kernel = sizes_of(kind, "the kernel", kernel, 2, 1)
        self.stride = sizes_of(kind, "stride", stride, 2, 1)
        self.padding = sizes_of(kind, "padding", padding, 2)
        self.dilation = sizes_of(kind, "dilation", dilation, 2, 1)
        self.w_init, self.b_init = w_init, b_init
        if num_in is not None:
            self._start(num_in)

    def _start(self, num_in: int, dtype: Any = None) -> None:
        if num_in % self.groups or self.num_out % self.groups:
            raise ArgumentError(
                f"{self._title}: {self.groups} groups must divide the channels, got "
                f"{num_in} in and {self.num_out} out"
            )
        self.params["w"] = filled(self.w_init, self._weight_shape(num_in), dtype)
        if self.bias:
            self.params["b"] = filled(self.b_init, (self.num_out,), dtype)

    def _weight_shape(self, num_in: int) -> tuple[int, ...]:
        raise NotImplementedError

    def setup(self, inputs: Tensor) -> None:
        if inputs.ndim != 4:
            raise ShapeError(
                f"{self._title}: expected images (N, C, H, W), got shape {inputs.shape}"
            )
        if not self.params:
            self._start(inputs.shape[1], inputs.dtype)

    def _steps(self) -> dict[str, Any]:
        """The record's parameters for this layer's windows."""
        return {
            "stride": self.stride, "padding": tuple((p, p) for p in self.padding),
            "dilation": self.dilation, "groups": self.groups,
        }  # fmt: skip

    def _options(self) -> dict[str, Any]:
        return {
            "stride": self.stride, "padding": self.padding,
            "dilation": self.dilation, "groups": self.groups,
        }  # fmt: skip


@register
class Conv2D(_Convolving):
    """Weighted sums of windows; ``w`` is (num_out, num_in / groups, height, width).

    >>> layer = weft.layers.Conv2D(3, 8, kernel=3, padding=1)
    >>> layer.forward(weft.zeros(2, 3, 5, 5)).shape
    (2, 8, 5, 5)
    """

    def __init__(
        self, num_in: int | None = None, num_out: int | None = None, kernel: Any = 3,
        stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
        bias: bool = True, w_init: Any = "xavier_uniform", b_init: Any = "zeros",
        *, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            num_in, num_out, kernel, stride, padding, dilation, groups, bias, w_init,
            b_init, name,
        )  # fmt: skip

    def _weight_shape(self, num_in: int) -> tuple[int, ...]:
        return (self.num_out, num_in // self.groups, *self.kernel)

    def forward(self, inputs: Tensor) -> Tensor:
        self.inputs = inputs
        w, b = self.params["w"], self.params.get("b")
        return F.conv2d(inputs, w, b, **self._options())

    def backward(self, grad: Tensor, propagate_down: Any = (True,)) -> Tensor | None:
        x, w, steps, below = self.inputs, self.params["w"], self._steps(), None
        if propagate_down[0]:  # first: the weights' kernel may write new weights
            below = conv_input_grad_op(grad, w, size=x.shape[2:], **steps)
        self.grads["w"] = conv_weight_grad_op(x, grad, size=self.kernel, **steps)
        if self.bias:
            self.grads["b"] = grad.sum((0, 2, 3))
        return below


@register
class Convolution(Conv2D):
    """``Conv2D`` by Caffe's names; the first input decides its channels.

    >>> layer = weft.layers.Convolution(num_output=20, kernel_size=5)
    >>> layer.forward(weft.zeros(1, 1, 28, 28)).shape
    (1, 20, 24, 24)
    """

    def __init__(
        self, num_output: int, kernel_size: Any, stride: Any = 1, pad: Any = 0,
        dilation: Any = 1, group: int = 1, bias_term: bool = True,
        weight_filler: Any = "xavier", bias_filler: Any = "constant",
        *, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            None, num_output, kernel_size, stride, pad, dilation, group, bias_term,
            weight_filler, bias_filler, name=name,
        )  # fmt: skip


@register
class ConvTranspose2D(_Convolving):
    """The transpose of ``Conv2D``; ``w`` is (num_in, num_out / groups, height, width).

    >>> layer = weft.layers.ConvTranspose2D(3, 2, kernel=2, stride=2)
    >>> layer.forward(weft.zeros(1, 3, 4, 4)).shape
    (1, 2, 8, 8)
    """

    def __init__(
        self, num_in: int | None = None, num_out: int | None = None, kernel: Any = 3,
        stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
        bias: bool = True, w_init: Any = "xavier_uniform", b_init: Any = "zeros",
        *, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            num_in, num_out, kernel, stride, padding, dilation, groups, bias, w_init,
            b_init, name,
        )  # fmt: skip

    def _weight_shape(self, num_in: int) -> tuple[int, ...]:
        return (num_in, self.num_out // self.groups, *self.kernel)

    def forward(self, inputs: Tensor) -> Tensor:
        self.inputs = inputs
        w, b = self.params["w"], self.params.get("b")
        return F.conv_transpose2d(inputs, w, b, **self._options())

    def backward(self, grad: Tensor, propagate_down: Any = (True,)) -> Tensor | None:
        w, below = self.params["w"], None
        if propagate_down[0]:  # first: the weights' kernel may write new weights
            below = F.conv2d(grad, w, **self._options())
        self.grads["w"] = conv_weight_grad_op(
            grad, self.inputs, size=self.kernel, **self._steps()
        )
        if self.bias:
            self.grads["b"] = grad.sum((0, 2, 3))
        return below


@register(block="convolution_param")
class Deconvolution(ConvTranspose2D):
    """``ConvTranspose2D`` by Caffe's names.

    >>> layer = weft.layers.Deconvolution(num_output=2, kernel_size=2, stride=2)
    >>> layer.forward(weft.zeros(1, 3, 4, 4)).shape
    (1, 2, 8, 8)
    """

    def __init__(
        self, num_output: int, kernel_size: Any, stride: Any = 1, pad: Any = 0,
        dilation: Any = 1, group: int = 1, bias_term: bool = True,
        weight_filler: Any = "xavier", bias_filler: Any = "constant",
        *, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            None, num_output, kernel_size, stride, pad, dilation, group, bias_term,
            weight_filler, bias_filler, name=name,
        )  # fmt: skip
