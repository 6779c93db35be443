"""Executables with memory, as the native loop reads them.

Where an executable has numbers of functions, slots and words, the tables have
addresses. The bodies of loops and branches have tables of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft.compile.targets.cpu.driver import FIELDS, driver
from weft.compile.targets.cpu.executable import (
    FILL,
    GANG,
    ITERATIONS,
    JOBS,
    NOWHERE,
    Executable,
    Jobs,
    Symbol,
)
from weft.runtime.cpu import pool
from weft.runtime.cpu.address import address, aligned_memory

ndarray = np.ndarray


class Workspaces:
    """Memory that each thread of the pool has for itself, and the jobs that use it."""

    def __init__(self, jobs: Jobs, contexts: ndarray, data: ndarray) -> None:
        self.words = jobs.words.copy()
        self.places = jobs.pointers.copy()  # addresses, slots, bytes behind them
        self.places[:, 0] = address(self.words) + 8 * self.places[:, 0]
        self.at, self.each = jobs.workspaces, jobs.each
        if len(jobs.contexts):
            words, numbers = jobs.contexts.T
            self.words[words] = address(contexts) + 8 * contexts.shape[1] * numbers
            self.words[words - 1] = driver().epilogue
        if len(jobs.tables):
            words, offsets = jobs.tables.T
            self.words[words] = address(data) + offsets
        self.data = data
        self._allocate()

    def lead_to(self, jobs: Jobs, nested: Sequence[Tables], numbers: int) -> None:
        """Give jobs the addresses of nested programs, and of their error flags."""
        self.nested = nested
        for one, (slots, gangs, sizes, *_) in zip(
            nested, jobs.nested.tolist(), strict=True
        ):
            self.words[slots] = address(one.addresses)
            self.words[gangs] = one.gangs_at
            self.words[sizes] = address(one.numbers)
        words, flags = jobs.flags.T
        self.words[words] = numbers + 8 * flags

    def _allocate(self) -> None:
        self.threads = pool.get_num_threads()
        self.memory, start = aligned_memory(self.threads * self.each)
        self.words[self.at] = start
        self.words[self.at + 1] = self.each

    def check(self) -> None:
        """Allocate workspaces anew, if the number of threads has changed."""
        if pool.get_num_threads() != self.threads:
            self._allocate()
        for one in self.nested:
            one.jobs.check()


class Tables:
    """The tables of an executable, whose arena begins at an address.

    ``address_of`` gives the addresses of functions.
    """

    def __init__(
        self,
        executable: Executable,
        address_of: Callable[[Symbol], int],
        arena_at: int,
    ) -> None:
        self.executable = executable
        self.functions = np.array(list(map(address_of, executable.functions)), np.int64)
        self.addresses = np.zeros(executable.slots, np.int64)
        slots, offsets = executable.offsets.T
        self.addresses[slots] = arena_at + offsets
        self.constants: list[ndarray] = []  # which the addresses are of
        for slot, _, value in executable.constants:
            self.constants.append(value if slot == NOWHERE else in_order(value))
            if slot != NOWHERE:
                self.addresses[slot] = address(self.constants[-1])
        places = executable.jobs.nested[:, 3:].tolist()
        self.nested = [
            Tables(one, address_of, int(self.addresses[slot]) + offset)
            for one, (slot, offset) in zip(executable.nested, places, strict=True)
        ]
        self._link()

    def _link(self) -> None:
        """Put addresses where the executable has numbers."""
        executable, functions = self.executable, self.functions
        self.table = np.zeros(len(executable.buffer_slots), np.int64)
        self.numbers, self.flags = executable.numbers.copy(), executable.flags.tolist()
        self.words = self.numbers.data  # read one by one
        table, numbers = address(self.table), address(self.numbers)
        self.contexts = executable.contexts.copy()
        if len(self.contexts):
            self.contexts[:, 0] = functions[self.contexts[:, 0]]
            self.contexts[:, 1] = table + 8 * self.contexts[:, 1]
            self.contexts[:, 2] = numbers + 8 * self.contexts[:, 2]
        self.jobs = Workspaces(executable.jobs, self.contexts, executable.data.copy())
        self.jobs.lead_to(executable.jobs, self.nested, numbers)
        places = table + 8 * np.arange(len(executable.buffer_slots))
        mine = np.column_stack(
            [places, executable.buffer_slots, executable.buffer_offsets]
        )
        self.filled = np.concatenate([mine, self.jobs.places])
        self.rows, self.gangs = executable.rows.copy(), executable.gangs.copy()
        kinds = driver()
        self.native = kinds.run
        bodies = [kinds.iterations, kinds.jobs, kinds.gang, kinds.fill]
        starts = {
            ITERATIONS: (table, 8), JOBS: (address(self.jobs.words), 8),
            GANG: (address(self.rows), 8 * FIELDS), FILL: (address(self.filled), 0),
        }  # fmt: skip
        for rows in (self.rows, self.gangs):
            kind = rows[:, 6].copy()
            launch = (kind == ITERATIONS) | (kind == JOBS)
            if len(functions):
                rows[launch, 1] = functions[rows[launch, 1]]
            rows[kind == FILL, 1] = address(self.addresses)
            for one, (start, width) in starts.items():
                rows[kind == one, 2] = start + width * rows[kind == one, 2]
            mine = kind == ITERATIONS
            rows[mine, 3] = numbers + 8 * rows[mine, 3]
            rows[:, 6] = np.array(bodies, np.int64)[kind]
        self.gangs_at = address(self.gangs)


def in_order(array: ndarray) -> ndarray:
    """The array itself if it is row-major, else a copy that is (0-d stays 0-d)."""
    return array if array.flags.c_contiguous else array.copy(order="C")
