"""Blocks of the two frameworks whose functions have PyTorch's names."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import numpy as np

Tensors = dict[str, Any]
Function = Callable[..., Any]


class TorchLike(abc.ABC):
    """Weft or PyTorch; what they do not share is left to the two classes."""

    lib: Any
    version: str
    compiled: bool

    @abc.abstractmethod
    def optimizer(self, parameters: list[Any], kind: str, **options: float) -> Any: ...

    @abc.abstractmethod
    def compile(self, function: Function) -> Function: ...

    # -- tensors

    def array(self, a: np.ndarray) -> Any:
        return self.lib.tensor(a)

    images = filters = array  # NCHW and OIHW, as PyTorch has them

    def numpy(self, tensor: Any) -> np.ndarray:
        return tensor.detach().numpy()

    from_images = from_filters = numpy

    def keep(self, result: Any) -> Any:
        """A result that later calls leave as it is."""
        return result

    def wait(self, result: Any) -> Any:
        """Results are there when a call returns."""
        return result

    # -- programs

    def function(self, function: Function) -> Function:
        """A function of tensors, without gradients."""
        made = self.compile(function)

        def run(*inputs: Any) -> Any:
            with self.lib.no_grad():
                return made(*inputs)

        return run

    def model(self, function: Function, parameters: Any, state: Any) -> Function:
        """``function(self, parameters, state, *inputs)``, without gradients."""
        p, s = self._tensors(parameters), self._tensors(state)
        return self.function(lambda *inputs: function(self, p, s, *inputs))

    def step(
        self, loss: Function, parameters: Any, state: Any, kind: str, **options: float
    ) -> Function:
        """A training step: the loss of ``loss(self, parameters, state, *inputs)``."""
        p, s = self._parameters(parameters), self._tensors(state)
        optimizer = self.optimizer(list(p.values()), kind, **options)

        def run(*inputs: Any) -> Any:
            optimizer.zero_grad()
            value = loss(self, p, s, *inputs)
            value.backward()
            optimizer.step()
            return value

        return self.compile(run)

    def update(self, parameters: Any, grads: Any, kind: str, **options: float) -> Any:
        """An optimizer's step alone, and the parameters it changes."""
        values = list(self._parameters(parameters).values())
        for value, grad in zip(values, grads.values(), strict=True):
            value.grad = self.array(grad)
        optimizer = self.optimizer(values, kind, **options)
        return self.compile(lambda: optimizer.step()), values

    def _tensors(self, arrays: dict[str, np.ndarray]) -> Tensors:
        return {name: self.array(a) for name, a in arrays.items()}

    def _parameters(self, arrays: dict[str, np.ndarray]) -> Tensors:
        return {n: self.lib.nn.Parameter(self.array(a)) for n, a in arrays.items()}

    # -- blocks

    def linear(self, x: Any, p: Tensors, name: str) -> Any:
        return self.F.linear(x, p[f"{name}.weight"], p.get(f"{name}.bias"))

    def layer_norm(self, x: Any, p: Tensors, name: str) -> Any:
        weight, bias = p[f"{name}.weight"], p[f"{name}.bias"]
        return self.F.layer_norm(x, weight.shape, weight, bias)

    def batch_norm(
        self, x: Any, p: Tensors, s: Tensors, name: str, training: bool
    ) -> Any:
        return self.F.batch_norm(
            x, s[f"{name}.mean"], s[f"{name}.var"],
            p[f"{name}.weight"], p[f"{name}.bias"], training,
        )  # fmt: skip

    def conv(self, x: Any, w: Any, stride: int, padding: int) -> Any:
        return self.F.conv2d(x, w, None, stride, padding)

    def max_pool(self, x: Any) -> Any:
        """3x3 with stride 2, as behind the stem of a ResNet."""
        return self.F.max_pool2d(x, 3, 2, 1)

    def pixel_mean(self, x: Any) -> Any:
        return x.mean((2, 3))

    def attention(
        self, q: Any, k: Any, v: Any, causal: bool = False, mask: Any = None
    ) -> Any:
        return self.F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal
        )

    def heads(self, x: Any, count: int) -> list[Any]:
        """(B, T, 3C) as q, k and v, each (B, H, T, D)."""
        return [
            part.unflatten(-1, (count, -1)).transpose(1, 2) for part in x.chunk(3, -1)
        ]

    def merge_heads(self, x: Any) -> Any:
        return x.transpose(1, 2).flatten(2)

    def recurrent(self, inputs: int, hidden: int, layers: int) -> Function:
        """An LSTM over (T, B, C): ``run(x, parameters)`` gives all outputs."""
        net = self.lib.nn.LSTM(inputs, hidden, layers)

        def run(x: Any, p: Tensors) -> Any:
            return self.lib.func.functional_call(net, p, (x,))[0]

        return run

    def embedding(self, ids: Any, table: Any) -> Any:
        return self.F.embedding(ids, table)

    def positions(self, count: int) -> Any:
        return self.lib.arange(count)

    def put(self, state: Tensors, name: str, t: Any, new: Any) -> Any:
        """Position ``t`` of a (B, H, T, D) cache is written; the whole cache."""
        return state[name].index_copy_(2, t, new)

    def cross_entropy(self, logits: Any, targets: Any) -> Any:
        return self.F.cross_entropy(logits, targets)

    def relu(self, x: Any) -> Any:
        return self.F.relu(x)

    def gelu(self, x: Any) -> Any:
        return self.F.gelu(x)

    def tanh(self, x: Any) -> Any:
        return self.lib.tanh(x)

    def exp(self, x: Any) -> Any:
        return self.lib.exp(x)

    def softmax(self, x: Any) -> Any:
        return self.F.softmax(x, -1)

    def sum(self, x: Any, axis: int | None) -> Any:
        return x.sum() if axis is None else x.sum(axis)

    def transposed_copy(self, x: Any) -> Any:
        return x.T.contiguous()

    def argmax(self, x: Any) -> Any:
        return x.argmax(-1)

    @property
    def F(self) -> Any:
        return self.lib.nn.functional
