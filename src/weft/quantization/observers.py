"""Observers: the range of numbers that a layer gets, from batches of them.

minmax       the smallest and the largest
percentile   what all but a few lie between
entropy      the range whose rounded numbers tell least about themselves apart
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.errors import ArgumentError

BINS = 2048
_LEVELS = 128  # of each sign
_STEP = 16  # bins between the ranges that ``Entropy`` tries
_KEPT = 0.999  # of the numbers, in each of them


class MinMax:
    """The range from the smallest number to the largest.

    >>> observer = weft.quantization.MinMax()
    >>> observer.observe(np.array([-1.0, 3.0]))
    >>> observer.range()
    (-1.0, 3.0)
    """

    def __init__(self) -> None:
        self.low, self.high = np.inf, -np.inf

    def observe(self, array: np.ndarray) -> None:
        """Take the numbers of a batch into account."""
        if array.size:
            self.low = min(self.low, float(array.min()))
            self.high = max(self.high, float(array.max()))

    @property
    def seen(self) -> bool:
        """Whether there were any numbers."""
        return self.low <= self.high

    def range(self) -> tuple[float, float]:
        """The smallest and the largest number to be told apart."""
        return self.low, self.high


class _Histogram(MinMax):
    """Counts of numbers other than 0, whose range grows as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = np.zeros(BINS)
        self.span = (0.0, 0.0)

    def observe(self, array: np.ndarray) -> None:
        before = self.low, self.high
        super().observe(array)
        if not self.seen:
            return
        if (self.low, self.high) != before:
            self._widen()
        some = array[array != 0]  # zero is exact whatever the range
        self.counts += np.histogram(some, BINS, self.span)[0]

    def _widen(self) -> None:
        """Count what was counted again, at the middle of each bin."""
        centres = self._edges()[:-1] + (self.span[1] - self.span[0]) / (2 * BINS)
        self.span = min(self.low, 0.0), max(self.high, 0.0)
        if self.span[0] == self.span[1]:
            self.span = 0.0, 1.0
        if self.counts.any():
            self.counts = np.histogram(centres, BINS, self.span, weights=self.counts)[0]

    def _edges(self) -> np.ndarray:
        return np.linspace(*self.span, BINS + 1)


class Percentile(_Histogram):
    """The range that a percentage of the numbers other than 0 lies in.

    >>> observer = weft.quantization.Percentile(90.0)
    >>> observer.observe(np.arange(1000.0))
    >>> low, high = observer.range()
    >>> low < 60 and 940 < high < 960
    True
    """

    def __init__(self, percentage: float = 99.99) -> None:
        super().__init__()
        if not 0 < percentage <= 100:
            raise ArgumentError(
                f"Percentile: expected a percentage above 0 and up to 100, got "
                f"{percentage}"
            )
        self.percentage = percentage

    def range(self) -> tuple[float, float]:
        total = self.counts.cumsum()
        if not total[-1]:
            return self.low, self.high
        tail = total[-1] * (100 - self.percentage) / 200
        edges = self._edges()
        first = np.searchsorted(total, tail, side="right")
        last = np.searchsorted(total, total[-1] - tail)
        low = max(self.low, float(edges[min(first, BINS - 1)]))
        return low, min(self.high, float(edges[min(last, BINS - 1) + 1]))


class Entropy(_Histogram):
    """The range that loses least information, by Kullback and Leibler's divergence.

    Ranges from -t to t are tried: numbers beyond are counted at its ends, and those
    within in 128 steps. Ranges that more than one in a thousand is beyond are not: the
    divergence of numbers that are mostly one value tells nothing of the others.

    >>> observer = weft.quantization.Entropy()
    >>> observer.observe(np.random.default_rng(0).normal(size=100_000))
    >>> low, high = observer.range()
    >>> -4.5 < low < -2 and 2 < high < 4.5
    True
    """

    def range(self) -> tuple[float, float]:
        edges = self._edges()
        centres = (edges[:-1] + edges[1:]) / 2
        most = max(-self.span[0], self.span[1])
        sizes = np.histogram(abs(centres), BINS, (0, most), weights=self.counts)[0]
        if not sizes.any():
            return self.low, self.high
        kept = sizes.cumsum() >= _KEPT * sizes.sum()
        tried = [n for n in range(_LEVELS, BINS + 1, _STEP) if kept[n - 1]]
        best = min(tried, key=lambda bins: _divergence(sizes, bins))
        limit = best / BINS * most
        return max(self.low, -limit), min(self.high, limit)


def _divergence(sizes: np.ndarray, bins: int) -> float:
    """How far counts that are cut and rounded are from counts that are cut."""
    inside = sizes[:bins]
    truth = inside.copy()
    truth[-1] += sizes[bins:].sum()
    if not inside.any():
        return np.inf
    level = np.arange(bins) * _LEVELS // bins
    there = truth > 0
    counts = np.bincount(level, inside, _LEVELS)
    shared = np.bincount(level, there, _LEVELS)
    spread = np.where(there, (counts / np.maximum(shared, 1))[level], 0)
    p, q = truth / truth.sum(), spread / spread.sum()
    lost = there & (q == 0)
    q = np.where(lost, 1e-12, q)
    return float((p[there] * np.log(p[there] / q[there])).sum())


OBSERVERS: dict[str, type[MinMax]] = {
    "minmax": MinMax, "percentile": Percentile, "entropy": Entropy,
}  # fmt: skip


def observer_factory(observer: Any) -> Any:
    """A function that makes an observer, from its name or its class.

    >>> from weft.quantization.observers import observer_factory
    >>> observer_factory("minmax")().seen
    False
    """
    if isinstance(observer, str) and observer in OBSERVERS:
        return OBSERVERS[observer]
    if callable(observer):
        return observer
    raise ArgumentError(
        f"quantize: expected observer to be one of {', '.join(map(repr, OBSERVERS))}, "
        f"or a function that makes one, got {observer!r}"
    )
