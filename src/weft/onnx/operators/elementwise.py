"""Functions of each element."""

from __future__ import annotations

import functools
from typing import Any

import weft
from weft import Tensor
from weft.onnx.registry import enter, operator

_ONE = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Exp Floor Log Neg Reciprocal "
    "Sign Sin Sinh Sqrt Tan Tanh Erf"
)
for _name in _ONE.split():
    enter(_name, lambda x, f=getattr(weft, _name.lower()): f(x))

enter("Round", lambda x: weft.round(x))
enter("IsNaN", lambda x: weft.isnan(x))
enter("Not", lambda x: weft.logical_not(x))
enter("BitwiseNot", lambda x: weft.bitwise_not(x))
enter("BitwiseAnd", lambda x, y: weft.bitwise_and(x, y))
enter("BitwiseOr", lambda x, y: weft.bitwise_or(x, y))
enter("BitwiseXor", lambda x, y: weft.bitwise_xor(x, y))
enter("GreaterOrEqual", lambda x, y: weft.ge(x, y))
enter("LessOrEqual", lambda x, y: weft.le(x, y))
enter("Where", lambda condition, x, y: weft.where(condition, x, y))


def _div(x: Tensor, y: Tensor) -> Tensor:
    if x.dtype.is_floating_point:
        return x / y
    return weft.div(x, y, rounding_mode="trunc")


def _pow(x: Tensor, y: Tensor) -> Tensor:
    if x.dtype == y.dtype:
        return weft.pow(x, y)
    if x.dtype.is_floating_point:
        return weft.pow(x, y.to(x.dtype))
    return weft.pow(x.double(), y.double()).to(x.dtype)


def _of_two(function: Any) -> Any:
    """A function of two tensors; opset 6 says where the axes of the second are."""

    def run(x: Tensor, y: Tensor, *, axis: Any = None, broadcast: int = 0) -> Tensor:
        if axis is not None:
            y = y.reshape(*y.shape, *(1,) * (x.ndim - axis % x.ndim - y.ndim))
        return function(x, y)

    return run


for _name, _function in {
    "Add": weft.add, "Sub": weft.sub, "Mul": weft.mul, "Div": _div, "Pow": _pow,
    "And": weft.logical_and, "Or": weft.logical_or, "Xor": weft.logical_xor,
    "Equal": weft.eq, "Greater": weft.gt, "Less": weft.lt,
}.items():  # fmt: skip
    enter(_name, _of_two(_function))


@operator("Mod")
def mod(x: Tensor, y: Tensor, *, fmod: int = 0) -> Tensor:
    """The rest, with the sign of the divisor; with ``fmod`` of the dividend."""
    return weft.fmod(x, y) if fmod else weft.remainder(x, y)


@operator("BitShift")
def bit_shift(x: Tensor, y: Tensor, *, direction: str) -> Tensor:
    """Bits moved to the left or the right."""
    shift = {"LEFT": weft.bitwise_left_shift, "RIGHT": weft.bitwise_right_shift}
    return shift[direction](x, y)


@operator("Sum")
def sum_of(*xs: Tensor) -> Tensor:
    """The sum of some tensors."""
    return functools.reduce(weft.add, xs)


@operator("Mean")
def mean_of(*xs: Tensor) -> Tensor:
    """The mean of some tensors."""
    return functools.reduce(weft.add, xs) / len(xs)


@operator("Max")
def max_of(*xs: Tensor) -> Tensor:
    """The largest of some tensors' elements."""
    return functools.reduce(weft.maximum, xs)


@operator("Min")
def min_of(*xs: Tensor) -> Tensor:
    """The smallest of some tensors' elements."""
    return functools.reduce(weft.minimum, xs)


@operator("Clip")
def clip(
    x: Tensor, low: Any = None, high: Any = None, *, min: Any = None, max: Any = None
) -> Tensor:
    """Elements between two bounds; where they contradict, the upper one."""
    low, high = (min if low is None else low), (max if high is None else high)
    for bound, function in ((low, weft.maximum), (high, weft.minimum)):
        if bound is not None:
            if not isinstance(bound, Tensor):
                bound = weft.tensor(bound, dtype=x.dtype)
            x = function(x, bound)
    return x


@operator("IsInf")
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    """Whether elements are infinite, of either sign."""
    found = weft.isinf(x)
    if not detect_negative:
        found = found & (x > 0)
    return found if detect_positive else found & (x < 0)
