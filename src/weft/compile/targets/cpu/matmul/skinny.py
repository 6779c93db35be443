"""Products in which C has very few rows or columns: limited by reading one operand.

The large operand is called *big* and read once, in the order of its memory: its
rows times the small operand by dot products (``dots``), or its columns scaled and
added up (``sums``). C is the same function of its operands for every split of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I8, zeros
from weft.compile.emit.flow import branch, choose, if_else, loop, when
from weft.compile.emit.values import ITEMSIZE, call, equal, fma, minimum, negate, select
from weft.compile.emit.vectors import first_lanes, lane, splat
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.dots import (
    added,
    emit_dots,
    emit_several_dots,
    several_limit,
)
from weft.compile.targets.cpu.matmul.epilogue import call_epilogue
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.kinds import Kind
from weft.compile.targets.cpu.matmul.pack import Packing
from weft.compile.targets.cpu.matmul.tiling import Tiling

_COST, _ALIAS = COST.matmul, COST.caches.alias
SUMS = "item*big big_k count item*small small_row small_k few k *sums"
DELIVER = "*sums count few *c c_row by_rows keep"


class Skinny:
    """The functions for skinny products, emitted when first called."""

    def __init__(self, lib: Library, packing: Packing) -> None:
        self.lib, self.packing = lib, packing
        self.most = few_limit(lib.tile)
        self.made: dict[Any, ir.Function] = {}
        itemsize = lib.isa.bits // lib.tile.lanes // 8
        self.chunk, self.reach = _COST.sums // itemsize, _COST.small // itemsize
        self.stretch = _COST.dot_bytes // ITEMSIZE[str(lib.item)]
        self.short_chunk = self.chunk * self.most // _COST.dot_rows
        needed = self.most * (self.chunk + self.reach) + _ALIAS // itemsize
        assert needed <= lib.tile.workspace

    def _function(self, emit: Callable[..., ir.Function], by_rows: bool) -> ir.Function:
        """The function for when A, or B, is the big operand."""
        kind = self.lib.kind
        key = emit, kind.tag(not by_rows) + kind.tag(by_rows)
        if key not in self.made:
            self.made[key] = emit(self.lib, self.most, self.chunk, by_rows, key[1])
        return self.made[key]

    @functools.cached_property
    def deliver(self) -> ir.Function:
        """The function that stores sums in C."""
        return _emit_deliver(self.lib, self.most, self.chunk)

    @functools.cached_property
    def deliver_several(self) -> ir.Function:
        """The function that stores the sums of several rows in C."""
        with self.lib.function("deliver_several", DELIVER) as (s, function):
            _deliver_columns(self.lib, s, self.short_chunk)
        return function

    def emit(self, s: Any, otherwise: Callable[[], None]) -> None:
        """The skinny ways where they pay (``when_skinny``), else ``otherwise``."""
        dots, several, sums = self._dots, self._several_dots, self._sums
        how = (dots, True), (dots, False), (several, False), (sums, True), (sums, False)
        cases = [(p, *way) for p, way in zip(s.when_skinny, how, strict=True)]
        self._first(s, cases, otherwise)

    def _first(self, s: Any, cases: list[Any], otherwise: Any) -> None:
        if not cases:
            return otherwise()
        (condition, way, by_rows), *rest = cases
        branch(
            condition,
            lambda: self._way(s, way, by_rows),
            lambda: self._first(s, rest, otherwise),
        )

    def _way(self, s: Any, way: Any, by_rows: bool) -> None:
        way(_Sides(s, self.lib, by_rows), s)
        call_epilogue(s, s.row_begin, s.row_end, s.column_begin, s.column_end)

    def _dots(self, side: _Sides, s: Any) -> None:
        """Blocks of k as long as the packed small operand fits the workspace."""
        reach = self.reach
        buffer = s.workspace + self.most * self.chunk
        packed = side.small_k.differs(1)
        dots = self._function(emit_dots, side.by_rows)
        with loop(0, side.count, self.chunk, name="x") as x:
            count = minimum(self.chunk, side.count - x)
            rows = side.big + x * side.big_row
            with loop(0, s.k, reach, name="p") as p:
                deep = minimum(reach, s.k - p)
                small = side.small + p * side.small_k
                with when(packed):
                    strides = [side.small_row, side.small_k]
                    part = [small, *strides, buffer, reach, side.few, deep]
                    call(self.packing.gather, part)
                small = select(packed, buffer, small)
                row = select(packed, reach, side.small_row)
                big = [rows + p, side.big_row, count]
                call(dots, [*big, small, row, side.few, deep, p, s.workspace])
            self._deliver(side, s, x, count, s.workspace)

    def _several_dots(self, side: _Sides, s: Any) -> None:
        """The same for more rows of the small operand, which are contiguous."""
        chunk = self.short_chunk
        dots = self._function(emit_several_dots, side.by_rows)
        with loop(0, side.count, chunk, name="x") as x:
            count = minimum(chunk, side.count - x)
            rows = side.big + x * side.big_row
            with loop(0, s.k, self.stretch, name="p") as p:
                deep = minimum(self.stretch, s.k - p)
                big = [rows + p, side.big_row, count]
                small = [side.small + p, side.small_row, side.few]
                call(dots, [*big, *small, deep, p, s.workspace])
            self._deliver(side, s, x, count, s.workspace, several=True)

    def _sums(self, side: _Sides, s: Any) -> None:
        with loop(0, side.count, self.chunk) as x:
            count = minimum(self.chunk, side.count - x)
            big = side.big + x
            small = [side.small, side.small_row, side.small_k, side.few, s.k]
            sums = _apart(s.workspace, big)
            function = self._function(_emit_sums, side.by_rows)
            call(function, [big, side.big_k, count, *small, sums])
            self._deliver(side, s, x, count, sums)

    def _deliver(
        self,
        side: _Sides,
        s: Any,
        x: Any,
        count: Any,
        sums: Any,
        *,
        several: bool = False,
    ) -> None:
        """Finished sums to C, from its row or column x on."""
        deliver = self.deliver_several if several else self.deliver
        c = side.c + x * side.c_big
        place = [c, s.c_row, int(side.by_rows), s.keep]
        call(deliver, [sums, count, side.few, *place])


def find_units(s: Any) -> None:
    """Note which strides are 1."""
    for name in ("a_row", "a_col", "b_row", "b_col"):
        setattr(s, f"unit_{name}", equal(getattr(s, name), 1))


def conditions(s: Any, tile: Tiling, kind: Kind) -> list[Any]:
    """When each of the skinny ways pays, by sizes and strides, which may be known.

    In this order: dot products of A's rows, of B's columns, of several rows; sums of
    A's columns, of B's rows.
    """
    limit, many = few_limit(tile), _COST.long * tile.lanes
    narrow, flat = (size <= limit for size in (s.n, s.m))
    tall, wide, long = (size >= many for size in (s.m, s.n, s.k))
    rows = long & wide & (s.unit_b_row & s.unit_a_col)
    most = several_limit(tile, kind)
    several = (s.m <= most) & rows if most else False
    return [
        long & (narrow & s.unit_a_col),
        long & (flat & s.unit_b_row),
        # B would have to be packed for a few rows.
        several & (negate(s.is_flat) & negate(s.ready)),
        tall & (narrow & s.unit_a_row),
        wide & (flat & s.unit_b_col),
    ]


def _apart(workspace: Any, big: Any) -> Any:
    """An address for sums, half a page from where big's rows begin."""
    distance = big.address() - workspace.address()
    middle = distance + _ALIAS // 2
    shift = middle & _ALIAS - COST.caches.line
    return workspace.of(I8) + shift


def few_limit(tile: Tiling) -> int:
    """The most rows or columns of C that count as few."""
    return min(_COST.few, tile.lanes)


class _Sides:
    """Operands by role: A is big and C's rows are many, or B and C's columns are."""

    def __init__(self, s: Any, lib: Library, by_rows: bool) -> None:
        self.by_rows = by_rows
        a = s.a + s.row_begin * s.a_row
        right = s.b + s.column_begin * s.b_col
        offset = s.row_begin * s.c_row + s.column_begin
        self.c = s.c + offset
        rows = s.row_end - s.row_begin
        columns = s.column_end - s.column_begin
        left: Any = a, s.a_row, s.a_col, rows, s.c_row
        other: Any = right, s.b_col, s.b_row, columns, 1
        big, small = (left, other) if by_rows else (other, left)
        self.big, self.big_row, self.big_k, self.count, self.c_big = big
        self.small, self.small_row, self.small_k, self.few, _ = small


def _write(s: Any, value: Any, pointer: Any, mask: Any) -> None:
    """Finished lanes to C: added to it if asked."""
    (done,) = choose(s.keep.holds(), [value], lambda: added(value, pointer, mask))
    pointer.store(done, mask)


def _emit_sums(
    lib: Library, most: int, chunk: int, by_rows: bool, tag: str
) -> ir.Function:
    """``sums[q, x] = sum over k of small[q, k] * big[k, x]``, in order of k."""
    with lib.function(f"sums{tag}", SUMS) as (s, function):
        s.by_rows = by_rows
        one = s.few.equals(1)
        with if_else(one) as (single, several):
            with single:
                _add_up(lib, s, 1, chunk)
            with several, when(s.few > 0):
                _add_up(lib, s, most, chunk)
    return function


def _add_up(lib: Library, s: Any, few: int, chunk: int) -> None:
    zero = zeros(lib.vector)
    for q in range(few):
        row = s.sums + q * chunk
        with loop(0, s.count, lib.tile.lanes) as x:
            row[x] = zero
    steps = _COST.added_columns // min(few, 2)  # scales are held in registers
    whole = s.k // steps * steps
    with loop(0, whole, steps) as k:
        _add_columns(lib, s, few, chunk, k, steps)
    with loop(whole, s.k) as k:
        _add_columns(lib, s, few, chunk, k, 1)


def _add_columns(
    lib: Library, s: Any, few: int, chunk: int, k: Any, steps: int
) -> None:
    """Add ``steps`` rows of big, from row k on, to each of the sums."""
    kind, lanes = lib.kind, lib.tile.lanes
    items = ir.VectorType(lib.item, lanes)
    last = s.few - 1
    big, scale = [], []
    for u in range(steps):
        here = k + u
        big.append(s.big + here * s.big_k)
        for q in range(few):
            row = minimum(q, last) * s.small_row
            item = s.small + (row + here * s.small_k)
            one = kind.widen(item.load(), s.by_rows)
            scale.append(splat(one, lanes))
    sums = [s.sums + q * chunk for q in range(few)]

    def add(x: Any, mask: Any = None) -> None:
        found = [(row + x).load(items, mask) for row in big]
        values = [kind.widen(one, not s.by_rows) for one in found]
        for q, place in enumerate(row + x for row in sums):
            sum_ = place.load(lib.vector)
            for u, value in enumerate(values):
                sum_ = fma(scale[u * few + q], value, sum_)
            place.store(sum_)

    whole = s.count // lanes * lanes
    with loop(0, whole, lanes) as x:
        add(x)
    rest = s.count - whole
    with when(rest > 0):
        add(whole, first_lanes(rest, lanes))


def _emit_deliver(lib: Library, most: int, chunk: int) -> ir.Function:
    """Sums to C: ``C[x, q]`` if ``by_rows``, else ``C[q, x]``."""
    with lib.function("deliver", DELIVER) as (s, function):
        branch(
            s.by_rows.holds(),
            lambda: _deliver_rows(lib, s, most, chunk),
            lambda: _deliver_columns(lib, s, chunk),
        )
    return function


def _deliver_rows(lib: Library, s: Any, most: int, chunk: int) -> None:
    mask = first_lanes(s.few, lib.tile.lanes)
    with loop(s.count) as x:
        items = [s.sums + (x + q * chunk) for q in range(most)]
        value = lane(lib.vector, [i.load() for i in items])
        pointer = s.c + x * s.c_row
        _write(s, value, pointer, mask)


def _deliver_columns(lib: Library, s: Any, chunk: int) -> None:
    lanes = lib.tile.lanes
    with loop(s.few) as q, loop(0, s.count, lanes) as x:
        source = s.sums + (q * chunk + x)
        pointer = s.c + (q * s.c_row + x)
        mask = first_lanes(s.count - x, lanes)
        _write(s, source.load(lib.vector), pointer, mask)
