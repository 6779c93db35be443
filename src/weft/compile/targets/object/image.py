"""Executables as words of memory, with the words that are addresses listed.

An ``Executable`` has numbers of functions and slots where an executor puts addresses.
An image is the same as the native loop reads it (see ``cpu.tables``), for memory that
is not known yet: each word that is an address holds an offset, and ``relocations`` say
of which words the addresses of what are added.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from weft.compile.targets.c.program import LEAST
from weft.compile.targets.cpu.driver import FIELDS
from weft.compile.targets.cpu.executable import (
    FILL,
    GANG,
    ITERATIONS,
    JOBS,
    NOWHERE,
    Executable,
    Symbol,
)
from weft.runtime.cpu.address import ALIGNMENT, round_up

ndarray = np.ndarray
# What words are relative to: the image itself, the values' memory, the threads', the
# file's constants, weights from a file beside, and the model's state.
TABLES, ARENA, WORKSPACE, CONSTANTS, WEIGHTS, STATE = range(6)
KINDS = 6
BODIES = ("iterations", "jobs", "gang", "fill")  # in the order of rows' kinds


class Constants:
    """The bytes that a file holds, each once, and the weights in a file beside it."""

    def __init__(self, *, beside: bool) -> None:
        self.parts: list[bytes] = []
        self.nbytes = 0
        self.beside = beside
        self.weights: dict[str, ndarray] = {}
        self.places: dict[str, int] = {}  # of weights, in bytes
        self.weight_bytes = 0
        self._known: dict[Any, int] = {}  # places, by kinds and bytes
        # by what is asked for again for other sizes, which lives as long
        self._seen: dict[int, tuple[ndarray, tuple[int, int]]] = {}

    def add(self, values: ndarray) -> int:
        """Where an array is in the file."""
        return self._once(values, CONSTANTS, self._append)[1]

    def weight(self, values: ndarray) -> tuple[int, int]:
        """Where a constant of the program is: of what, and the bytes behind that."""
        if id(values) not in self._seen:
            self._seen[id(values)] = values, self.table(values)
        return self._seen[id(values)][1]

    def table(self, values: ndarray) -> tuple[int, int]:
        """Where an array is that was made for some sizes."""
        if not self.beside or values.nbytes < LEAST:
            return CONSTANTS, self.add(values)
        return self._once(values, WEIGHTS, lambda _: self._put_beside(values))

    def _once(
        self, values: ndarray, kind: int, keep: Callable[[bytes], int]
    ) -> tuple[int, int]:
        data = np.ascontiguousarray(values).tobytes()
        key = kind, len(data), hashlib.sha256(data).digest()
        if key not in self._known:
            self._known[key] = keep(data)
        return kind, self._known[key]

    def _append(self, data: bytes) -> int:
        start = self.nbytes
        padding = -len(data) % ALIGNMENT
        self.parts += [data, bytes(padding)]
        self.nbytes += len(data) + padding
        return start

    def _put_beside(self, values: ndarray) -> int:
        name, start = f"constant{len(self.weights)}", self.weight_bytes
        self.weights[name], self.places[name] = np.ascontiguousarray(values), start
        self.weight_bytes += round_up(values.nbytes)
        return start


class Placed(NamedTuple):
    """Where the tables of an executable are in an image, as numbers of words."""

    addresses: int
    numbers: int
    gangs: int


class Image:
    """The words of an executable and of those inside of it.

    ``number`` gives the numbers of functions, ``state`` the places of variables in the
    model's state.
    """

    def __init__(
        self, constants: Constants, number: Callable[[Symbol], int],
        state: Mapping[str, int],
    ) -> None:  # fmt: skip
        self.constants, self.number, self.state = constants, number, state
        self.parts: list[ndarray] = []
        self.size = 0
        self.relocations: list[list[int]] = [[] for _ in range(KINDS)]
        self.calls: list[int] = []  # words that are numbers of functions
        self.each = 0  # bytes of a thread's workspace

    def words(self) -> ndarray:
        return np.concatenate(self.parts)

    def put(self, words: ndarray) -> int:
        """Append words, from a cache line on; gives where they are."""
        flat = np.ascontiguousarray(words, np.int64).reshape(-1)
        start, padding = self.size, -len(flat) % (ALIGNMENT // 8)
        self.parts.append(np.concatenate([flat, np.zeros(padding, np.int64)]))
        self.size += len(flat) + padding
        return start

    def mark(self, kind: int, words: Any) -> None:
        """Note words that are addresses."""
        self.relocations[kind] += np.asarray(words, np.int64).reshape(-1).tolist()

    def call(self, word: int) -> None:
        self.calls.append(word)

    # -- an executable

    def place(self, one: Executable, arena: int = 0) -> Placed:
        """Add an executable whose values begin at a byte of the arena."""
        functions = np.array(list(map(self.number, one.functions)), np.int64)
        addresses, kinds = self._addresses(one, arena)
        at = self.put(addresses)
        for kind in range(KINDS):
            self.mark(kind, at + np.flatnonzero(kinds == kind))
        in_arena = dict(one.offsets.tolist())
        nested = [
            self.place(inner, arena + in_arena[slot] + offset)
            for inner, (*_, slot, offset) in zip(
                one.nested, one.jobs.nested.tolist(), strict=True
            )
        ]
        table = self.put(np.zeros(len(one.buffer_slots), np.int64))
        numbers = self.put(one.numbers)
        contexts = self._contexts(one, functions, table, numbers)
        jobs = self._jobs(one, contexts, numbers, nested)
        filled = self._filled(one, table, jobs)
        starts = {
            ITERATIONS: (table, 1), JOBS: (jobs, 1), FILL: (filled, 0)
        }  # fmt: skip
        rows = self._rows(one.rows, functions, at, numbers, starts)
        starts[GANG] = rows, FIELDS
        gangs = self._rows(one.gangs, functions, at, numbers, starts)
        self.each = max(self.each, int(one.jobs.each))
        return Placed(at, numbers, gangs)

    def _addresses(self, one: Executable, arena: int) -> tuple[ndarray, ndarray]:
        """The addresses of slots, and what each is relative to (-1: known in a run)."""
        words, kinds = np.zeros(one.slots, np.int64), np.full(one.slots, -1)
        slots, offsets = one.offsets.T
        words[slots], kinds[slots] = arena + offsets, ARENA
        for slot, _, value in one.constants:
            if slot != NOWHERE:
                kinds[slot], words[slot] = self.constants.weight(value)
        variables: list[Any] = [*one.held, *one.state_buffers]
        for held in variables:
            if held.slot != NOWHERE:
                words[held.slot], kinds[held.slot] = self.state[held.name], STATE
        return words, kinds

    def _contexts(
        self, one: Executable, functions: ndarray, table: int, numbers: int
    ) -> int:
        words = one.contexts.copy()
        if len(words):
            words[:, 0] = functions[words[:, 0]]
            words[:, 1] = 8 * (table + words[:, 1])
            words[:, 2] = 8 * (numbers + words[:, 2])
        at = self.put(words)
        for row in range(len(words)):
            start = at + row * words.shape[1]
            self.call(start)
            self.mark(TABLES, [start + 1, start + 2])
        return at

    def _jobs(
        self, one: Executable, contexts: int, numbers: int, nested: list[Placed]
    ) -> int:
        jobs, words = one.jobs, one.jobs.words.copy()
        follow = self.number(Symbol("driver", "", "follow"))
        pairs: dict[int, list[int]] = {kind: [] for kind in range(KINDS)}
        words[jobs.workspaces], words[jobs.workspaces + 1] = 0, jobs.each
        pairs[WORKSPACE] += jobs.workspaces.tolist()
        for word, row in jobs.contexts.tolist():
            words[word] = 8 * (contexts + row * one.contexts.shape[1])
            words[word - 1] = follow
            pairs[TABLES].append(word)
        ends = sorted({*jobs.tables[:, 1].tolist(), len(one.data)})
        for word, offset in jobs.tables.tolist():
            end = next((one for one in ends if one > offset), offset)
            kind, words[word] = self.constants.table(one.data[offset:end])
            pairs[kind].append(word)
        for (slots, gangs, sizes, *_), inner in zip(
            jobs.nested.tolist(), nested, strict=True
        ):
            for word, place in ((slots, inner.addresses), (gangs, inner.gangs),
                                (sizes, inner.numbers)):  # fmt: skip
                words[word] = 8 * place
                pairs[TABLES].append(word)
        for word, flag in jobs.flags.tolist():
            words[word] = 8 * (numbers + flag)
            pairs[TABLES].append(word)
        at = self.put(words)
        for word, _ in jobs.contexts.tolist():
            self.call(at + word - 1)
        for kind, some in pairs.items():
            self.mark(kind, at + np.array(some, np.int64))
        return at

    def _filled(self, one: Executable, table: int, jobs: int) -> int:
        """The rows of addresses that launches read: where to, of which slot, bytes."""
        count = len(one.buffer_slots)
        mine = np.column_stack(
            [table + np.arange(count), one.buffer_slots, one.buffer_offsets]
        )
        theirs = one.jobs.pointers.copy()
        theirs[:, 0] += jobs
        words = np.concatenate([mine, theirs]).astype(np.int64)
        words[:, 0] *= 8
        at = self.put(words)
        self.mark(TABLES, at + 3 * np.arange(len(words)))
        return at

    def _rows(
        self, rows: ndarray, functions: ndarray, addresses: int, numbers: int,
        starts: Mapping[int, tuple[int, int]],
    ) -> int:  # fmt: skip
        rows = rows.copy()
        kinds = rows[:, 6].copy()
        launches = (kinds == ITERATIONS) | (kinds == JOBS)
        if len(functions):
            rows[launches, 1] = functions[rows[launches, 1]]
        rows[kinds == FILL, 1] = 8 * addresses
        for kind, (start, width) in starts.items():
            mine = kinds == kind
            rows[mine, 2] = 8 * (start + width * rows[mine, 2])
        mine = kinds == ITERATIONS
        rows[mine, 3] = 8 * (numbers + rows[mine, 3])
        bodies = [self.number(Symbol("driver", "", name)) for name in BODIES]
        rows[:, 6] = [bodies[kind] for kind in kinds.tolist()]
        at = self.put(rows)
        places = at + FIELDS * np.arange(len(rows))
        for word in (*(places[launches] + 1), *(places + 6)):
            self.call(int(word))
        self.mark(TABLES, places[kinds == FILL] + 1)
        self.mark(TABLES, places + 2)
        self.mark(TABLES, places[kinds == ITERATIONS] + 3)
        return at
