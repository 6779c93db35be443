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

from weft.compile.emit.control_flow import i64, loop
from weft.compile.emit.known_values import (
    added,
    both,
    compare,
    either,
    negate,
    rounded,
    times,
)
from weft.compile.emit.vectors import (
    at,
    itemsize,
    lane_bits,
    mask_of,
    minimum,
    store,
)  # fmt: skip
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.epilogue import call_epilogue
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.kinds import Kind
from weft.compile.targets.cpu.matmul.pack import Packing, load_transposed
from weft.compile.targets.cpu.matmul.strip import in_groups
from weft.compile.targets.cpu.matmul.tiling import Tiling

_COST = COST.matmul
Strips = Callable[..., None]


def is_flat(b: Any, s: Any, tile: Tiling, kind: Kind) -> Any:
    """Whether a product is computed as C': by its sizes, if the small operand and a
    block of C' fit the workspace.
    """
    if kind.widens:
        return False
    flat = compare(b, "<=", times(b, s.m, 2), s.n)
    lanes = times(b, rounded(b, s.m, tile.lanes), 7)
    flat = both(b, flat, compare(b, ">=", times(b, s.m, 8), lanes))  # most are used
    long = compare(b, "<=", s.m, s.k)
    long = both(b, long, compare(b, ">=", s.k, _COST.transposed_k))
    rows = rounded(b, s.m, tile.width)
    held = times(b, rows, added(b, s.k, tile.lanes + _span(tile)))
    fits = compare(b, "<=", held, tile.depth * tile.columns)
    return both(b, both(b, flat, long), both(b, fits, compare(b, "==", s.keep, 0)))


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

    def emit(self, b: Any, s: Any, strips: Strips) -> None:
        """All of the rectangle: the small operand is packed, for all of k."""
        tile, element = self.lib.tile, self.lib.element
        t = _swapped(b, s)
        t.pack_a = negate(b, self._direct(b, t))
        rows = b.sub(s.row_end, s.row_begin)
        source = at(b, s.a, b.mul(s.row_begin, s.a_row), self.lib.item)
        t.deep, t.words, t.across, t.j = s.k, s.k, rows, i64(0)
        t.panels = at(b, s.workspace, i64(tile.row_panel), element)
        self.packing.panels(b, t, source)
        width = rounded(b, rows, tile.width)
        length = b.add(b.mul(width, s.k), i64(tile.width * tile.lanes))
        t.c_row = rounded(b, rows, tile.lanes)
        buffer = at(b, t.panels, length, element)
        with loop(b, s.column_begin, s.column_end, i64(_span(tile)), name="j") as j:
            right = minimum(b, s.column_end, b.add(j, i64(_span(tile))))
            t.c = at(b, buffer, b.mul(b.neg(j), t.c_row), element)

            self._rows(b, t, j, right, strips)
            offset = b.add(b.mul(s.row_begin, s.c_row), j)
            to = [at(b, s.c, offset, element), s.c_row]
            b.call(self.back, [buffer, t.c_row, *to, rows, b.sub(right, j)])
            call_epilogue(b, s, s.row_begin, s.row_end, j, right)

    def _direct(self, b: Any, t: Any) -> Any:
        """Whether B's columns are read unpacked.

        Rows that begin in the same set of a cache would evict each other.
        """
        apart = b.mul(t.a_row, i64(itemsize(self.lib.element)))
        same = b.icmp_signed("==", b.and_(apart, i64(COST.caches.alias - 1)), i64(0))
        return either(b, t.by_columns, both(b, t.unit_a_col, b.not_(same)))

    def _rows(self, b: Any, t: Any, begin: Any, end: Any, strips: Strips) -> None:
        """Some rows of C', over all blocks of k in order."""
        tile = self.lib.tile
        with loop(b, i64(0), t.k, i64(tile.depth), name="p") as p:
            t.p = p
            t.deep = t.words = minimum(b, i64(tile.depth), b.sub(t.k, p))
            block = at(b, t.panels, b.mul(p, i64(tile.width)), self.lib.element)
            right = [block, i64(tile.width), b.mul(i64(tile.width), t.k)]

            def run(row: Any, height: Any, right: list[Any] = right) -> None:
                strips(b, t, row, height, right, b.mul(t.a_row, height))

            in_groups(b, tile, begin, end, run)


def _swapped(b: Any, s: Any) -> Any:
    """The product as that of B' and A'."""
    t = SimpleNamespace(**vars(s))
    t.a, t.a_row, t.a_col, t.b, t.b_row, t.b_col = (
        s.b, s.b_col, s.b_row, s.a, s.a_col, s.a_row
    )  # fmt: skip
    t.m, t.n = s.n, s.m
    t.unit_a_row, t.unit_a_col = s.unit_b_col, s.unit_b_row
    t.unit_b_row, t.unit_b_col = s.unit_a_col, s.unit_a_row
    t.by_columns = both(b, t.unit_a_row, negate(b, t.unit_a_col))
    return t


def _emit_back(lib: Library) -> ir.Function:
    """``to[i, j] = source[j, i]``: squares of vectors are transposed in registers.

    Rows of the source are whole vectors.
    """
    lanes, element = lib.tile.lanes, lib.element
    arguments = "*source source_row *to to_row rows columns"
    with lib.function("back", arguments) as (b, s, function):
        last = b.sub(s.columns, i64(1))
        with (
            loop(b, i64(0), s.columns, i64(lanes), name="j") as j,
            loop(b, i64(0), s.rows, i64(lanes)) as i,
        ):
            some = lane_bits(b, b.sub(s.columns, j), lanes)
            for lane, value in enumerate(load_transposed(b, lib, s, j, i, last)):
                row = b.add(i, i64(lane))
                there = b.select(b.icmp_signed("<", row, s.rows), some, i64(0))
                place = at(b, s.to, b.add(b.mul(row, s.to_row), j), element)
                store(b, value, place, mask_of(b, there, lanes))
    return function
