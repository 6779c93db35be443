"""The choice of what to keep that fits a budget and takes the least time more.

A run is a row of stretches (``segments``). When backward is in one of them, in memory
are all values kept before it, and what it needs for itself:

    kept(0 … k - 1)  +  transient(k)  ≤  budget      for every stretch k

What was kept later is gone by then. So the best choice up to a place depends on the
bytes kept so far alone, and dynamic programming over places and bytes finds it:

    best[place, kept] = least seconds
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from weft.compile.recompute.segments import Run, Stretch
from weft.graph.ir import Node

LEVELS = 1024  # numbers of bytes that are told apart


class Choice(NamedTuple):
    """What is computed again, and how long that takes."""

    dropped: frozenset[Node]  # values, and what lies on the way to them
    seconds: float


class Planner:
    """Choices for one run."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def most(self) -> int:
        """Bytes with which everything can be kept."""
        run = self.run
        stretches = [run.keeping(k) for k in range(len(run.at))]
        kept = np.cumsum([0, *[s.nbytes for s in stretches]])
        room = np.array([*[s.transient for s in stretches], 0])
        return int(max((kept + room).max(), run.rest.max()))

    @cached_property
    def stretches(self) -> list[list[Stretch]]:
        """By the place where they end."""
        run = self.run
        found: list[list[Stretch]] = [[] for _ in range(len(run.at) + 1)]
        for k in range(len(run.at)):
            found[k + 1].append(run.keeping(k))
        for end in run.cuts[1:]:
            found[end] += run.computing(end, self.most)
        return found

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
        """What keeping just some values means."""
        values = self.run.values
        again: set[Node] = set()
        waiting = [v.node for v in values.values() if v.first >= 0]
        while waiting:
            node = waiting.pop()
            if node not in kept and node not in again:
                again.add(node)
                waiting += values[node].needs
        ways = {n for node in again for n in values[node].nodes}
        return Choice(frozenset(ways), sum(values[n].seconds for n in again))

    def _row(self, budget: int) -> list[Stretch] | None:
        """The stretches of the best choice, in order."""
        if budget < int(self.run.rest.max()):
            return None
        unit = max(budget, 1) / (LEVELS - 1)
        levels = np.arange(LEVELS) * unit
        count = len(self.run.at)
        best = np.full((count + 1, LEVELS), np.inf)
        best[0, 0] = 0.0
        origin: list[dict[int, Stretch]] = [{} for _ in range(count + 1)]
        which = np.full((count + 1, LEVELS), -1, np.int64)
        for end in range(1, count + 1):
            for at, one in enumerate(self.stretches[end]):
                shift = round(one.nbytes / unit)
                room = int(np.searchsorted(levels, budget - one.transient, "right"))
                room = min(room, LEVELS - shift)
                if room <= 0:
                    continue
                time = best[one.begin, :room] + one.seconds
                better = time < best[end, shift : shift + room]
                if better.any():
                    best[end, shift : shift + room][better] = time[better]
                    which[end, shift : shift + room][better] = at
                    origin[end][at] = one
        if not np.isfinite(best[count]).any():
            return None
        return self._traced(origin, which, int(best[count].argmin()), unit)

    def _traced(
        self, origin: list[dict[int, Stretch]], which: np.ndarray, level: int,
        unit: float,
    ) -> list[Stretch]:  # fmt: skip
        found: list[Stretch] = []
        end = len(origin) - 1
        while end:
            one = origin[end][int(which[end, level])]
            found.append(one)
            level -= round(one.nbytes / unit)
            end = one.begin
        return found[::-1]


def square_root(run: Run) -> Iterable[int]:
    """Cuts after which about as much is kept as a stretch needs: a square root.

    With values of b bytes crossing and B in all, s stretches take s b + B / s bytes.
    """
    made = np.cumsum([0, *[sum(v.nbytes for v in some) for some in run.at]])
    widths = np.array([run.bytes_of(c) for c in run.crossing])
    inner = widths[1:-1]
    if not len(inner) or not made[-1]:
        return []
    narrow = np.sort(inner[inner > 0])[: max(len(inner) // 4, 1)]
    width = float(np.median(narrow)) if len(narrow) else 1.0
    count = max(1, round((made[-1] / width) ** 0.5))
    found = []
    for k in range(1, count):
        goal = made[-1] * k / count
        near = np.flatnonzero(np.abs(made - goal) <= made[-1] / (3 * count))
        near = near[(near > 0) & (near < len(run.at))]
        if len(near):
            found.append(int(near[np.argmin(widths[near])]))
    return sorted(set(found))
