"""Schedules that follow a curve over the epochs."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from weft.errors import ArgumentError, DTypeError
from weft.optim.lr_scheduler.base import (
    LRScheduler,
    between,
    checked,
    per_group,
    positive_int,
)
from weft.optim.optimizer import Optimizer

# -- factors of functions


class _Lambdas(LRScheduler):
    _hidden = ("optimizer", "lr_lambdas")

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1
    ) -> None:
        checked(optimizer, self)
        self.lr_lambdas = per_group("lr_lambda", optimizer, lr_lambda)
        for fn in self.lr_lambdas:
            if not callable(fn):
                raise DTypeError(
                    f"{type(self).__name__}: expected a function of the epoch, got "
                    f"{type(fn).__name__}"
                )
        super().__init__(optimizer, last_epoch)

    def _factors(self) -> list[float]:
        return [fn(self.last_epoch) for fn in self.lr_lambdas]


class LambdaLR(_Lambdas):
    """The initial rate times a function of the epoch.

    >>> sgd = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.LambdaLR(sgd, lambda epoch: 0.5**epoch)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def get_lr(self) -> list[float]:
        pairs = zip(self.base_lrs, self._factors(), strict=True)
        return [lr * factor for lr, factor in pairs]


class MultiplicativeLR(_Lambdas):
    """The present rate times a function of the epoch.

    >>> sgd = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.MultiplicativeLR(sgd, lambda epoch: 0.5)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def get_lr(self) -> list[float]:
        if self._initial:
            return self._rates()
        pairs = zip(self._rates(), self._factors(), strict=True)
        return [lr * factor for lr, factor in pairs]


# -- steps and curves


class StepLR(LRScheduler):
    """The rate times ``gamma`` every ``step_size`` epochs.

    >>> sgd = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.StepLR(sgd, 2, gamma=0.5)
    >>> [(schedule.step(), sgd.param_groups[0]["lr"])[1] for _ in range(4)]
    [1.0, 0.5, 0.5, 0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        step_size: int,
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.step_size = positive_int("StepLR", "step_size", step_size)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0 or self.last_epoch % self.step_size:
            return self._rates()
        return self._times(self.gamma)

    def closed_form(self) -> list[float]:
        return self._base_times(self.gamma ** (self.last_epoch // self.step_size))


class MultiStepLR(LRScheduler):
    """The rate times ``gamma`` at each of some epochs.

    >>> sgd = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.MultiStepLR(sgd, [1, 3], gamma=0.5)
    >>> [(schedule.step(), sgd.param_groups[0]["lr"])[1] for _ in range(4)]
    [0.5, 0.5, 0.25, 0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones = sorted(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        passed = self.milestones.count(self.last_epoch)
        return self._times(self.gamma**passed) if passed else self._rates()

    def closed_form(self) -> list[float]:
        passed = bisect_right(self.milestones, self.last_epoch)
        return self._base_times(self.gamma**passed)


class ConstantLR(LRScheduler):
    """The rate times ``factor`` for the first ``total_iters`` epochs.

    >>> sgd = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.ConstantLR(sgd, 0.5, total_iters=2)
    >>> [(schedule.step(), sgd.param_groups[0]["lr"])[1] for _ in range(3)]
    [0.5, 1.0, 1.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        self.factor = between("ConstantLR", "factor", factor, 0, 1)
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return self._times(self.factor)
        if self.last_epoch != self.total_iters:
            return self._rates()
        if self.factor == 0:
            return list(self.base_lrs)
        return self._times(1.0 / self.factor)

    def closed_form(self) -> list[float]:
        over = self.last_epoch >= self.total_iters
        return self._base_times(1.0 if over else self.factor)


class LinearLR(LRScheduler):
    """The rate times a factor that goes evenly from one value to another.

    >>> sgd = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.LinearLR(sgd, 0.5, total_iters=2)
    >>> [(schedule.step(), sgd.param_groups[0]["lr"])[1] for _ in range(3)]
    [0.75, 1.0, 1.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if start_factor == 0:
            raise ArgumentError("LinearLR: expected start_factor above 0, got 0")
        self.start_factor = between("LinearLR", "start_factor", start_factor, 0, 1)
        self.end_factor = between("LinearLR", "end_factor", end_factor, 0, 1)
        self.total_iters = positive_int("LinearLR", "total_iters", total_iters)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return self._times(self.start_factor)
        if self._initial or self.last_epoch > self.total_iters:
            return self._rates()
        rise = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * rise
        return self._times(1.0 + rise / before)

    def closed_form(self) -> list[float]:
        part = min(self.total_iters, self.last_epoch) / self.total_iters
        rise = self.end_factor - self.start_factor
        return self._base_times(self.start_factor + rise * part)


class ExponentialLR(LRScheduler):
    """The rate times ``gamma`` every epoch.

    >>> sgd = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.ExponentialLR(sgd, 0.5)
    >>> [(schedule.step(), sgd.param_groups[0]["lr"])[1] for _ in range(3)]
    [0.5, 0.25, 0.125]
    """

    def __init__(
        self, optimizer: Optimizer, gamma: float, last_epoch: int = -1
    ) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return self._rates() if self._initial else self._times(self.gamma)

    def closed_form(self) -> list[float]:
        return self._base_times(self.gamma**self.last_epoch)


class PolynomialLR(LRScheduler):
    """The rate times ``(1 - epoch / total_iters) ** power``.

    >>> sgd = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.PolynomialLR(sgd, total_iters=4)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.75]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        total_iters: int = 5,
        power: float = 1.0,
        last_epoch: int = -1,
    ) -> None:
        self.total_iters = positive_int("PolynomialLR", "total_iters", total_iters)
        self.power = power
        super().__init__(optimizer, last_epoch)

    def _left(self, epoch: int) -> float:
        return 1.0 - min(epoch, self.total_iters) / self.total_iters

    def get_lr(self) -> list[float]:
        if self._initial or self.last_epoch > self.total_iters:
            return self._rates()
        ratio = self._left(self.last_epoch) / self._left(self.last_epoch - 1)
        return self._times(ratio**self.power)

    def closed_form(self) -> list[float]:
        return self._base_times(self._left(self.last_epoch) ** self.power)


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial rate to ``eta_min`` in ``T_max`` epochs.

    >>> sgd = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.CosineAnnealingLR(sgd, T_max=2)
    >>> schedule.step()
    >>> round(schedule.get_last_lr()[0], 6)
    0.5
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_max: int,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        self.T_max = positive_int("CosineAnnealingLR", "T_max", T_max)
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def _height(self, epoch: int) -> float:
        return 1 + math.cos(math.pi * epoch / self.T_max)

    def get_lr(self) -> list[float]:
        epoch, low = self.last_epoch, self.eta_min
        if self._initial:
            return self._rates()
        if self._step_count == 1 and epoch > 0:
            return self.closed_form()
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # up again from the floor
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            pairs = zip(self._rates(), self.base_lrs, strict=True)
            return [lr + (base - low) * rise for lr, base in pairs]
        ratio = self._height(epoch) / self._height(epoch - 1)
        return [ratio * (lr - low) + low for lr in self._rates()]

    def closed_form(self) -> list[float]:
        low, height = self.eta_min, self._height(self.last_epoch)
        return [low + (lr - low) * height / 2 for lr in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half cosines that start anew, each ``T_mult`` times as long (SGDR).

    >>> sgd = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> restarts = weft.optim.lr_scheduler.CosineAnnealingWarmRestarts
    >>> schedule = restarts(sgd, T_0=2)
    >>> [(schedule.step(), round(sgd.param_groups[0]["lr"], 6))[1] for _ in range(3)]
    [0.5, 1.0, 0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        who = "CosineAnnealingWarmRestarts"
        self.T_0 = self.T_i = positive_int(who, "T_0", T_0)
        self.T_mult = positive_int(who, "T_mult", T_mult)
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        height = 1 + math.cos(math.pi * self.T_cur / self.T_i)
        low = self.eta_min
        return [low + (lr - low) * height / 2 for lr in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Go on to the next epoch, or to a given one, which may be a fraction."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        elif epoch < 0:
            raise ArgumentError(
                f"{type(self).__name__}.step: expected an epoch of at least 0, got "
                f"{epoch}"
            )
        else:
            self._jump(epoch)
        self._step_count += 1
        self.last_epoch = math.floor(epoch)
        self._set(self.get_lr())

    def _jump(self, epoch: float) -> None:
        self.T_i = self.T_0
        self.T_cur = epoch
        while self.T_cur >= self.T_i:
            if self.T_mult == 1:
                self.T_cur %= self.T_i
                return
            self.T_cur -= self.T_i
            self.T_i *= self.T_mult
