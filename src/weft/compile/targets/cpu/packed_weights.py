"""Weights that products find packed, for as long as they do not change.

A product packs its right operand in every run. Where that is a variable to which the
program gives no new value, it need be done only once, if it is known when the variable
changes otherwise: it has another *stamp* then. A variable with the same stamp in a
second run is packed; one with another stamp is not, until it stays. Packed
matrices are shared by all programs of this process that read the same variable.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.compile.targets.cpu.driver import driver
from weft.compile.targets.cpu.executable import Jobs
from weft.compile.targets.cpu.matmul.tasks import NAMES
from weft.runtime.cpu.address import address, aligned_memory

ndarray = np.ndarray
_B, _C, _READY = (NAMES.index(name) for name in ("b", "c", "packed"))
_SHAPE = [NAMES.index(name) for name in ("n", "k", "b_row", "b_col")]
Stamps = Callable[[int], Any]


class _Panels:
    """A packed matrix, in memory of its own; ``stamp`` says of which value."""

    def __init__(self, nbytes: int, stamp: Any) -> None:
        self.memory, self.address = aligned_memory(nbytes)
        self.stamp = stamp  # what a key's numbers are of lives as long


_shared: weakref.WeakValueDictionary[Any, _Panels] = weakref.WeakValueDictionary()


class Weight:
    """The right operand of one product of an executor."""

    def __init__(
        self, row: Sequence[int], place: tuple[int, int], functions: Sequence[int]
    ) -> None:
        self.word, self.variable, number, self.tasks, self.nbytes = row
        self.slot, self.offset = place  # of the variable's memory
        self.function = functions[number]
        self.stamp: Any = None
        self.panels: _Panels | None = None

    def renew(self, stamp: Any, words: ndarray, addresses: ndarray) -> None:
        """Give the product the panels for a stamp, or none."""
        if stamp is not None and stamp == self.stamp:
            if self.panels is None:
                self._pack(words, int(addresses[self.slot]) + self.offset)
        else:
            self.stamp, self.panels = stamp, None
            words[self.word + _READY] = 0

    def _pack(self, words: ndarray, start: int) -> None:
        job = words[self.word : self.word + len(NAMES)].copy()
        job[_B] = start
        storage, *numbers = self.stamp
        key = id(storage), *numbers, start, *job[_SHAPE].tolist(), self.function
        panels = _shared.get(key)
        if panels is None:
            panels = _shared[key] = _Panels(self.nbytes, self.stamp)
            job[_C] = panels.address
            row = [0, self.function, address(job), self.tasks, self.tasks, 1]
            launch = np.array([*row, driver().jobs, job.nbytes, 0], np.int64)
            driver().run(address(launch), 0, 1)
        self.panels = panels
        words[self.word + _READY] = panels.address


class Weights:
    """All such operands of an executor."""

    def __init__(self, jobs: Jobs, functions: Sequence[int]) -> None:
        packs = jobs.packs.tolist()
        wanted = {row[0] + _B for row in packs}
        places = {
            w: (s, offset) for w, s, offset in jobs.pointers.tolist() if w in wanted
        }
        self.all = [Weight(row, places[row[0] + _B], functions) for row in packs]
        self._seen: list[Any] = []  # the stamps for which all is as it will stay

    def renew(self, stamps: Stamps, words: ndarray, addresses: ndarray) -> None:
        """Look at all variables, whose memory is at these addresses, before a run."""
        now = [stamps(one.variable) for one in self.all]
        if now == self._seen:
            return
        for one, stamp in zip(self.all, now, strict=True):
            one.renew(stamp, words, addresses)
        done = all(one.panels is not None or one.stamp is None for one in self.all)
        self._seen = now if done else []
