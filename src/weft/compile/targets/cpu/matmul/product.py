"""The product of two matrices: blocks, panels and strips put together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I1, I64, i64, loop
from weft.compile.emit.known_values import (
    both,
    branch,
    compare,
    either,
    negate,
    pick,
    rounded,
    times,
    value,
)  # fmt: skip
from weft.compile.emit.vectors import PTR, at, minimum
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.epilogue import call_epilogue
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.pack import Packing, panel_length, words_of
from weft.compile.targets.cpu.matmul.pack_words import Words
from weft.compile.targets.cpu.matmul.skinny import Skinny, conditions, find_units
from weft.compile.targets.cpu.matmul.strip import Strips, in_groups, in_strips
from weft.compile.targets.cpu.matmul.tiling import Tiling, has_masks
from weft.compile.targets.cpu.matmul.transposed import Transposed, is_flat

ARGUMENTS = (
    "*a *b *c *packed *epilogue *context m n k a_row a_col b_row b_col c_row keep "
    "whole first_row row_begin row_end column_begin column_end *workspace"
)
_SOME_ROWS = (
    "*a a_row a_col *ahead *b b_row b_panel *c c_row across deep words keep *workspace "
    "height by_columns pack_a unit_a_col"
)
_FLAGS = "by_columns", "pack_a", "unit_a_col"
KNOWABLE = frozenset(
    ["m", "n", "k", "a_row", "a_col", "b_row", "b_col", "c_row", "keep"]
)


class Product:
    """Emits the function that computes a rectangle of C.

    Without ``few`` it lacks the code for few rows or columns; see ``is_few``.
    """

    def __init__(self, lib: Library, known: Mapping[str, int], few: bool) -> None:
        self.lib, self.known, self.few = lib, known, few
        self.packing: Any = Words(lib) if lib.kind.widens else Packing(lib)
        self.skinny = Skinny(lib, self.packing)
        self.transposed = Transposed(lib, self.packing)
        self.strips = Strips(lib)
        self._made: dict[Any, ir.Function] = {}

    def emit(self) -> ir.Function:
        """The public function."""
        with self.lib.function("", ARGUMENTS, public=True) as (b, s, function):
            q = SimpleNamespace(**{**vars(s), **self.known})
            _decide(b, q, self.lib)
            if self.few:
                q.ready = b.icmp_unsigned("!=", s.packed, PTR(None))
                q.when_skinny = conditions(b, q, self.lib.tile, self.lib.kind)
            for name in KNOWABLE:  # decisions are made: all are operands now
                setattr(s, name, value(getattr(q, name)))
            for name in vars(q).keys() - vars(s).keys():
                setattr(s, name, getattr(q, name))
            if self.few:
                self.skinny.emit(b, s, lambda: self._either_way(b, s))
            else:
                self._either_way(b, s)
        return function

    def _either_way(self, b: Any, s: Any) -> None:
        """Flat products as C' = B' A', unless B is packed already; else as they are."""
        ready = b.icmp_unsigned("!=", s.packed, PTR(None))
        branch(
            b,
            both(b, s.is_flat, b.not_(ready)),
            lambda: self.transposed.emit(b, s, self._strips),
            lambda: self._blocks(b, s),
        )

    def _blocks(self, b: Any, s: Any) -> None:
        """Blocks of columns, and of k as far as B's stay in a cache together."""
        tile = self.lib.tile
        s.panels = at(b, s.workspace, i64(tile.row_panel), self.lib.element)
        s.some = b.select(b.icmp_signed(">", s.k, i64(0)), s.k, i64(1))
        with loop(b, s.column_begin, s.column_end, i64(tile.columns), name="j") as j:
            s.j = j
            s.across = minimum(b, i64(tile.columns), b.sub(s.column_end, j))
            s.wide_panels = rounded(b, s.across, tile.width)
            reach = b.mul(b.sdiv(i64(tile.columns), s.wide_panels), i64(self.deepest))
            with loop(b, i64(0), s.some, reach, name="stretch") as s.first:
                s.last = minimum(b, s.some, b.add(s.first, reach))
                self._pack_right(b, s)
                self._rows(b, s)

    @property
    def deepest(self) -> int:
        """Items of k in a block: C adds up the sums of blocks, in order."""
        return self.lib.tile.depth * self.lib.kind.group

    @contextmanager
    def _each_block(self, b: Any, s: Any) -> Iterator[Any]:
        """The body of a loop over this stretch's blocks of k; gives each block."""
        with loop(b, s.first, s.last, i64(self.deepest), name="p") as p:
            q = SimpleNamespace(**vars(s), p=p)
            q.deep = minimum(b, i64(self.deepest), b.sub(s.k, p))
            q.words = words_of(b, q.deep, self.lib.kind)
            before = words_of(b, b.sub(p, s.first), self.lib.kind)
            place = b.mul(before, s.wide_panels)
            q.panels = at(b, s.panels, place, self.lib.element)
            yield q

    def _pack_right(self, b: Any, s: Any) -> None:
        """Pack this stretch of B as panels, unless it is read unpacked."""
        s.ready = b.icmp_unsigned("!=", s.packed, PTR(None))

        def pack() -> None:
            with self._each_block(b, s) as q:
                self.packing.panels(b, q, self._right_items(b, q))

        with b.if_then(b.not_(s.ready)):
            branch(b, s.pack_b, pack)

    def _right_items(self, b: Any, s: Any) -> Any:
        offset = b.add(b.mul(s.p, s.b_row), b.mul(s.j, s.b_col))
        return at(b, s.b, offset, self.lib.item)

    def _right(self, b: Any, s: Any) -> list[Any]:
        """A block of B for strips: where it is, from row to row, from tile to tile."""
        width, kind = i64(self.lib.tile.width), self.lib.kind
        length = panel_length(b, words_of(b, s.k, kind), self.lib.tile.lanes)
        row = words_of(b, s.p, kind)
        place = b.add(b.mul(s.j, length), b.mul(row, width))
        before = at(b, s.packed, place, self.lib.element)
        block = pick(b, s.pack_b, s.panels, self._right_items(b, s))
        row = pick(b, s.pack_b, width, s.b_row)
        panel = pick(b, s.pack_b, b.mul(width, s.words), width)
        return [
            b.select(s.ready, before, block),
            b.select(s.ready, width, row),
            b.select(s.ready, b.mul(width, length), panel),
        ]

    def _rows(self, b: Any, s: Any) -> None:
        """Strips of all rows; how they are cut changes no result."""
        final = b.icmp_signed(">=", s.last, s.k)

        def strips(row: Any, height: Any) -> None:
            with self._each_block(b, s) as q:
                ahead = self._ahead(b, q, height)
                self._strips(b, q, row, height, self._right(b, q), ahead)
            bottom, right = b.add(row, height), b.add(s.j, s.across)
            call_epilogue(b, s, row, bottom, s.j, right, final)

        in_groups(b, self.lib.tile, s.row_begin, s.row_end, strips)

    def _ahead(self, b: Any, s: Any, height: Any) -> Any:
        """The offset to the elements of A that are read next, here or in rows below."""
        more = b.icmp_signed("<", b.add(s.p, s.deep), s.last)
        below = b.sub(b.mul(s.a_row, height), b.mul(b.sub(s.p, s.first), s.a_col))
        return b.select(more, b.mul(s.a_col, s.deep), below)

    def _strips(
        self, b: Any, s: Any, row: Any, height: Any, right: list[Any], ahead: Any
    ) -> None:
        """Some rows of C for one block of k; ``ahead`` is where A is read next."""
        offset = b.add(b.mul(row, s.a_row), b.mul(s.p, s.a_col))
        here = at(b, s.a, offset, self.lib.item)
        c = at(b, s.c, b.add(b.mul(row, s.c_row), s.j), self.lib.element)
        add = b.or_(s.keep, b.zext(b.icmp_signed(">", s.p, i64(0)), I64))
        flags = [pick(b, getattr(s, name), 1, 0) for name in _FLAGS]
        left = [here, s.a_row, s.a_col, at(b, here, ahead, self.lib.item)]
        rest = [c, s.c_row, s.across, s.deep, s.words, add, s.workspace, height]
        b.call(self._some_rows(s), [*left, *right, *rest, *flags])

    def _some_rows(self, s: Any) -> ir.Function:
        """The function that packs rows of A, if need be, and calls their strips.

        There is one for all heights, for each combination of known flags.
        """
        flags = [getattr(s, name) for name in _FLAGS]
        known = tuple([flag if isinstance(flag, bool) else None for flag in flags])
        if known not in self._made:
            name = "some_rows" + "".join("nyx"[2 if k is None else k] for k in known)
            with self.lib.function(name, _SOME_ROWS) as (b, q, function):
                for flag, value in zip(_FLAGS, known, strict=True):
                    given = b.trunc(getattr(q, flag), I1)
                    setattr(q, flag, given if value is None else value)
                self._emit_rows(b, q)
            self._made[known] = function
        return self._made[known]

    def _emit_rows(self, b: Any, s: Any) -> None:
        tile = self.lib.tile
        branch(b, s.pack_a, lambda: self.packing.rows(b, s, s.a, s.height))
        left = pick(b, s.pack_a, s.workspace, s.a)
        shift = self._shift(b, s) if self.lib.kind.shifted else None
        rows = [pick(b, s.by_columns, 1, x) for x in (tile.depth, s.a_row)]
        columns = [pick(b, s.by_columns, x, 1) for x in (tile.together, s.a_col)]
        now = [pick(b, s.pack_a, *two) for two in (rows, columns)]

        def strip(row: Any, height: Any) -> None:
            a, c = ((left, now[0]), (s.c, s.c_row))
            a, c = (at(b, x, b.mul(row, by), self.lib.element) for x, by in (a, c))
            ahead = at(b, s.ahead, b.mul(row, rows[1]), self.lib.item)
            right = [s.b, s.b_row, s.b_panel, c, s.c_row, s.across, s.words, s.keep]
            arguments = [a, *now, *right, ahead, rows[1], columns[1]]
            if shift is not None:
                arguments.append(at(b, shift, row, self.lib.element))
            self.strips.call_any(b, height, s.by_columns, arguments)

        in_strips(b, tile.heights, i64(0), s.height, strip)

    def _shift(self, b: Any, s: Any) -> Any:
        """The corrections of these packed rows: see ``kinds``."""
        tile = self.lib.tile
        last = i64(tile.workspace - tile.corrections)
        to = at(b, s.workspace, last, self.lib.element)
        by = pick(b, s.by_columns, 1, 0)
        b.call(self.packing.shift, [s.workspace, to, s.height, s.words, by])
        return to


def _decide(b: Any, s: Any, lib: Library) -> None:
    """Decide by the whole product's sizes, never by those of a thread's task."""
    find_units(b, s)
    s.by_columns = both(b, s.unit_a_row, negate(b, s.unit_a_col))
    words = lib.kind.widens  # they are made by packing
    s.pack_a = words or negate(b, _direct_a(b, s, lib.tile))
    s.pack_b = words or negate(b, _direct_b(b, s, lib))
    s.is_flat = is_flat(b, s, lib.tile, lib.kind)


def _direct_a(b: Any, s: Any, tile: Tiling) -> Any:
    """Whether A is read so few times that packing it does not pay."""
    few = compare(b, "<=", s.n, 4 * tile.width)
    # Rows a power of two apart share few sets of a cache; columns are short.
    near = either(b, s.by_columns, compare(b, "<=", s.k, tile.depth))
    once = compare(b, "<=", s.n, tile.width)
    unit = either(b, s.unit_a_row, s.unit_a_col)
    return both(b, unit, either(b, once, both(b, few, near)))


def _direct_b(b: Any, s: Any, lib: Library) -> Any:
    """Whether B is in a cache, or read few times and not from memory."""
    tile, elements = lib.tile, times(b, s.n, s.k)
    near = compare(b, "<=", elements, tile.depth * tile.columns)
    few = compare(b, "<=", s.m, 2 * tile.height)
    seldom = both(b, few, compare(b, "<=", elements, COST.matmul.cached))
    direct = both(b, s.unit_b_col, either(b, near, seldom))
    if has_masks(lib.isa):
        return direct
    return both(b, direct, _whole_vectors(b, s.n, tile.lanes))


def _whole_vectors(b: Any, n: Any, lanes: int) -> Any:
    if isinstance(n, int):
        return n % lanes == 0
    return compare(b, "==", b.srem(n, i64(lanes)), 0)
