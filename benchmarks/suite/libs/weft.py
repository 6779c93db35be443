"""Weft, compiled or eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.suite.libs.torchlike import Function, TorchLike

import weft


class Weft(TorchLike):
    def __init__(self, compiled: bool) -> None:
        self.lib = weft
        self.compiled = compiled
        self.version = weft.__version__

    def optimizer(self, parameters: list[Any], kind: str, **options: float) -> Any:
        from weft import optim

        kinds = {"adam": optim.Adam, "adamw": optim.AdamW}
        return kinds.get(kind, optim.SGD)(parameters, **options)

    def compile(self, function: Function) -> Function:
        return weft.compile(function) if self.compiled else function

    def gradient(self, function: Function) -> Function:
        """``run(*inputs, g)``: the result, and gradients of all inputs."""

        def both(*given: Any) -> Any:
            result, pull = weft.func.vjp(function, *given[:-1])
            return (result, *pull(given[-1]))

        return self.compile(both)

    def conv_input_grad(self, g: Any, x: Any, w: Any, *options: int) -> Any:
        return weft.func.vjp(lambda x: self.conv(x, w, *options), x)[1](g)[0]

    def conv_weight_grad(self, g: Any, x: Any, w: Any, *options: int) -> Any:
        return weft.func.vjp(lambda w: self.conv(x, w, *options), w)[1](g)[0]

    def scattered(self, ids: Any, rows: Any, count: int) -> Any:
        """The gradient of a table of so many rows, of which ``ids`` were read."""
        table = weft.zeros(count, rows.shape[-1])
        return weft.func.vjp(lambda t: self.embedding(ids, t), table)[1](rows)[0]

    def machine(self) -> Any:
        from weft.compile.cost.machine import machine

        return machine()

    recorded: Callable[[Any], Any] = staticmethod(
        lambda a: weft.tensor(a, requires_grad=True)
    )
