"""Rows of a specialization, and the native function that goes through them.

What runs of programs on the CPU and on other devices have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft.compile.frontend.fast_path.cpython_layout import Layout
from weft.compile.frontend.fast_path.emit import HEADER, method, python
from weft.compile.frontend.fast_path.guard_rows import (
    tell_attribute,
    tell_guards,
    tell_reads,
)
from weft.compile.frontend.fast_path.guard_table import Table
from weft.compile.targets.cpu.driver import driver
from weft.core.tensor import Tensor
from weft.runtime.cpu.address import address
from weft.runtime.cpu.buffers import Lease

MISS: Any = object()  # the usual way has to be taken
_NAMES = {
    "data_name": "_data", "node_name": "_node", "interpreter_name": "_interpreter",
    "grad_name": "grad",
}  # fmt: skip


class GuardedRuns:
    """A specialization, and native code that knows whether its guards hold."""

    def __init__(self, specialization: Any, settings: Any) -> None:
        self.specialization, self.settings = specialization, settings
        self.emptied = bool(specialization.captured.emptied)
        values = specialization.captured.values
        self.single = specialization.plain and len(values) == 1
        self.single = self.single and specialization.is_leaf
        self.storages: list[Any] = []  # of state that is written in place
        self.rest: list[Callable[[], bool]] = []  # guards that are no rows

    def run(self, args: tuple[Any, ...]) -> Any:
        """The function's result for these arguments, or MISS."""
        raise NotImplementedError

    def tell_tensors(self, table: Table) -> None:
        """Add rows for tensors whose memory and history the function has read."""
        seen = self.specialization.tensors
        for name, values in (("_data", seen.arrays), ("_node", seen.nodes)):
            for tensor, value in zip(seen.tensors, values, strict=True):
                tell_attribute(tensor, name, value, table)

    def tell_storages(self, table: Table) -> None:
        """Add rows for the records of changes of state that is written in place."""
        for _, cell in self.specialization.in_place:
            storage = cell.tensor.storage_record
            tell_attribute(cell.tensor, "_storage", storage, table)
            self.storages.append(storage)

    def tell_python(self, table: Table) -> None:
        """Add rows for Python values; ``rest`` has the checks of all others."""
        specialization = self.specialization
        self.rest = tell_guards(specialization.captured.guards, table)
        if specialization.reads is not None:
            self.rest += tell_reads(specialization.reads, table)

    def finish(
        self, table: Table, attributes: Layout, words: Mapping[str, int]
    ) -> dict[tuple[int, Any], int]:
        """Make ``again`` of all rows; the row number of each item.

        ``words`` are what the header has beside them.
        """
        self.rows, row_of = table.finished()
        self.alive = table.alive
        offsets = attributes.offsets
        all_words = {
            **dict.fromkeys(HEADER, 0),
            "rows": address(self.rows), "count": len(self.rows),
            "tensor": id(Tensor), "array": id(np.ndarray), "lease": id(Lease),
            "none": id(None), "get": python("PyDict_GetItemWithError"),
            "values": attributes.values, "tag": attributes.tag,
            "data": offsets["_data"], "node": offsets["_node"],
            "interpreter": offsets["_interpreter"],
            **{k: id(name) for k, name in _NAMES.items()},
            "number": python("PyLong_FromLongLong"), **words,
        }  # fmt: skip
        self.header = np.array([all_words[name] for name in HEADER], np.int64)
        self.again = method(driver().again, self.header)
        return row_of
