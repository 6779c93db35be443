"""Schedules that raise and lower the rate, and the momentum against it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft.errors import ArgumentError
from weft.optim.lr_scheduler.base import (
    LRScheduler,
    between,
    checked,
    one_of,
    per_group,
    positive_int,
)
from weft.optim.optimizer import Optimizer


class _Momentum(LRScheduler):
    """Schedules that move the momentum (or Adam's first beta) too."""

    def _check_momentum(self, optimizer: Optimizer) -> None:
        if not {"momentum", "betas"} & set(optimizer.defaults):
            raise ArgumentError(
                f"{type(self).__name__}: cycle_momentum needs an optimizer with "
                f"momentum or betas, got {type(optimizer).__name__}; pass "
                "cycle_momentum=False"
            )

    def _set_momentum(self, group: dict[str, Any], value: float) -> None:
        if "betas" in group:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value


class CyclicLR(_Momentum):
    """The rate up and down between two values (Smith, 2015).

    >>> sgd = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0, momentum=0.9)
    >>> schedule = weft.optim.lr_scheduler.CyclicLR(sgd, 1.0, 3.0, step_size_up=2)
    >>> [(schedule.step(), sgd.param_groups[0]["lr"])[1] for _ in range(4)]
    [2.0, 3.0, 2.0, 1.0]
    """

    _hidden = ("optimizer", "_custom")

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        checked(optimizer, self)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up) + float(down)
        self.step_ratio = float(step_size_up) / self.total_size
        self._custom = scale_fn
        self.mode, self.gamma = mode, gamma
        if scale_fn is None:
            modes = ("triangular", "triangular2", "exp_range")
            one_of("CyclicLR", "mode", mode, modes)
            scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.scale_mode = scale_mode
        self.max_lrs = per_group("max_lr", optimizer, max_lr)
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._check_momentum(optimizer)
            self.base_momentums = per_group("base_momentum", optimizer, base_momentum)
            self.max_momentums = per_group("max_momentum", optimizer, max_momentum)
        low = per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for lr, group in zip(low, optimizer.param_groups, strict=True):
                group["lr"] = lr
                group["initial_lr"] = lr
        super().__init__(optimizer, last_epoch)
        self.base_lrs = low

    def scale_fn(self, x: float) -> float:
        """The height of the cycle (or iteration) x, from 0 to 1."""
        if self._custom is not None:
            return self._custom(x)
        if self.mode == "triangular":
            return 1.0
        return 1 / 2.0 ** (x - 1) if self.mode == "triangular2" else self.gamma**x

    def get_lr(self) -> list[float]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        up = x <= self.step_ratio
        part = x / self.step_ratio if up else (x - 1) / (self.step_ratio - 1)
        by_cycle = self.scale_mode == "cycle"
        scale = self.scale_fn(cycle if by_cycle else self.last_epoch)
        if self.cycle_momentum:
            limits = zip(self.base_momentums, self.max_momentums, strict=True)
            groups = self.optimizer.param_groups
            for group, (low, high) in zip(groups, limits, strict=True):
                self._set_momentum(group, high - (high - low) * part * scale)
        pairs = zip(self.base_lrs, self.max_lrs, strict=True)
        return [low + (high - low) * part * scale for low, high in pairs]


class OneCycleLR(_Momentum):
    """One rise to ``max_lr`` and a long fall (Smith and Topin, 2018).

    >>> sgd = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0, momentum=0.9)
    >>> schedule = weft.optim.lr_scheduler.OneCycleLR(sgd, 1.0, total_steps=10)
    >>> [(schedule.step(), round(sgd.param_groups[0]["lr"], 2))[1] for _ in range(3)]
    [0.52, 1.0, 0.95]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        checked(optimizer, self)
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        self.pct_start = between("OneCycleLR", "pct_start", pct_start, 0, 1)
        choices = ("cos", "linear")
        self.anneal = one_of("OneCycleLR", "anneal_strategy", anneal_strategy, choices)
        self.three_phase, self.cycle_momentum = three_phase, cycle_momentum
        self.max_lrs = per_group("max_lr", optimizer, max_lr)
        self.initial_lrs = [lr / div_factor for lr in self.max_lrs]
        self.min_lrs = [lr / final_div_factor for lr in self.initial_lrs]
        if cycle_momentum:
            self._check_momentum(optimizer)
            self.base_momentums = per_group("base_momentum", optimizer, base_momentum)
            self.max_momentums = per_group("max_momentum", optimizer, max_momentum)
        if last_epoch == -1:
            groups = optimizer.param_groups
            for lr, group in zip(self.initial_lrs, groups, strict=True):
                group["initial_lr"] = lr
        super().__init__(optimizer, last_epoch)

    def _phases(self, low: float, high: float, end: float) -> list[Any]:
        """(last step, value at its start, value at its end) of each phase."""
        top = self.pct_start * self.total_steps - 1
        last = self.total_steps - 1
        if not self.three_phase:
            return [(top, low, high), (last, high, end)]
        return [(top, low, high), (2 * top, high, low), (last, low, end)]

    def _value(self, phases: list[Any]) -> float:
        begin = 0.0
        for stop, first, final in phases:
            if self.last_epoch <= stop or stop == phases[-1][0]:
                part = (self.last_epoch - begin) / (stop - begin)
                return _anneal(first, final, part, self.anneal)
            begin = stop
        raise AssertionError("the last phase ends the cycle")

    def get_lr(self) -> list[float]:
        if self.last_epoch > self.total_steps:
            raise ArgumentError(
                f"OneCycleLR.step: step {self.last_epoch} is beyond the "
                f"{self.total_steps} steps of the cycle"
            )
        if self.cycle_momentum:
            limits = zip(self.base_momentums, self.max_momentums, strict=True)
            groups = self.optimizer.param_groups
            for group, (low, high) in zip(groups, limits, strict=True):
                self._set_momentum(group, self._value(self._phases(high, low, high)))
        rates = zip(self.initial_lrs, self.max_lrs, self.min_lrs, strict=True)
        return [self._value(self._phases(*three)) for three in rates]


def _total_steps(total: Any, epochs: Any, steps_per_epoch: Any) -> int:
    if total is not None:
        return positive_int("OneCycleLR", "total_steps", total)
    if epochs is None or steps_per_epoch is None:
        raise ArgumentError(
            "OneCycleLR: expected total_steps, or epochs and steps_per_epoch"
        )
    return positive_int("OneCycleLR", "epochs", epochs) * positive_int(
        "OneCycleLR", "steps_per_epoch", steps_per_epoch
    )


def _anneal(start: float, end: float, part: float, how: str) -> float:
    if how == "linear":
        return (end - start) * part + start
    return end + (start - end) / 2.0 * (1 + math.cos(math.pi * part))
