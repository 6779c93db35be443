"""Launches of generated routines: products, convolutions and the like.

A routine is native code that is the same for all programs. What it does is said by
jobs, records of 64-bit integers:

    void function(job, first, last, worker)        some of a job's tasks

A job ends with the address of workspaces, one for each worker, and their size. How many
jobs there are and what they say is known with the sizes; addresses are filled in
before every run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.compile.fuse import Operand
from weft.compile.llvm.target import Target
from weft.graph.interpret import resolve
from weft.graph.ir import Node
from weft.runtime import pool

_ALIGN = 64


class Pointer(NamedTuple):
    """A field of a job that is an address: some bytes behind a value's beginning."""

    field: int
    node: Node
    gap: int = 0


class Job(NamedTuple):
    """The fields of a job, whose last two are its workspaces' address and size."""

    fields: Any  # whole numbers
    pointers: Sequence[Pointer]


class Work(NamedTuple):
    """What a routine does for some sizes: jobs of equally many tasks."""

    function: int
    jobs: list[Job]
    tasks: int
    workspace: int = 0  # bytes for each worker
    context: int = -1  # the jobs' field that leads to a follower's kernel, if any


class Routine:
    """A node that generated code computes as a whole, and the kernel that follows.

    For what follows, a result is a matrix: its first axes number rows, the others
    columns. Of a node with several outputs, those that are used are its ``picks``.
    """

    @staticmethod
    def computes(node: Node) -> bool:
        """Whether this is a node for such a routine."""
        raise NotImplementedError

    @staticmethod
    def copies(node: Node) -> bool:
        """Whether an operand must be copied, because of the view that it is."""
        raise NotImplementedError

    @staticmethod
    def row_axes(node: Node) -> int | None:
        """How many axes of a result number its rows; None if nothing can follow."""
        raise NotImplementedError

    def __init__(
        self,
        node: Node,
        inputs: Sequence[Node],
        follower: Any = None,
        picks: Sequence[Node] = (),
    ) -> None:
        self.node = node
        self.inputs = inputs
        self.operands = [Operand(i) for i in inputs]
        self.follower = follower
        self.picks = picks
        self.made = list(picks) or [node]
        self.owners = [*[o.base for o in self.operands], *self.made]
        if follower is not None:
            self.owners += follower.owners
            self.made += follower.made

    @property
    def alone(self) -> Routine:
        """The same without what follows."""
        return type(self)(self.node, self.inputs)

    def fits(self, sizes: Mapping[str, int], target: Target) -> bool:
        """Whether what follows does so, for some sizes."""
        return True

    def work(self, sizes: Mapping[str, int], target: Target) -> Work | None:
        """The work for some sizes, or None if the node is to be called."""
        raise NotImplementedError


def view_of(operand: Operand, sizes: Mapping[str, int]) -> Any:
    """An operand and its base, as arrays of no content; None if it is no view."""
    base = operand.base
    start = np.empty(resolve(base.shape, sizes), base.dtype.np)
    array = start
    for view in reversed(operand.views):
        array = view.op.kernel(array, **resolve(view.params, sizes))
    inside = array.size == 0 or np.may_share_memory(array, start)
    whole = all(s % array.itemsize == 0 for s in array.strides)
    return (array, start) if inside and whole else None


class Jobs:
    """The jobs of an instance's routines, and the addresses they need."""

    def __init__(
        self, routines: Sequence[Routine], sizes: Mapping[str, int], target: Target
    ) -> None:
        found = {r: r.work(sizes, target) for r in routines}
        self.works = {r: work for r, work in found.items() if work and work.jobs}
        self.starts: dict[Routine, int] = {}
        fields: list[int] = []
        places: list[tuple[int, Node, int]] = []
        ends: list[int] = []
        for routine, work in self.works.items():
            self.starts[routine] = len(fields)
            for job in work.jobs:
                places += [(len(fields) + p.field, *p[1:]) for p in job.pointers]
                fields.extend(job.fields)
                ends.append(len(fields))
        self.table = np.array(fields, np.int64)
        self._places = places
        self._workspace = np.array(ends, np.int64) - 2
        self._each = max((w.workspace for w in self.works.values()), default=0)
        self._give_workspaces()

    def row(self, routine: Routine, body: int) -> list[int]:
        """What the native loop reads of a routine's launch."""
        work = self.works[routine]
        first = self.table.ctypes.data + 8 * self.starts[routine]
        count = work.tasks * len(work.jobs)
        length = 8 * len(work.jobs[0].fields)
        return [0, work.function, first, work.tasks, count, 1, body, length]

    def lead_to(self, routine: Routine, address: int) -> None:
        """Tell all jobs of a routine where its follower's context is."""
        work = self.works[routine]
        length = len(work.jobs[0].fields)
        first = self.starts[routine] + work.context
        self.table[first : first + length * len(work.jobs) : length] = address

    def _give_workspaces(self) -> None:
        """Memory that each thread of the pool has for itself."""
        self.threads = pool.get_num_threads()
        if not len(self.table):
            return
        each = self._each + -self._each % _ALIGN
        self.memory = np.empty(self.threads * each + _ALIGN, np.uint8)
        start = self.memory.ctypes.data
        self.table[self._workspace] = start + -start % _ALIGN
        self.table[self._workspace + 1] = each

    def link(self, slots: Mapping[Node, int]) -> None:
        """Prepare to fill in addresses, by the slots that they are kept in."""
        self.places = np.array([p for p, _, _ in self._places], np.int64)
        self.slots = np.array([slots[node] for _, node, _ in self._places], np.int64)
        self.gaps = np.array([gap for _, _, gap in self._places], np.int64)

    def fill(self, addresses: np.ndarray) -> None:
        """Put the present addresses into the jobs."""
        if not len(self.table):
            return
        if pool.get_num_threads() != self.threads:
            self._give_workspaces()
        self.table[self.places] = addresses[self.slots] + self.gaps
