"""Layers with several inputs, where branches of a net meet."""

from __future__ import annotations

import functools
import operator
from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, ShapeError
from weft.layers.layer import Layer
from weft.layers.registry import register


@register
class Eltwise(Layer):
    """The ``SUM``, ``PROD`` or ``MAX`` of inputs of one shape.

    >>> weft.layers.Eltwise().forward(weft.ones(2), weft.ones(2))
    tensor([2., 2.])
    """

    def __init__(self, operation: str = "SUM", *, name: str | None = None) -> None:
        super().__init__(name)
        if operation not in ("SUM", "PROD", "MAX"):
            raise ArgumentError(
                f"Eltwise: expected operation SUM, PROD or MAX, got {operation!r}"
            )
        self.operation = operation

    def forward(self, *inputs: Tensor) -> Tensor:
        if len({x.shape for x in inputs}) != 1:
            shapes = ", ".join(str(x.shape) for x in inputs)
            raise ShapeError(
                f"{self._title}: expected inputs of one shape, got {shapes or 'none'}"
            )
        self.inputs = inputs
        if self.operation == "SUM":
            return functools.reduce(operator.add, inputs)
        if self.operation == "PROD":
            return functools.reduce(operator.mul, inputs)
        self.winner = weft.stack(inputs).argmax(0)  # the first of equals
        return functools.reduce(weft.maximum, inputs)

    def backward(self, grad: Tensor, propagate_down: Any = (True,)) -> Any:
        return tuple(
            self._share(i, grad) if need else None
            for i, need in enumerate(propagate_down)
        )

    def _share(self, i: int, grad: Tensor) -> Tensor:
        if self.operation == "SUM":
            return grad
        if self.operation == "MAX":
            return grad * (self.winner == i).to(grad.dtype)
        others = (*self.inputs[:i], *self.inputs[i + 1 :])
        return functools.reduce(operator.mul, others, grad)


@register
class Concat(Layer):
    """The inputs side by side along ``axis``.

    >>> weft.layers.Concat().forward(weft.zeros(2, 1), weft.zeros(2, 3)).shape
    (2, 4)
    """

    def __init__(self, axis: int = 1, *, name: str | None = None) -> None:
        super().__init__(name)
        self.axis = axis

    def forward(self, *inputs: Tensor) -> Tensor:
        self.sizes = [x.shape[self.axis] for x in inputs]
        return weft.cat(inputs, self.axis)

    def backward(self, grad: Tensor) -> Any:
        return weft.split(grad, self.sizes, self.axis)
