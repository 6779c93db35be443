"""Jobs of library calls: products, convolutions and the like.

A library kernel is native code that is the same for all programs. Jobs, records of
64-bit integers, say what it does:

    void function(job, first, last, worker)        some of a job's tasks

A job ends with the address of workspaces, one for each worker, and their size. How many
jobs there are and what they say is known with the sizes; addresses are filled in
when the jobs have memory, and before every run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.compile.emit.isa import Isa
from weft.compile.program.steps import LibraryCall
from weft.compile.targets.cpu import executable
from weft.compile.targets.cpu.executable import Symbol
from weft.graph.ir import Node
from weft.runtime.cpu.address import ALIGNMENT, round_up
from weft.runtime.cpu.pool import get_num_threads


class Pointer(NamedTuple):
    """A field of a job that is an address: an offset in bytes into a value."""

    field: int
    node: Node
    offset: int = 0


class Nested(NamedTuple):
    """A program that a job runs: a body, with its memory in the call's scratch."""

    executable: Any
    code: Any
    offset: int  # of its arena, in bytes
    slots: int  # the fields that are addresses: of its slots, its gangs, its sizes
    gangs: int
    sizes: int


class Job(NamedTuple):
    """The fields of a job, whose last two are its workspaces' address and size."""

    fields: Any  # whole numbers
    pointers: Sequence[Pointer]
    tables: Sequence[tuple[int, np.ndarray]] = ()  # fields that are their addresses
    flag: int = -1  # the field that is the address of an error flag, if any
    nested: Sequence[Nested] = ()


class Pack(NamedTuple):
    """A product's right operand that may be packed once, for all runs."""

    node: Node  # which reads the variable
    function: Symbol
    tasks: int
    nbytes: int


class Work(NamedTuple):
    """The work of a library call for some sizes: jobs of equally many tasks."""

    function: Symbol
    jobs: list[Job]
    tasks: int
    workspace: int = 0  # bytes for each worker
    context: int = -1  # the jobs' field for the context of an epilogue, if any;
    #                    the field before it is the epilogue's address
    share: float = 1.0  # of the work that is worth handing to another thread
    pack: Pack | None = None
    scratch: int = 0  # bytes in the arena, while it runs


class Jobs:
    """The jobs of a program's library calls, and the words that are addresses."""

    def __init__(
        self, calls: Sequence[LibraryCall], sizes: Mapping[str, int], isa: Isa
    ) -> None:
        found = {r: r.work(sizes, isa) for r in calls}
        self.works = {r: work for r, work in found.items() if work and work.jobs}
        self.starts: dict[LibraryCall, int] = {}
        self.words: list[int] = []
        self.pointers: list[tuple[int, Node, int]] = []
        self.contexts: list[tuple[int, int]] = []
        self.packs: list[tuple[int, Pack]] = []
        self.flags: list[int] = []  # words that are addresses of error flags
        self.nested: list[tuple[LibraryCall, Nested]] = []
        self.tables = _Tables()
        ends: list[int] = []
        for call, work in self.works.items():
            self.starts[call] = len(self.words)
            if work.pack is not None:
                self.packs.append((len(self.words), work.pack))
            for job in work.jobs:
                start = len(self.words)
                self.pointers += [(start + p.field, *p[1:]) for p in job.pointers]
                for field, table in job.tables:
                    self.tables.add(start + field, table)
                if job.flag >= 0:
                    self.flags.append(start + job.flag)
                for one in job.nested:
                    words = [start + field for field in one[3:]]
                    self.nested.append((call, Nested(*one[:3], *words)))
                self.words.extend(job.fields)
                ends.append(len(self.words))
        self.workspaces = np.array(ends, np.int64) - 2
        self.each = max((w.workspace for w in self.works.values()), default=0)

    @property
    def workspace(self) -> int:
        """The bytes that threads need for themselves, and constant tables."""
        each = get_num_threads() * round_up(self.each)
        return each + ALIGNMENT + self.tables.data.nbytes

    def row(self, call: LibraryCall) -> tuple[int, int, int, int]:
        """A call's first word, the tasks of one job and of all, and a job's bytes."""
        work = self.works[call]
        length = 8 * len(work.jobs[0].fields)
        return self.starts[call], work.tasks, work.tasks * len(work.jobs), length

    def lead_to(self, call: LibraryCall, context: int) -> None:
        """Have all jobs of a call use a context for their epilogue."""
        work = self.works[call]
        length = len(work.jobs[0].fields)
        first = self.starts[call] + work.context
        words = range(first, first + length * len(work.jobs), length)
        self.contexts += [(word, context) for word in words]

    def data(
        self,
        slots: Mapping[Any, int],
        reads: Sequence[Any],
        number: Callable[[Symbol], int],
        flags: Sequence[int] = (),
    ) -> executable.Jobs:
        """The jobs without addresses, by the slots that these are kept in.

        ``reads`` are the variables; ``number`` gives the number of a function.
        ``flags`` says where the jobs' error flags are among the sizes.
        """
        pointers = [(word, slots[node], offset) for word, node, offset in self.pointers]
        packs = [
            (word, reads.index(p.node.params["variable"]), number(p.function), *p[2:])
            for word, p in self.packs
        ]
        words = np.array(self.words, np.int64)
        words[[word for word, *_ in pointers]] = 0  # addresses, known when it runs
        return executable.Jobs(
            words,
            _pairs(pointers, 3),
            self.workspaces,
            round_up(self.each),
            _pairs(self.contexts, 2),
            _pairs(self.tables.places, 2),
            _pairs(packs, 5),
            _pairs(
                [(*one[3:], slots[call], one.offset) for call, one in self.nested], 5
            ),
            _pairs(list(zip(self.flags, flags, strict=True)), 2),
        )


class _Tables:
    """Constant tables one after the other; one that several jobs name is there once."""

    def __init__(self) -> None:
        self.places: list[tuple[int, int]] = []
        self._parts: list[np.ndarray] = []
        self._starts: dict[int, int] = {}
        self._size = 0

    def add(self, word: int, table: np.ndarray) -> None:
        if id(table) not in self._starts:
            self._starts[id(table)] = self._size
            self._parts.append(table)
            self._size += round_up(table.nbytes)
        self.places.append((word, self._starts[id(table)]))

    @property
    def data(self) -> np.ndarray:
        found = np.zeros(self._size, np.uint8)
        for part in self._parts:
            start = self._starts[id(part)]
            found[start : start + part.nbytes] = part.reshape(-1).view(np.uint8)
        return found


def _pairs(rows: Sequence[Any], width: int) -> np.ndarray:
    return np.array(rows, np.int64).reshape(-1, width)
