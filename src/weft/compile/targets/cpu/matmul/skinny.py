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

from weft.compile.emit.control_flow import I1, I8, I64, i64, loop, zeros
from weft.compile.emit.known_values import both, branch, compare, negate
from weft.compile.emit.vectors import (
    ITEMSIZE,
    at,
    choose,
    first_lanes,
    fma,
    lane,
    load,
    minimum,
    splat,
    store,
)  # fmt: skip
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
SUMS = "*big big_k count *small small_row small_k few k *sums"
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
        with self.lib.function("deliver_several", DELIVER) as (b, s, function):
            _deliver_columns(b, self.lib, s, self.short_chunk)
        return function

    def emit(self, b: Any, s: Any, otherwise: Callable[[], None]) -> None:
        """The skinny ways where they pay (``when_skinny``), else ``otherwise``."""
        dots, several, sums = self._dots, self._several_dots, self._sums
        how = (dots, True), (dots, False), (several, False), (sums, True), (sums, False)
        cases = [(p, *way) for p, way in zip(s.when_skinny, how, strict=True)]
        self._first(b, s, cases, otherwise)

    def _first(self, b: Any, s: Any, cases: list[Any], otherwise: Any) -> None:
        if not cases:
            return otherwise()
        (condition, way, by_rows), *rest = cases
        branch(
            b,
            condition,
            lambda: self._way(b, s, way, by_rows),
            lambda: self._first(b, s, rest, otherwise),
        )

    def _way(self, b: Any, s: Any, way: Any, by_rows: bool) -> None:
        way(b, _Sides(b, s, self.lib, by_rows), s)
        call_epilogue(b, s, s.row_begin, s.row_end, s.column_begin, s.column_end)

    def _dots(self, b: Any, side: _Sides, s: Any) -> None:
        """Blocks of k as long as the packed small operand fits the workspace."""
        lib, reach = self.lib, i64(self.reach)
        buffer = at(b, s.workspace, i64(self.most * self.chunk), lib.element)
        packed = b.icmp_signed("!=", side.small_k, i64(1))
        dots = self._function(emit_dots, side.by_rows)
        with loop(b, i64(0), side.count, i64(self.chunk), name="x") as x:
            count = minimum(b, i64(self.chunk), b.sub(side.count, x))
            rows = at(b, side.big, b.mul(x, side.big_row), lib.item)
            with loop(b, i64(0), s.k, reach, name="p") as p:
                deep = minimum(b, reach, b.sub(s.k, p))
                small = at(b, side.small, b.mul(p, side.small_k), lib.item)
                with b.if_then(packed):
                    strides = [side.small_row, side.small_k]
                    part = [small, *strides, buffer, reach, side.few, deep]
                    b.call(self.packing.gather, part)
                small = b.select(packed, buffer, small)
                row = b.select(packed, reach, side.small_row)
                big = [at(b, rows, p, lib.item), side.big_row, count]
                b.call(dots, [*big, small, row, side.few, deep, p, s.workspace])
            self._deliver(b, side, s, x, count, s.workspace)

    def _several_dots(self, b: Any, side: _Sides, s: Any) -> None:
        """The same for more rows of the small operand, which are contiguous."""
        lib, chunk = self.lib, i64(self.short_chunk)
        dots = self._function(emit_several_dots, side.by_rows)
        with loop(b, i64(0), side.count, chunk, name="x") as x:
            count = minimum(b, chunk, b.sub(side.count, x))
            rows = at(b, side.big, b.mul(x, side.big_row), lib.item)
            with loop(b, i64(0), s.k, i64(self.stretch), name="p") as p:
                deep = minimum(b, i64(self.stretch), b.sub(s.k, p))
                big = [at(b, rows, p, lib.item), side.big_row, count]
                small = [at(b, side.small, p, lib.item), side.small_row, side.few]
                b.call(dots, [*big, *small, deep, p, s.workspace])
            self._deliver(b, side, s, x, count, s.workspace, several=True)

    def _sums(self, b: Any, side: _Sides, s: Any) -> None:
        lib = self.lib
        with loop(b, i64(0), side.count, i64(self.chunk)) as x:
            count = minimum(b, i64(self.chunk), b.sub(side.count, x))
            big = at(b, side.big, x, lib.item)
            small = [side.small, side.small_row, side.small_k, side.few, s.k]
            sums = _apart(b, s.workspace, big)
            call = self._function(_emit_sums, side.by_rows)
            b.call(call, [big, side.big_k, count, *small, sums])
            self._deliver(b, side, s, x, count, sums)

    def _deliver(
        self,
        b: Any,
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
        c = at(b, side.c, b.mul(x, side.c_big), self.lib.element)
        place = [c, s.c_row, i64(int(side.by_rows)), s.keep]
        b.call(deliver, [sums, count, side.few, *place])


def find_units(b: Any, s: Any) -> None:
    """Note which strides are 1."""
    for name in ("a_row", "a_col", "b_row", "b_col"):
        setattr(s, f"unit_{name}", compare(b, "==", getattr(s, name), 1))


def conditions(b: Any, s: Any, tile: Tiling, kind: Kind) -> list[Any]:
    """When each of the skinny ways pays, by sizes and strides, which may be known.

    In this order: dot products of A's rows, of B's columns, of several rows; sums of
    A's columns, of B's rows.
    """
    limit, many = few_limit(tile), _COST.long * tile.lanes
    narrow, flat = (compare(b, "<=", size, limit) for size in (s.n, s.m))
    tall, wide, long = (compare(b, ">=", size, many) for size in (s.m, s.n, s.k))
    rows = both(b, both(b, long, wide), both(b, s.unit_b_row, s.unit_a_col))
    most = several_limit(tile, kind)
    several = both(b, compare(b, "<=", s.m, most), rows) if most else False
    return [
        both(b, long, both(b, narrow, s.unit_a_col)),
        both(b, long, both(b, flat, s.unit_b_row)),
        # B would have to be packed for a few rows.
        both(b, several, both(b, negate(b, s.is_flat), negate(b, s.ready))),
        both(b, tall, both(b, narrow, s.unit_a_row)),
        both(b, wide, both(b, flat, s.unit_b_col)),
    ]


def _apart(b: Any, workspace: Any, big: Any) -> Any:
    """An address for sums, half a page from where big's rows begin."""
    distance = b.sub(b.ptrtoint(big, I64), b.ptrtoint(workspace, I64))
    middle = b.add(distance, i64(_ALIAS // 2))
    shift = b.and_(middle, i64(_ALIAS - COST.caches.line))
    return at(b, workspace, shift, I8)


def few_limit(tile: Tiling) -> int:
    """The most rows or columns of C that count as few."""
    return min(_COST.few, tile.lanes)


class _Sides:
    """Operands by role: A is big and C's rows are many, or B and C's columns are."""

    def __init__(self, b: Any, s: Any, lib: Library, by_rows: bool) -> None:
        self.by_rows = by_rows
        a = at(b, s.a, b.mul(s.row_begin, s.a_row), lib.item)
        right = at(b, s.b, b.mul(s.column_begin, s.b_col), lib.item)
        offset = b.add(b.mul(s.row_begin, s.c_row), s.column_begin)
        self.c = at(b, s.c, offset, lib.element)
        rows = b.sub(s.row_end, s.row_begin)
        columns = b.sub(s.column_end, s.column_begin)
        left = a, s.a_row, s.a_col, rows, s.c_row
        other = right, s.b_col, s.b_row, columns, i64(1)
        big, small = (left, other) if by_rows else (other, left)
        self.big, self.big_row, self.big_k, self.count, self.c_big = big
        self.small, self.small_row, self.small_k, self.few, self.c_small = small


def _write(b: Any, s: Any, value: Any, pointer: Any, mask: Any) -> None:
    """Finished lanes to C: added to it if asked."""
    add = functools.partial(added, b, value, pointer, mask)
    (done,) = choose(b, b.trunc(s.keep, I1), [value], add)
    store(b, done, pointer, mask)


def _emit_sums(
    lib: Library, most: int, chunk: int, by_rows: bool, tag: str
) -> ir.Function:
    """``sums[q, x] = sum over k of small[q, k] * big[k, x]``, in order of k."""
    with lib.function(f"sums{tag}", SUMS) as (b, s, function):
        s.by_rows = by_rows
        one = b.icmp_signed("==", s.few, i64(1))
        with b.if_else(one) as (single, several):
            with single:
                _add_up(b, lib, s, 1, chunk)
            with several, b.if_then(b.icmp_signed(">", s.few, i64(0))):
                _add_up(b, lib, s, most, chunk)
    return function


def _add_up(b: Any, lib: Library, s: Any, few: int, chunk: int) -> None:
    zero = zeros(lib.vector)
    for q in range(few):
        row = at(b, s.sums, i64(q * chunk), lib.element)
        with loop(b, i64(0), s.count, i64(lib.tile.lanes)) as x:
            store(b, zero, at(b, row, x, lib.element))
    steps = _COST.added_columns // min(few, 2)  # scales are held in registers
    whole = b.mul(b.sdiv(s.k, i64(steps)), i64(steps))
    with loop(b, i64(0), whole, i64(steps)) as k:
        _add_columns(b, lib, s, few, chunk, k, steps)
    with loop(b, whole, s.k) as k:
        _add_columns(b, lib, s, few, chunk, k, 1)


def _add_columns(
    b: Any, lib: Library, s: Any, few: int, chunk: int, k: Any, steps: int
) -> None:
    """Add ``steps`` rows of big, from row k on, to each of the sums."""
    kind, lanes, element = lib.kind, lib.tile.lanes, lib.element
    items = ir.VectorType(lib.item, lanes)
    last = b.sub(s.few, i64(1))
    big, scale = [], []
    for u in range(steps):
        here = b.add(k, i64(u))
        big.append(at(b, s.big, b.mul(here, s.big_k), lib.item))
        for q in range(few):
            row = b.mul(minimum(b, i64(q), last), s.small_row)
            item = at(b, s.small, b.add(row, b.mul(here, s.small_k)), lib.item)
            one = kind.widen(b, b.load(item, typ=lib.item), s.by_rows)
            scale.append(splat(b, one, lanes))
    sums = [at(b, s.sums, i64(q * chunk), element) for q in range(few)]

    def add(x: Any, mask: Any = None) -> None:
        found = [load(b, at(b, row, x, lib.item), items, mask) for row in big]
        values = [kind.widen(b, one, not s.by_rows) for one in found]
        for q, place in enumerate(at(b, row, x, element) for row in sums):
            sum_ = load(b, place, lib.vector)
            for u, value in enumerate(values):
                sum_ = fma(b, scale[u * few + q], value, sum_)
            store(b, sum_, place)

    whole = b.mul(b.sdiv(s.count, i64(lanes)), i64(lanes))
    with loop(b, i64(0), whole, i64(lanes)) as x:
        add(x)
    rest = b.sub(s.count, whole)
    with b.if_then(b.icmp_signed(">", rest, i64(0))):
        add(whole, first_lanes(b, rest, lanes))


def _emit_deliver(lib: Library, most: int, chunk: int) -> ir.Function:
    """Sums to C: ``C[x, q]`` if ``by_rows``, else ``C[q, x]``."""
    with lib.function("deliver", DELIVER) as (b, s, function):
        branch(
            b,
            b.trunc(s.by_rows, I1),
            lambda: _deliver_rows(b, lib, s, most, chunk),
            lambda: _deliver_columns(b, lib, s, chunk),
        )
    return function


def _deliver_rows(b: Any, lib: Library, s: Any, most: int, chunk: int) -> None:
    mask = first_lanes(b, s.few, lib.tile.lanes)
    with loop(b, i64(0), s.count) as x:
        items = [
            at(b, s.sums, b.add(x, i64(q * chunk)), lib.element) for q in range(most)
        ]
        value = lane(b, lib.vector, [b.load(i, typ=lib.element) for i in items])
        pointer = at(b, s.c, b.mul(x, s.c_row), lib.element)
        _write(b, s, value, pointer, mask)


def _deliver_columns(b: Any, lib: Library, s: Any, chunk: int) -> None:
    lanes = lib.tile.lanes
    with loop(b, i64(0), s.few) as q, loop(b, i64(0), s.count, i64(lanes)) as x:
        source = at(b, s.sums, b.add(b.mul(q, i64(chunk)), x), lib.element)
        pointer = at(b, s.c, b.add(b.mul(q, s.c_row), x), lib.element)
        mask = first_lanes(b, b.sub(s.count, x), lanes)
        _write(b, s, load(b, source, lib.vector), pointer, mask)
