"""The base of every schedule: epochs, setting the rates, saving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    _get_lr_called_within_step = True  # subclasses for PyTorch ask; calls are all fine

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = checked(optimizer, self)
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
        own = getattr(self, "_get_closed_form_lr", self.get_lr)  # PyTorch's name
        return own()

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


def checked(optimizer: Any, scheduler: Any) -> Optimizer:
    if not isinstance(optimizer, Optimizer):
        raise DTypeError(
            f"{type(scheduler).__name__}: expected an optimizer, got "
            f"{type(optimizer).__name__}"
        )
    return optimizer


def per_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
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


def positive_int(who: str, name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ArgumentError(f"{who}: expected {name} to be an int above 0, got {value}")
    return value


def one_of(who: str, name: str, value: Any, allowed: Sequence[str]) -> Any:
    if value not in allowed:
        text = ", ".join(map(repr, allowed))
        raise ArgumentError(
            f"{who}: expected {name} to be one of {text}, got {value!r}"
        )
    return value


def between(who: str, name: str, value: float, low: float, high: float) -> float:
    if not low <= value <= high:
        raise ArgumentError(f"{who}: expected {name} in [{low}, {high}], got {value}")
    return value
