"""Activations: a function of each element, and its derivative."""

from __future__ import annotations

from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.layers.layer import Layer
from weft.layers.registry import register
from weft.nn import functional as F


class Activation(Layer):
    """The base of activations: write ``func`` and ``derivative_func``.

    >>> class Square(weft.layers.Activation):
    ...     def func(self, x):
    ...         return x * x
    ...     def derivative_func(self, x):
    ...         return 2 * x
    >>> square = Square()
    >>> square.forward(weft.tensor([3.0])), square.backward(weft.ones(1))
    (tensor([9.]), tensor([6.]))
    """

    def forward(self, inputs: Tensor) -> Tensor:
        self.inputs = inputs
        return self.func(inputs)

    def backward(self, grad: Tensor, propagate_down: Any = (True,)) -> Tensor | None:
        return self.derivative_func(self.inputs) * grad if propagate_down[0] else None

    def func(self, x: Tensor) -> Tensor:
        """The value at each element."""
        raise NotImplementedError(f"{type(self).__name__} has no func(self, x)")

    def derivative_func(self, x: Tensor) -> Tensor:
        """The slope at each element."""
        raise NotImplementedError(
            f"{type(self).__name__} has no derivative_func(self, x)"
        )


@register(block="relu_param")
class ReLU(Activation):
    """The positive part; ``negative_slope`` lets some of the rest through.

    >>> weft.layers.ReLU().forward(weft.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    def __init__(self, negative_slope: float = 0.0, *, name: str | None = None) -> None:
        super().__init__(name)
        self.negative_slope = negative_slope

    def func(self, x: Tensor) -> Tensor:
        if not self.negative_slope:
            return F.relu(x)
        return F.leaky_relu(x, self.negative_slope)

    def derivative_func(self, x: Tensor) -> Tensor:
        return weft.where(x > 0, weft.ones_like(x), self.negative_slope)


@register(block="leaky_relu_param")
class LeakyReLU(ReLU):
    """A ReLU with a slope below zero.

    >>> weft.layers.LeakyReLU(0.5).forward(weft.tensor([-1.0, 2.0]))
    tensor([-0.5000,  2.0000])
    """

    def __init__(self, slope: float = 0.01, *, name: str | None = None) -> None:
        super().__init__(slope, name=name)


@register
class Sigmoid(Activation):
    """``1 / (1 + exp(-x))``.

    >>> weft.layers.Sigmoid().forward(weft.zeros(1))
    tensor([0.5000])
    """

    def func(self, x: Tensor) -> Tensor:
        return x.sigmoid()

    def derivative_func(self, x: Tensor) -> Tensor:
        y = x.sigmoid()
        return y * (1 - y)


@register
class Tanh(Activation):
    """The hyperbolic tangent.

    >>> weft.layers.Tanh().forward(weft.zeros(1))
    tensor([0.])
    """

    def func(self, x: Tensor) -> Tensor:
        return x.tanh()

    def derivative_func(self, x: Tensor) -> Tensor:
        y = x.tanh()
        return 1 - y * y


@register(block="tanh_param")
class TanH(Tanh):
    """``Tanh`` under Caffe's name."""


@register
class Softplus(Activation):
    """``log(1 + exp(x))``, without overflow.

    >>> weft.layers.Softplus().forward(weft.zeros(1))
    tensor([0.6931])
    """

    def func(self, x: Tensor) -> Tensor:
        return F.softplus(x, threshold=1e3)

    def derivative_func(self, x: Tensor) -> Tensor:
        return x.sigmoid()


@register
class Softmax(Layer):
    """``exp(x)`` divided by its sum along ``axis``.

    >>> weft.layers.Softmax().forward(weft.zeros(1, 4))
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """

    def __init__(self, axis: int = 1, *, name: str | None = None) -> None:
        super().__init__(name)
        self.axis = axis

    def forward(self, inputs: Tensor) -> Tensor:
        self.outputs = weft.softmax(inputs, self.axis)
        return self.outputs

    def backward(self, grad: Tensor, propagate_down: Any = (True,)) -> Tensor | None:
        if not propagate_down[0]:
            return None
        y = self.outputs
        return y * (grad - (grad * y).sum(self.axis, keepdim=True))
