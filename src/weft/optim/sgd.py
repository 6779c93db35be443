"""Stochastic gradient descent, and the sign of its momentum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from weft import where, zeros_like
from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.optim.flat import State
from weft.optim.optimizer import Optimizer, decayed, shrunk

_DECAYS = ("l2", "decoupled", "tinynn")


def _counted(entry: Any) -> Any:
    """A parameter's saved state with a count of steps; None for one without state."""
    if not isinstance(entry, Mapping) or "step" in entry:
        return entry
    return {"step": 1, **entry} if entry.get("momentum_buffer") is not None else None


class SGD(Optimizer):
    """Gradient descent with momentum.

        g <- g + weight_decay p
        b <- momentum b + (1 - dampening) g          (b = g in the first step)
        p <- p - lr (g + momentum b if nesterov else b)

    ``decay`` says what weight decay means: "l2" as above; "decoupled" for
    ``(1 - lr weight_decay) p`` less the step; "tinynn" for the step and
    ``weight_decay p`` taken off, the latter not scaled by the learning rate.

    >>> p = weft.nn.Parameter(weft.ones(2))
    >>> sgd = weft.optim.SGD([p], lr=0.1, weight_decay=0.5, decay="decoupled")
    >>> p.sum().backward()
    >>> sgd.step()
    >>> p.detach()
    tensor([0.8500, 0.8500])
    """

    switches = ("momentum",)

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        decay: str = "l2",
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        defaults = {
            "lr": lr, "momentum": momentum, "dampening": dampening,
            "weight_decay": weight_decay, "nesterov": nesterov, "decay": decay,
            "maximize": maximize, "foreach": foreach,
            "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)

    def check(self, group: dict[str, Any]) -> None:
        super().check(group)
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ArgumentError(
                "SGD: nesterov needs a momentum above 0 and no dampening, got "
                f"momentum {group['momentum']} and dampening {group['dampening']}"
            )
        if group["decay"] not in _DECAYS:
            raise ArgumentError(
                f"SGD: expected decay to be one of {', '.join(_DECAYS)}, got "
                f"{group['decay']!r}"
            )

    def start(self, param: Tensor, group: dict[str, Any]) -> State:
        return {"momentum_buffer": zeros_like(param)} if group["momentum"] else {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave, here or in PyTorch, whose SGD counts no
        steps: a parameter that has momentum has made one."""
        state = state_dict.get("state") if isinstance(state_dict, Mapping) else None
        if isinstance(state, Mapping):
            entries = {k: _counted(v) for k, v in state.items()}
            known = {k: v for k, v in entries.items() if v is not None}
            state_dict = {**state_dict, "state": known}
        super().load_state_dict(state_dict)

    def update(self, g: Any, p: Any, state: State, group: dict[str, Any]) -> Any:
        decay, before = group["decay"], p
        if decay == "l2":
            g = decayed(g, p, group)
        elif decay == "decoupled":
            p = shrunk(p, group)
        p = p - group["lr"] * self._direction(g, state, group)
        return p - group["weight_decay"] * before if decay == "tinynn" else p

    def _direction(self, g: Any, state: State, group: dict[str, Any]) -> Any:
        momentum = group["momentum"]
        if not momentum:
            return g
        first, b = state["step"] == 1, g
        if first is not True:
            share = 1 - group["dampening"]
            b = momentum * state["momentum_buffer"] + (g if share == 1 else share * g)
            if first is not False:  # a number that a capture follows
                b = where(first, g, b)
        state["momentum_buffer"] = b
        return g + momentum * b if group["nesterov"] else b


class Lion(Optimizer):
    """The sign of an interpolated momentum (Chen et al., 2023).

        p <- (1 - lr weight_decay) p - lr sign(b1 m + (1 - b1) g)
        m <- b2 m + (1 - b2) g

    >>> p = weft.nn.Parameter(weft.tensor([1.0, -1.0]))
    >>> lion = weft.optim.Lion([p], lr=0.25)
    >>> (p * p).sum().backward()
    >>> lion.step()
    >>> p.detach()
    tensor([ 0.7500, -0.7500])
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None:
        defaults = {
            "lr": lr, "betas": betas, "weight_decay": weight_decay,
            "maximize": maximize, "foreach": foreach,
        }  # fmt: skip
        super().__init__(params, defaults)

    def start(self, param: Tensor, group: dict[str, Any]) -> State:
        return {"exp_avg": zeros_like(param)}

    def update(self, g: Any, p: Any, state: State, group: dict[str, Any]) -> Any:
        b1, b2 = group["betas"]
        m = state["exp_avg"]
        direction = np.sign(b1 * m + (1 - b1) * g)
        state["exp_avg"] = b2 * m + (1 - b2) * g
        return shrunk(p, group) - group["lr"] * direction
