"""Samplers: the order of samples, as iterables of indices or of batches.

Random samplers draw from their own generator, or else from Weft's default one. A
``DataLoader`` lends them, for each epoch, the default generator in a state that
only its seed and the epoch's number decide.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from types import GenericAlias
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.errors import ArgumentError, DTypeError
from weft.ops.random import Generator, rand, randint, randperm
from weft.utils.data.dataset import sized

_BLOCK = 4096  # how many indices are drawn at once


class Sampler:
    """An order of samples: subclasses give ``__iter__`` and ``__len__``.

    A loader calls ``set_epoch`` before it iterates.

    >>> class Backwards(weft.utils.data.Sampler):
    ...     def __iter__(self):
    ...         return iter([2, 1, 0])
    >>> loader = weft.utils.data.DataLoader("abc", batch_size=3, sampler=Backwards())
    >>> list(loader)
    [['c', 'b', 'a']]
    """

    __class_getitem__: Any = classmethod(GenericAlias)  # ``Sampler[int]`` is a type

    generator: Generator | None = None

    def set_epoch(self, epoch: int) -> None:
        """Learn the number of the epoch that starts."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")


class SequentialSampler(Sampler):
    """All indices in order.

    >>> list(weft.utils.data.SequentialSampler("abc"))
    [0, 1, 2]
    """

    def __init__(self, data_source: Any) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __len__(self) -> int:
        return sized(self.data_source, "SequentialSampler")


class RandomSampler(Sampler):
    """All indices in random order, or draws with replacement.

    More samples than there are mean further passes, each in an order of its own.

    >>> sorted(weft.utils.data.RandomSampler("abc"))
    [0, 1, 2]
    """

    def __init__(
        self,
        data_source: Any,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        if num_samples is not None:
            _check_count("RandomSampler", "num_samples", num_samples)
        self.data_source = data_source
        self.replacement = replacement
        self.generator = generator
        self._num_samples = num_samples

    @property
    def num_samples(self) -> int:
        """The number of indices of one pass."""
        if self._num_samples is None:
            return sized(self.data_source, "RandomSampler")
        return self._num_samples

    def __iter__(self) -> Iterator[int]:
        size = sized(self.data_source, "RandomSampler")
        if not size:
            return iter(())
        endless = self._draws(size) if self.replacement else self._passes(size)
        return itertools.islice(endless, self.num_samples)

    def _passes(self, size: int) -> Iterator[int]:
        while True:
            yield from randperm(size, generator=self.generator).tolist()

    def _draws(self, size: int) -> Iterator[int]:
        while True:
            yield from randint(size, (_BLOCK,), generator=self.generator).tolist()

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """Some indices in random order.

    >>> sorted(weft.utils.data.SubsetRandomSampler([7, 2]))
    [2, 7]
    """

    def __init__(
        self, indices: Sequence[int], generator: Generator | None = None
    ) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for position in randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[position]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Indices drawn with probabilities in proportion to weights.

    >>> list(weft.utils.data.WeightedRandomSampler([0.0, 1.0], 3))
    [1, 1, 1]
    """

    def __init__(
        self,
        weights: Any,
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        _check_count("WeightedRandomSampler", "num_samples", num_samples)
        self.weights = np.asarray(weights, np.float64)
        _check_weights(self.weights, None if replacement else num_samples)
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        count = self.num_samples if self.replacement else len(self.weights)
        draw = rand(count, generator=self.generator, dtype=dtypes.float64).array()
        if self.replacement:
            edges = np.cumsum(self.weights)
            found = np.searchsorted(edges, draw * edges[-1], side="right")
            last = np.flatnonzero(self.weights)[-1]  # rounding may reach the end
            return iter(np.minimum(found, last).tolist())
        # The largest of log(u) / w are a draw without replacement.
        with np.errstate(divide="ignore", invalid="ignore"):
            keys = np.where(self.weights > 0, np.log1p(-draw) / self.weights, -np.inf)
        order = np.argsort(-keys, kind="stable")
        return iter(order[: self.num_samples].tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """Another sampler's indices in batches.

    >>> list(weft.utils.data.BatchSampler(range(5), 2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self, sampler: Iterable[Any], batch_size: int, drop_last: bool
    ) -> None:
        _check_count("BatchSampler", "batch_size", batch_size)
        self.sampler: Any = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def set_epoch(self, epoch: int) -> None:
        """Tell the sampler inside."""
        if isinstance(self.sampler, Sampler):
            self.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[list[Any]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        return batches(sized(self.sampler, "BatchSampler"), self.batch_size,
                       self.drop_last)  # fmt: skip


def batches(samples: int, batch_size: int, drop_last: bool) -> int:
    """The number of batches of some samples."""
    return samples // batch_size if drop_last else -(-samples // batch_size)


def _check_count(who: str, name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise DTypeError(
            f"{who}: expected {name} to be an int, got {type(value).__name__}"
        )
    if value < 1:
        raise ArgumentError(f"{who}: expected {name} of at least 1, got {value}")


def _check_weights(weights: np.ndarray, distinct: int | None) -> None:
    fit = weights.ndim == 1 and np.isfinite(weights).all() and (weights >= 0).all()
    if not fit or not weights.sum() > 0:
        raise ArgumentError(
            "WeightedRandomSampler: expected a list of finite weights of at least 0, "
            f"not all 0, got shape {weights.shape}"
        )
    possible = int((weights > 0).sum())
    if distinct is not None and distinct > possible:
        raise ArgumentError(
            f"WeightedRandomSampler: cannot draw {distinct} different samples from "
            f"{possible} with positive weight; pass replacement=True"
        )
