"""Activations and soft maxima."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.nn import functional as F
from weft.onnx.registry import enter, operator

enter("Relu", lambda x: weft.relu(x))
enter("Sigmoid", lambda x: weft.sigmoid(x))
enter("Softplus", lambda x: weft.logaddexp(x, weft.zeros_like(x)))
enter("Softsign", lambda x: x / (1 + x.abs()))
enter("Mish", lambda x: x * weft.tanh(weft.logaddexp(x, weft.zeros_like(x))))
enter("HardSwish", lambda x: x * (x / 6 + 0.5).clamp(0, 1))


@operator("PRelu")
def prelu(x: Tensor, slope: Tensor, *, opset: int) -> Tensor:
    """Below zero a slope, which opset 6 gives for each channel."""
    if opset < 7 and slope.ndim == 1 and x.ndim > 2:
        slope = slope.reshape(-1, *(1,) * (x.ndim - 2))
    return weft.where(x < 0, x * slope, x)


@operator("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    """``alpha * x`` below zero."""
    return weft.where(x < 0, x * alpha, x)


@operator("ThresholdedRelu")
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """Elements above a threshold, and zeros."""
    return weft.where(x > alpha, x, weft.zeros_like(x))


@operator("Elu")
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """``alpha * (exp(x) - 1)`` below zero."""
    return F.elu(x, alpha)


@operator("Selu")
def selu(x: Tensor, *, alpha: float = 1.67326319217681884765625,
         gamma: float = 1.05070102214813232421875) -> Tensor:  # fmt: skip
    """Scaled exponential linear units."""
    return gamma * F.elu(x, alpha)


@operator("Celu")
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """Exponential linear units with a continuous derivative."""
    return F.celu(x, alpha)


@operator("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """A line between 0 and 1."""
    return (alpha * x + beta).clamp(0, 1)


@operator("Shrink")
def shrink(x: Tensor, *, lambd: float = 0.5, bias: float = 0.0) -> Tensor:
    """Elements moved to zero by a bias, and zero near it."""
    zero = weft.zeros_like(x)
    above = weft.where(x > lambd, x - bias, zero)
    return weft.where(x < -lambd, x + bias, above).to(x.dtype)


@operator("Gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """Gaussian error linear units."""
    return F.gelu(x, approximate=approximate)


@operator("Swish")
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """``x * sigmoid(alpha * x)``."""
    return x * weft.sigmoid(x if alpha == 1 else x * alpha)


def _along(x: Tensor, axis: Any, opset: int, function: Any) -> Tensor:
    """A function of rows: of an axis, or before opset 13 of all axes from one on."""
    if opset >= 13:
        return function(x, -1 if axis is None else axis)
    axis = (1 if axis is None else axis) % max(x.ndim, 1)
    return function(x.flatten(axis), axis).reshape(x.shape)


@operator("Softmax")
def softmax(x: Tensor, *, axis: Any = None, opset: int) -> Tensor:
    """Exponentials that add up to one."""
    return _along(x, axis, opset, weft.softmax)


@operator("LogSoftmax")
def log_softmax(x: Tensor, *, axis: Any = None, opset: int) -> Tensor:
    """Logarithms of the softmax."""
    return _along(x, axis, opset, weft.log_softmax)


def _hardmax(x: Tensor, axis: int) -> Tensor:
    at = weft.argmax(x, axis, keepdim=True)
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    return (weft.arange(x.shape[axis]).reshape(shape) == at).to(x.dtype)


@operator("Hardmax")
def hardmax(x: Tensor, *, axis: Any = None, opset: int) -> Tensor:
    """One at the first maximum, zeros elsewhere."""
    return _along(x, axis, opset, _hardmax)
