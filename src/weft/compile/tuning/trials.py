"""One kernel or routine of a program, run on arrays of its own to be measured.

The program's state is not touched: a trial has arrays of the same sizes, with random
floating-point numbers and zeros for all else, so that every index is valid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.compile.lower.deduplicate import KernelTable
from weft.compile.program.program import Program
from weft.compile.program.steps import KernelLaunch, LibraryCall
from weft.compile.targets.cpu.driver import driver
from weft.compile.targets.cpu.grain import grain_of
from weft.compile.targets.cpu.tables import Workspaces
from weft.core.size import evaluate
from weft.graph.interpret import resolve
from weft.graph.ir import CONSTANT, Node
from weft.runtime.cpu.address import address

Sizes = Mapping[str, int]


class Memory(dict[Node, np.ndarray]):
    """Arrays for values, made when they are first needed."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.rng = np.random.default_rng(0)

    def __missing__(self, node: Node) -> np.ndarray:
        if node.op is CONSTANT:
            array = np.ascontiguousarray(node.params["value"])
        else:
            shape = resolve(node.shape, self.sizes)
            array = np.zeros(shape, node.dtype.np)
            if node.dtype.is_floating_point:
                array[...] = self.rng.standard_normal(shape, np.float32)
        self[node] = array
        return array


class Trial:
    """Native code that is ready to run; ``made`` are its results."""

    def __init__(self, row: list[int], made: list[np.ndarray], *alive: Any) -> None:
        self.row = np.array(row, np.int64)
        self.made, self.alive = made, alive  # the memory at the row's addresses

    @property
    def chunks(self) -> int:
        """The number of chunks that threads can take."""
        count, grain = self.row[4:6].tolist()
        return -(-count // grain)

    def __call__(self) -> None:
        driver().run(address(self.row), 0, 1)

    def result(self) -> bytes:
        """The results of a run, as bytes."""
        for array in self.made:
            array.fill(0)
        self()
        return b"".join(array.tobytes() for array in self.made)


def library_trial(
    program: Program, call: LibraryCall, sizes: Sizes, memory: Memory
) -> Trial | None:
    """A library call without its epilogue; None if these sizes take a host call."""
    alone = call.alone
    jobs = program.target.library_work([alone], sizes)
    if alone not in jobs.works:
        return None
    slots = {node: k for k, node in enumerate(alone.owners)}
    epilogues = np.zeros((0, 7), np.int64)  # none
    data = jobs.data(slots, program.reads, lambda symbol: 0)  # nothing is kept packed
    ready = Workspaces(data, epilogues, jobs.tables.data)
    addresses = np.array([address(memory[node]) for node in slots], np.int64)
    for word, slot, offset in data.pointers.tolist():
        ready.words[word] = addresses[slot] + offset
    first, tasks, count, length = jobs.row(alone)
    function = program.code.address(jobs.works[alone].function)
    start = address(ready.words) + 8 * first
    row = [0, function, start, tasks, count, 1, driver().jobs, length, 0]
    return Trial(row, [memory[n] for n in alone.made], ready, memory)


def loop_trial(
    program: Program, use: KernelLaunch, sizes: Sizes, memory: Memory
) -> Trial | None:
    """A kernel, lowered with the choice being tried; None if it needs other sizes."""
    kernels = KernelTable(program.target)
    lowered = kernels.lowered(use.group)
    kernel = program.target.vectorize(lowered.kernel._replace(name="tried"))
    known = {**sizes, **{k: evaluate(n, sizes) for k, n in kernel.given}}
    if any(evaluate(n, known) <= 0 for n in kernel.positive):
        return None
    library = program.code.library([kernel])
    fresh = KernelLaunch(*lowered._replace(kernel=kernel), use.group)
    arrays = fresh.arrays(memory)
    table = np.array([address(a) for a in arrays], np.int64)
    numbers = np.array([*[known[n] for n in kernel.sizes], 0], np.int64)
    count = math.prod(evaluate(n, known) for _, n in kernel.parallel)
    _, cuts = kernels.cut(lowered.kernel)
    grain = grain_of(count, fresh.operations(sizes), cuts.grain)
    fields = library.address("tried"), address(table), address(numbers), count, grain
    row = [0, *fields, driver().iterations, 0, 0]
    alive = table, numbers, library, memory
    return Trial(row, [memory[n] for n in fresh.made], *alive)
