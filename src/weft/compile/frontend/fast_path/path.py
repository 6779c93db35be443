"""The fast path of one specialization, around all that only its first run needs.

A run of the usual kind has found what the program reads, bound the memory of its
variables and left their addresses in place. As long as all of that is as it was, which
one native call tells, the next run has to place the arguments and to make the results.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any

import numpy as np

from weft.compile.frontend.fast_path.cpython_layout import Layout, layout
from weft.compile.frontend.fast_path.emit import HEADER, HOLDS, WENT, method, python
from weft.compile.frontend.fast_path.guard_rows import (
    tell_attribute,
    tell_cell,
    tell_guards,
    tell_reads,
)
from weft.compile.frontend.fast_path.guard_table import Table, Unfit
from weft.compile.targets.cpu.driver import driver
from weft.compile.targets.cpu.executable import NOWHERE, leaves, value_of
from weft.core.mode import mode
from weft.core.tape import caller, note_changes
from weft.core.tensor import Tensor
from weft.graph.ir import Node
from weft.graph.state_cells import Cell, GradCell, NumberCell, SlotCell, commit
from weft.runtime import allocation
from weft.runtime.cpu import pool
from weft.runtime.cpu.address import address
from weft.runtime.cpu.buffers import SMALLEST, Lease, empty

MISS: Any = object()  # the usual way has to be taken
_NAMES = {
    "data_name": "_data", "node_name": "_node", "interpreter_name": "_interpreter",
    "grad_name": "grad",
}  # fmt: skip


def fast_path_of(
    entry: Any, args: tuple[Tensor, ...], settings: Any
) -> FastPath | None:
    """A lane for a form that has just run with these arguments, if it can have one."""
    where = layout()
    instance = entry.program.latest
    if where is None or instance is None or entry.captured.rewritten:
        return None
    if entry.differentiable and mode.recording:
        return None  # it is to be recorded
    try:
        return FastPath(entry, instance, args, settings, where)
    except Unfit:
        return None


class FastPath:
    """Runs of one form, for arguments of one kind, while nothing has changed."""

    def __init__(
        self, entry: Any, instance: Any, args: tuple[Tensor, ...], settings: Any,
        where: Layout,
    ) -> None:  # fmt: skip
        self.entry, self.instance, self.settings = entry, instance, settings
        self.runs = instance.runs  # a run of the usual kind moves addresses
        self.lock, self.addresses = instance.lock, instance.addresses
        self.emptied = bool(entry.captured.emptied)
        self.fresh = [_maker(shape, kind) for _, shape, kind in instance.fresh]
        self._find_results()
        table = Table()
        self._tell_arguments(args, table)
        self._tell_variables(table)
        self._tell_results(table)
        self.rest = tell_guards(entry.captured.guards, table)
        if entry.reads is not None:
            self.rest += tell_reads(entry.reads, table)
        self._finish(table, len(args), where)

    def _find_results(self) -> None:
        """Where results are: in fresh memory, or in the arena, to be copied."""
        entry, instance = self.entry, self.instance
        executable = instance.executable
        if {type(step) for step in executable.plan} - {tuple} or instance.weights.all:
            raise Unfit
        first = instance.first[2]
        fresh = range(first, first + len(self.fresh))
        self.made: list[tuple[int, Any]] = []  # which of the fresh, or what is copied
        for ref, copied in executable.outputs:
            if type(ref) is int and ref in fresh and not copied:
                self.made.append((ref - first, None))
            else:
                self.made.append((0, self._known(ref, copied)))
        values = entry.captured.values
        alone = entry.plain and len(values) == 1 and entry.is_leaf
        self.single = alone and type(values[0]) is Node
        self.later: list[Any] = []  # values in the arena that variables get
        for name, ref, shared in instance.given_back:
            cell = entry.cells[name]
            if shared or type(cell) not in (Cell, SlotCell, GradCell, NumberCell):
                raise Unfit
            self.later.append((cell, self._known(ref, True)))

    def _known(self, ref: Any, copied: bool) -> Any:
        """A value that is made of none but those which are there in every run."""
        known = self.instance.known
        if not copied or any(known[value] is None for value in leaves(ref)):
            raise Unfit
        return ref

    def _tell_arguments(self, args: tuple[Tensor, ...], table: Table) -> None:
        inputs = self.instance.executable.inputs
        self._nowhere = np.zeros(1, np.int64)
        for number, x in enumerate(args):
            if not x._data.flags.c_contiguous or x._node is not None:
                raise Unfit
            slot = inputs[number]
            place = address(self._nowhere)
            if slot != NOWHERE:
                place = address(self.addresses) + 8 * slot
            table.argument(number, x._data, place)

    def _tell_variables(self, table: Table) -> None:
        """Memory that is read: addresses of it are in place."""
        entry, instance = self.entry, self.instance
        if entry.differentiable:
            held = [(cell, cell.get()) for cell in entry.variables]
            if not all(array.flags.c_contiguous for _, array in held):
                raise Unfit
        else:
            held = list(zip(entry.held, instance.bound, strict=True))
            if any(array is None for _, array in held):
                raise Unfit  # it was copied
        for cell, array in held:
            tell_cell(cell, array, table)
        seen = entry.tensors
        for name, values in (("_data", seen.arrays), ("_node", seen.nodes)):
            for tensor, value in zip(seen.tensors, values, strict=True):
                tell_attribute(tensor, name, value, table)
        self.numbers = [cell for cell, _ in held if type(cell) is NumberCell]

    def _tell_results(self, table: Table) -> None:
        """Memory that is written: gradients' that nobody holds, and that of state."""
        entry, instance = self.entry, self.instance
        start = address(self.addresses)
        for cell, (slot, shape, dtype, _) in zip(
            entry.unread, instance.state_buffers, strict=True
        ):
            if type(cell) is not GradCell:
                raise Unfit
            table.room(cell.tensor, shape, dtype, start + 8 * slot)
        self.storages = []
        for name, _ in entry.in_place:
            cell = entry.cells[name]
            if type(cell) is not GradCell:
                storage = cell.tensor.storage
                tell_attribute(cell.tensor, "_storage", storage, table)
                self.storages.append(storage)

    def _finish(self, table: Table, count: int, where: Layout) -> None:
        self.rows, found = table.finished()
        self.held = table.held
        self.cells = {found[id(cell.on[0]), cell.on[1]]: cell for cell in self.numbers}
        self.shown = {row: cell.on[0][cell.on[1]] for row, cell in self.cells.items()}
        rows = {id(cell): row for row, cell in self.cells.items()}
        self.later = [(rows.get(id(cell)), cell, ref) for cell, ref in self.later]
        spans = [edge for span in self.instance.spans for edge in span]
        self.spans = np.array(spans or [0], np.int64)
        slots = [slot for slot, _, _ in self.instance.fresh]
        self.places = address(self.addresses) + 8 * np.array(slots or [0], np.int64)
        words = {
            "rows": address(self.rows), "count": len(self.rows), "arguments": count,
            "tensor": id(Tensor), "array": id(np.ndarray), "lease": id(Lease),
            "none": id(None), "get": python("PyDict_GetItemWithError"),
            "values": where.values,
            "tag": where.tag, "data": where.places["_data"],
            "node": where.places["_node"], "interpreter": where.places["_interpreter"],
            "spans": address(self.spans), "many": len(self.instance.spans),
            "end": self.instance.end, **{k: id(name) for k, name in _NAMES.items()},
            "results": address(self.places), "made": len(self.fresh), "went": 0,
            "number": python("PyLong_FromLongLong"),
            "wanted": pool.default().wanted_at, "threads": self.instance.jobs.threads,
            **self._launches(),
        }  # fmt: skip
        self.header = np.array([words[name] for name in HEADER], np.int64)
        self.again = method(driver().again, self.header)
        self.writes = bool(self.later or self.emptied or self.storages)

    def _launches(self) -> dict[str, int]:
        """What is run at once: one step, before and after which nothing is asked."""
        instance = self.instance
        plan, asked = instance.executable.plan, self.rest or instance.flags
        self.direct = len(plan) == 1 and not asked
        first, last = plan[0] if self.direct else (0, 0)
        run = ctypes.cast(driver().run, ctypes.c_void_p).value or 0
        return {
            "run": run * self.direct, "launches": instance.gangs_at,
            "first": first, "last": last, "save": python("PyEval_SaveThread"),
            "restore": python("PyEval_RestoreThread"),
        }  # fmt: skip

    def run(self, args: tuple[Any, ...]) -> Any:
        """What the form returns for these arguments, or MISS."""
        instance, late = self.instance, None
        if allocation.ledger is not None or not self.lock.acquire(False):
            return MISS
        try:
            if instance.runs != self.runs:
                return MISS
            fresh: tuple[np.ndarray, ...] = ()
            for make in self.fresh:
                fresh += (make(),)
            try:
                row = self.again(args, fresh)
                if row != HOLDS and not self._renewed(row, args, fresh):
                    return MISS
            except KeyboardInterrupt as interrupt:  # it came before: all was run
                if not self.header[WENT] or not instance.has_state:
                    raise
                late = interrupt
            if not self.direct:
                if not all(one() for one in self.rest):
                    return MISS
                late = instance.go(args)
            found = []
            for k, ref in self.made:
                found.append(Tensor(fresh[k] if ref is None else self._copied(ref)))
            if self.writes:
                self._write(instance.known)
        finally:
            self.lock.release()
        if late is not None:
            raise late
        return found[0] if self.single else self._finished(found, args)

    def _finished(self, found: list[Tensor], args: tuple[Tensor, ...]) -> Any:
        if self.entry.plain:
            return self.entry.tree(found)
        arrays = [x._data for x in args]
        return self.entry.finish(found, args, arrays, (args, {}))

    def _renewed(self, row: int, args: tuple[Any, ...], fresh: Any) -> bool:
        """Whether it ran after all: only numbers had changed, which are read again."""
        while row != HOLDS:
            cell = self.cells.get(row)
            if cell is None:
                return False
            cell.get()
            self._show(row, cell)
            row = self.again(args, fresh)
        return True

    def _copied(self, ref: Any) -> np.ndarray:
        """A result that lies in the arena."""
        return value_of(ref, self.instance.known).copy()

    def _show(self, row: int, cell: NumberCell) -> None:
        self.shown[row] = value = cell.on[0][cell.on[1]]
        self.rows[row, 3] = id(value)

    def _write(self, known: list[Any]) -> None:
        """Variables get values that they do not have in their places."""
        if self.later:
            commit([(cell, value_of(ref, known)[...]) for _, cell, ref in self.later])
        for row, cell, _ in self.later:
            if row is not None:
                self._show(row, cell)
        if self.emptied:
            self.entry.captured.empty()
        if self.storages:
            note_changes(self.storages, "a captured program", caller())


def _maker(shape: tuple[int, ...], kind: Any) -> Any:
    """Who makes arrays of a kind: small ones never come from the pool of memory."""
    small = math.prod(shape) * kind.itemsize < SMALLEST
    return functools.partial(np.empty if small else empty, shape, kind)
