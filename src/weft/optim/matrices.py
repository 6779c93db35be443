"""Rules that look at a whole parameter: Adafactor and Muon, and a refusal.

Unlike the element-wise rules, these have a ``step`` of their own over tensors. Their
state is tensors, the count of steps too, so a captured step needs nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from weft import bfloat16, finfo, tensor, zeros, zeros_like
from weft.autograd.modes import enable_grad, no_grad
from weft.core.mode import mode
from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.graph.capture import paused
from weft.optim.flat import State
from weft.optim.optimizer import Optimizer


class WholeTensors(Optimizer):
    """The base of optimizers whose rule is given a parameter at a time."""

    def change(self, p: Tensor, g: Tensor, state: Any, group: dict[str, Any]) -> None:
        """Change a parameter and its state in place."""
        raise NotImplementedError

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        g = -p.grad if group.get("maximize") else p.grad
                        self.change(p, g, self._state_of(p, group), group)
        return loss

    def _state_of(self, p: Tensor, group: dict[str, Any]) -> Any:
        """A parameter's state, which belongs to no captured program."""
        state = self.state[p]
        if not state:
            with nullcontext() if mode.capture is None else paused():
                state.update(self.start(p, group))
        return state


class Adafactor(WholeTensors):
    """Second moments of a matrix from those of its rows and columns (2018).

    >>> p = weft.nn.Parameter(weft.ones(2, 2))
    >>> adafactor = weft.optim.Adafactor([p], lr=0.1)
    >>> p.sum().backward()
    >>> adafactor.step()
    >>> p.detach()[0, 0] < 1
    tensor(True)
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d,
            "weight_decay": weight_decay, "foreach": foreach, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def check(self, group: dict[str, Any]) -> None:
        small, scale = group["eps"]
        super().check({**group, "eps": scale})
        if group["beta2_decay"] > 0 or group["d"] < 1 or (small or 0) < 0:
            raise ArgumentError(
                "Adafactor: expected beta2_decay of at most 0, d of at least 1 and "
                f"eps of at least 0, got {group['beta2_decay']}, {group['d']}, {small}"
            )

    def start(self, param: Tensor, group: dict[str, Any]) -> State:
        return {"step": tensor(0.0), **_moments_of(param)}

    def change(self, p: Tensor, g: Tensor, state: Any, group: dict[str, Any]) -> None:
        small, scale = group["eps"]
        small = finfo(p.dtype).eps if small is None else small
        state["step"].add_(1)
        step = state["step"]
        share = step ** group["beta2_decay"]
        rate = (1 / step.sqrt()).clamp(max=group["lr"])
        size = math.sqrt(p.numel())
        alpha = (p.norm(2) / size).clamp(min=scale) * rate
        if group["weight_decay"]:
            p.mul_(1 - group["lr"] * group["weight_decay"])
        estimate = _estimate(g, state, share.to(p.dtype), small)
        update = g * estimate.clamp(min=small * small).rsqrt()
        denominator = (update.norm(2) / (size * group["d"])).clamp(min=1)
        p.sub_(update * (alpha / denominator).to(p.dtype))


def _moments_of(p: Tensor) -> dict[str, Tensor]:
    """The state of a parameter: a row and a column, or all elements of a vector."""
    if p.ndim < 2:
        return {"variance": zeros_like(p)}
    shape = list(p.shape)
    options = {"dtype": p.dtype, "device": p.device}
    return {
        "row_var": zeros(*shape[:-1], 1, **options),
        "col_var": zeros(*shape[:-2], 1, shape[-1], **options),
    }


def _estimate(g: Tensor, state: Any, share: Tensor, small: float) -> Tensor:
    """The mean square of each element's gradient, as far as the state knows it."""
    squares = g * g
    if "variance" in state:
        state["variance"].add_((squares - state["variance"]) * share)
        return state["variance"]
    row, column = state["row_var"], state["col_var"]
    row.add_((squares.mean(-1, keepdim=True) - row) * share)
    column.add_((squares.mean(-2, keepdim=True) - column) * share)
    return (row @ column) / row.mean(-2, keepdim=True).clamp(min=small)


_ADJUSTMENTS = (None, "original", "match_rms_adamw")


class Muon(WholeTensors):
    """Momentum of matrices, orthogonalised by Newton and Schulz (Jordan, 2024).

    >>> p = weft.nn.Parameter(weft.ones(2, 2))
    >>> muon = weft.optim.Muon([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> muon.step()
    >>> list(muon.state[p])
    ['momentum_buffer']
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        defaults = {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum,
            "nesterov": nesterov, "ns_coefficients": ns_coefficients, "eps": eps,
            "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        for name, p in self._named_params():
            if p.ndim != 2:
                raise ArgumentError(
                    f"Muon: expected matrices, got {name!r} of shape "
                    f"{tuple(p.shape)}; give other parameters to another optimizer"
                )

    def check(self, group: dict[str, Any]) -> None:
        super().check(group)
        if group["adjust_lr_fn"] not in _ADJUSTMENTS:
            raise ArgumentError(
                "Muon: expected adjust_lr_fn to be 'original' or 'match_rms_adamw', "
                f"got {group['adjust_lr_fn']!r}"
            )
        if group["ns_steps"] >= 100 or len(group["ns_coefficients"]) != 3:
            raise ArgumentError(
                "Muon: expected fewer than 100 ns_steps and three ns_coefficients, "
                f"got {group['ns_steps']} and {group['ns_coefficients']}"
            )

    def start(self, param: Tensor, group: dict[str, Any]) -> State:
        return {"momentum_buffer": zeros_like(param)}

    def change(self, p: Tensor, g: Tensor, state: Any, group: dict[str, Any]) -> None:
        held, momentum = state["momentum_buffer"], group["momentum"]
        held.add_((g - held) * (1 - momentum))
        update = g + (held - g) * momentum if group["nesterov"] else held
        update = orthogonalised(
            update, group["ns_coefficients"], group["ns_steps"], group["eps"]
        )
        rate = group["lr"] * _ratio(p, group["adjust_lr_fn"])
        p.mul_(1 - group["lr"] * group["weight_decay"])
        p.sub_(update.to(p.dtype) * rate)


def _ratio(p: Tensor, how: str | None) -> float:
    """The share of the learning rate for a matrix of this shape."""
    rows, columns = p.shape
    if how == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1, rows / columns))


def orthogonalised(
    matrix: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """A matrix with singular values near one, in bfloat16 as in PyTorch."""
    a, b, c = coefficients
    x = matrix.to(bfloat16)
    tall = matrix.shape[0] > matrix.shape[1]
    x = x.T if tall else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.T if tall else x


class SparseAdam(WholeTensors):
    """Adam for sparse gradients, which no operator gives here: dense ones are refused.

    >>> p = weft.nn.Parameter(weft.ones(2))
    >>> sparse = weft.optim.SparseAdam([p])
    >>> p.sum().backward()
    >>> sparse.step()
    Traceback (most recent call last):
    ...
    weft.errors.ArgumentError: SparseAdam does not support dense gradients...
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize}
        super().__init__(params, defaults)

    def change(self, p: Tensor, g: Tensor, state: Any, group: dict[str, Any]) -> None:
        raise ArgumentError(
            "SparseAdam does not support dense gradients, please consider Adam instead"
        )
