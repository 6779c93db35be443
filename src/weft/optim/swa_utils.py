"""Averages of a model's weights: stochastic weight averaging, and moving ones."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

from weft import tensor
from weft.autograd.modes import no_grad
from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.nn.module import Module
from weft.optim.lr_scheduler.base import LRScheduler, one_of, per_group
from weft.optim.optimizer import Optimizer

AvgFn = Callable[[Tensor, Tensor, Any], Tensor]


def get_ema_avg_fn(decay: float = 0.999) -> AvgFn:
    """The rule of an exponential moving average.

    >>> average = weft.optim.swa_utils.get_ema_avg_fn(0.75)
    >>> average(weft.tensor(1.0), weft.tensor(3.0), 5)
    tensor(1.5000)
    """
    if not 0 <= decay <= 1:
        raise ArgumentError(f"get_ema_avg_fn: expected decay in [0, 1], got {decay}")

    def average(averaged: Tensor, current: Tensor, count: Any) -> Tensor:
        return decay * averaged + (1 - decay) * current

    return average


def get_swa_avg_fn() -> AvgFn:
    """The rule of a plain mean over all updates.

    >>> average = weft.optim.swa_utils.get_swa_avg_fn()
    >>> average(weft.tensor(1.0), weft.tensor(4.0), 2)
    tensor(2.)
    """

    def average(averaged: Tensor, current: Tensor, count: Any) -> Tensor:
        return averaged + (current - averaged) / (count + 1)

    return average


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[..., None]:
    """The rule of an exponential moving average, over lists of tensors in place.

    >>> mine, theirs = [weft.ones(1)], [weft.zeros(1)]
    >>> weft.optim.swa_utils.get_ema_multi_avg_fn(0.75)(mine, theirs, 1)
    >>> mine
    [tensor([0.7500], shape=(1,), dtype=float32)]
    """
    return _over_lists(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> Callable[..., None]:
    """The rule of a plain mean over all updates, over lists of tensors in place.

    >>> mine, theirs = [weft.ones(1)], [weft.tensor([4.0])]
    >>> weft.optim.swa_utils.get_swa_multi_avg_fn()(mine, theirs, 2)
    >>> mine
    [tensor([2.], shape=(1,), dtype=float32)]
    """
    return _over_lists(get_swa_avg_fn())


def _over_lists(rule: AvgFn) -> Callable[..., None]:
    def average(averaged: Any, current: Any, count: Any) -> None:
        with no_grad():
            for mine, theirs in zip(averaged, current, strict=True):
                mine.copy_(rule(mine.detach(), theirs.detach(), count))

    return average


class AveragedModel(Module):
    """A copy of a model that holds an average of its weights.

    ``avg_fn(averaged, current, count)`` gives the new average; without one it is
    the mean of all updates. Buffers are copied, or with ``use_buffers`` averaged.

    >>> class Scale(weft.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.w = weft.nn.Parameter(weft.tensor([1.0]))
    ...     def forward(self, x):
    ...         return self.w * x
    >>> model = Scale()
    >>> average = weft.optim.swa_utils.AveragedModel(model)
    >>> average.update_parameters(model)
    >>> _ = model.w.detach().fill_(3.0)
    >>> average.update_parameters(model)
    >>> average(weft.tensor([1.0])).detach()
    tensor([2.])
    """

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: AvgFn | None = None,
        multi_avg_fn: Callable[..., None] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ArgumentError(
                "AveragedModel: Only one of avg_fn and multi_avg_fn should be provided"
            )
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module.to(device)
        self.register_buffer("n_averaged", tensor(0))
        self.avg_fn = get_swa_avg_fn() if avg_fn is None else avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the model's present weights into the average."""
        count = int(self.n_averaged)
        with no_grad():
            for mine, theirs in _pairs(self.module.parameters(), model.parameters()):
                self._average(mine, theirs, count)
            for mine, theirs in _pairs(self.module.buffers(), model.buffers()):
                if self.use_buffers and mine.dtype.is_inexact:
                    self._average(mine, theirs, count)
                else:
                    mine.copy_(theirs)
            self.n_averaged.fill_(count + 1)

    def _average(self, mine: Tensor, theirs: Tensor, count: int) -> None:
        current = theirs.detach().to(mine.device)
        if count and self.multi_avg_fn is not None:
            self.multi_avg_fn([mine], [current], count)
            return
        mine.copy_(self.avg_fn(mine.detach(), current, count) if count else current)


def _pairs(mine: Iterable[Any], theirs: Iterable[Any]) -> list[tuple[Any, Any]]:
    left, right = list(mine), list(theirs)
    if [t.shape for t in left] != [t.shape for t in right]:
        raise ArgumentError(
            "update_parameters: expected a model like the one that is averaged; its "
            "parameters or buffers have other shapes"
        )
    return list(zip(left, right, strict=True))


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute batch normalisation's running statistics anew over a data loader.

    The loader gives inputs, or tuples whose first item is the input.

    >>> weft.optim.swa_utils.update_bn([], weft.nn.Module())
    """
    norms: list[Any] = [m for m in model.modules() if "running_mean" in m._buffers]
    norms = [m for m in norms if m.running_mean is not None]
    if not norms:
        return
    momenta = [m.momentum for m in norms]
    modes = [(m, m.training) for m in model.modules()]
    try:
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a plain mean over all batches
        model.train()
        with no_grad():
            for batch in loader:
                x = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(x if device is None else x.to(device))
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        for module, training in modes:
            module.__dict__["training"] = training


class SWALR(LRScheduler):
    """Anneal the present rate to a constant one, in ``anneal_epochs`` epochs.

    >>> sgd = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=1.0)
    >>> swa = weft.optim.swa_utils.SWALR
    >>> schedule = swa(sgd, swa_lr=0.5, anneal_epochs=2, anneal_strategy="linear")
    >>> [(schedule.step(), sgd.param_groups[0]["lr"])[1] for _ in range(3)]
    [0.75, 0.5, 0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ArgumentError(
                f"SWALR: expected anneal_epochs of at least 0, got {anneal_epochs}"
            )
        choices = ("cos", "linear")
        self.anneal = one_of("SWALR", "anneal_strategy", anneal_strategy, choices)
        self.anneal_epochs = anneal_epochs
        rates = per_group("swa_lr", optimizer, swa_lr)
        for lr, group in zip(rates, optimizer.param_groups, strict=True):
            group["swa_lr"] = lr
        super().__init__(optimizer, last_epoch)

    def _weight(self, step: int) -> float:
        """The share of the constant rate after some steps."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self.anneal == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[float]:
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._weight(step - 1), self._weight(step)
        rates = []
        for group in self.optimizer.param_groups:
            lr, goal = group["lr"], group["swa_lr"]
            first = goal if before == 1 else (lr - before * goal) / (1 - before)
            rates.append(goal * now + first * (1 - now))
        return rates
