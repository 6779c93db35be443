"""Runs of a program on another device than the CPU, while nothing has changed.

One native call tells whether the guards hold. The executor is then given the memory of
the variables that it was given before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.compile.frontend.fast_path.cpython_layout import Layout
from weft.compile.frontend.fast_path.emit import HOLDS
from weft.compile.frontend.fast_path.guard_rows import tell_cell
from weft.compile.frontend.fast_path.guard_table import Table, Unfit
from weft.compile.frontend.fast_path.guarded_runs import MISS, GuardedRuns
from weft.core.tape import caller, note_changes
from weft.core.tensor import DeviceTensor
from weft.graph.state_cells import NumberCell, commit
from weft.runtime import allocation
from weft.runtime.cpu.address import address


class DevicePath(GuardedRuns):
    """Runs of a specialization for one kind of arguments on a device."""

    def __init__(
        self, specialization: Any, executor: Any, args: Any, settings: Any,
        attributes: Layout,
    ) -> None:  # fmt: skip
        super().__init__(specialization, settings)
        self.device = specialization.device
        self.execute = executor.run
        if not all(map(self._is_plain, args)):
            raise Unfit
        self.kinds = [x._data.kind for x in args]
        self.replaced: list[Any] = []  # whose memory is used again where it may be
        if specialization.differentiable:
            cells = specialization.variables
        else:
            cells = specialization.read_cells
            self.replaced = specialization.write_only_cells
        self.held = [cell.get() for cell in cells]
        self.numbers = [cell for cell in cells if type(cell) is NumberCell]
        self.names = {name for name, _ in specialization.in_place}
        table = Table()
        for cell, array in zip(cells, self.held, strict=True):
            if type(cell) is not NumberCell:  # which are read each time
                tell_cell(cell, array, table)
        self.tell_tensors(table)
        self.tell_storages(table)
        self.tell_python(table)
        self._threads = np.zeros(1, np.int64)  # the host's do not matter
        self.finish(table, attributes, {"wanted": address(self._threads)})

    def _is_plain(self, x: Any) -> bool:
        """Whether an argument is a tensor of values on the device."""
        if type(x) is not DeviceTensor or x.device is not self.device:
            return False
        return x._node is None and x._interpreter is None and hasattr(x._data, "kind")

    def run(self, args: tuple[Any, ...]) -> Any:
        if len(args) != len(self.kinds) or allocation.ledger is not None:
            return MISS
        feeds = []
        for x, kind in zip(args, self.kinds, strict=True):
            if not self._is_plain(x) or x._data.kind != kind:
                return MISS
            feeds.append(x._data)
        if self.again((), ()) != HOLDS or not all(one() for one in self.rest):
            return MISS
        for cell in self.numbers:
            cell.get()  # into the array that is held
        buffers = [cell.reusable_memory() for cell in self.replaced]
        outputs, _ = self.execute(feeds, self.held, buffers, self._write)
        results = [DeviceTensor(buffer, self.device) for buffer in outputs]
        if self.single and len(results) == 1:
            return results[0]
        return self.specialization.finish(results, args, feeds, (args, {}))

    def _write(self, changed: dict[str, Any]) -> None:
        """Store new values, and note what was written in place."""
        specialization = self.specialization
        if not self.names.isdisjoint(changed):  # it was not
            specialization._write(changed)
            return
        commit(specialization.pairs(changed))
        note_changes(self.storages, "a captured program", caller())
        if self.emptied:
            specialization.captured.empty()
