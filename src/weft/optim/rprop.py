"""Rules with steps of their own size (Rprop), and with averages (ASGD)."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import full_like, zeros_like
from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.optim.flat import State
from weft.optim.optimizer import Optimizer, decayed


class Rprop(Optimizer):
    """Steps that grow while a gradient keeps its sign (Riedmiller and Braun, 1993).

    >>> p = weft.nn.Parameter(weft.tensor([1.0, -2.0]))
    >>> rprop = weft.optim.Rprop([p], lr=0.5)
    >>> (p * p).sum().backward()
    >>> rprop.step()
    >>> p.detach()
    tensor([ 0.5000, -1.5000], shape=(2,), dtype=float32)
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable,
            "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def check(self, group: dict[str, Any]) -> None:
        super().check(group)
        less, more = group["etas"]
        if not 0 < less < 1 < more:
            raise ArgumentError(
                f"Rprop: expected etas with 0 < {less} < 1 < {more}, as in (0.5, 1.2)"
            )

    def start(self, param: Tensor, group: dict[str, Any]) -> State:
        first = group["lr"] * (1 + 1j) if param.dtype.is_complex else group["lr"]
        return {"prev": zeros_like(param), "step_size": full_like(param, first)}

    def update(self, g: Any, p: Any, state: State, group: dict[str, Any]) -> Any:
        (less, more), (low, high) = group["etas"], group["step_sizes"]
        sign = np.sign(g * state["prev"])
        size = np.abs(sign)
        same, turned = (size + sign) / 2, (size - sign) / 2  # one or zero
        factor = 1 + same * (more - 1) + turned * (less - 1)
        grown = state["step_size"] * factor
        state["step_size"] = grown = np.minimum(np.maximum(grown, low), high)
        state["prev"] = g = g * (1 - turned)
        return p - np.sign(g) * grown


class ASGD(Optimizer):
    """Gradient descent with an average of the values (Polyak and Juditsky, 1992).

    The average is ``state["ax"]``.

    >>> p = weft.nn.Parameter(weft.tensor([1.0, 2.0]))
    >>> asgd = weft.optim.ASGD([p], lr=0.5, lambd=0.0)
    >>> p.sum().backward()
    >>> asgd.step()
    >>> asgd.state[p]["ax"]
    tensor([0.5000, 1.5000], shape=(2,), dtype=float32)
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0,
            "weight_decay": weight_decay, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def start(self, param: Tensor, group: dict[str, Any]) -> State:
        return {"eta": float(group["lr"]), "mu": 1.0, "ax": zeros_like(param)}

    def update(self, g: Any, p: Any, state: State, group: dict[str, Any]) -> Any:
        eta, mu, step = state["eta"], state["mu"], state["step"]
        g = decayed(g, p, group)
        p = p * (1 - group["lambd"] * eta) - eta * g
        state["ax"] = state["ax"] * (1 - mu) + p * mu
        base = 1 + group["lambd"] * group["lr"] * step
        state["eta"] = group["lr"] / _number(np.power(base, group["alpha"]))
        state["mu"] = 1 / _number(np.maximum(step - group["t0"], 1.0))
        return p


def _number(value: Any) -> Any:
    """A number of Python's, or one that a capture follows."""
    return value if isinstance(value, Tensor) else float(value)
