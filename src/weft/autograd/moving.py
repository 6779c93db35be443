"""Copies between devices, on the tape: a gradient goes back where its value was."""

from __future__ import annotations

from typing import Any

from weft.autograd.function import Function
from weft.core.tensor import Tensor


class Move(Function):
    """``apply(tensor, device)``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, device: Any) -> Tensor:
        ctx.home = x.device
        return x._moved(device)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        return g.to(ctx.home), None
