"""The product of two matrices: blocks, panels and strips put together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from llvmlite import ir

from weft.compile.emit.flow import branch, loop, when
from weft.compile.emit.values import call, equal, minimum, negate, rounded, select
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
    "item*a item*b *c *packed *epilogue *context m n k a_row a_col b_row b_col c_row "
    "keep whole first_row row_begin row_end column_begin column_end *workspace"
)
_SOME_ROWS = (
    "*a a_row a_col item*ahead *b b_row b_panel *c c_row across deep words keep "
    "*workspace height by_columns pack_a unit_a_col"
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
        with self.lib.function("", ARGUMENTS, public=True) as (s, function):
            q = SimpleNamespace(**{**vars(s), **self.known})
            _decide(q, self.lib)
            if self.few:
                q.ready = s.packed.is_given()
                q.when_skinny = conditions(q, self.lib.tile, self.lib.kind)
            for name in KNOWABLE:  # decisions are made: all are operands now
                setattr(s, name, s.m.like(getattr(q, name)))
            for name in vars(q).keys() - vars(s).keys():
                setattr(s, name, getattr(q, name))
            if self.few:
                self.skinny.emit(s, lambda: self._either_way(s))
            else:
                self._either_way(s)
        return function

    def _either_way(self, s: Any) -> None:
        """Flat products as C' = B' A', unless B is packed already; else as they are."""
        ready = s.packed.is_given()
        branch(
            s.is_flat & ~ready,
            lambda: self.transposed.emit(s, self._strips),
            lambda: self._blocks(s),
        )

    def _blocks(self, s: Any) -> None:
        """Blocks of columns, and of k as far as B's stay in a cache together."""
        tile = self.lib.tile
        s.panels = s.workspace + tile.row_panel
        s.some = select(s.k > 0, s.k, 1)
        with loop(s.column_begin, s.column_end, tile.columns, name="j") as j:
            s.j = j
            s.across = minimum(tile.columns, s.column_end - j)
            s.wide_panels = rounded(s.across, tile.width)
            reach = tile.columns // s.wide_panels * self.deepest
            with loop(0, s.some, reach, name="stretch") as s.first:
                s.last = minimum(s.some, s.first + reach)
                self._pack_right(s)
                self._rows(s)

    @property
    def deepest(self) -> int:
        """Items of k in a block: C adds up the sums of blocks, in order."""
        return self.lib.tile.depth * self.lib.kind.group

    @contextmanager
    def _each_block(self, s: Any) -> Iterator[Any]:
        """The body of a loop over this stretch's blocks of k; gives each block."""
        with loop(s.first, s.last, self.deepest, name="p") as p:
            q = SimpleNamespace(**vars(s), p=p)
            q.deep = minimum(self.deepest, s.k - p)
            q.words = words_of(q.deep, self.lib.kind)
            before = words_of(p - s.first, self.lib.kind)
            place = before * s.wide_panels
            q.panels = s.panels + place
            yield q

    def _pack_right(self, s: Any) -> None:
        """Pack this stretch of B as panels, unless it is read unpacked."""
        s.ready = s.packed.is_given()

        def pack() -> None:
            with self._each_block(s) as q:
                self.packing.panels(q, self._right_items(q))

        with when(~s.ready):
            branch(s.pack_b, pack)

    def _right_items(self, s: Any) -> Any:
        offset = s.p * s.b_row + s.j * s.b_col
        return s.b + offset

    def _right(self, s: Any) -> list[Any]:
        """A block of B for strips: where it is, from row to row, from tile to tile."""
        width, kind = self.lib.tile.width, self.lib.kind
        length = panel_length(words_of(s.k, kind), self.lib.tile.lanes)
        row = words_of(s.p, kind)
        place = s.j * length + row * width
        before = s.packed + place
        block = select(s.pack_b, s.panels, self._right_items(s))
        row = select(s.pack_b, width, s.b_row)
        panel = select(s.pack_b, width * s.words, width)
        return [
            select(s.ready, before, block),
            select(s.ready, width, row),
            select(s.ready, width * length, panel),
        ]

    def _rows(self, s: Any) -> None:
        """Strips of all rows; how they are cut changes no result."""
        final = s.last >= s.k

        def strips(row: Any, height: Any) -> None:
            with self._each_block(s) as q:
                ahead = self._ahead(q, height)
                self._strips(q, row, height, self._right(q), ahead)
            bottom, right = row + height, s.j + s.across
            call_epilogue(s, row, bottom, s.j, right, final)

        in_groups(self.lib.tile, s.row_begin, s.row_end, strips)

    def _ahead(self, s: Any, height: Any) -> Any:
        """The offset to the elements of A that are read next, here or in rows below."""
        more = s.p + s.deep < s.last
        below = s.a_row * height - (s.p - s.first) * s.a_col
        return select(more, s.a_col * s.deep, below)

    def _strips(
        self, s: Any, row: Any, height: Any, right: list[Any], ahead: Any
    ) -> None:
        """Some rows of C for one block of k; ``ahead`` is where A is read next."""
        offset = row * s.a_row + s.p * s.a_col
        here = s.a + offset
        c = s.c + (row * s.c_row + s.j)
        add = s.keep | (s.p > 0).unsigned()
        flags = [select(getattr(s, name), 1, 0) for name in _FLAGS]
        left = [here, s.a_row, s.a_col, here + ahead]
        rest = [c, s.c_row, s.across, s.deep, s.words, add, s.workspace, height]
        call(self._some_rows(s), [*left, *right, *rest, *flags])

    def _some_rows(self, s: Any) -> ir.Function:
        """The function that packs rows of A, if need be, and calls their strips.

        There is one for all heights, for each combination of known flags.
        """
        flags = [getattr(s, name) for name in _FLAGS]
        known = tuple([flag if isinstance(flag, bool) else None for flag in flags])
        if known not in self._made:
            name = "some_rows" + "".join("nyx"[2 if k is None else k] for k in known)
            with self.lib.function(name, _SOME_ROWS) as (q, function):
                for flag, value in zip(_FLAGS, known, strict=True):
                    given = getattr(q, flag).holds()
                    setattr(q, flag, given if value is None else value)
                self._emit_rows(q)
            self._made[known] = function
        return self._made[known]

    def _emit_rows(self, s: Any) -> None:
        tile = self.lib.tile
        branch(s.pack_a, lambda: self.packing.rows(s, s.a, s.height))
        left = select(s.pack_a, s.workspace, s.a)
        shift = self._shift(s) if self.lib.kind.shifted else None
        rows = [select(s.by_columns, 1, x) for x in (tile.depth, s.a_row)]
        columns = [select(s.by_columns, x, 1) for x in (tile.together, s.a_col)]
        now = [select(s.pack_a, *two) for two in (rows, columns)]

        def strip(row: Any, height: Any) -> None:
            a, c = ((left, now[0]), (s.c, s.c_row))
            a, c = (x + row * by for x, by in (a, c))
            ahead = s.ahead + row * rows[1]
            right = [s.b, s.b_row, s.b_panel, c, s.c_row, s.across, s.words, s.keep]
            arguments = [a, *now, *right, ahead, rows[1], columns[1]]
            if shift is not None:
                arguments.append(shift + row)
            self.strips.call_any(height, s.by_columns, arguments)

        in_strips(tile.heights, 0, s.height, strip)

    def _shift(self, s: Any) -> Any:
        """The corrections of these packed rows: see ``kinds``."""
        tile = self.lib.tile
        last = tile.workspace - tile.corrections
        to = s.workspace + last
        by = select(s.by_columns, 1, 0)
        call(self.packing.shift, [s.workspace, to, s.height, s.words, by])
        return to


def _decide(s: Any, lib: Library) -> None:
    """Decide by the whole product's sizes, never by those of a thread's task."""
    find_units(s)
    s.by_columns = s.unit_a_row & negate(s.unit_a_col)
    words = lib.kind.widens  # they are made by packing
    s.pack_a = words or negate(_direct_a(s, lib.tile))
    s.pack_b = words or negate(_direct_b(s, lib))
    s.is_flat = is_flat(s, lib.tile, lib.kind)


def _direct_a(s: Any, tile: Tiling) -> Any:
    """Whether A is read so few times that packing it does not pay."""
    few = s.n <= 4 * tile.width
    # Rows a power of two apart share few sets of a cache; columns are short.
    near = s.by_columns | (s.k <= tile.depth)
    once = s.n <= tile.width
    unit = s.unit_a_row | s.unit_a_col
    return unit & (once | few & near)


def _direct_b(s: Any, lib: Library) -> Any:
    """Whether B is in a cache, or read few times and not from memory."""
    tile, elements = lib.tile, s.n * s.k
    near = elements <= tile.depth * tile.columns
    few = s.m <= 2 * tile.height
    seldom = few & (elements <= COST.matmul.cached)
    direct = s.unit_b_col & (near | seldom)
    if has_masks(lib.isa):
        return direct
    return direct & _whole_vectors(s.n, tile.lanes)


def _whole_vectors(n: Any, lanes: int) -> Any:
    if isinstance(n, int):
        return n % lanes == 0
    return equal(n % lanes, 0)
