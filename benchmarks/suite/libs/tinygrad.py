"""tinygrad under ``TinyJit``; what its workloads need, and no more."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
from tinygrad import Tensor, TinyJit, nn

Tensors = dict[str, Any]
Function = Callable[..., Any]


class Tinygrad:
    compiled = True
    version = version("tinygrad")

    def __init__(self) -> None:
        Tensor([1.0]).add(1).realize()  # an error here says what is missing

    def array(self, a: np.ndarray) -> Any:
        return Tensor(a).realize()

    def numpy(self, tensor: Any) -> np.ndarray:
        return tensor.numpy()

    def keep(self, result: Any) -> Any:
        return Tensor(result.numpy())  # the next call writes into the same memory

    def wait(self, result: Any) -> None:
        from tinygrad import Device

        Device[Device.DEFAULT].synchronize()

    # -- programs

    def function(self, function: Function) -> Function:
        return TinyJit(lambda *inputs: function(*inputs).contiguous().realize())

    def step(
        self, loss: Function, parameters: Any, state: Any, kind: str, **options: float
    ) -> Function:
        """A training step: the loss of ``loss(self, parameters, state, *inputs)``."""
        p = {name: self.array(a) for name, a in parameters.items()}
        kinds = {"adam": nn.optim.Adam, "adamw": nn.optim.AdamW}
        for value in p.values():
            value.requires_grad = True
        optimizer = kinds.get(kind, nn.optim.SGD)(list(p.values()), **options)

        @TinyJit
        def run(*inputs: Any) -> Any:
            optimizer.zero_grad()
            value = loss(self, p, {}, *inputs)
            value.backward()
            return value.realize(*optimizer.schedule_step())

        return run

    # -- blocks

    def linear(self, x: Any, p: Tensors, name: str) -> Any:
        return x.linear(p[f"{name}.weight"].T, p.get(f"{name}.bias"))

    def layer_norm(self, x: Any, p: Tensors, name: str) -> Any:
        return x.layernorm() * p[f"{name}.weight"] + p[f"{name}.bias"]

    def cross_entropy(self, logits: Any, targets: Any) -> Any:
        return logits.cross_entropy(targets)

    def relu(self, x: Any) -> Any:
        return x.relu()

    def gelu(self, x: Any) -> Any:
        return x * 0.5 * (1 + (x * 0.5**0.5).erf())

    def tanh(self, x: Any) -> Any:
        return x.tanh()

    def exp(self, x: Any) -> Any:
        return x.exp()

    def softmax(self, x: Any) -> Any:
        return x.softmax(-1)

    def sum(self, x: Any, axis: int | None) -> Any:
        return x.sum(axis)

    def transposed_copy(self, x: Any) -> Any:
        return x.T.contiguous()
