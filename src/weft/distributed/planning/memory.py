"""The most memory of a process under a strategy.

It follows from what its layers keep and need, and from the order in which the process
works on its microbatches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.distributed.pipelining import orders
from weft.distributed.planning.profile import Linear, Profile
from weft.distributed.planning.strategy import (
    Strategy,
    held,
    microbatches,
    stages_of,
    weights,
)
from weft.distributed.planning.traffic import shared_units
from weft.distributed.planning.work import Layer, Work
from weft.optim.flat import LARGE


def peak(
    work: Work, strategy: Strategy, profile: Sequence[Profile], example: float
) -> float:
    """The most bytes that a process has; ``example`` are those of the whole batch."""
    count = microbatches(work, strategy)
    names = [one.name for one in work.layers]
    stages = stages_of(work, strategy)
    found = []
    for p, layers in enumerate(stages):
        own = [profile[names.index(x.name)] for x in layers]
        loss = profile[-1] if p == len(stages) - 1 else None
        before = stages[p - 1][-1] if p else None
        one = _Process(work, strategy, layers, own, loss, before)
        found.append(one.peak(p, count) + example)
    return max(found)


class _Process:
    """The bytes of one process in a step."""

    def __init__(
        self, work: Work, strategy: Strategy, layers: list[Layer],
        profiles: list[Profile], loss: Profile | None, before: Layer | None,
    ) -> None:  # fmt: skip
        self.work, self.strategy, self.layers = work, strategy, layers
        self.profiles, self.loss = profiles, loss
        b, last = strategy.microbatch, layers[-1]
        self.received = 0.0 if before is None else before.passes * b + before.fixed[0]
        self.returned = 0.0 if loss else last.returns * b + last.fixed[1]
        self.shards = strategy.data > 1 and strategy.sharding != "none"
        self.whole = held(layers, strategy.tensor) * work.itemsize
        self.gradients = dict.fromkeys(range(len(layers)), 0.0)
        seen: set[int] = set()
        for k in reversed(range(len(layers))):  # a shared one is its last layer's
            own = [w for w in layers[k].weights if w.place not in seen]
            seen |= {w.place for w in own}
            parts = (math.prod(w.part(strategy.tensor)) for w in own)
            self.gradients[k] = sum(parts) * float(work.itemsize)
        units = shared_units(layers) if self.shards else []
        self.units = {k for k, one in enumerate(layers) if one in units}
        self.live = self.most = 0.0
        self.gained = 0.0  # by gradients in a backward
        self.made = [False] * len(layers)  # gradients

    def peak(self, place: int, count: int) -> float:
        d = self.strategy.data if self.shards else 1
        kept_whole = self.shards and self.strategy.sharding != "all"
        states = self.whole / self.work.itemsize * self.work.states
        self.live = (self.whole + states) / d + self.whole * kept_whole
        self.live += self._gathered_small(d)
        self._note()
        order = orders.one_forward_one_backward(place, self.strategy.pipeline, count)
        for kind, _, k in order:
            if kind == "F":
                self._forward()
            else:
                self._backward(k == count - 1)
        if self.strategy.data > 1 and not self.shards and self._held:
            self._note(self.whole)  # all buckets, at the end
        if self._held and self.strategy.sharding == "states" and self.shards:
            self._note(2 * max(self.gradients.values()))
        return self.most

    def _gathered_small(self, d: int) -> float:
        """The optimizer's copies of small parameters and of their gradients."""
        parts = (w.part(self.strategy.tensor) for w in weights(self.layers))
        sizes = (-(-shape[0] // d) * math.prod(shape[1:]) for shape in parts if shape)
        return 2.0 * self.work.itemsize * sum(size for size in sizes if size < LARGE)

    @property
    def _held(self) -> bool:
        """Whether gradients are combined after all microbatches."""
        return self.strategy.pipeline > 1

    def _note(self, more: float = 0.0) -> None:
        self.most = max(self.most, self.live + more)

    def _of(self, k: int, size: Linear) -> float:
        """The bytes of a microbatch in a layer that may be in parts."""
        layer, t = self.layers[k], self.strategy.tensor
        alone = layer.alone.kept / layer.kept if layer.kept else 1.0
        return size.row * self.strategy.microbatch * (alone + (1 - alone) / t)

    def _root(self) -> float:
        """Bytes gathered with the stage, which stay from forward to backward."""
        if not self.shards or self.strategy.sharding != "all":
            return 0.0
        return self.whole - sum(self.gradients[k] for k in self.units)

    def _forward(self) -> None:
        b = self.strategy.microbatch
        before = self.live
        self.live += self._root() + self.received
        for k, profile in enumerate(self.profiles):
            gathered = 2 * self._gathered(k)  # from the messages, and joined
            self._note(self._of(k, profile.forward) + profile.forward.fixed + gathered)
            self.live += self._of(k, profile.kept) + profile.kept.fixed
        if self.loss is not None:
            self._note(self.loss.forward.of(b))
            self.live += self.loss.kept.of(b)
        self.under_way = self.live - before

    def _gathered(self, k: int) -> float:
        all_of_it = self.shards and self.strategy.sharding == "all"
        return self.gradients[k] if all_of_it and k in self.units else 0.0

    def _backward(self, last: bool) -> None:
        b, self.gained = self.strategy.microbatch, 0.0
        before = self.live - self.under_way
        self.live += 2 * self.returned  # what came stays, beside what layers let go
        if self.loss is not None:
            self._note(self.loss.backward.of(b))
            self.live -= self.loss.freed.of(b)
        for k in reversed(range(len(self.layers))):
            profile, own = self.profiles[k], self.gradients[k]
            whole = sum(math.prod(w.shape) for w in self.layers[k].weights)
            share = own / whole / self.work.itemsize if whole else 1.0
            fixed = profile.backward.fixed * share  # with whole gradients
            more = self._gathered(k)
            if self.shards and not self._waits(last):  # in rows, and the part beside
                more = max(more, own + own / self.strategy.data * self.made[k])
            else:
                more -= own * self.made[k]  # added to the one that there is
            self._note(self._of(k, profile.backward) + fixed + more)
            self.live -= self._of(k, profile.freed) + profile.kept.fixed
            self._gradient(k, last)
        self.live = before + self.gained

    def _waits(self, last: bool) -> bool:
        """Whether whole gradients are added up until later."""
        return self.strategy.sharding == "states" and (self._held or not last)

    def _gradient(self, k: int, last: bool) -> None:
        """The gradients of a layer's parameters are there."""
        own, more = self.gradients[k], 0.0
        if self.shards and not self._waits(last):
            if self.strategy.sharding == "states" and self.made[k]:
                more -= own  # the whole one that was added up
                self.made[k] = False
            if not self.made[k]:
                more += own / self.strategy.data
        elif not self.made[k]:
            more += own
        self.made[k] = True
        if self.strategy.data > 1 and not self.shards and last and not self._held:
            more += own  # in its bucket
        self.live += more
        self.gained += more
        self._note()
