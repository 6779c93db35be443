"""A schedule that waits for a metric to stop improving."""

from __future__ import annotations

import math
from typing import Any

from weft.errors import ArgumentError
from weft.optim.lr_scheduler.base import LRScheduler, checked, one_of, per_group
from weft.optim.optimizer import Optimizer


class ReduceLROnPlateau(LRScheduler):
    """The rate times ``factor`` when a metric has not improved for a while.

    >>> sgd = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> plateau = weft.optim.lr_scheduler.ReduceLROnPlateau
    >>> schedule = plateau(sgd, factor=0.5, patience=1)
    >>> for loss in [3.0, 2.0, 2.0, 2.0]:
    ...     schedule.step(loss)
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | list[float] = 0,
        eps: float = 1e-8,
    ) -> None:
        who = "ReduceLROnPlateau"
        if not factor < 1.0:
            raise ArgumentError(f"{who}: expected factor below 1, got {factor}")
        self.optimizer = checked(optimizer, self)
        self.mode = one_of(who, "mode", mode, ("min", "max"))
        ways = ("rel", "abs")
        self.threshold_mode = one_of(who, "threshold_mode", threshold_mode, ways)
        self.factor, self.patience, self.threshold = factor, patience, threshold
        self.cooldown, self.eps = cooldown, eps
        self.min_lrs = per_group("min_lr", optimizer, min_lr)
        self.best = math.inf if mode == "min" else -math.inf
        self.cooldown_counter = self.num_bad_epochs = self.last_epoch = 0
        self._last_lr = self._rates()

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Look at the metric of an epoch."""
        current = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._better(current):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._set(self.get_lr())
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self._rates()

    def get_lr(self) -> list[float]:
        pairs = zip(self._rates(), self.min_lrs, strict=True)
        lower = [(lr, max(lr * self.factor, least)) for lr, least in pairs]
        return [new if lr - new > self.eps else lr for lr, new in lower]

    def _better(self, current: float) -> bool:
        sign = 1 if self.mode == "max" else -1
        if self.threshold_mode == "rel":
            bar = self.best * (1.0 + sign * self.threshold)
        else:
            bar = self.best + sign * self.threshold
        return current > bar if self.mode == "max" else current < bar
