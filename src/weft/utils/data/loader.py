"""The loader: batches of a data set, in order, by worker processes or without.

The order of an epoch and every random number drawn for a sample are pure functions
of the loader's seed, the epoch and the sample's number in it. The position of a loader
is therefore three integers, and its batches do not depend on the workers.
"""

from __future__ import annotations

import itertools
import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.context import BaseContext
from types import GenericAlias
from typing import Any

import numpy as np

from weft.errors import ArgumentError, DTypeError
from weft.ops.random import Generator, randint
from weft.utils.data.collate import default_collate, default_convert
from weft.utils.data.dataset import IterableDataset, sized
from weft.utils.data.distributed import DistributedSampler
from weft.utils.data.pool import Pool
from weft.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    batches,
)
from weft.utils.data.seeding import ORDER, Draws, key
from weft.utils.data.worker import End, Recipe, Request, WorkerError


class DataLoader:
    """Batches of a data set's samples.

    ``seed`` decides the order and what samples draw from Weft's default generator;
    without it, one is drawn from ``generator`` (or the default one). Each pass over
    the loader is the next epoch. ``state_dict`` is its position, and a loader that
    loads it goes on at the next batch. ``batch_size=None`` gives samples instead of
    batches.

    Workers are started with each pass and end with it, unless
    ``persistent_workers``; ``with loader:`` ends them for certain.

    >>> loader = weft.utils.data.DataLoader(range(5), batch_size=2)
    >>> for batch in loader:
    ...     print(batch.tolist())
    [0, 1]
    [2, 3]
    [4]
    """

    __class_getitem__: Any = classmethod(GenericAlias)  # ``DataLoader[int]`` is a type

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool = False,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        seed: int | None = None,
    ) -> None:
        _check_number("num_workers", num_workers, 0)
        _check_number("timeout", timeout, 0)
        if prefetch_factor is not None:
            _check_number("prefetch_factor", prefetch_factor, 1)
        if not num_workers and (persistent_workers or prefetch_factor is not None):
            raise ArgumentError(
                "DataLoader: persistent_workers and prefetch_factor need num_workers "
                "of at least 1"
            )
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor or (2 if num_workers else None)
        self.persistent_workers = persistent_workers
        self.worker_init_fn = worker_init_fn
        self.timeout = timeout
        self.context = multiprocessing_context
        self.generator = generator
        # There is nothing to pin on a CPU, and batches always come in order.
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.in_order = in_order
        self.seed = _seed(seed, generator)
        self._choose_order(batch_size, shuffle, sampler, batch_sampler, drop_last)
        batched = self.batch_sampler is not None or self.batch_size is not None
        self.collate_fn = collate_fn or (
            default_collate if batched else default_convert
        )
        self.epoch = 0  # the epoch of the last pass, or of the next one
        self.position = 0  # how many of its batches were handed out
        # batches of an epoch that other numbers of processes did, besides whole steps
        self._ahead: dict[int, int] = {}
        self._begun = False  # whether a pass over this epoch has begun
        self._pool: Pool | None = None
        self._passes: weakref.WeakSet[BaseDataLoaderIter] = weakref.WeakSet()

    def _choose_order(
        self, batch_size: Any, shuffle: bool, sampler: Any, batch_sampler: Any,
        drop_last: bool,
    ) -> None:  # fmt: skip
        _check_order(batch_size, shuffle, sampler, batch_sampler, drop_last)
        streamed = isinstance(self.dataset, IterableDataset)
        if streamed and (shuffle or sampler is not None or batch_sampler is not None):
            raise ArgumentError(
                "DataLoader: a stream comes in its own order; expected no shuffle, "
                "sampler or batch_sampler with an IterableDataset"
            )
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        elif batch_size is not None:
            _check_number("batch_size", batch_size, 1)
        if sampler is None and not streamed and batch_sampler is None:
            chosen = RandomSampler if shuffle else SequentialSampler
            sampler = chosen(self.dataset)
        if batch_size is not None and not streamed:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.drop_last = batch_size, drop_last
        self.sampler, self.batch_sampler = sampler, batch_sampler

    @property
    def multiprocessing_context(self) -> Any:
        """How worker processes are started."""
        return self.context

    @multiprocessing_context.setter
    def multiprocessing_context(self, value: Any) -> None:
        self.context = value

    def check_worker_number_rationality(self) -> None:
        """Warn if there are more workers than this machine has cores."""
        cores = os.cpu_count() or 1
        if self.num_workers > cores:
            warnings.warn(
                f"This DataLoader will create {self.num_workers} worker processes in "
                f"total. Our suggested max number of worker in current system is "
                f"{cores}",
                stacklevel=2,
            )

    def __len__(self) -> int:
        if self.batch_sampler is not None:
            return sized(self.batch_sampler, "DataLoader")
        if self.sampler is not None:
            return sized(self.sampler, "DataLoader")
        samples = sized(self.dataset, "DataLoader")
        return batches(samples, self.batch_size or 1, self.drop_last)

    # -- its position

    def state_dict(self) -> dict[str, int]:
        """The seed, the epoch, and how many of its batches were handed out.

        These are the batches of all processes, if a ``DistributedSampler`` shares them.

        >>> loader = weft.utils.data.DataLoader(range(3), seed=7)
        >>> _ = next(iter(loader))
        >>> loader.state_dict()
        {'seed': 7, 'epoch': 0, 'position': 1}
        """
        held = [self.batch_sampler, self.sampler]
        held.append(getattr(self.batch_sampler, "sampler", None))
        if any(isinstance(s, Sampler) and s.generator is not None for s in held):
            raise ArgumentError(
                "DataLoader.state_dict: the sampler draws from a generator of its own, "
                "whose state three integers cannot hold; give the generator (or a "
                "seed) to the loader instead"
            )
        position = self.position * self._replicas + self._ahead.get(self.epoch, 0)
        return {"seed": self.seed, "epoch": self.epoch, "position": position}

    @property
    def _shares(self) -> DistributedSampler | None:
        """The sampler that shares batches out to processes, if there is one."""
        held = [self.sampler, getattr(self.batch_sampler, "sampler", None)]
        found = [s for s in held if isinstance(s, DistributedSampler)]
        return found[0] if found else None

    @property
    def _replicas(self) -> int:
        """How many processes share the batches of an epoch."""
        return 1 if self._shares is None else self._shares.num_replicas

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Go on at the batch after the last one that was handed out.

        >>> loader = weft.utils.data.DataLoader(range(3))
        >>> loader.load_state_dict({"seed": 7, "epoch": 0, "position": 1})
        >>> [batch.item() for batch in loader]
        [1, 2]
        """
        names = {"seed", "epoch", "position"}
        if set(state_dict) != names:
            raise ArgumentError(
                f"DataLoader.load_state_dict: expected {sorted(names)}, got "
                f"{sorted(state_dict)}"
            )
        for name in ("epoch", "position"):
            _check_number(name, state_dict[name], 0)
        position, rest = divmod(int(state_dict["position"]), self._replicas)
        size = 1  # samples of a batch
        if self.batch_sampler is not None:
            size = getattr(self.batch_sampler, "batch_size", 0)
        if rest and not size:
            raise ArgumentError(
                f"DataLoader.load_state_dict: {state_dict['position']} batches are no "
                f"whole number of steps of {self._replicas} processes, and the batch "
                "sampler has no batch_size that tells how many samples they are"
            )
        self.close()
        self.seed = int(state_dict["seed"])
        self.epoch = int(state_dict["epoch"])
        self.position = position
        self._ahead = {self.epoch: rest}
        if self._shares is not None:
            self._shares.skip(self.epoch, rest * size)
        self._begun = False

    # -- passes

    def __iter__(self) -> Iterator[Any]:
        if self._begun:
            self.epoch, self.position = self.epoch + 1, 0
        self._begun = True
        workers = bool(self.num_workers)
        kind = MultiProcessingDataLoaderIter if workers else SingleProcessDataLoaderIter
        made = kind(self, self.epoch, self.position)
        self._passes.add(made)
        return made

    def _requests(self, epoch: int, position: int) -> Iterator[Request]:
        """The requests from a position on."""
        if isinstance(self.dataset, IterableDataset):
            for number in itertools.count():
                yield Request(number, wanted=number >= position)
        order: Any = self.sampler if self.batch_sampler is None else self.batch_sampler
        if isinstance(order, Sampler):
            order.set_epoch(epoch)
        first = 0
        for number, indices in enumerate(_drawn(order, key(self.seed, epoch, ORDER))):
            if number >= position:
                yield Request(number, first, indices)
            first += 1 if self.batch_sampler is None else len(indices)

    def _recipe(self) -> Recipe:
        batched = self.batch_sampler is not None or self.batch_size is not None
        return Recipe(
            self.dataset, self.collate_fn, self.batch_size, self.drop_last, batched,
            self.seed,
        )  # fmt: skip

    def _batches(self, epoch: int, position: int) -> Iterator[Any]:
        requests = self._requests(epoch, position)
        if not self.num_workers:
            return _fetched(self._recipe(), epoch, requests)
        return self._from_workers(epoch, requests)

    def _from_workers(self, epoch: int, requests: Iterator[Request]) -> Iterator[Any]:
        pool = self._pool
        if pool is None or not pool.close.alive:
            pool = Pool(
                self._recipe(), self.num_workers,
                context=self.context, worker_init_fn=self.worker_init_fn,
            )  # fmt: skip
        self._pool = pool if self.persistent_workers else None
        try:
            pool.start(epoch, self.timeout)
            yield from pool.run(requests, self.prefetch_factor or 2, self.timeout)
        except GeneratorExit:  # left between two batches: the workers are in order
            if not self.persistent_workers:
                pool.close()
            raise
        except BaseException:
            pool.close()
            raise
        if not self.persistent_workers:
            pool.close()

    # -- the end

    def close(self) -> None:
        """End all workers, and the passes that use them.

        >>> weft.utils.data.DataLoader(range(3)).close()
        """
        for made in list(self._passes):
            made.close()
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


class BaseDataLoaderIter:
    """One pass over a loader, which it tells how far it has come."""

    def __init__(self, loader: DataLoader, epoch: int, position: int) -> None:
        self.loader, self.epoch, self.position = loader, epoch, position
        self.batches = loader._batches(epoch, position)
        if loader.persistent_workers:
            for other in list(loader._passes):
                other.retire()

    def __iter__(self) -> BaseDataLoaderIter:
        return self

    def __next__(self) -> Any:
        try:
            batch = next(self.batches)
        except StopIteration:
            self._tell(self.epoch + 1, 0, begun=False)
            raise
        self.position += 1
        self._tell(self.epoch, self.position, begun=True)
        return batch

    def __len__(self) -> int:
        return len(self.loader)

    def _tell(self, epoch: int, position: int, *, begun: bool) -> None:
        loader = self.loader
        if loader.epoch == self.epoch and loader._begun:  # it is still the last one
            loader.epoch, loader.position, loader._begun = epoch, position, begun

    def close(self) -> None:
        """Give up the rest."""
        self.batches.close()  # type: ignore[attr-defined]

    def retire(self) -> None:
        """Leave the persistent workers to a newer pass."""
        self.close()
        self.batches = _retired()


class SingleProcessDataLoaderIter(BaseDataLoaderIter):
    """A pass whose batches are made in this process."""


class MultiProcessingDataLoaderIter(BaseDataLoaderIter):
    """A pass whose batches workers make."""

    def _shutdown_workers(self) -> None:
        """End the workers, under the name that packages call."""
        self.loader.close()


def _retired() -> Iterator[Any]:
    raise WorkerError(
        "DataLoader: a newer pass has taken over the persistent workers; finish one "
        "pass before the next, or pass persistent_workers=False"
    )
    yield


def _fetched(recipe: Recipe, epoch: int, requests: Iterator[Request]) -> Iterator[Any]:
    """Batches made in this process."""
    fetcher = recipe.fetcher(epoch)
    for request in requests:
        batch = fetcher.fetch(request)
        if batch is End:
            return
        if request.wanted:
            yield batch


def _drawn(order: Iterable[Any], seed: int) -> Iterator[Any]:
    """An order, with the default generator lent to it whenever it is asked."""
    draws = Draws(seed)
    with draws:
        items = iter(order)
    while True:
        with draws:
            try:
                item = next(items)
            except StopIteration:
                return
        yield item


def _seed(seed: int | None, generator: Generator | None) -> int:
    if seed is None:
        return int(randint(2**63 - 1, (), generator=generator).item())
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        kind = type(seed).__name__
        raise DTypeError(f"DataLoader: expected seed to be an int, got {kind}")
    return int(seed)


def _check_number(name: str, value: Any, least: int) -> None:
    whole = name != "timeout"
    kinds: Any = (int, np.integer) if whole else (int, float, np.number)
    if isinstance(value, bool) or not isinstance(value, kinds):
        want = "an int" if whole else "a number"
        raise DTypeError(
            f"DataLoader: expected {name} to be {want}, got {type(value).__name__}"
        )
    if value < least:
        raise ArgumentError(
            f"DataLoader: expected {name} of at least {least}, got {value}"
        )


def _check_order(
    batch_size: Any, shuffle: bool, sampler: Any, batch_sampler: Any, drop_last: bool
) -> None:
    if sampler is not None and shuffle:
        raise ArgumentError("DataLoader: expected either a sampler or shuffle=True")
    if batch_sampler is not None and (
        batch_size != 1 or shuffle or sampler is not None or drop_last
    ):
        raise ArgumentError(
            "DataLoader: a batch_sampler decides batch_size, shuffle, sampler and "
            "drop_last; expected none of them beside it"
        )
    if batch_size is None and drop_last:
        raise ArgumentError("DataLoader: drop_last needs a batch_size")
