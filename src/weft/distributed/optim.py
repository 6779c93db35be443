"""``weft.distributed.optim``: an optimizer whose states are in parts (ZeRO-1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft.autograd.modes import no_grad
from weft.core.mode import mode
from weft.core.tensor import Tensor
from weft.distributed import nn as collectives
from weft.distributed.collectives import broadcast
from weft.distributed.groups import group_of
from weft.distributed.objects import all_gather_object
from weft.errors import ArgumentError
from weft.optim.optimizer import Optimizer

__all__ = ["ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer(Optimizer):
    """An optimizer of which every process has the states of some parameters.

    Each process steps its parameters with ``optimizer_class``, whole ones, of about
    as many elements as the others', and gives the others their new values. Gradients
    are to be the same everywhere, as ``DistributedDataParallel`` makes them.

    >>> dist = weft.distributed
    >>> dist.init_process_group(rank=0, world_size=1)
    >>> net = weft.nn.Linear(2, 1)
    >>> adam = dist.optim.ZeroRedundancyOptimizer(
    ...     net.parameters(), weft.optim.AdamW, lr=0.1)
    >>> net(weft.ones(1, 2)).sum().backward()
    >>> adam.step()
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        params: Any,
        optimizer_class: Callable[..., Any],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise ArgumentError(
                "ZeroRedundancyOptimizer: overlap_with_ddp is not there; leave it out"
            )
        self.group = group_of(process_group)
        if self.group.rank() < 0:
            raise ArgumentError(
                f"ZeroRedundancyOptimizer: this process is not in {self.group!r}"
            )
        self._gathered: dict[str, Any] | None = None
        super().__init__(params, defaults)
        groups = [{**group, "params": _pairs(group)} for group in self.param_groups]
        for group in groups:
            del group["param_names"]
        self.optim = optimizer_class(groups, **defaults)
        self.param_groups = self.optim.param_groups  # one list: schedulers change it
        self.state = self.optim.state
        self._divide()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, before the first step."""
        if "optim" not in vars(self):
            super().add_param_group(param_group)
            return
        if self.optim.state:
            raise ArgumentError(
                "add_param_group: expected a call before the first step, as the "
                "parameters are divided anew"
            )
        self.optim.add_param_group(param_group)
        self._divide()

    def _divide(self) -> None:
        """Give each process some of the parameters: the next to who has the fewest."""
        sizes = [0] * self.group.size()
        self.owner: dict[Tensor, int] = {}
        every = [p for group in self.param_groups for p in group["params"]]
        for p in sorted(every, key=lambda p: -p.numel()):
            rank = sizes.index(min(sizes))
            sizes[rank] += p.numel()
            self.owner[p] = rank

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step this process's parameters, and exchange all."""
        loss = None
        if closure is not None:
            with weft.enable_grad():
                loss = closure()
        self._gathered = None
        messages = self._messages()
        mine = self.group.rank()
        others = [(p, p.grad) for p, rank in self.owner.items() if rank != mine]
        try:
            for p, _ in others:
                p.grad = None  # the others step them
            self.optim.step()
        finally:
            for p, g in others:
                p.grad = g
        with no_grad():
            for some, rank in messages:
                self._exchange(some, rank)
        return loss

    def _messages(self) -> list[tuple[list[Tensor], int]]:
        """The parameters that go in one message, and who has their values."""
        found: dict[Any, list[Tensor]] = {}
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    found.setdefault((self.owner[p], p.dtype), []).append(p)
        return [(some, rank) for (rank, _), some in found.items()]

    def _exchange(self, some: list[Tensor], rank: int) -> None:
        flat = weft.cat([p.detach().reshape(-1) for p in some])
        source = self.group.ranks[rank]
        if mode.capture is None:
            broadcast(flat, source, self.group)
        else:
            flat = collectives.broadcast(flat, source, self.group)
        if self.group.rank() == rank and mode.capture is None:
            return
        pieces = flat.split([p.numel() for p in some])
        for p, piece in zip(some, pieces, strict=True):
            p.copy_(piece.reshape(p.shape))

    # -- saving

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring all states to a process, whose ``state_dict`` then has them; all call
        this."""
        every: list[Any] = [None] * self.group.size()
        all_gather_object(every, self.optim.state_dict()["state"], self.group)
        if self.group.ranks[self.group.rank()] == to:
            self._gathered = {k: v for one in every for k, v in one.items()}

    def state_dict(self, *, copy: bool = True) -> dict[str, Any]:
        """The state of all parameters, as one process would have it."""
        if self._gathered is None:
            raise RuntimeError(
                "state_dict: call consolidate_state_dict(to) on all processes before, "
                "and state_dict() on that one"
            )
        found: dict[str, Any] = self.optim.state_dict(copy=copy)
        return {**found, "state": dict(sorted(self._gathered.items()))}

    def load_state_dict(self, state_dict: Any) -> None:
        """Take over what one process has saved; states of others are let go."""
        self.optim.load_state_dict(state_dict)
        self.param_groups, self.state = self.optim.param_groups, self.optim.state
        for p, rank in self.owner.items():
            if rank != self.group.rank():
                self.state.pop(p, None)
        self._gathered = None


def _pairs(group: dict[str, Any]) -> list[tuple[str, Tensor]]:
    return list(zip(group["param_names"], group["params"], strict=True))
