"""Groups with reductions: for each index that is kept, a loop for every stage.

A stage ends where a reduction must be finished before the next loop may begin:
softmax has three (largest, sum, quotient). Rows are scalars in between. Rows may be
combined while they are computed, a chunk of them in each iteration.
"""

from __future__ import annotations

import functools
from typing import Any

from weft.compile.loop.ir import Buffer, Call, For, Kernel, Load, Local, Set, Store
from weft.compile.lower import values
from weft.compile.lower.base import Lowering
from weft.compile.lower.values import as_dtype, total_dtype
from weft.graph.ir import Node


class RowLoops(Lowering):
    """A row is a scalar."""

    def row(self, node: Node) -> Any:
        return as_dtype(self._local(node), node.dtype)

    def _local(self, node: Node) -> Local:
        return Local(f"row{self.group.nodes.index(node)}", total_dtype(node))

    def loops(self) -> Kernel:
        body: list[Any] = []
        for stage in range(self.last_stage + 1):
            body += self._before(stage) + self._loop(stage)
        if self.group.columns:
            body = self._with_columns(body)
        for var, extent in reversed(self.group.outer):
            (size,) = self._sizes((extent,))
            body = [For(var, size, body)]
        schedule = functools.partial(
            self.target.row_schedule, self.group, loops=self.cuts
        )
        return self._made((), body, schedule)

    def _before(self, stage: int) -> list[Any]:
        """Rows that are known now, and those that must be stored."""
        out: list[Any] = []
        for n in self.rows_at(stage):
            found = [Set(self._local(n), self._compute(n, stage, {}))]
            out += self.with_lets(found)
        out += self.stored_rows(stage)
        return out

    def _loop(self, stage: int) -> list[Any]:
        memo: dict[Any, Any] = {}
        inner: list[Any] = self.stores_of(stage, memo)
        starts = []
        for node in self.reductions_of(stage):
            local, combine = self._local(node), node.op.lower.combine
            starts.append(Set(local, values.identity(combine, local.dtype)))
            value = self.reduced_value(node, stage, memo)
            total = Call(combine, (local, value), local.dtype)
            inner.append(Set(local, total, reorder=True))
        inner += [self._combined(n, stage, memo) for n in self._columns(stage)]
        inner = self.with_lets(inner)
        return starts + self.over_row(inner) if inner else starts

    # -- rows that are combined

    def _columns(self, stage: int) -> list[Node]:
        return [n for n in self.group.columns if self.stage[n] == stage]

    def _scratch_row(self, node: Node) -> Load:
        """An element of the scratch row that other rows are combined in."""
        group, name = self.group, f"sum{self.group.nodes.index(node)}"
        sizes = tuple(group.shape[d] for d in group.inner)
        total_row = Buffer(name, sizes, total_dtype(node), scratch=True)
        return Load(total_row, tuple(group.vars[d] for d in group.inner))

    def _combined(self, node: Node, stage: int, memo: dict[Any, Any]) -> Store:
        total_row = self._scratch_row(node)
        value = self.reduced_value(node, stage, memo)
        total = Call(node.op.lower.combine, (total_row, value), total_row.dtype)
        return Store(*total_row, total)

    def _with_columns(self, body: list[Any]) -> list[Any]:
        """The rows of a chunk, one after the other, and the row that combines them."""
        starts, ends = [], []
        for node in self.group.columns:
            total_row = self._scratch_row(node)
            first = values.identity(node.op.lower.combine, total_row.dtype)
            starts.append(Store(*total_row, first))
            made = as_dtype(total_row, node.dtype)
            ends.append(Store(self.buffer(node), self.group.home[node], made))
            self.scratch.append(total_row.buffer)
        rows = self.over(self.group.tall, body)
        return [*self.over_row(starts), *rows, *self.over_row(ends)]
