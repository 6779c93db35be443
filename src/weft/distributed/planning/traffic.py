"""The bytes that processes send in a step, exactly, over connections of their own.

    tensor     sums of what layers in parts give, for each microbatch
    pipeline   what the stages beside need, for each microbatch
    data       gradients in buckets, or parts of parameters and of gradients
    loss       one number

They follow from shapes alone. Tests compare them with what is sent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from weft.distributed.planning.strategy import (
    Strategy,
    microbatches,
    stages_of,
    weights,
)
from weft.distributed.planning.work import Layer, Weight, Work
from weft.distributed.sockets import WHOLE
from weft.distributed.tensor.placements import piece
from weft.nn.parallel.distributed import MEGABYTES, _cut

Sends = Counter[int]  # bytes by the rank to which they go


def traffic(work: Work, strategy: Strategy) -> list[Sends]:
    """What each rank sends to each other one in a step.

    >>> planning = weft.distributed.planning
    >>> work = planning.measured_work(weft.nn.Linear(3, 2), weft.ones(4, 3))
    >>> planning.traffic(work, planning.Strategy(data=2, microbatch=2))[0]
    Counter({1: 44})
    """
    return [_Rank(work, strategy, rank).sends() for rank in range(strategy.world)]


def shared_units(layers: Sequence[Layer]) -> list[Layer]:
    """The layers of a stage that ``fully_shard`` gathers each by itself.

    The rest is gathered with the stage: small layers, and those that share a parameter.
    """
    uses = Counter(w.place for one in layers for w in one.weights)
    total = sum(math.prod(w.shape) for w in weights(layers))
    return [
        one
        for one in layers
        if all(uses[w.place] == 1 for w in one.weights)
        and 4 * len(layers) * sum(math.prod(w.shape) for w in one.weights) > total
    ]


class _Rank:
    """One rank's place, and what it sends."""

    def __init__(self, work: Work, strategy: Strategy, rank: int) -> None:
        self.work, self.strategy = work, strategy
        rest, self.t = divmod(rank, strategy.tensor)
        self.p, self.d = divmod(rest, strategy.data)
        self.rank = rank
        self.count = microbatches(work, strategy)
        self.stages = stages_of(work, strategy)
        self.layers = self.stages[self.p]
        self.found: Sends = Counter()

    def at(self, p: int, d: int, t: int) -> int:
        """The rank of a place."""
        return (p * self.strategy.data + d) * self.strategy.tensor + t

    def sends(self) -> Sends:
        self._tensor()
        self._pipeline()
        if self.strategy.data > 1 and weights(self.layers):
            self._buckets() if self.strategy.sharding == "none" else self._units()
        self._tied()
        self._all_reduce(1, self.work.itemsize, range(self.strategy.world))
        return +self.found

    def _to_all(self, size: int, ranks: Sequence[int]) -> None:
        for rank in ranks:
            if rank != self.rank:
                self.found[rank] += size

    def _all_reduce(self, elements: int, itemsize: int, ranks: Sequence[int]) -> None:
        """Small ones go to all; of others a piece to each, and its sum to all."""
        count = len(ranks)
        if elements * itemsize <= WHOLE:
            self._to_all(elements * itemsize, ranks)
            return
        least, more = divmod(elements, count)
        sizes = [least + (k < more) for k in range(count)]
        mine = sizes[list(ranks).index(self.rank)]
        for rank, size in zip(ranks, sizes, strict=True):
            if rank != self.rank:
                self.found[rank] += (size + mine) * itemsize

    # -- dimensions

    def _tensor(self) -> None:
        along = [self.at(self.p, self.d, t) for t in range(self.strategy.tensor)]
        if len(along) > 1:
            for layer in self.layers:
                for size in (*layer.sums, *layer.sums_back):
                    elements = size * self.strategy.microbatch / self.work.itemsize
                    for _ in range(self.count):
                        self._all_reduce(round(elements), self.work.itemsize, along)

    def _pipeline(self) -> None:
        b = self.strategy.microbatch
        if self.p + 1 < self.strategy.pipeline:
            last = self.layers[-1]
            size = b * last.passes + last.fixed[0]
            self.found[self.at(self.p + 1, self.d, self.t)] += round(size) * self.count
        if self.p:
            before = self.stages[self.p - 1][-1]
            size = b * before.returns + before.fixed[1]
            self.found[self.at(self.p - 1, self.d, self.t)] += round(size) * self.count

    def _along_data(self) -> list[int]:
        return [self.at(self.p, d, self.t) for d in range(self.strategy.data)]

    def _elements(self, weight: Weight) -> int:
        return math.prod(weight.part(self.strategy.tensor, self.t))

    def _buckets(self) -> None:
        """``DistributedDataParallel``: gradients, and which of them there are."""
        along = self._along_data()
        for some in self._cut():
            elements = sum(self._elements(w) for w in some) + len(some)
            self._all_reduce(elements, some[0].dtype.itemsize, along)
        if self.d == 0 and self.strategy.pipeline == 1:
            self._to_all(self.work.buffers, along)

    def _cut(self) -> Iterator[list[Weight]]:
        every: Any = weights(self.layers)[::-1]
        found: Any = _cut(every, MEGABYTES << 20)  # which asks for dtype and nbytes
        return found

    def _units(self) -> None:
        """``fully_shard``: parts of parameters, and of gradients with flags."""
        along, sharding = self._along_data(), self.strategy.sharding
        for some, again in self._gathered():
            gathers = self.count * (1 + again) if sharding == "all" else 1
            reduces = 1 if sharding == "states" else self.count
            for kind in {w.dtype for w in some}:
                own = [w for w in some if w.dtype == kind]
                size = sum(self._row(w) for w in own)
                flagged = (size + len(own)) * reduces
                self._to_all((size * gathers + flagged) * kind.itemsize, along)

    def _gathered(self) -> Iterator[tuple[list[Weight], bool]]:
        """The parameters of each unit, and whether backward gathers them again."""
        units = shared_units(self.layers)
        for layer in units:
            yield weights([layer]), layer.needs
        taken = {w.place for w in weights(units)}
        yield [w for w in weights(self.layers) if w.place not in taken], False

    def _row(self, weight: Weight) -> int:
        """The elements of a data parallel process's part, as long as the longest."""
        first, *rest = weight.part(self.strategy.tensor, self.t)
        return -(-first // self.strategy.data) * math.prod(rest)

    def _tied(self) -> None:
        """Gradients of parameters that several stages have."""
        for w, stages in tied(self.stages):
            if self.p in stages:
                along = [self.at(p, self.d, self.t) for p in stages]
                first, *rest = w.part(self.strategy.tensor, self.t)
                if self.strategy.sharding != "none" and self.strategy.data > 1:
                    first = piece(first, self.strategy.data, self.d)[1]
                self._all_reduce(first * math.prod(rest), w.dtype.itemsize, along)


def tied(stages: Sequence[Sequence[Layer]]) -> list[tuple[Weight, list[int]]]:
    """Parameters that several stages have, and which."""
    where: dict[int, list[int]] = {}
    every: dict[int, Weight] = {}
    for k, layers in enumerate(stages):
        for w in weights(layers):
            every.setdefault(w.place, w)
            where.setdefault(w.place, []).append(k)
    return [(every[place], ks) for place, ks in where.items() if len(ks) > 1]
