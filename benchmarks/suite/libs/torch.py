"""PyTorch, eager or through ``torch.compile``."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from benchmarks.suite.libs.torchlike import Function, TorchLike


class Torch(TorchLike):
    def __init__(self, compiled: bool) -> None:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        self.lib = torch
        self.compiled = compiled
        self.version = torch.__version__

    def optimizer(self, parameters: list[Any], kind: str, **options: float) -> Any:
        """Eager: one fused kernel, the fastest there is; else the compiler's own."""
        optim = torch.optim
        kinds: dict[str, Any] = {"adam": optim.Adam, "adamw": optim.AdamW}
        made = kinds.get(kind, optim.SGD)
        return made(parameters, fused=not self.compiled, **options)

    def compile(self, function: Function) -> Function:
        # Each case is compiled for its own sizes.
        return torch.compile(function, dynamic=False) if self.compiled else function

    def gradient(self, function: Function) -> Function:
        """``run(*inputs, g)``: the result, and gradients of all inputs."""
        made = self.compile(function)

        def both(*given: Any) -> Any:
            inputs = [x.detach().requires_grad_() for x in given[:-1]]
            result = made(*inputs)
            return (result, *torch.autograd.grad(result, inputs, given[-1]))

        return both

    def conv_input_grad(self, g: Any, x: Any, w: Any, *options: int) -> Any:
        return torch.nn.grad.conv2d_input(x.shape, w, g, *options)

    def conv_weight_grad(self, g: Any, x: Any, w: Any, *options: int) -> Any:
        return torch.nn.grad.conv2d_weight(x, w.shape, g, *options)

    def scattered(self, ids: Any, rows: Any, count: int) -> Any:
        """The gradient of a table of so many rows, of which ``ids`` were read."""
        backward = torch.ops.aten.embedding_dense_backward
        return backward(rows, ids, count, -1, False)

    recorded: Callable[[Any], Any] = staticmethod(
        lambda a: torch.tensor(a, requires_grad=True)
    )
