"""Schedules made of other schedules: at once, in turn, after a warm-up."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from weft.errors import ArgumentError, DTypeError
from weft.optim.lr_scheduler.base import LRScheduler, checked, positive_int
from weft.optim.lr_scheduler.curves import ConstantLR
from weft.optim.lr_scheduler.plateau import ReduceLROnPlateau
from weft.optim.optimizer import Optimizer


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
        self.optimizer = checked(optimizer, self)

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
    """Several schedules at once, each changing the rate that the one before has set.

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
        checked(optimizer, self)
        self.warmup_steps = positive_int("WarmupLR", "warmup_steps", warmup_steps)
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
