"""The fast path of one specialization, around all that only its first run needs.

A run of the usual kind has found what the program reads, bound the memory of its
variables and filled in their addresses. As long as all of that is unchanged, which one
native call tells, the next run only fills in the arguments and allocates the results.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any

import numpy as np

from weft.compile.frontend.fast_path.cpython_layout import Layout, layout
from weft.compile.frontend.fast_path.device_path import DevicePath
from weft.compile.frontend.fast_path.emit import HOLDS, WENT, python
from weft.compile.frontend.fast_path.guard_rows import tell_cell
from weft.compile.frontend.fast_path.guard_table import Table, Unfit
from weft.compile.frontend.fast_path.guarded_runs import MISS, GuardedRuns
from weft.compile.targets.cpu.driver import driver
from weft.compile.targets.cpu.executable import NOWHERE, leaves, value_of
from weft.compile.targets.cpu.executor import Executor
from weft.core.mode import mode
from weft.core.tape import caller, note_changes
from weft.core.tensor import Tensor
from weft.graph.ir import Node
from weft.graph.state_cells import Cell, GradCell, NumberCell, SlotCell, commit
from weft.runtime import allocation
from weft.runtime.cpu import pool
from weft.runtime.cpu.address import address
from weft.runtime.cpu.buffers import SMALLEST, empty


def fast_path_of(
    specialization: Any, args: tuple[Tensor, ...], settings: Any
) -> GuardedRuns | None:
    """The fast path of a specialization that has just run with these arguments.

    None if it cannot have one.
    """
    attributes = layout()
    executor = specialization.program.latest
    captured = specialization.captured
    if attributes is None or executor is None or captured.rewritten or captured.needed:
        return None
    if specialization.differentiable and mode.recording:
        return None  # it is to be recorded
    try:
        if not isinstance(executor, Executor):  # it is another target's
            return DevicePath(specialization, executor, args, settings, attributes)
        return FastPath(specialization, executor, args, settings, attributes)
    except Unfit:
        return None


class FastPath(GuardedRuns):
    """Runs of a specialization for one kind of arguments, while nothing has changed."""

    def __init__(
        self, specialization: Any, executor: Any, args: tuple[Tensor, ...],
        settings: Any, attributes: Layout,
    ) -> None:  # fmt: skip
        super().__init__(specialization, settings)
        self.executor = executor
        self.runs = executor.runs  # a run of the usual kind moves addresses
        self.lock, self.addresses = executor.lock, executor.addresses
        self.fresh = [_maker(shape, kind) for _, shape, kind in executor.fresh]
        self._find_results()
        table = Table()
        self._tell_arguments(args, table)
        self._tell_variables(table)
        self._tell_results(table)
        self.tell_python(table)
        self._finish(table, len(args), attributes)

    def _find_results(self) -> None:
        """Find where results are: in fresh memory, or in the arena, to be copied."""
        specialization, executor = self.specialization, self.executor
        executable = executor.executable
        if {type(step) for step in executable.plan} - {tuple} or executor.weights.all:
            raise Unfit
        first = executor.first[2]
        fresh = range(first, first + len(self.fresh))
        self.made: list[tuple[int, Any]] = []  # index of fresh memory, or a reference
        for ref, copied in executable.outputs:
            if type(ref) is int and ref in fresh and not copied:
                self.made.append((ref - first, None))
            else:
                self.made.append((0, self._known(ref, copied)))
        values = specialization.captured.values
        self.single = self.single and type(values[0]) is Node
        self.later: list[Any] = []  # variables, and their new values in the arena
        for name, ref, shared in executor.given_back:
            cell = specialization.cells[name]
            if shared or type(cell) not in (Cell, SlotCell, GradCell, NumberCell):
                raise Unfit
            self.later.append((cell, self._known(ref, True)))

    def _known(self, ref: Any, copied: bool) -> Any:
        """The reference to a value that is made of the executor's memory alone."""
        known = self.executor.known
        if not copied or any(known[value] is None for value in leaves(ref)):
            raise Unfit
        return ref

    def _tell_arguments(self, args: tuple[Tensor, ...], table: Table) -> None:
        inputs = self.executor.executable.inputs
        self._nowhere = np.zeros(1, np.int64)
        for number, x in enumerate(args):
            if not x._data.flags.c_contiguous or x._node is not None:
                raise Unfit
            slot = inputs[number]
            at = address(self._nowhere)
            if slot != NOWHERE:
                at = address(self.addresses) + 8 * slot
            table.argument(number, x._data, at)

    def _tell_variables(self, table: Table) -> None:
        """Add rows for memory that is read, whose addresses are filled in already."""
        specialization, executor = self.specialization, self.executor
        if specialization.differentiable:
            bound = [(cell, cell.get()) for cell in specialization.variables]
            if not all(array.flags.c_contiguous for _, array in bound):
                raise Unfit
        else:
            bound = list(zip(specialization.read_cells, executor.bound, strict=True))
            if any(array is None for _, array in bound):
                raise Unfit  # it was copied
        for cell, array in bound:
            tell_cell(cell, array, table)
        self.tell_tensors(table)
        self.numbers = [cell for cell, _ in bound if type(cell) is NumberCell]

    def _tell_results(self, table: Table) -> None:
        """Add rows for memory that is written: of gradients and of state in place."""
        specialization, executor = self.specialization, self.executor
        start = address(self.addresses)
        for cell, (slot, shape, dtype, _) in zip(
            specialization.write_only_cells, executor.state_buffers, strict=True
        ):
            if type(cell) is not GradCell:
                raise Unfit
            table.gradient(cell.tensor, shape, dtype, start + 8 * slot)
        self.tell_storages(table)

    def _finish(self, table: Table, count: int, attributes: Layout) -> None:
        spans = [edge for span in self.executor.spans for edge in span]
        self.spans = np.array(spans or [0], np.int64)
        slots = [slot for slot, _, _ in self.executor.fresh]
        self.results = address(self.addresses) + 8 * np.array(slots or [0], np.int64)
        words = {
            "arguments": count, "spans": address(self.spans),
            "many": len(self.executor.spans), "end": self.executor.end,
            "results": address(self.results), "made": len(self.fresh),
            "wanted": pool.default().wanted_at, "threads": self.executor.jobs.threads,
            **self._launches(),
        }  # fmt: skip
        row_of = self.finish(table, attributes, words)
        self.cells = {row_of[id(cell.on[0]), cell.on[1]]: cell for cell in self.numbers}
        if len(self.cells) != len(self.numbers):
            raise Unfit  # one value decides several
        for cell in self.numbers:
            cell.get()  # effects of the last run may have changed what decides it
        self.shown = {row: cell.on[0][cell.on[1]] for row, cell in self.cells.items()}
        rows = {id(cell): row for row, cell in self.cells.items()}
        self.later = [(rows.get(id(cell)), cell, ref) for cell, ref in self.later]
        self.writes = bool(self.later or self.emptied or self.storages)

    def _launches(self) -> dict[str, int]:
        """The launches that the native call runs itself: those of a single step.

        There are none if Python has anything to check before or after.
        """
        executor = self.executor
        plan, asked = executor.executable.plan, self.rest or executor.flags
        self.direct = len(plan) == 1 and not asked
        first, last = plan[0] if self.direct else (0, 0)
        run = ctypes.cast(driver().run, ctypes.c_void_p).value or 0
        return {
            "run": run * self.direct, "launches": executor.gangs_at,
            "first": first, "last": last, "save": python("PyEval_SaveThread"),
            "restore": python("PyEval_RestoreThread"),
        }  # fmt: skip

    def run(self, args: tuple[Any, ...]) -> Any:
        """The function's result for these arguments, or MISS."""
        executor, late = self.executor, None
        if allocation.ledger is not None or not self.lock.acquire(False):
            return MISS
        try:
            if executor.runs != self.runs:
                return MISS
            fresh: tuple[np.ndarray, ...] = ()
            for make in self.fresh:
                fresh += (make(),)
            try:
                row = self.again(args, fresh)
                if row != HOLDS and not self._renewed(row, args, fresh):
                    return MISS
            except KeyboardInterrupt as interrupt:  # it came before: all was run
                if not self.header[WENT] or not executor.has_state:
                    raise
                late = interrupt
            if not self.direct:
                if not all(one() for one in self.rest):
                    return MISS
                late = executor.go(args)
            results, known = [], executor.known
            for k, ref in self.made:
                array = fresh[k] if ref is None else value_of(ref, known).copy()
                results.append(Tensor(array))
            if self.writes:
                self._write(known)
        finally:
            self.lock.release()
        if late is not None:
            raise late
        return results[0] if self.single else self._finished(results, args)

    def _finished(self, results: list[Tensor], args: tuple[Tensor, ...]) -> Any:
        if self.specialization.plain:
            return self.specialization.tree(results)
        arrays = [x._data for x in args]
        return self.specialization.finish(results, args, arrays, (args, {}))

    def _renewed(self, row: int, args: tuple[Any, ...], fresh: Any) -> bool:
        """Whether only numbers had changed: if so, they are renewed, and it ran."""
        while row != HOLDS:
            cell = self.cells.get(row)
            if cell is None:
                return False
            cell.get()
            self._show(row, cell)
            row = self.again(args, fresh)
        return True

    def _show(self, row: int, cell: NumberCell) -> None:
        self.shown[row] = value = cell.on[0][cell.on[1]]
        self.rows[row, 3] = id(value)

    def _write(self, known: list[Any]) -> None:
        """Store the new values of variables that are not written in place."""
        if self.later:
            commit([(cell, value_of(ref, known)[...]) for _, cell, ref in self.later])
        for row, cell, _ in self.later:
            if row is not None:
                self._show(row, cell)
        if self.emptied:
            self.specialization.captured.empty()
        if self.storages:
            note_changes(self.storages, "a captured program", caller())


def _maker(shape: tuple[int, ...], kind: Any) -> Any:
    """The allocator of arrays; small ones never come from the pool of memory."""
    small = math.prod(shape) * kind.itemsize < SMALLEST
    return functools.partial(np.empty if small else empty, shape, kind)
