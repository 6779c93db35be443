"""Adam and its relatives: moments of the gradient, corrected for their start."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import where, zeros_like
from weft.core.tensor import Tensor
from weft.optim.flat import State
from weft.optim.optimizer import Optimizer, decayed, power, shrunk


class _Moments(Optimizer):
    """Optimizers that follow the gradient's mean and mean square."""

    def start(self, param: Tensor, group: dict[str, Any]) -> State:
        return {"exp_avg": zeros_like(param), "exp_avg_sq": zeros_like(param)}


def _moments(g: Any, state: State, group: dict[str, Any]) -> tuple[Any, Any]:
    """Both moments, moved towards the gradient and its square."""
    b1, b2 = group["betas"]
    m, v = state["exp_avg"], state["exp_avg_sq"]
    state["exp_avg"] = m = m + (1 - b1) * (g - m)
    state["exp_avg_sq"] = v = b2 * v + (1 - b2) * (g * g)
    return m, v


def _root(x: Any) -> Any:
    """The square root of a number, or of a number that a capture follows."""
    return x.sqrt() if isinstance(x, Tensor) else math.sqrt(x)


def _decay(g: Any, p: Any, group: dict[str, Any]) -> tuple[Any, Any]:
    if group["decoupled_weight_decay"]:
        return g, shrunk(p, group)
    return decayed(g, p, group), p


class Adam(_Moments):
    """Adaptive moment estimation (Kingma and Ba, 2014).

        m <- b1 m + (1 - b1) g        v <- b2 v + (1 - b2) g²
        p <- p - lr m' / (√v' + eps)  with m' = m / (1 - b1ᵗ), v' = v / (1 - b2ᵗ)

    >>> p = weft.nn.Parameter(weft.tensor([1.0, 2.0]))
    >>> adam = weft.optim.Adam([p], lr=0.5)
    >>> (p * p).sum().backward()
    >>> adam.step()
    >>> p.detach()
    tensor([0.5000, 1.5000])
    """

    switches = ("amsgrad",)
    decoupled = False

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        decoupled_weight_decay: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        if decoupled_weight_decay is None:
            decoupled_weight_decay = self.decoupled
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "amsgrad": amsgrad, "maximize": maximize, "foreach": foreach,
            "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable, "fused": fused, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def start(self, param: Tensor, group: dict[str, Any]) -> State:
        state = super().start(param, group)
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = zeros_like(param)
        return state

    def update(self, g: Any, p: Any, state: State, group: dict[str, Any]) -> Any:
        b1, b2 = group["betas"]
        g, p = _decay(g, p, group)
        m, v = _moments(g, state, group)
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = v = np.maximum(state["max_exp_avg_sq"], v)
        t = state["step"]
        root = _root(1 - power(b2, t))  # of v's correction, taken out of the quotient
        scale = group["lr"] / (1 - power(b1, t)) * root
        return p - scale * (m / (np.sqrt(v) + group["eps"] * root))


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2017).

    The value shrinks to ``(1 - lr weight_decay) p`` before Adam's step.

    >>> p = weft.nn.Parameter(weft.tensor([1.0, 2.0]))
    >>> adamw = weft.optim.AdamW([p], lr=0.5, weight_decay=0.2)
    >>> (p * p).sum().backward()
    >>> adamw.step()
    >>> p.detach()
    tensor([0.4000, 1.3000])
    """

    decoupled = True

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize,
            foreach=foreach, capturable=capturable, differentiable=differentiable,
            fused=fused,
        )  # fmt: skip


class Adamax(Optimizer):
    """Adam with the infinity norm (Kingma and Ba, 2014).

        m <- b1 m + (1 - b1) g        u <- max(b2 u, |g| + eps)
        p <- p - lr / (1 - b1ᵗ) m / u

    >>> p = weft.nn.Parameter(weft.tensor([1.0, 2.0]))
    >>> adamax = weft.optim.Adamax([p], lr=0.5)
    >>> (p * p).sum().backward()
    >>> adamax.step()
    >>> p.detach()
    tensor([0.5000, 1.5000])
    """

    def __init__(
        self,
        params: Any,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "maximize": maximize, "foreach": foreach,
            "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def start(self, param: Tensor, group: dict[str, Any]) -> State:
        return {"exp_avg": zeros_like(param), "exp_inf": zeros_like(param)}

    def update(self, g: Any, p: Any, state: State, group: dict[str, Any]) -> Any:
        b1, b2 = group["betas"]
        g = decayed(g, p, group)
        m = state["exp_avg"]
        state["exp_avg"] = m = m + (1 - b1) * (g - m)
        u = np.maximum(b2 * state["exp_inf"], np.abs(g) + group["eps"])
        state["exp_inf"] = u
        return p - group["lr"] / (1 - power(b1, state["step"])) * (m / u)


class NAdam(_Moments):
    """Adam with Nesterov's momentum (Dozat, 2016).

    >>> p = weft.nn.Parameter(weft.tensor([1.0, 2.0]))
    >>> nadam = weft.optim.NAdam([p], lr=0.5)
    >>> (p * p).sum().backward()
    >>> nadam.step()
    >>> bool((p < weft.tensor([1.0, 2.0])).all())
    True
    """

    def __init__(
        self,
        params: Any,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "momentum_decay": momentum_decay, "maximize": maximize,
            "decoupled_weight_decay": decoupled_weight_decay, "foreach": foreach,
            "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def start(self, param: Tensor, group: dict[str, Any]) -> State:
        return {**super().start(param, group), "mu_product": 1.0}

    def update(self, g: Any, p: Any, state: State, group: dict[str, Any]) -> Any:
        b1, b2 = group["betas"]
        lr, t = group["lr"], state["step"]
        g, p = _decay(g, p, group)
        m, v = _moments(g, state, group)
        mu, ahead = (
            b1 * (1 - 0.5 * power(0.96, k * group["momentum_decay"]))
            for k in (t, t + 1)
        )
        state["mu_product"] = product = state["mu_product"] * mu
        root = np.sqrt(v / (1 - power(b2, t))) + group["eps"]
        p = p - lr * (1 - mu) / (1 - product) * (g / root)
        return p - lr * ahead / (1 - product * ahead) * (m / root)


class RAdam(_Moments):
    """Adam whose adaptive step waits until its variance is known (Liu et al., 2019).

    >>> p = weft.nn.Parameter(weft.tensor([1.0, 2.0]))
    >>> radam = weft.optim.RAdam([p], lr=0.25)
    >>> (p * p).sum().backward()
    >>> radam.step()
    >>> p.detach()
    tensor([0.5000, 1.0000])
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize, "foreach": foreach,
            "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def update(self, g: Any, p: Any, state: State, group: dict[str, Any]) -> Any:
        b1, b2 = group["betas"]
        t = state["step"]
        g, p = _decay(g, p, group)
        m, v = _moments(g, state, group)
        scale = group["lr"] / (1 - power(b1, t))
        limit = 2 / (1 - b2) - 1
        length = limit - 2 * t * power(b2, t) / (1 - power(b2, t))
        if not isinstance(length, Tensor) and length <= 5:
            return p - scale * m
        top = (length - 4) * (length - 2) * limit
        rectify = _root(top / ((limit - 4) * (limit - 2) * length))
        factor = scale * rectify * _root(1 - power(b2, t))
        moved = p - factor * (m / (np.sqrt(v) + group["eps"]))
        if isinstance(length, Tensor):
            return where(length <= 5, p - scale * m, moved)
        return moved
