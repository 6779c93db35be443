"""A strip of C: a few rows by any number of columns, over one block of k.

Each register tile is a sum of outer products: a vector of B's row k times each of
A's elements in column k. A's elements are broadcast, so A needs no packing for this.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I1, i64, loop, zeros
from weft.compile.emit.known_values import branch, compare, pick
from weft.compile.emit.vectors import (
    at,
    carry,
    choose,
    first_lanes,
    itemsize,
    load,
    minimum,
    plus,
    prefetch,
    splat,
    store,
    while_less,
)  # fmt: skip
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.tiling import Tiling

_COST = COST.matmul
# ``shift`` is there if C is corrected for each row.
ARGUMENTS = (
    "*a a_row a_col *b b_row b_panel *c c_row n k keep *ahead ahead_row ahead_col"
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
    with lib.function(f"{name}{height}", arguments) as (b, s, function):
        s.rows = rows
        if height == tile.height:
            _plan_fetches(b, lib, s)
        done = i64(0)
        if not lib.masks_are_free:
            done = b.sdiv(s.n, i64(tile.width))
            with loop(b, i64(0), done) as t:
                _Tile(lib, s, height, t).emit(b, tile.vectors, None)
        for vectors in range(tile.vectors, 0, -1):
            done = _narrower(b, lib, s, height, vectors, done)
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

    def call(
        self, b: Any, height: int, by_columns: Any, arguments: Sequence[Any]
    ) -> None:
        """Call the strip of a known height; ``by_columns`` may be known."""
        if height < self.lib.tile.height or height <= _COST.row_pointers:
            b.call(self._strip(height, None), arguments)
            return
        branch(
            b,
            by_columns,
            lambda: b.call(self._strip(height, False), arguments),
            lambda: b.call(self._strip(height, True), arguments),
        )

    def call_any(
        self, b: Any, height: Any, by_columns: Any, arguments: Sequence[Any]
    ) -> None:
        """Call the strip of a height that is one of the tile's."""
        done = b.append_basic_block("strip.done")
        cases = b.switch(height, done)
        for known in dict.fromkeys(self.lib.tile.heights):
            block = b.append_basic_block(f"strip{known}")
            cases.add_case(i64(known), block)
            with b.goto_block(block):
                self.call(b, known, by_columns, arguments)
                b.branch(done)
        b.position_at_end(done)


def in_strips(
    b: Any,
    heights: tuple[int, ...],
    begin: Any,
    end: Any,
    strip: Callable[[Any, Any], None],
) -> None:
    """As ``by_heights``, by one loop: heights are known when it runs."""
    tall, *others = heights
    stop = b.add(begin, _tall_rows(b, b.sub(end, begin), tall))
    with while_less(b, begin, end) as (row, advance):
        left, height = b.sub(end, row), i64(others[-1])
        for other in others[-2::-1]:
            height = b.select(b.icmp_signed(">=", left, i64(other)), i64(other), height)
        height = b.select(b.icmp_signed("<", row, stop), i64(tall), height)
        strip(row, height)
        advance(height)


def in_groups(
    b: Any, tile: Tiling, begin: Any, end: Any, strips: Callable[[Any, Any], None]
) -> None:
    """``strips(row, height)`` for groups of rows of which A's are packed together.

    Only the last has fewer, or the one before it if two rows would be left.
    """
    tall = i64(tile.together)
    with while_less(b, begin, end) as (row, advance):
        left = b.sub(end, row)
        two = b.icmp_signed("==", left, b.add(tall, i64(2)))
        height = b.select(two, i64(_COST.short_strip), minimum(b, tall, left))
        strips(row, height)
        advance(height)


def by_heights(
    b: Any,
    heights: tuple[int, ...],
    begin: Any,
    end: Any,
    strip: Callable[[Any, int], None],
) -> None:
    """``strip(row, height)`` for all of a range of rows, the tallest strips first."""
    tall, medium, *rest = heights
    i = b.add(begin, _tall_rows(b, b.sub(end, begin), tall))
    with loop(b, begin, i, i64(tall)) as row:
        strip(row, tall)
    left = b.sub(end, i)
    stop = b.add(i, b.and_(left, i64(-medium)))
    with loop(b, i, stop, i64(medium)) as row:
        strip(row, medium)
    for height in rest:
        bit = b.and_(left, i64(height))
        with b.if_then(b.icmp_signed("!=", bit, i64(0))):
            strip(stop, height)
        stop = b.add(stop, bit)


def _tall_rows(b: Any, count: Any, tall: int) -> Any:
    """Rows for the tallest strips: one strip fewer if two rows would be left.

    Strips of two rows wait for their sums; 14 + 2 is slower than 8 + 8.
    """
    whole = b.mul(b.sdiv(count, i64(tall)), i64(tall))
    two = b.icmp_signed("==", b.sub(count, whole), i64(2))
    some = b.icmp_signed(">", whole, i64(0))
    return b.select(b.and_(two, some), b.sub(whole, i64(tall)), whole)


def _ceil_div(b: Any, x: Any, y: int) -> Any:
    """``x`` over a power of two, rounded up."""
    return b.lshr(b.add(x, i64(y - 1)), i64(y.bit_length() - 1))


def _plan_fetches(b: Any, lib: Library, s: Any) -> None:
    """Plan how tiles share the prefetches of A's next rows: see ``_Tile._fetches``.

    Where rows are contiguous, that is a line of each row, then the next; else the
    line in which each column ends, since this strip has read up to its start.
    """
    bits = (lib.tile.height - 1).bit_length()
    line = COST.caches.line // itemsize(lib.item)
    share = _share(b, s, lib.tile.width)
    lines = _ceil_div(b, b.mul(share, i64(lib.kind.group)), line)
    rows = compare(b, "==", s.ahead_col, 1) if s.rows is None else s.rows
    s.fetch_each = pick(b, rows, lines, share)
    s.fetch_bits = pick(b, rows, bits, 0)
    s.fetch_rows = pick(b, rows, (1 << bits) - 1, 0)
    s.fetch_step = pick(b, rows, line, s.ahead_col)
    last = b.mul(i64(lib.tile.height - 1), s.ahead_row)
    s.fetch_from = at(b, s.ahead, pick(b, rows, 0, last), lib.item)


def _share(b: Any, s: Any, width: int) -> Any:
    """Words of the next strip's rows that each tile prefetches; none if k is short."""
    long = b.icmp_signed(">=", s.k, i64(_COST.prefetch_k))

    def equal() -> list[Any]:
        tiles = b.add(b.sdiv(b.sub(s.n, i64(1)), i64(width)), i64(1))
        return [b.sdiv(b.sub(b.add(s.k, tiles), i64(1)), tiles)]

    (share,) = choose(b, long, [i64(0)], equal)
    return share


def _narrower(
    b: Any,
    lib: Library,
    s: Any,
    height: int,
    vectors: int,
    done: Any,
) -> Any:
    """Tiles that need this many vectors, the last in part; gives the tiles done."""
    tile = lib.tile
    before = i64((vectors - 1) * tile.lanes)
    # Tiles with more columns than fewer vectors hold: ceil((n - before) / width).
    rest = b.sub(b.add(s.n, i64(tile.width - 1)), before)
    stop = b.sdiv(rest, i64(tile.width))
    with loop(b, done, stop) as t:
        count = b.sub(b.sub(s.n, b.mul(t, i64(tile.width))), before)
        _Tile(lib, s, height, t).emit(b, vectors, count)
    return stop


def along(stride: Any, *, rows: bool) -> list[Any]:
    """The strides of a matrix whose rows, or columns, are contiguous."""
    return [stride, i64(1)] if rows else [i64(1), stride]


class _Tile:
    """One register tile: ``height`` rows by some vectors."""

    def __init__(self, lib: Library, s: Any, height: int, t: Any) -> None:
        self.lib, self.s, self.height, self.t = lib, s, height, t

    def emit(self, b: Any, vectors: int, count: Any) -> None:
        """The whole tile; ``count`` limits the last vector's lanes."""
        lib, s = self.lib, self.s
        mask = None if count is None else first_lanes(b, count, lib.tile.lanes)
        self.masks = [None] * (vectors - 1) + [mask]
        self.b = at(b, s.b, b.mul(self.t, s.b_panel), lib.element)
        self.starts = self._row_starts(b)
        if self.height == lib.tile.height:
            with b.if_then(b.icmp_signed(">=", s.k, i64(_COST.prefetch_k))):
                self._fetch_c(b)
        sums = self._corrected(b, self._sum(b))
        targets = self._targets(b)
        keep = b.trunc(s.keep, I1)
        total = choose(b, keep, sums, lambda: self._add(b, sums, targets))
        for value, (pointer, mask) in zip(total, targets, strict=True):
            store(b, value, pointer, mask)

    def _row_starts(self, b: Any) -> list[Any]:
        s, element = self.s, self.lib.element
        if s.rows is False:
            return [at(b, s.a, i64(i), element) for i in range(self.height)]
        return [at(b, s.a, b.mul(s.a_row, i64(i)), element) for i in range(self.height)]

    def _fetch_c(self, b: Any) -> None:
        """Prefetch this tile of C."""
        lib, s = self.lib, self.s
        c = at(b, s.c, b.mul(self.t, i64(lib.tile.width)), lib.element)
        with loop(b, i64(0), i64(self.height)) as i:
            row = at(b, c, b.mul(i, s.c_row), lib.element)
            for v in range(len(self.masks)):
                prefetch(b, at(b, row, i64(v * lib.tile.lanes), lib.element))

    def _sum(self, b: Any) -> list[Any]:
        """The products over k, in order, whatever the tile."""
        zero = zeros(self.lib.vector)
        sums: list[Any] = [zero] * (self.height * len(self.masks))
        return carry(b, i64(0), self.s.k, 1, sums, self._steps(b))

    def _steps(self, b: Any) -> Callable[[Any, list[Any]], list[Any]]:
        """One step of k, after a prefetch of a line of A for the next strip.

        Many prefetches at once delay B, so each step has one, if it has enough products
        to hide it; steps left over prefetch a line that is in the cache.
        """
        lib = self.lib
        plain = functools.partial(self._step, b)
        if self.height < lib.tile.height:
            return plain
        place, stop = self._fetches(b)
        if not lib.tile.many:
            with loop(b, i64(0), stop) as k:
                prefetch(b, place(k), level=2)
            return plain

        def step(k: Any, sums: list[Any]) -> list[Any]:
            some = b.icmp_signed("<", k, stop)
            prefetch(b, b.select(some, place(k), self.starts[0]), level=2)
            return plain(k, sums)

        return step

    def _fetches(self, b: Any) -> tuple[Callable[[Any], Any], Any]:
        """The address of each line of A that this tile prefetches, and their number."""
        s = self.s
        first = b.mul(self.t, s.fetch_each)

        def place(k: Any) -> Any:
            part = b.add(first, b.lshr(k, s.fetch_bits))
            i = minimum(b, b.and_(k, s.fetch_rows), i64(self.height - 1))
            offset = b.add(b.mul(i, s.ahead_row), b.mul(part, s.fetch_step))
            return at(b, s.fetch_from, offset, self.lib.item)

        return place, b.shl(s.fetch_each, s.fetch_bits)

    def _step(self, b: Any, k: Any, sums: list[Any]) -> list[Any]:
        """One outer product."""
        lib, s = self.lib, self.s
        row = at(b, self.b, b.mul(k, s.b_row), lib.element)
        right = [
            load(b, at(b, row, i64(v * lib.tile.lanes), lib.element), lib.vector, mask)
            for v, mask in enumerate(self.masks)
        ]
        across = k if s.rows else b.mul(k, s.a_col)
        updated = []
        for i, start in enumerate(self.starts):
            value = b.load(at(b, start, across, lib.element), typ=lib.element)
            left = splat(b, value, lib.tile.lanes)
            updated += [
                lib.kind.dot(b, left, x, sums[i * len(right) + v])
                for v, x in enumerate(right)
            ]
        return updated

    def _corrected(self, b: Any, sums: list[Any]) -> list[Any]:
        """The sums plus the corrections of their rows."""
        if not self.lib.kind.shifted:
            return sums
        across, lanes, corrected = len(self.masks), self.lib.tile.lanes, []
        for i in range(self.height):
            place = at(b, self.s.shift, i64(i), self.lib.element)
            by = splat(b, b.load(place, typ=self.lib.element), lanes)
            corrected += [plus(b, x, by) for x in sums[i * across : (i + 1) * across]]
        return corrected

    def _targets(self, b: Any) -> list[tuple[Any, Any]]:
        """Address and mask of each vector in C."""
        lib, s = self.lib, self.s
        first = at(b, s.c, b.mul(self.t, i64(lib.tile.width)), lib.element)
        rows = [first]
        while len(rows) < self.height:
            rows.append(at(b, rows[-1], s.c_row, lib.element))
        return [
            (at(b, row, i64(v * lib.tile.lanes), lib.element), mask)
            for row in rows
            for v, mask in enumerate(self.masks)
        ]

    def _add(self, b: Any, sums: list[Any], targets: list[Any]) -> list[Any]:
        return [
            plus(b, load(b, pointer, self.lib.vector, mask), value)
            for value, (pointer, mask) in zip(sums, targets, strict=True)
        ]
