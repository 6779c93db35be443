"""The search for choices that are faster than the default ones, by measuring.

The default is always measured too, and stays unless another choice is faster by more
than ``MARGIN`` at its best, and faster in most of the rounds in which both run in
turns: a choice is never slower than the default.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft.compile.program.program import Program
from weft.compile.tuning.choices import Measured, table
from weft.compile.tuning.subjects import Subject, subjects
from weft.compile.tuning.trials import Sizes, Trial
from weft.errors import WeftError
from weft.runtime.cpu import pool

SECONDS = 30.0  # that a search takes at most
MARGIN = 0.05  # by which a choice must be faster than the default: noise is less
SHORT = 5e-6  # seconds: kernels that take less are left alone
SHARE = 0.005  # of a program's time that a kernel must take
LEAST = 0.001  # seconds that one timing takes
ROUNDS = 5, 15  # while searching, and before the default is given up
MOST_ROUNDS = 0.8  # of the rounds, in which a choice must be faster
Measure = Callable[[Sequence[Callable[[], None]], int], list[list[float]]]
Clock = Callable[[], float]


class Tried(NamedTuple):
    """The choice for a kernel, and the seconds of one run by each that was tried."""

    name: str
    key: str
    runs: int
    default: Any
    choice: Any
    times: dict[str, float]
    stored: bool = False  # whether an earlier search has made it

    @property
    def before(self) -> float | None:
        """Seconds of a run with the default."""
        return self.times.get(text(self.default))

    @property
    def after(self) -> float | None:
        """Seconds of a run with the choice."""
        return self.times.get(text(self.choice))

    def __str__(self) -> str:
        if self.choice == self.default:
            return f"{self.name}: as by default"
        speed = (self.before or 0.0) / (self.after or 1.0)
        return f"{self.name}: {text(self.choice)}, {speed:.2f} times as fast"


class Tuned(NamedTuple):
    """The result of a search."""

    tried: list[Tried]
    seconds: float
    left: int  # kernels that there was no time for

    @property
    def changed(self) -> list[Tried]:
        """The kernels for which the default was not the best."""
        return [one for one in self.tried if one.choice != one.default]

    def __str__(self) -> str:
        found = f"{len(self.changed)} of {len(self.tried)} kernels cut otherwise"
        late = f", no time for {self.left}" if self.left else ""
        return f"{found}, {self.seconds:.1f} s{late}"


def text(choice: Any) -> str:
    """A choice in words: its numbers that are not the default's."""
    default = type(choice)()
    parts = zip(choice._fields, choice, default, strict=True)
    return ", ".join(f"{k}={n}" for k, n, usual in parts if n != usual) or "default"


def measure(runs: Sequence[Callable[[], None]], rounds: int) -> list[list[float]]:
    """Seconds of each run in some rounds, in turns."""
    numbers = []
    for run in runs:
        run()
        start = time.perf_counter()
        run()
        took = time.perf_counter() - start
        numbers.append(max(1, round(LEAST / max(took, 1e-7))))
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, number, taken in zip(runs, numbers, times, strict=True):
            start = time.perf_counter()
            for _ in range(number):
                run()
            taken.append((time.perf_counter() - start) / number)
    return times


class Search:
    """One search over the kernels of a program.

    ``measure`` and ``clock`` take the times; tests replace them.
    """

    def __init__(
        self,
        seconds: float = SECONDS,
        *,
        measure: Measure = measure,
        clock: Clock = time.monotonic,
        progress: Callable[[Sequence[Any]], Any] = list,
    ) -> None:
        self.limit = seconds
        self.measure, self.clock, self.progress = measure, clock, progress

    def run(self, program: Program, sizes: Sizes) -> Tuned:
        """Measure, and store the choices."""
        self.start = self.clock()
        everything = subjects(program, sizes)
        known = [one for one in everything if table().find(one.key) is not None]
        done = [_known(one) for one in known]
        spent = sum((one.after or 0.0) * one.runs for one in done)
        due = self._worthy([one for one in everything if one not in known], spent)
        tried = []
        for one in self.progress(due):
            if self._late():
                break
            tried.append(self._try(one))
        if tried:
            table().keep({t.key: Measured(tuple(t.choice), t.times) for t in tried})
            table().save()
        left = len(due) - len(tried)
        return Tuned([*tried, *done], self.clock() - self.start, left)

    def _late(self) -> bool:
        return self.clock() - self.start > self.limit

    def _worthy(self, kernels: list[Subject], spent: float) -> list[Subject]:
        """The kernels that take a share of the program's time, the longest first."""
        timed = []
        for one in kernels:
            trial = None if self._late() else _trial(one, one.default, one.memory())
            if trial is not None:
                took = min(self.measure([trial], 2)[0])
                timed.append((took * one.runs, took, one))
        total = spent + sum(took for took, _, _ in timed)
        timed.sort(key=lambda item: -item[0])
        return [s for all_, each, s in timed if each > SHORT and all_ > SHARE * total]

    def _try(self, one: Subject) -> Tried:
        """Vary one number after the other from the best so far."""
        memory = one.memory()
        first = _trial(one, one.default, memory)
        assert first is not None
        want = first.result()
        # On a busy machine one chunk may be best, which wastes cores on an idle one.
        chunks = min(2 * pool.get_num_threads(), first.chunks)
        trials: dict[Any, Trial] = {one.default: first}
        times: dict[Any, float] = {}
        best = one.default
        for axis in one.axes:
            near = [best, *[c for c in axis(best) if c not in times and c != best]]
            for choice in near[1:]:
                trial = None if self._late() else _trial(one, choice, memory)
                if trial is None or trial.chunks < chunks or trial.result() != want:
                    continue
                trials[choice] = trial
            some = [choice for choice in near if choice in trials]
            taken = self.measure([trials[choice] for choice in some], ROUNDS[0])
            times |= {choice: min(t) for choice, t in zip(some, taken, strict=True)}
            best = min(some, key=lambda choice: times[choice])
        if best != one.default:
            pair = [one.default, best]
            ends = self.measure([trials[choice] for choice in pair], ROUNDS[1])
            times |= {choice: min(t) for choice, t in zip(pair, ends, strict=True)}
            if not _faster(*ends):
                best = one.default
        named = {text(choice): took for choice, took in times.items()}
        return Tried(one.name, one.key, one.runs, one.default, best, named)


def _faster(before: list[float], after: list[float]) -> bool:
    """Whether a choice is surely faster, by times taken in turns."""
    rounds = [x < y for x, y in zip(after, before, strict=True)]
    often = sum(rounds) >= MOST_ROUNDS * len(rounds)
    return often and min(after) < (1 - MARGIN) * min(before)


def _trial(one: Subject, choice: Any, memory: Any) -> Trial | None:
    """A trial, or None if the choice is impossible."""
    try:
        return one.make(choice, memory)
    except (WeftError, MemoryError):
        return None


def _known(one: Subject) -> Tried:
    stored = table().find(one.key)
    assert stored is not None
    fits = len(stored.choice) == len(one.default)
    choice = type(one.default)(*stored.choice) if fits else one.default
    return Tried(one.name, one.key, one.runs, one.default, choice, stored.times, True)
