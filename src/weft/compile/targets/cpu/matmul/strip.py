"""A strip of C: a few rows by any number of columns, over one block of k.

Each register tile is a sum of outer products: a vector of B's row k times each of
A's elements in column k. A's elements are broadcast, so A needs no packing for this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import i64, zeros
from weft.compile.emit.flow import branch, carry, choose, loop, when, while_less
from weft.compile.emit.values import call, equal, itemsize, minimum, select
from weft.compile.emit.vectors import first_lanes, prefetch, splat
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.tiling import Tiling

_COST = COST.matmul
# ``shift`` is there if C is corrected for each row.
ARGUMENTS = (
    "*a a_row a_col *b b_row b_panel *c c_row n k keep item*ahead ahead_row ahead_col"
)


def emit_strip(lib: Library, height: int, rows: bool | None = None) -> ir.Function:
    """``C[:height, :n] (+)= A @ B``, tile by tile.

    ``b_panel`` goes from one tile's columns of B to the next. ``keep`` adds to C
    instead of replacing it. ``ahead`` is the address of A's elements that are
    read next. ``rows`` says that A's rows are contiguous, or its columns, if known.
    """
    tile = lib.tile
    arguments = ARGUMENTS + " *shift" * lib.kind.shifted
    name = {True: "rows", False: "columns", None: "strip"}[rows]
    with lib.function(f"{name}{height}", arguments) as (s, function):
        s.rows = rows
        if height == tile.height:
            _plan_fetches(lib, s)
        done = 0
        if not lib.masks_are_free:
            done = s.n // tile.width
            with loop(done) as t:
                _Tile(lib, s, height, t).emit(tile.vectors, None)
        for vectors in range(tile.vectors, 0, -1):
            done = _narrower(lib, s, height, vectors, done)
    return function


class Strips:
    """The strips of a library, emitted when first called.

    The tallest ones have more rows than there are registers for addresses, so there is
    one for rows and one for columns of A; all others are one function for both.
    """

    def __init__(self, lib: Library) -> None:
        self.lib = lib
        self._made: dict[tuple[int, bool | None], ir.Function] = {}

    def _strip(self, height: int, rows: bool | None) -> ir.Function:
        if (height, rows) not in self._made:
            self._made[height, rows] = emit_strip(self.lib, height, rows)
        return self._made[height, rows]

    def call(self, height: int, by_columns: Any, arguments: Sequence[Any]) -> None:
        """Call the strip of a known height; ``by_columns`` may be known."""
        if height < self.lib.tile.height or height <= _COST.row_pointers:
            call(self._strip(height, None), arguments)
            return
        branch(
            by_columns,
            lambda: call(self._strip(height, False), arguments),
            lambda: call(self._strip(height, True), arguments),
        )

    def call_any(self, height: Any, by_columns: Any, arguments: Sequence[Any]) -> None:
        """Call the strip of a height that is one of the tile's."""
        b = height.b
        done = b.append_basic_block("strip.done")
        cases = b.switch(height, done)
        for known in dict.fromkeys(self.lib.tile.heights):
            block = b.append_basic_block(f"strip{known}")
            cases.add_case(i64(known), block)
            with b.goto_block(block):
                self.call(known, by_columns, arguments)
                b.branch(done)
        b.position_at_end(done)


def in_strips(
    heights: tuple[int, ...], begin: Any, end: Any, strip: Callable[[Any, Any], None]
) -> None:
    """As ``by_heights``, by one loop: heights are known when it runs."""
    tall, *others = heights
    stop = begin + _tall_rows(end - begin, tall)
    with while_less(begin, end) as (row, advance):
        left, height = end - row, others[-1]
        for other in others[-2::-1]:
            height = select(left >= other, other, height)
        height = select(row < stop, tall, height)
        strip(row, height)
        advance(height)


def in_groups(
    tile: Tiling, begin: Any, end: Any, strips: Callable[[Any, Any], None]
) -> None:
    """``strips(row, height)`` for groups of rows of which A's are packed together.

    Only the last has fewer, or the one before it if two rows would be left.
    """
    tall = tile.together
    with while_less(begin, end) as (row, advance):
        left = end - row
        two = left.equals(tall + 2)
        height = select(two, _COST.short_strip, minimum(tall, left))
        strips(row, height)
        advance(height)


def by_heights(
    heights: tuple[int, ...], begin: Any, end: Any, strip: Callable[[Any, int], None]
) -> None:
    """``strip(row, height)`` for all of a range of rows, the tallest strips first."""
    tall, medium, *rest = heights
    i = begin + _tall_rows(end - begin, tall)
    with loop(begin, i, tall) as row:
        strip(row, tall)
    left = end - i
    stop = i + (left & -medium)
    with loop(i, stop, medium) as row:
        strip(row, medium)
    for height in rest:
        bit = left & height
        with when(bit.differs(0)):
            strip(stop, height)
        stop = stop + bit


def _tall_rows(count: Any, tall: int) -> Any:
    """Rows for the tallest strips: one strip fewer if two rows would be left.

    Strips of two rows wait for their sums; 14 + 2 is slower than 8 + 8.
    """
    whole = count // tall * tall
    two = (count - whole).equals(2)
    some = whole > 0
    return select(two & some, whole - tall, whole)


def _ceil_div(x: Any, y: int) -> Any:
    """``x`` over a power of two, rounded up."""
    return (x + (y - 1)).shift_right(y.bit_length() - 1)


def _plan_fetches(lib: Library, s: Any) -> None:
    """Plan how tiles share the prefetches of A's next rows: see ``_Tile._fetches``.

    Where rows are contiguous, that is a line of each row, then the next; else the
    line in which each column ends, since this strip has read up to its start.
    """
    bits = (lib.tile.height - 1).bit_length()
    line = COST.caches.line // itemsize(lib.item)
    share = _share(s, lib.tile.width)
    lines = _ceil_div(share * lib.kind.group, line)
    rows = equal(s.ahead_col, 1) if s.rows is None else s.rows
    s.fetch_each = select(rows, lines, share)
    s.fetch_bits = select(rows, bits, 0)
    s.fetch_rows = select(rows, (1 << bits) - 1, 0)
    s.fetch_step = select(rows, line, s.ahead_col)
    last = (lib.tile.height - 1) * s.ahead_row
    s.fetch_from = s.ahead + select(rows, 0, last)


def _share(s: Any, width: int) -> Any:
    """Words of the next strip's rows that each tile prefetches; none if k is short."""
    long = s.k >= _COST.prefetch_k

    def equal() -> list[Any]:
        tiles = (s.n - 1) // width + 1
        return [(s.k + tiles - 1) // tiles]

    (share,) = choose(long, [0], equal)
    return share


def _narrower(lib: Library, s: Any, height: int, vectors: int, done: Any) -> Any:
    """Tiles that need this many vectors, the last in part; gives the tiles done."""
    tile = lib.tile
    before = (vectors - 1) * tile.lanes
    # Tiles with more columns than fewer vectors hold: ceil((n - before) / width).
    rest = s.n + (tile.width - 1) - before
    stop = rest // tile.width
    with loop(done, stop) as t:
        count = s.n - t * tile.width - before
        _Tile(lib, s, height, t).emit(vectors, count)
    return stop


def along(stride: Any, *, rows: bool) -> list[Any]:
    """The strides of a matrix whose rows, or columns, are contiguous."""
    return [stride, 1] if rows else [1, stride]


class _Tile:
    """One register tile: ``height`` rows by some vectors."""

    def __init__(self, lib: Library, s: Any, height: int, t: Any) -> None:
        self.lib, self.s, self.height, self.t = lib, s, height, t

    def emit(self, vectors: int, count: Any) -> None:
        """The whole tile; ``count`` limits the last vector's lanes."""
        lib, s = self.lib, self.s
        mask = None if count is None else first_lanes(count, lib.tile.lanes)
        self.masks = [None] * (vectors - 1) + [mask]
        self.b = s.b + self.t * s.b_panel
        self.starts = self._row_starts()
        if self.height == lib.tile.height:
            with when(s.k >= _COST.prefetch_k):
                self._fetch_c()
        sums = self._corrected(self._sum())
        targets = self._targets()
        keep = s.keep.holds()
        total = choose(keep, sums, lambda: self._add(sums, targets))
        for value, (pointer, mask) in zip(total, targets, strict=True):
            pointer.store(value, mask)

    def _row_starts(self) -> list[Any]:
        s = self.s
        if s.rows is False:
            return [s.a + i for i in range(self.height)]
        return [s.a + s.a_row * i for i in range(self.height)]

    def _fetch_c(self) -> None:
        """Prefetch this tile of C."""
        lib, s = self.lib, self.s
        c = s.c + self.t * lib.tile.width
        with loop(self.height, beside=c) as i:
            row = c + i * s.c_row
            for v in range(len(self.masks)):
                prefetch(row + v * lib.tile.lanes)

    def _sum(self) -> list[Any]:
        """The products over k, in order, whatever the tile."""
        zero = zeros(self.lib.vector)
        sums: list[Any] = [zero] * (self.height * len(self.masks))
        return carry(0, self.s.k, 1, sums, self._steps())

    def _steps(self) -> Callable[[Any, list[Any]], list[Any]]:
        """One step of k, after a prefetch of a line of A for the next strip.

        Many prefetches at once delay B, so each step has one, if it has enough products
        to hide it; steps left over prefetch a line that is in the cache.
        """
        lib = self.lib
        plain = self._step
        if self.height < lib.tile.height:
            return plain
        place, stop = self._fetches()
        if not lib.tile.many:
            with loop(stop) as k:
                prefetch(place(k), level=2)
            return plain

        def step(k: Any, sums: list[Any]) -> list[Any]:
            some = k < stop
            prefetch(select(some, place(k), self.starts[0]), level=2)
            return plain(k, sums)

        return step

    def _fetches(self) -> tuple[Callable[[Any], Any], Any]:
        """The address of each line of A that this tile prefetches, and their number."""
        s = self.s
        first = self.t * s.fetch_each

        def place(k: Any) -> Any:
            part = first + k.shift_right(s.fetch_bits)
            i = minimum(k & s.fetch_rows, self.height - 1)
            offset = i * s.ahead_row + part * s.fetch_step
            return s.fetch_from + offset

        return place, s.fetch_each << s.fetch_bits

    def _step(self, k: Any, sums: list[Any]) -> list[Any]:
        """One outer product."""
        lib, s = self.lib, self.s
        row = self.b + k * s.b_row
        right = [
            (row + v * lib.tile.lanes).load(lib.vector, mask)
            for v, mask in enumerate(self.masks)
        ]
        across = k if s.rows else k * s.a_col
        updated = []
        for i, start in enumerate(self.starts):
            value = start[across]
            left = splat(value, lib.tile.lanes)
            updated += [
                lib.kind.dot(left, x, sums[i * len(right) + v])
                for v, x in enumerate(right)
            ]
        return updated

    def _corrected(self, sums: list[Any]) -> list[Any]:
        """The sums plus the corrections of their rows."""
        if not self.lib.kind.shifted:
            return sums
        across, lanes, corrected = len(self.masks), self.lib.tile.lanes, []
        for i in range(self.height):
            place = self.s.shift + i
            by = splat(place.load(), lanes)
            corrected += [x + by for x in sums[i * across : (i + 1) * across]]
        return corrected

    def _targets(self) -> list[tuple[Any, Any]]:
        """Address and mask of each vector in C."""
        lib, s = self.lib, self.s
        first = s.c + self.t * lib.tile.width
        rows = [first]
        while len(rows) < self.height:
            rows.append(rows[-1] + s.c_row)
        return [
            (row + v * lib.tile.lanes, mask)
            for row in rows
            for v, mask in enumerate(self.masks)
        ]

    def _add(self, sums: list[Any], targets: list[Any]) -> list[Any]:
        return [
            pointer.load(self.lib.vector, mask) + value
            for value, (pointer, mask) in zip(sums, targets, strict=True)
        ]
