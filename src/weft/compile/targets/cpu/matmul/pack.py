"""Packing: copying blocks of A and B in the order in which strips read them.

A panel of B is ``depth`` rows of one tile's width. Lanes beyond B's last column hold
anything: they only reach lanes of C that are never stored.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import i64, loop
from weft.compile.emit.known_values import branch, pick
from weft.compile.emit.vectors import (
    at,
    first_lanes,
    load,
    minimum,
    store,
    transpose,
)  # fmt: skip
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.kinds import Kind


class Packing:
    """The packing functions of a library, emitted when first called."""

    def __init__(self, lib: Library) -> None:
        self.lib = lib

    @functools.cached_property
    def copy(self) -> ir.Function:
        """Copies rows with unit stride."""
        return _emit_copy(self.lib)

    @functools.cached_property
    def gather(self) -> ir.Function:
        """Copies rows with any strides."""
        return _emit_gather(self.lib)

    @functools.cached_property
    def transposed_panel(self) -> ir.Function:
        """Copies columns with unit stride to rows."""
        return _emit_transpose(self.lib)

    def rows(self, b: Any, s: Any, a: Any, height: Any) -> None:
        """Pack the rows of A from ``a`` on, as the kind of strip for A's strides wants.

        Contiguous rows stay rows of ``depth`` elements; contiguous columns become
        columns of ``together``; anything else becomes rows.
        """
        tile, h, to = self.lib.tile, height, s.workspace
        depth = i64(tile.depth)

        def columns() -> None:
            b.call(self.copy, [a, s.a_col, to, i64(tile.together), s.deep, h])

        def contiguous() -> None:
            b.call(self.copy, [a, s.a_row, to, depth, h, s.deep])

        def other() -> None:
            b.call(self.gather, [a, s.a_row, s.a_col, to, depth, h, s.deep])

        def by_rows() -> None:
            branch(b, s.unit_a_col, contiguous, other)

        branch(b, s.by_columns, columns, by_rows)

    def panels(self, b: Any, s: Any, source: Any) -> None:
        """This block of B as panels, one after the other.

        Contiguous rows are read some rows at a time, across all panels: a panel at a
        time would touch a page of memory for every two cache lines.
        """
        step = pick(b, s.unit_b_col, COST.matmul.copied_rows, s.deep)
        step = b.select(b.icmp_signed(">", step, i64(0)), step, i64(1))
        element, width = self.lib.element, i64(self.lib.tile.width)
        with (
            loop(b, i64(0), s.deep, step, name="k") as k,
            loop(b, i64(0), s.across, width, name="j") as j,
        ):
            offset = b.add(b.mul(j, s.b_col), b.mul(k, s.b_row))
            here = at(b, source, offset, self.lib.item)
            row = words_of(b, k, self.lib.kind)
            place = b.add(b.mul(j, s.words), b.mul(row, width))
            to = at(b, s.panels, place, element)
            count = minimum(b, width, b.sub(s.across, j))
            rows = minimum(b, step, b.sub(s.deep, k))
            self.panel(b, s, here, to, rows, count)

    def panel(self, b: Any, s: Any, here: Any, to: Any, rows: Any, count: Any) -> None:
        """Some rows of one panel."""
        width = i64(self.lib.tile.width)

        def straight() -> None:
            b.call(self.copy, [here, s.b_row, to, width, rows, count])

        def transposed() -> None:
            b.call(self.transposed_panel, [here, s.b_col, to, rows, count])

        def other() -> None:
            strides = [s.b_row, s.b_col]
            b.call(self.gather, [here, *strides, to, width, rows, count])

        branch(
            b,
            s.unit_b_col,
            straight,
            lambda: branch(b, s.unit_b_row, transposed, other),
        )


def panel_length(b: Any, k: Any, lanes: int) -> Any:
    """Rows of a panel of all of B: transposed squares must not reach the next."""
    return b.and_(b.add(k, i64(lanes - 1)), i64(-lanes))


def words_of(b: Any, k: Any, kind: Kind) -> Any:
    """The number of words that hold so many items of k."""
    if kind.group == 1:
        return k
    return b.sdiv(b.add(k, i64(kind.group - 1)), i64(kind.group))


def _emit_copy(lib: Library) -> ir.Function:
    """``to[i, :count] = source[i, :count]`` for rows with unit stride."""
    lanes = lib.tile.lanes
    arguments = "*source source_row *to to_row rows count"
    with lib.function("copy", arguments) as (b, s, function):
        whole = b.mul(b.sdiv(s.count, i64(lanes)), i64(lanes))
        mask = first_lanes(b, b.sub(s.count, whole), lanes)
        rest = b.icmp_signed("<", whole, s.count)
        with loop(b, i64(0), s.rows) as i:
            source = at(b, s.source, b.mul(i, s.source_row), lib.element)
            to = at(b, s.to, b.mul(i, s.to_row), lib.element)
            with loop(b, i64(0), whole, i64(lanes)) as j:
                value = load(b, at(b, source, j, lib.element), lib.vector)
                store(b, value, at(b, to, j, lib.element))
            with b.if_then(rest):
                value = load(b, at(b, source, whole, lib.element), lib.vector, mask)
                store(b, value, at(b, to, whole, lib.element), mask)
    return function


def _emit_gather(lib: Library) -> ir.Function:
    """``to[i, :count] = source[i, :count]`` of items, for any strides."""
    arguments = "*source source_row source_col *to to_row rows count"
    with lib.function("gather", arguments) as (b, s, function):
        rows = loop(b, i64(0), s.rows)
        with rows as i:
            source = at(b, s.source, b.mul(i, s.source_row), lib.item)
            to = at(b, s.to, b.mul(i, s.to_row), lib.item)
            with loop(b, i64(0), s.count) as j:
                item = at(b, source, b.mul(j, s.source_col), lib.item)
                b.store(b.load(item, typ=lib.item), at(b, to, j, lib.item))
    return function


def load_transposed(
    b: Any, lib: Library, s: Any, row: Any, column: Any, last: Any, mask: Any = None
) -> list[Any]:
    """The transpose of a square of ``source``; rows beyond the last repeat it."""
    rows = []
    for lane in range(lib.tile.lanes):
        start = b.mul(minimum(b, b.add(row, i64(lane)), last), s.source_row)
        place = at(b, s.source, b.add(start, column), lib.element)
        rows.append(load(b, place, lib.vector, mask))
    return transpose(b, rows)


def _emit_transpose(lib: Library) -> ir.Function:
    """``to[k, j] = source[j, k]``: a panel from columns that are contiguous.

    Squares of vectors are transposed in registers. The last square of a panel writes
    rows beyond it, which the next panel overwrites (or the workspace's slack takes).
    """
    lanes, width = lib.tile.lanes, i64(lib.tile.width)
    with lib.function("turn", "*source source_row *to k count") as (b, s, function):
        last = b.sub(s.count, i64(1))
        with (
            loop(b, i64(0), s.count, i64(lanes), name="j") as j,
            loop(b, i64(0), s.k, i64(lanes)) as k,
        ):
            mask = first_lanes(b, b.sub(s.k, k), lanes)
            for lane, value in enumerate(load_transposed(b, lib, s, j, k, last, mask)):
                row = b.mul(b.add(k, i64(lane)), width)
                store(b, value, at(b, s.to, b.add(row, j), lib.element))
    return function
