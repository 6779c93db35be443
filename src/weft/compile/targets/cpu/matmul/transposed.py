"""Flat products, computed as C' = B' A': C has far fewer rows than columns.

B is the large operand then, and too few rows use it to pay for packing it. Transposed,
the small operand is packed instead, once, and strips go along B's columns, mostly
unpacked. Blocks of C' are held in the workspace, and transposed when they are finished.
The same products are added in the same order as otherwise: no bit differs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from llvmlite import ir

from weft.compile.emit.flow import loop
from weft.compile.emit.values import (
    call,
    equal,
    itemsize,
    minimum,
    negate,
    rounded,
    select,
)
from weft.compile.emit.vectors import lane_bits, mask_of
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.epilogue import call_epilogue
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.kinds import Kind
from weft.compile.targets.cpu.matmul.pack import Packing, load_transposed
from weft.compile.targets.cpu.matmul.strip import in_groups
from weft.compile.targets.cpu.matmul.tiling import Tiling

_COST = COST.matmul
Strips = Callable[..., None]


def is_flat(s: Any, tile: Tiling, kind: Kind) -> Any:
    """Whether a product is computed as C': by its sizes, if the small operand and a
    block of C' fit the workspace.
    """
    if kind.widens:
        return False
    flat = s.m * 2 <= s.n
    lanes = rounded(s.m, tile.lanes) * 7
    flat = flat & (s.m * 8 >= lanes)  # most are used
    long = s.m <= s.k
    long = long & (s.k >= _COST.transposed_k)
    rows = rounded(s.m, tile.width)
    held = rows * (s.k + (tile.lanes + _span(tile)))
    fits = held <= tile.depth * tile.columns
    return flat & long & (fits & equal(s.keep, 0))


def _span(tile: Tiling) -> int:
    """Columns of C that are transposed back at a time."""
    return _COST.transposed_panels * tile.together


class Transposed:
    """Emits a rectangle of C by way of C'."""

    def __init__(self, lib: Library, packing: Packing) -> None:
        self.lib, self.packing = lib, packing

    @functools.cached_property
    def back(self) -> ir.Function:
        """The function that stores the transpose of a block of C' in C."""
        return _emit_back(self.lib)

    def emit(self, s: Any, strips: Strips) -> None:
        """All of the rectangle: the small operand is packed, for all of k."""
        tile = self.lib.tile
        t = _swapped(s)
        t.pack_a = negate(self._direct(t))
        rows = s.row_end - s.row_begin
        source = s.a + s.row_begin * s.a_row
        t.deep, t.words, t.across, t.j = s.k, s.k, rows, 0
        t.panels = s.workspace + tile.row_panel
        self.packing.panels(t, source)
        width = rounded(rows, tile.width)
        length = width * s.k + tile.width * tile.lanes
        t.c_row = rounded(rows, tile.lanes)
        buffer = t.panels + length
        with loop(s.column_begin, s.column_end, _span(tile), name="j") as j:
            right = minimum(s.column_end, j + _span(tile))
            t.c = buffer + -j * t.c_row

            self._rows(t, j, right, strips)
            offset = s.row_begin * s.c_row + j
            to = [s.c + offset, s.c_row]
            call(self.back, [buffer, t.c_row, *to, rows, right - j])
            call_epilogue(s, s.row_begin, s.row_end, j, right)

    def _direct(self, t: Any) -> Any:
        """Whether B's columns are read unpacked.

        Rows that begin in the same set of a cache would evict each other.
        """
        apart = t.a_row * itemsize(self.lib.element)
        same = (apart & COST.caches.alias - 1).equals(0)
        return t.by_columns | t.unit_a_col & ~same

    def _rows(self, t: Any, begin: Any, end: Any, strips: Strips) -> None:
        """Some rows of C', over all blocks of k in order."""
        tile = self.lib.tile
        with loop(0, t.k, tile.depth, name="p") as p:
            t.p = p
            t.deep = t.words = minimum(tile.depth, t.k - p)
            block = t.panels + p * tile.width
            right = [block, tile.width, tile.width * t.k]

            def run(row: Any, height: Any, right: list[Any] = right) -> None:
                strips(t, row, height, right, t.a_row * height)

            in_groups(tile, begin, end, run)


def _swapped(s: Any) -> Any:
    """The product as that of B' and A'."""
    t = SimpleNamespace(**vars(s))
    t.a, t.a_row, t.a_col, t.b, t.b_row, t.b_col = (
        s.b,
        s.b_col,
        s.b_row,
        s.a,
        s.a_col,
        s.a_row,
    )
    t.m, t.n = s.n, s.m
    t.unit_a_row, t.unit_a_col = s.unit_b_col, s.unit_b_row
    t.unit_b_row, t.unit_b_col = s.unit_a_col, s.unit_a_row
    t.by_columns = t.unit_a_row & negate(t.unit_a_col)
    return t


def _emit_back(lib: Library) -> ir.Function:
    """``to[i, j] = source[j, i]``: squares of vectors are transposed in registers.

    Rows of the source are whole vectors.
    """
    lanes = lib.tile.lanes
    arguments = "*source source_row *to to_row rows columns"
    with lib.function("back", arguments) as (s, function):
        last = s.columns - 1
        with loop(0, s.columns, lanes, name="j") as j, loop(0, s.rows, lanes) as i:
            some = lane_bits(s.columns - j, lanes)
            for lane, value in enumerate(load_transposed(lib, s, j, i, last)):
                row = i + lane
                there = select(row < s.rows, some, 0)
                place = s.to + (row * s.to_row + j)
                place.store(value, mask_of(there, lanes))
    return function
