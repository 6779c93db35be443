"""A share of the samples for each of several processes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from weft import Generator, late, randperm
from weft.errors import ArgumentError
from weft.utils.data.sampler import Sampler


class DistributedSampler(Sampler):
    """Every ``num_replicas``-th sample, from the ``rank``-th on.

    Without these, they are those of the process group. The order is one of ``seed`` and
    the epoch (``set_epoch``), the same in all processes. Samples are repeated, or with
    ``drop_last`` left out, until every process has as many. The ``state_dict`` of its
    loader counts the batches of all processes: any number of them can go on from there.

    >>> sampler = weft.utils.data.DistributedSampler
    >>> list(sampler(range(5), num_replicas=2, rank=1, shuffle=False))
    [1, 3, 0]
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            group = late.find("distributed")
            if not group.is_initialized():
                raise RuntimeError(
                    "DistributedSampler: there is no process group; call "
                    "init_process_group first, or pass num_replicas and rank"
                )
            if num_replicas is None:
                num_replicas = int(group.get_world_size())
            rank = int(group.get_rank()) if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ArgumentError(
                f"Invalid rank {rank}, rank should be in the interval "
                f"[0, {num_replicas - 1}]"
            )
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.epoch, self.drop_last = 0, drop_last
        self.shuffle, self.seed = shuffle, seed
        self._skipped = {-1: 0}  # an epoch, and how many of its samples are done
        self.num_samples = self._count(len(dataset))
        self.total_size = self.num_samples * num_replicas

    def _count(self, size: int) -> int:
        """How many of so many samples each process has."""
        if self.drop_last and size % self.num_replicas:
            size -= self.num_replicas
        return math.ceil(size / self.num_replicas)

    def __iter__(self) -> Iterator[int]:
        size = len(self.dataset)
        order = list(range(size))
        if self.shuffle:
            generator = Generator().manual_seed(self.seed + self.epoch)
            order = randperm(size, generator=generator).tolist()
        left = order[self._skipped.get(self.epoch, 0) :]
        total = len(self) * self.num_replicas
        whole = left + order * math.ceil((total - len(left)) / max(size, 1))
        return iter(whole[self.rank : total : self.num_replicas])

    def __len__(self) -> int:
        if self.epoch not in self._skipped:
            return self.num_samples
        return self._count(max(len(self.dataset) - self._skipped[self.epoch], 0))

    def skip(self, epoch: int, samples: int) -> None:
        """Leave the first samples of an epoch out: as many processes have done them."""
        self.set_epoch(epoch)
        self._skipped = {epoch: samples}

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, which decides the order."""
        self.epoch = epoch
