"""Rules that scale each element by the gradients it has seen."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import full_like, zeros_like
from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.optim.flat import State
from weft.optim.optimizer import Optimizer, decayed


class Adagrad(Optimizer):
    """Steps divided by the root of all squared gradients (Duchi et al., 2011).

        s <- s + g²        p <- p - lr / (1 + (t - 1) lr_decay) g / (√s + eps)

    >>> p = weft.nn.Parameter(weft.tensor([1.0, 2.0]))
    >>> adagrad = weft.optim.Adagrad([p], lr=0.5)
    >>> (p * p).sum().backward()
    >>> adagrad.step()
    >>> p.detach()
    tensor([0.5000, 1.5000])
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        defaults = {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "maximize": maximize, "foreach": foreach,
            "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)

    def start(self, param: Tensor, group: dict[str, Any]) -> State:
        first = group["initial_accumulator_value"]
        if param.dtype.is_complex:
            first = complex(first, first)  # each part is a number of its own
        return {"sum": full_like(param, first)}

    def update_sparse(self, g: Any, p: Tensor, group: dict[str, Any]) -> None:
        if group["weight_decay"]:
            raise ArgumentError("Adagrad: a sparse gradient takes no weight_decay")
        state = self.state[p]
        if not state:
            state.update({"step": 0, **self.start(p, group)})
        state["step"] += 1
        at = tuple(g.indices()[k] for k in range(g.sparse_dim()))
        lr = group["lr"] / (1 + (state["step"] - 1) * group["lr_decay"])
        total = state["sum"][at] + g.values() ** 2
        state["sum"][at] = total
        p[at] = p[at] - lr * (g.values() / (total.sqrt() + group["eps"]))

    def update(self, g: Any, p: Any, state: State, group: dict[str, Any]) -> Any:
        g = decayed(g, p, group)
        lr = group["lr"] / (1 + (state["step"] - 1) * group["lr_decay"])
        state["sum"] = s = state["sum"] + g * g
        return p - lr * (g / (np.sqrt(s) + group["eps"]))


class Adadelta(Optimizer):
    """Steps in the parameter's own units (Zeiler, 2012).

        s <- rho s + (1 - rho) g²        d = √(a + eps) / √(s + eps) g
        a <- rho a + (1 - rho) d²        p <- p - lr d

    >>> p = weft.nn.Parameter(weft.tensor([1.0, 2.0]))
    >>> adadelta = weft.optim.Adadelta([p])
    >>> (p * p).sum().backward()
    >>> adadelta.step()
    >>> bool((p < weft.tensor([1.0, 2.0])).all())
    True
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay,
            "maximize": maximize, "foreach": foreach,
            "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def check(self, group: dict[str, Any]) -> None:
        super().check(group)
        if not 0 <= group["rho"] <= 1:
            raise ArgumentError(f"Adadelta: expected rho in [0, 1], got {group['rho']}")

    def start(self, param: Tensor, group: dict[str, Any]) -> State:
        return {"square_avg": zeros_like(param), "acc_delta": zeros_like(param)}

    def update(self, g: Any, p: Any, state: State, group: dict[str, Any]) -> Any:
        rho, eps = group["rho"], group["eps"]
        g = decayed(g, p, group)
        a = state["acc_delta"]
        state["square_avg"] = s = rho * state["square_avg"] + (1 - rho) * (g * g)
        delta = np.sqrt(a + eps) / np.sqrt(s + eps) * g
        state["acc_delta"] = rho * a + (1 - rho) * (delta * delta)
        return p - group["lr"] * delta


class RMSprop(Optimizer):
    """Steps divided by a running root mean square (Hinton, 2012).

        s <- alpha s + (1 - alpha) g²        p <- p - lr g / (√s + eps)

    ``centered`` takes the squared running mean off ``s``; ``momentum`` gathers the
    steps.

    >>> p = weft.nn.Parameter(weft.tensor([1.0, 2.0]))
    >>> rmsprop = weft.optim.RMSprop([p], lr=0.5, alpha=0.75)
    >>> (p * p).sum().backward()
    >>> rmsprop.step()
    >>> p.detach()
    tensor([0., 1.])
    """

    switches = ("momentum", "centered")

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay,
            "momentum": momentum, "centered": centered, "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def start(self, param: Tensor, group: dict[str, Any]) -> State:
        state = {"square_avg": zeros_like(param)}
        if group["momentum"]:
            state["momentum_buffer"] = zeros_like(param)
        if group["centered"]:
            state["grad_avg"] = zeros_like(param)
        return state

    def update(self, g: Any, p: Any, state: State, group: dict[str, Any]) -> Any:
        g = decayed(g, p, group)
        step = g / (np.sqrt(self._spread(g, state, group)) + group["eps"])
        if group["momentum"]:
            step = group["momentum"] * state["momentum_buffer"] + step
            state["momentum_buffer"] = step
        return p - group["lr"] * step

    def _spread(self, g: Any, state: State, group: dict[str, Any]) -> Any:
        """The running mean square, or variance where centered."""
        alpha = group["alpha"]
        s = alpha * state["square_avg"] + (1 - alpha) * (g * g)
        state["square_avg"] = s
        if not group["centered"]:
            return s
        mean = state["grad_avg"]
        state["grad_avg"] = mean = mean + (1 - alpha) * (g - mean)
        return s - mean * mean
