"""The choice of what to keep that fits a budget and takes the least time more.

A run is a sequence of segments (``segments``). When backward is in one of them, memory
holds all values kept before it, and those that the segment itself needs:

    kept(0 … k - 1)  +  transient(k)  ≤  budget      for every segment k

Values that were kept later have been freed by then. So the best choice up to a position
depends on the bytes kept so far alone, and dynamic programming over positions and bytes
finds it:

    best[position, kept] = least seconds
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from weft.compile.recompute.segments import Run, Segment
from weft.graph.ir import Node

LEVELS = 1024  # numbers of bytes that are distinguished


class Choice(NamedTuple):
    """The values that are recomputed, and how long that takes."""

    dropped: frozenset[Node]  # values, and the nodes that lead to them
    seconds: float


class Planner:
    """Choices for one run."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def most(self) -> int:
        """The bytes with which everything can be kept."""
        run = self.run
        segments = [run.keeping(k) for k in range(len(run.at))]
        kept = np.cumsum([0, *[s.nbytes for s in segments]])
        transient = np.array([*[s.transient for s in segments], 0])
        return int(max((kept + transient).max(), run.rest.max()))

    @cached_property
    def segments(self) -> list[list[Segment]]:
        """The segments by the position at which they end."""
        run = self.run
        ending: list[list[Segment]] = [[] for _ in range(len(run.at) + 1)]
        for k in range(len(run.at)):
            ending[k + 1].append(run.keeping(k))
        for end in run.cuts[1:]:
            ending[end] += run.computing(end, self.most)
        return ending

    def best(self, budget: int) -> Choice | None:
        """The choice of least time within a budget; None if there is none."""
        row = self._row(budget)
        if row is None:
            return None
        kept = frozenset[Node]().union(*[s.kept for s in row])
        return self.choice(kept)

    @cached_property
    def least(self) -> int:
        """About the smallest budget for which there is a choice."""
        low, high = 0, self.most
        while high - low > self.most // 256:
            middle = (low + high) // 2
            if self._row(middle) is None:
                low = middle
            else:
                high = middle
        return high

    def choice(self, kept: frozenset[Node]) -> Choice:
        """The choice in which just these values are kept."""
        values = self.run.values
        dropped: set[Node] = set()
        waiting = [v.node for v in values.values() if v.first >= 0]
        while waiting:
            node = waiting.pop()
            if node not in kept and node not in dropped:
                dropped.add(node)
                waiting += values[node].needs
        nodes = {n for node in dropped for n in values[node].nodes}
        return Choice(frozenset(nodes), sum(values[n].seconds for n in dropped))

    def _row(self, budget: int) -> list[Segment] | None:
        """The segments of the best choice, in order; None if there is no choice."""
        if budget < int(self.run.rest.max()):
            return None
        unit = max(budget, 1) / (LEVELS - 1)
        levels = np.arange(LEVELS) * unit
        count = len(self.run.at)
        best = np.full((count + 1, LEVELS), np.inf)
        best[0, 0] = 0.0
        origin: list[dict[int, Segment]] = [{} for _ in range(count + 1)]
        which = np.full((count + 1, LEVELS), -1, np.int64)
        for end in range(1, count + 1):
            for at, one in enumerate(self.segments[end]):
                shift = round(one.nbytes / unit)
                fits = int(np.searchsorted(levels, budget - one.transient, "right"))
                fits = min(fits, LEVELS - shift)
                if fits <= 0:
                    continue
                time = best[one.begin, :fits] + one.seconds
                better = time < best[end, shift : shift + fits]
                if better.any():
                    best[end, shift : shift + fits][better] = time[better]
                    which[end, shift : shift + fits][better] = at
                    origin[end][at] = one
        if not np.isfinite(best[count]).any():
            return None
        return self._traced(origin, which, int(best[count].argmin()), unit)

    def _traced(
        self, origin: list[dict[int, Segment]], which: np.ndarray, level: int,
        unit: float,
    ) -> list[Segment]:  # fmt: skip
        segments: list[Segment] = []
        end = len(origin) - 1
        while end:
            one = origin[end][int(which[end, level])]
            segments.append(one)
            level -= round(one.nbytes / unit)
            end = one.begin
        return segments[::-1]


def square_root(run: Run) -> Iterable[int]:
    """Cuts for which the values that cross take about as much as a segment.

    With values of b bytes crossing and B in all, s segments take s b + B / s bytes.
    """
    computed = np.cumsum([0, *[sum(v.nbytes for v in some) for some in run.at]])
    widths = np.array([run.bytes_of(c) for c in run.crossing])
    inner = widths[1:-1]
    if not len(inner) or not computed[-1]:
        return []
    narrow = np.sort(inner[inner > 0])[: max(len(inner) // 4, 1)]
    width = float(np.median(narrow)) if len(narrow) else 1.0
    count = max(1, round((computed[-1] / width) ** 0.5))
    cuts = []
    for k in range(1, count):
        goal = computed[-1] * k / count
        near = np.flatnonzero(np.abs(computed - goal) <= computed[-1] / (3 * count))
        near = near[(near > 0) & (near < len(run.at))]
        if len(near):
            cuts.append(int(near[np.argmin(widths[near])]))
    return sorted(set(cuts))
