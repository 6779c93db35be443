"""Packing: copying blocks of A and B in the order in which strips read them.

A panel of B is ``depth`` rows of one tile's width. Lanes beyond B's last column hold
anything: they only reach lanes of C that are never stored.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from weft.compile.emit.flow import branch, loop, when
from weft.compile.emit.values import call, minimum, select
from weft.compile.emit.vectors import first_lanes, transpose
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

    def rows(self, s: Any, a: Any, height: Any) -> None:
        """Pack the rows of A from ``a`` on, as the kind of strip for A's strides wants.

        Contiguous rows stay rows of ``depth`` elements; contiguous columns become
        columns of ``together``; anything else becomes rows.
        """
        to, together, depth = s.workspace, self.lib.tile.together, self.lib.tile.depth
        branch(
            s.by_columns,
            lambda: call(self.copy, [a, s.a_col, to, together, s.deep, height]),
            lambda: branch(
                s.unit_a_col,
                lambda: call(self.copy, [a, s.a_row, to, depth, height, s.deep]),
                lambda: call(
                    self.gather, [a, s.a_row, s.a_col, to, depth, height, s.deep]
                ),
            ),
        )

    def panels(self, s: Any, source: Any) -> None:
        """This block of B as panels, one after the other.

        Contiguous rows are read some rows at a time, across all panels: a panel at a
        time would touch a page of memory for every two cache lines.
        """
        step = select(s.unit_b_col, COST.matmul.copied_rows, s.deep)
        step = select(step > 0, step, 1)
        width = self.lib.tile.width
        with (
            loop(0, s.deep, step, name="k") as k,
            loop(0, s.across, width, name="j") as j,
        ):
            offset = j * s.b_col + k * s.b_row
            here = source + offset
            row = words_of(k, self.lib.kind)
            place = j * s.words + row * width
            to = s.panels + place
            count = minimum(width, s.across - j)
            rows = minimum(step, s.deep - k)
            self.panel(s, here, to, rows, count)

    def panel(self, s: Any, here: Any, to: Any, rows: Any, count: Any) -> None:
        """Some rows of one panel."""
        width, strides = self.lib.tile.width, [s.b_row, s.b_col]
        branch(
            s.unit_b_col,
            lambda: call(self.copy, [here, s.b_row, to, width, rows, count]),
            lambda: branch(
                s.unit_b_row,
                lambda: call(self.transposed_panel, [here, s.b_col, to, rows, count]),
                lambda: call(self.gather, [here, *strides, to, width, rows, count]),
            ),
        )


def panel_length(k: Any, lanes: int) -> Any:
    """Rows of a panel of all of B: transposed squares must not reach the next."""
    return k + (lanes - 1) & -lanes


def words_of(k: Any, kind: Kind) -> Any:
    """The number of words that hold so many items of k."""
    if kind.group == 1:
        return k
    return (k + (kind.group - 1)) // kind.group


def _emit_copy(lib: Library) -> ir.Function:
    """``to[i, :count] = source[i, :count]`` for rows with unit stride."""
    lanes = lib.tile.lanes
    arguments = "*source source_row *to to_row rows count"
    with lib.function("copy", arguments) as (s, function):
        whole = s.count // lanes * lanes
        mask = first_lanes(s.count - whole, lanes)
        rest = whole < s.count
        with loop(s.rows) as i:
            source = s.source + i * s.source_row
            to = s.to + i * s.to_row
            with loop(0, whole, lanes) as j:
                value = (source + j).load(lib.vector)
                to[j] = value
            with when(rest):
                value = (source + whole).load(lib.vector, mask)
                (to + whole).store(value, mask)
    return function


def _emit_gather(lib: Library) -> ir.Function:
    """``to[i, :count] = source[i, :count]`` of items, for any strides."""
    arguments = "item*source source_row source_col item*to to_row rows count"
    with lib.function("gather", arguments) as (s, function):
        rows = loop(s.rows)
        with rows as i:
            source = s.source + i * s.source_row
            to = s.to + i * s.to_row
            with loop(s.count) as j:
                item = source + j * s.source_col
                to[j] = item.load()
    return function


def load_transposed(
    lib: Library, s: Any, row: Any, column: Any, last: Any, mask: Any = None
) -> list[Any]:
    """The transpose of a square of ``source``; rows beyond the last repeat it."""
    rows = []
    for lane in range(lib.tile.lanes):
        start = minimum(row + lane, last) * s.source_row
        place = s.source + (start + column)
        rows.append(place.load(lib.vector, mask))
    return transpose(rows)


def _emit_transpose(lib: Library) -> ir.Function:
    """``to[k, j] = source[j, k]``: a panel from columns that are contiguous.

    Squares of vectors are transposed in registers. The last square of a panel writes
    rows beyond it, which the next panel overwrites (or the workspace's slack takes).
    """
    lanes, width = lib.tile.lanes, lib.tile.width
    with lib.function("turn", "*source source_row *to k count") as (s, function):
        last = s.count - 1
        with loop(0, s.count, lanes, name="j") as j, loop(0, s.k, lanes) as k:
            mask = first_lanes(s.k - k, lanes)
            for lane, value in enumerate(load_transposed(lib, s, j, k, last, mask)):
                row = (k + lane) * width
                (s.to + (row + j)).store(value)
    return function
