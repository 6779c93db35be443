"""Fully connected layers, and the flattening before them."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, ShapeError
from weft.layers.fillers import filled
from weft.layers.layer import Layer
from weft.layers.registry import register


def check_size(layer: Layer, what: str, size: Any) -> None:
    """A layer's number of outputs must be given."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ArgumentError(
            f"{layer._title}: expected {what} to be an int of at least 1, got {size!r}"
        )


@register
class Dense(Layer):
    """``x w + b`` for rows x of ``num_in`` numbers; ``w`` is (num_in, num_out).

    ``num_in`` may be None: then the first input decides it.

    >>> layer = weft.layers.Dense(3, 2, w_init="ones")
    >>> layer.forward(weft.ones(1, 3))
    tensor([[3., 3.]])
    >>> _ = layer.backward(weft.ones(1, 2))
    >>> layer.grads["b"]
    tensor([1., 1.])
    """

    def __init__(
        self, num_in: int | None = None, num_out: int | None = None,
        w_init: Any = "xavier_uniform", b_init: Any = "zeros", *, bias: bool = True,
        name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name)
        check_size(self, "num_out", num_out)
        self.num_out: Any
        self.num_out, self.w_init, self.b_init = num_out, w_init, b_init
        self.bias = bias
        if num_in is not None:
            self._start(num_in)

    def _start(self, num_in: int, dtype: Any = None) -> None:
        self.params["w"] = filled(
            self.w_init, (num_in, self.num_out), dtype, transposed=True
        )
        if self.bias:
            self.params["b"] = filled(self.b_init, (self.num_out,), dtype)

    def setup(self, inputs: Tensor) -> None:
        if not self.params:
            self._start(inputs.shape[-1], inputs.dtype)

    def forward(self, inputs: Tensor) -> Tensor:
        self.inputs = inputs
        return self._product(inputs)

    def backward(self, grad: Tensor, propagate_down: Any = (True,)) -> Tensor | None:
        w = self.params["w"]
        # before the weights' gradient, whose kernel may then write the new weights
        below = grad @ w.T if propagate_down[0] else None
        rows, g = self.inputs.reshape(-1, w.shape[0]), grad.reshape(-1, w.shape[1])
        self.grads["w"] = rows.T @ g
        if self.bias:
            self.grads["b"] = g.sum(0)
        return below

    def _product(self, x: Tensor) -> Tensor:
        w = self.params["w"]  # (in, out)
        if x.ndim < 2 or x.shape[-1] != w.shape[0]:
            raise ShapeError(
                f"{self._title}: expected rows of {w.shape[0]} numbers, got shape "
                f"{x.shape}"
            )
        return x @ w + self.params["b"] if self.bias else x @ w


@register
class InnerProduct(Dense):
    """``Dense`` by Caffe's names; everything from ``axis`` on is one row.

    >>> layer = weft.layers.InnerProduct(num_output=5)
    >>> layer.forward(weft.zeros(2, 3, 4)).shape
    (2, 5)
    """

    def __init__(
        self, num_output: int, bias_term: bool = True, axis: int = 1,
        weight_filler: Any = "xavier", bias_filler: Any = "constant",
        *, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            None, num_output, weight_filler, bias_filler, bias=bias_term, name=name
        )
        self.axis = axis

    def setup(self, inputs: Tensor) -> None:
        if not self.params:
            self._start(math.prod(inputs.shape[self.axis :]), inputs.dtype)

    def forward(self, inputs: Tensor) -> Tensor:
        self.shape = inputs.shape
        return super().forward(inputs.flatten(self.axis))

    def backward(self, grad: Tensor, propagate_down: Any = (True,)) -> Tensor | None:
        g = super().backward(grad, propagate_down=propagate_down)
        return None if g is None else g.reshape(self.shape)


@register
class Flatten(Layer):
    """All dimensions from ``axis`` on as one.

    >>> weft.layers.Flatten().forward(weft.zeros(2, 3, 4)).shape
    (2, 12)
    """

    def __init__(self, axis: int = 1, *, name: str | None = None) -> None:
        super().__init__(name)
        self.axis = axis

    def forward(self, inputs: Tensor) -> Tensor:
        self.shape = inputs.shape
        return inputs.flatten(self.axis)

    def backward(self, grad: Tensor) -> Tensor:
        return grad.reshape(self.shape)


@register
class RNN(Layer):
    """A plain recurrent layer: ``h <- tanh(x w_x + h w_h + b)`` along (N, T, num_in).

    It gives all states (N, T, num_hidden), or the last alone.

    >>> layer = weft.layers.RNN(3, 4)
    >>> layer.forward(weft.zeros(2, 5, 3)).shape
    (2, 5, 4)
    """

    def __init__(
        self, num_in: int | None = None, num_hidden: int | None = None,
        return_sequences: bool = True, w_init: Any = "xavier_uniform",
        b_init: Any = "zeros", *, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name)
        check_size(self, "num_hidden", num_hidden)
        self.num_hidden: Any
        self.num_hidden, self.return_sequences = num_hidden, return_sequences
        self.w_init, self.b_init = w_init, b_init
        if num_in is not None:
            self._start(num_in)

    def _start(self, num_in: int, dtype: Any = None) -> None:
        size = self.num_hidden
        self.params["w_x"] = filled(self.w_init, (num_in, size), dtype, transposed=True)
        self.params["w_h"] = filled(self.w_init, (size, size), dtype, transposed=True)
        self.params["b"] = filled(self.b_init, (size,), dtype)

    def setup(self, inputs: Tensor) -> None:
        if not self.params:
            self._start(inputs.shape[-1], inputs.dtype)

    def forward(self, inputs: Tensor) -> Tensor:
        w_x, w_h, b = (self.params[k] for k in ("w_x", "w_h", "b"))
        if inputs.ndim != 3 or inputs.shape[2] != w_x.shape[0] or not inputs.shape[1]:
            raise ShapeError(
                f"{self._title}: expected inputs (batch, time, {w_x.shape[0]}) with at "
                f"least one time step, got shape {inputs.shape}"
            )
        self.inputs = inputs
        h = weft.zeros(inputs.shape[0], self.num_hidden, dtype=inputs.dtype)
        self.states = [h]  # h before the first step, then after each
        for x in inputs.unbind(1):
            h = (x @ w_x + h @ w_h + b).tanh()
            self.states.append(h)
        return weft.stack(self.states[1:], 1) if self.return_sequences else h

    def backward(self, grad: Tensor, propagate_down: Any = (True,)) -> Tensor | None:
        xs, w_x, w_h = self.inputs.unbind(1), self.params["w_x"], self.params["w_h"]
        slopes: list[Tensor] = []  # of each step's sum, last step first
        back: Any = 0.0
        for t in reversed(range(len(xs))):
            h = self.states[t + 1]
            slopes.append((self._from_above(grad, t) + back) * (1 - h * h))
            back = slopes[-1] @ w_h.T
        slopes.reverse()
        gs = weft.stack(slopes, 1).flatten(0, 1)  # (N T, H)
        before = weft.stack(self.states[:-1], 1).flatten(0, 1)
        self.grads["w_x"] = self.inputs.flatten(0, 1).T @ gs
        self.grads["w_h"] = before.T @ gs
        self.grads["b"] = gs.sum(0)
        return weft.stack(slopes, 1) @ w_x.T if propagate_down[0] else None

    def _from_above(self, grad: Tensor, t: int) -> Any:
        if self.return_sequences:
            return grad[:, t]
        return grad if t == self.inputs.shape[1] - 1 else 0.0
