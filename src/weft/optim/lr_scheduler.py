"""Learning-rate schedules, with PyTorch's names and semantics.

A scheduler changes ``group["lr"]`` of an optimizer's groups. Most compute the
new rate from the present one, so that several can be chained; what they need
to go on after a break is numbers, in ``state_dict``.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from weft.errors import ArgumentError, DTypeError
from weft.optim.optimizer import Optimizer


class LRScheduler:
    """The base of all schedulers: one rate for each group, each ``step``.

    A subclass gives ``get_lr``: the next rates, from ``last_epoch`` and the
    groups' present rates.

    >>> p = weft.nn.Parameter(weft.ones(1))
    >>> sgd = weft.optim.SGD([p], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.ExponentialLR(sgd, gamma=0.5)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    _hidden: tuple[str, ...] = ("optimizer",)  # attributes that are not state

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = _checked(optimizer, self)
        self.last_epoch = last_epoch
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise ArgumentError(
                    f"{type(self).__name__}: last_epoch is {last_epoch}, but group {i} "
                    "has no 'initial_lr'; load the optimizer's state first"
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self._step_count = 0
        self._begin()

    def _begin(self) -> None:
        """The first step, which sets the rates to begin with."""
        self._initial = True
        try:
            self.step()
        finally:
            self._initial = False

    def get_lr(self) -> list[float]:
        """The rates of this epoch."""
        raise NotImplementedError(f"{type(self).__name__} has no get_lr")

    def closed_form(self) -> list[float]:
        """The rates of this epoch from the first ones, where that can be said."""
        return self.get_lr()

    def get_last_lr(self) -> list[float]:
        """The rates that the last step set."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Go on to the next epoch, or to a given one."""
        self._step_count += 1
        if epoch is None:
            self.last_epoch += 1
            self._set(self.get_lr())
        else:
            self.last_epoch = epoch
            self._set(self.closed_form())

    def _set(self, rates: Sequence[float]) -> None:
        for group, lr in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = lr
        self._last_lr = self._rates()

    def _rates(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def _times(self, factor: float) -> list[float]:
        return [lr * factor for lr in self._rates()]

    def _base_times(self, factor: float) -> list[float]:
        return [lr * factor for lr in self.base_lrs]

    def state_dict(self) -> dict[str, Any]:
        """The numbers needed to go on from here (functions are not stored)."""
        items = self.__dict__.items()
        return {k: _copied(v) for k, v in items if k not in self._hidden}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        mine = {k for k in self.__dict__ if k not in self._hidden}
        if set(state_dict) != mine:
            missing = ", ".join(sorted(mine - set(state_dict))) or "nothing"
            extra = ", ".join(sorted(set(state_dict) - mine)) or "nothing"
            raise ArgumentError(
                f"load_state_dict: the entries do not fit {type(self).__name__}: "
                f"missing {missing}, unexpected {extra}"
            )
        self.__dict__.update({k: _copied(v) for k, v in state_dict.items()})


def _copied(value: Any) -> Any:
    return list(value) if isinstance(value, list) else value


def _checked(optimizer: Any, scheduler: Any) -> Optimizer:
    if not isinstance(optimizer, Optimizer):
        raise DTypeError(
            f"{type(scheduler).__name__}: expected an optimizer, got "
            f"{type(optimizer).__name__}"
        )
    return optimizer


def _per_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """One value for each group, from one for all or a list."""
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise ArgumentError(
            f"{name}: expected one value or one for each of the {count} groups, got "
            f"{len(value)}"
        )
    return list(value)


def _positive_int(who: str, name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ArgumentError(f"{who}: expected {name} to be an int above 0, got {value}")
    return value


def _one_of(who: str, name: str, value: Any, allowed: Sequence[str]) -> Any:
    if value not in allowed:
        text = ", ".join(map(repr, allowed))
        raise ArgumentError(
            f"{who}: expected {name} to be one of {text}, got {value!r}"
        )
    return value


def _between(who: str, name: str, value: float, low: float, high: float) -> float:
    if not low <= value <= high:
        raise ArgumentError(f"{who}: expected {name} in [{low}, {high}], got {value}")
    return value


# -- factors of functions


class _Lambdas(LRScheduler):
    _hidden = ("optimizer", "lr_lambdas")

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1
    ) -> None:
        _checked(optimizer, self)
        self.lr_lambdas = _per_group("lr_lambda", optimizer, lr_lambda)
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
        self.step_size = _positive_int("StepLR", "step_size", step_size)
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
        self.factor = _between("ConstantLR", "factor", factor, 0, 1)
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
        self.start_factor = _between("LinearLR", "start_factor", start_factor, 0, 1)
        self.end_factor = _between("LinearLR", "end_factor", end_factor, 0, 1)
        self.total_iters = _positive_int("LinearLR", "total_iters", total_iters)
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
        self.total_iters = _positive_int("PolynomialLR", "total_iters", total_iters)
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
        self.T_max = _positive_int("CosineAnnealingLR", "T_max", T_max)
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
        self.T_0 = self.T_i = _positive_int(who, "T_0", T_0)
        self.T_mult = _positive_int(who, "T_mult", T_mult)
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


# -- cycles


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
        _checked(optimizer, self)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up) + float(down)
        self.step_ratio = float(step_size_up) / self.total_size
        self._custom = scale_fn
        self.mode, self.gamma = mode, gamma
        if scale_fn is None:
            modes = ("triangular", "triangular2", "exp_range")
            _one_of("CyclicLR", "mode", mode, modes)
            scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.scale_mode = scale_mode
        self.max_lrs = _per_group("max_lr", optimizer, max_lr)
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._check_momentum(optimizer)
            self.base_momentums = _per_group("base_momentum", optimizer, base_momentum)
            self.max_momentums = _per_group("max_momentum", optimizer, max_momentum)
        low = _per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for lr, group in zip(low, optimizer.param_groups, strict=True):
                group["lr"] = lr
                group["initial_lr"] = lr
        super().__init__(optimizer, last_epoch)
        self.base_lrs = low

    def scale_fn(self, x: float) -> float:
        """How high the cycle (or iteration) x reaches, from 0 to 1."""
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
        _checked(optimizer, self)
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        self.pct_start = _between("OneCycleLR", "pct_start", pct_start, 0, 1)
        choices = ("cos", "linear")
        self.anneal = _one_of("OneCycleLR", "anneal_strategy", anneal_strategy, choices)
        self.three_phase, self.cycle_momentum = three_phase, cycle_momentum
        self.max_lrs = _per_group("max_lr", optimizer, max_lr)
        self.initial_lrs = [lr / div_factor for lr in self.max_lrs]
        self.min_lrs = [lr / final_div_factor for lr in self.initial_lrs]
        if cycle_momentum:
            self._check_momentum(optimizer)
            self.base_momentums = _per_group("base_momentum", optimizer, base_momentum)
            self.max_momentums = _per_group("max_momentum", optimizer, max_momentum)
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
                return _between_values(first, final, part, self.anneal)
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
        return _positive_int("OneCycleLR", "total_steps", total)
    if epochs is None or steps_per_epoch is None:
        raise ArgumentError(
            "OneCycleLR: expected total_steps, or epochs and steps_per_epoch"
        )
    return _positive_int("OneCycleLR", "epochs", epochs) * _positive_int(
        "OneCycleLR", "steps_per_epoch", steps_per_epoch
    )


def _between_values(start: float, end: float, part: float, how: str) -> float:
    if how == "linear":
        return (end - start) * part + start
    return end + (start - end) / 2.0 * (1 + math.cos(math.pi * part))


# -- schedules of schedules


class _Several(LRScheduler):
    _hidden = ("_schedulers", "optimizer")

    def _take(self, optimizer: Any, schedulers: Sequence[Any]) -> None:
        who = type(self).__name__
        if not schedulers:
            raise ArgumentError(f"{who}: expected at least one scheduler, got none")
        for scheduler in schedulers:
            if not isinstance(scheduler, LRScheduler) or isinstance(
                scheduler, ReduceLROnPlateau
            ):
                raise DTypeError(
                    f"{who}: expected schedulers whose step takes no metric, got "
                    f"{type(scheduler).__name__}"
                )
            if scheduler.optimizer is not optimizer:
                raise ArgumentError(f"{who}: the schedulers are of several optimizers")
        self._schedulers = list(schedulers)
        self.optimizer = _checked(optimizer, self)

    def state_dict(self) -> dict[str, Any]:
        inner = [scheduler.state_dict() for scheduler in self._schedulers]
        return {**super().state_dict(), "schedulers": inner}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        own = dict(state_dict)
        inner = own.pop("schedulers", [])
        if len(inner) != len(self._schedulers):
            raise ArgumentError(
                f"load_state_dict: expected the state of {len(self._schedulers)} "
                f"schedulers, got {len(inner)}"
            )
        super().load_state_dict(own)
        for scheduler, state in zip(self._schedulers, inner, strict=True):
            scheduler.load_state_dict(state)


class ChainedScheduler(_Several):
    """Several schedules at once, each changing what the one before has set.

    >>> sgd = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> lr = weft.optim.lr_scheduler
    >>> both = [lr.ExponentialLR(sgd, 0.5), lr.StepLR(sgd, 1, 0.5)]
    >>> schedule = lr.ChainedScheduler(both)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        first = schedulers[0] if schedulers else None
        self._take(optimizer or getattr(first, "optimizer", None), schedulers)
        self._last_lr = self._rates()

    def step(self, epoch: int | None = None) -> None:
        """Step each schedule."""
        for scheduler in self._schedulers:
            scheduler.step(epoch)
        self._last_lr = self._rates()

    def _rewind(self) -> None:
        for scheduler in self._schedulers:
            _rewind(scheduler)

    def _begin(self) -> None:
        for scheduler in self._schedulers:
            scheduler._begin()


class SequentialLR(_Several):
    """One schedule after the other; each starts at a milestone.

    >>> sgd = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> lr = weft.optim.lr_scheduler
    >>> first, then = lr.ConstantLR(sgd, 0.5, 9), lr.ExponentialLR(sgd, 0.5)
    >>> schedule = lr.SequentialLR(sgd, [first, then], milestones=[2])
    >>> [(schedule.step(), sgd.param_groups[0]["lr"])[1] for _ in range(4)]
    [0.5, 1.0, 0.5, 0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        self._take(optimizer, schedulers)
        if len(milestones) != len(schedulers) - 1:
            raise ArgumentError(
                "SequentialLR: expected one milestone between each two schedulers "
                f"({len(schedulers) - 1}), got {len(milestones)}"
            )
        self.milestones = list(milestones)
        self.last_epoch = last_epoch + 1
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        _rewind(self)
        self._begin()

    def _current(self) -> Any:
        return self._schedulers[bisect_right(self.milestones, self.last_epoch)]

    def _begin(self) -> None:
        self._current()._begin()
        self._last_lr = self._rates()

    def step(self, epoch: int | None = None) -> None:
        """Step the schedule whose turn it is."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        scheduler = self._current()
        scheduler.step(0 if self.last_epoch in self.milestones else None)
        self._last_lr = scheduler.get_last_lr()


def _rewind(scheduler: Any) -> None:
    """Take back the step that each scheduler made when it was built."""
    if isinstance(scheduler, _Several):
        for inner in scheduler._schedulers:
            _rewind(inner)
    else:
        scheduler.last_epoch -= 1


class WarmupLR(_Several):
    """A linear rise over ``warmup_steps``, then another schedule from its start.

    >>> sgd = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> after = weft.optim.lr_scheduler.ExponentialLR(sgd, 0.5)
    >>> schedule = weft.optim.lr_scheduler.WarmupLR(sgd, 4, after)
    >>> rates = [sgd.param_groups[0]["lr"]]
    >>> for _ in range(5):
    ...     schedule.step()
    ...     rates.append(sgd.param_groups[0]["lr"])
    >>> rates
    [0.25, 0.5, 0.75, 1.0, 0.5, 0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        warmup_steps: int,
        after: LRScheduler | None = None,
    ) -> None:
        _checked(optimizer, self)
        self.warmup_steps = _positive_int("WarmupLR", "warmup_steps", warmup_steps)
        if after is None:
            after = ConstantLR(optimizer, 1.0)
        self._take(optimizer, [after])
        self._targets = self._rates()
        self.last_epoch = -1
        self.step()

    def step(self, epoch: int | None = None) -> None:
        """Rise, and afterwards step the other schedule."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        height = (self.last_epoch + 1) / self.warmup_steps
        if height <= 1:
            self._set([lr * height for lr in self._targets])
            return
        inner = self._schedulers[0]
        beyond = self.last_epoch + 1 - self.warmup_steps
        inner.step(None if epoch is None else beyond)
        self._last_lr = inner.get_last_lr()


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
        self.optimizer = _checked(optimizer, self)
        self.mode = _one_of(who, "mode", mode, ("min", "max"))
        ways = ("rel", "abs")
        self.threshold_mode = _one_of(who, "threshold_mode", threshold_mode, ways)
        self.factor, self.patience, self.threshold = factor, patience, threshold
        self.cooldown, self.eps = cooldown, eps
        self.min_lrs = _per_group("min_lr", optimizer, min_lr)
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
