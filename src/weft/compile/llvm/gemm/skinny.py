"""Products in which C has very few rows or columns: limited by reading one operand.

The large operand is called *big* and read once, in the order in which it lies: its
rows times the small operand by dot products (``dots``), or its columns scaled and
added up (``sums``). C is the same function of its operands for every split of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from weft.compile.llvm.emit import I1, I8, I64, i64, loop
from weft.compile.llvm.gemm.known import both, branch
from weft.compile.llvm.gemm.pack import Packing
from weft.compile.llvm.gemm.routine import Library, Place
from weft.compile.llvm.gemm.vectors import (
    at,
    carry,
    choose,
    first_lanes,
    fma,
    lane,
    load,
    minimum,
    splat,
    store,
    total,
)  # fmt: skip

DOTS = (
    "*big big_row count *small small_row few k *c c_big c_small by_rows keep finish "
    "row column *context"
)
SUMS = "*big big_k count *small small_row small_k few k *sums"
DELIVER = "*sums count few *c c_row by_rows keep row column *context"
# Each sum that is held while columns are added up, in bytes. Not a multiple of a page:
# a load waits for an earlier store whose address has the same last twelve bits.
CHUNK_BYTES = 16384 + 512
_PAGE, _LINE = 4096, 64
STEPS = 8  # columns that are added up at a time


class Skinny:
    """The functions for skinny products, emitted when first called."""

    def __init__(self, lib: Library, packing: Packing) -> None:
        self.lib, self.packing = lib, packing
        self.most = few_limit(lib)
        self.chunk = CHUNK_BYTES * 8 // (lib.target.bits // lib.tile.lanes)

    @functools.cached_property
    def dots(self) -> ir.Function:
        """Rows of the big operand times rows of the small one."""
        return _emit_dots(self.lib, self.most)

    @functools.cached_property
    def sums(self) -> ir.Function:
        """Columns of the big operand, scaled by the small one and added up."""
        return _emit_sums(self.lib, self.most, self.chunk)

    @functools.cached_property
    def deliver(self) -> ir.Function:
        """Puts sums into C."""
        return _emit_deliver(self.lib, self.most, self.chunk)

    def emit(self, b: Any, s: Any, otherwise: Callable[[], None]) -> None:
        """The skinny ways where they pay, else ``otherwise``."""
        cases = [
            (both(b, s.long, both(b, s.narrow, s.unit_a_col)), self._dots, True),
            (both(b, s.long, both(b, s.flat, s.unit_b_row)), self._dots, False),
            (both(b, s.tall, both(b, s.narrow, s.unit_a_row)), self._sums, True),
            (both(b, s.wide, both(b, s.flat, s.unit_b_col)), self._sums, False),
        ]
        self._first(b, s, cases, otherwise)

    def _first(self, b: Any, s: Any, cases: list[Any], otherwise: Any) -> None:
        if not cases:
            return otherwise()
        (condition, way, by_rows), *rest = cases
        branch(
            b,
            condition,
            lambda: way(b, _Sides(b, s, self.lib.element, by_rows), s),
            lambda: self._first(b, s, rest, otherwise),
        )

    def _dots(self, b: Any, side: _Sides, s: Any) -> None:
        """Blocks of k as long as the packed small operand fits the workspace."""
        lib = self.lib
        reach = lib.tile.workspace // self.most // lib.tile.lanes * lib.tile.lanes
        packed = b.icmp_signed("!=", side.small_k, i64(1))
        with loop(b, i64(0), s.k, i64(reach)) as p:
            deep = minimum(b, i64(reach), b.sub(s.k, p))
            small = at(b, side.small, b.mul(p, side.small_k), lib.element)
            with b.if_then(packed):
                strides = [side.small_row, side.small_k]
                arguments = [small, *strides, s.workspace, i64(reach), side.few, deep]
                b.call(self.packing.gather, arguments)
            small = b.select(packed, s.workspace, small)
            row = b.select(packed, i64(reach), side.small_row)
            add = b.or_(s.keep, b.zext(b.icmp_signed(">", p, i64(0)), I64))
            done = b.zext(b.icmp_signed(">=", b.add(p, deep), s.k), I64)
            big = at(b, side.big, p, lib.element)
            operands = [big, side.big_row, side.count, small, row, side.few, deep]
            flags = [i64(int(side.by_rows)), add, done]
            place = [side.c, side.c_big, side.c_small, *flags, *side.origin]
            b.call(self.dots, [*operands, *place, s.context])

    def _sums(self, b: Any, side: _Sides, s: Any) -> None:
        lib = self.lib
        with loop(b, i64(0), side.count, i64(self.chunk)) as x:
            count = minimum(b, i64(self.chunk), b.sub(side.count, x))
            big = at(b, side.big, x, lib.element)
            small = [side.small, side.small_row, side.small_k, side.few, s.k]
            sums = _apart(b, s.workspace, big)
            b.call(self.sums, [big, side.big_k, count, *small, sums])
            c = at(b, side.c, b.mul(x, side.c_big), lib.element)
            row, column = side.origin
            row = b.add(row, x) if side.by_rows else row
            column = column if side.by_rows else b.add(column, x)
            place = [c, s.c_row, i64(int(side.by_rows)), s.keep, row, column]
            b.call(self.deliver, [sums, count, side.few, *place, s.context])


def _apart(b: Any, workspace: Any, big: Any) -> Any:
    """A place for sums, half a page from where big's rows begin."""
    distance = b.sub(b.ptrtoint(big, I64), b.ptrtoint(workspace, I64))
    shift = b.and_(b.add(distance, i64(_PAGE // 2)), i64(_PAGE - _LINE))
    return at(b, workspace, shift, I8)


def few_limit(lib: Library) -> int:
    """The most rows or columns of C that count as few."""
    return min(4, lib.tile.lanes)


class _Sides:
    """Operands by role: A is big and C's rows are many, or B and C's columns are."""

    def __init__(self, b: Any, s: Any, element: Any, by_rows: bool) -> None:
        self.by_rows = by_rows
        self.origin = b.add(s.first_row, s.row_begin), s.column_begin
        a = at(b, s.a, b.mul(s.row_begin, s.a_row), element)
        right = at(b, s.b, b.mul(s.column_begin, s.b_col), element)
        offset = b.add(b.mul(s.row_begin, s.c_row), s.column_begin)
        self.c = at(b, s.c, offset, element)
        rows = b.sub(s.row_end, s.row_begin)
        columns = b.sub(s.column_end, s.column_begin)
        left = a, s.a_row, s.a_col, rows, s.c_row
        other = right, s.b_col, s.b_row, columns, i64(1)
        big, small = (left, other) if by_rows else (other, left)
        self.big, self.big_row, self.big_k, self.count, self.c_big = big
        self.small, self.small_row, self.small_k, self.few, self.c_small = small


def _write(
    b: Any, lib: Library, s: Any, value: Any, pointer: Any, finish: Any, place: Place
) -> None:
    """Finished lanes to C: added to it if asked, and through the epilogue."""

    def add() -> list[Any]:
        return [b.fadd(load(b, pointer, lib.vector, place.mask), value)]

    (done,) = choose(b, b.trunc(s.keep, I1), [value], add)
    if lib.epilogue is not None:
        held, run = done, lib.epilogue
        (done,) = choose(b, finish, [held], lambda: [run(b, held, place)])
    store(b, done, pointer, place.mask)


def _emit_dots(lib: Library, most: int) -> ir.Function:
    with lib.routine("dots", DOTS) as (b, s, made):
        one = b.icmp_signed("==", s.few, i64(1))
        with b.if_else(one) as (single, several):
            with single:
                _dot_rows(b, lib, s, min(8, lib.tile.lanes), 1)
            with several, b.if_then(b.icmp_signed(">", s.few, i64(0))):
                _dot_rows(b, lib, s, min(4, lib.tile.lanes), most)
    return made


def _dot_rows(b: Any, lib: Library, s: Any, height: int, few: int) -> None:
    """All rows of the big operand, some at a time, then one at a time."""
    whole = b.mul(b.sdiv(s.count, i64(height)), i64(height))
    with loop(b, i64(0), whole, i64(height)) as p:
        _dot_tile(b, lib, s, p, height, few)
    with loop(b, whole, s.count) as p:
        _dot_tile(b, lib, s, p, 1, few)


def _dot_tile(b: Any, lib: Library, s: Any, p: Any, height: int, few: int) -> None:
    lanes, element = lib.tile.lanes, lib.element
    big = [
        at(b, s.big, b.mul(b.add(p, i64(i)), s.big_row), element) for i in range(height)
    ]
    last = b.sub(s.few, i64(1))
    small = [  # those beyond the last repeat it, and are not stored
        at(b, s.small, b.mul(minimum(b, i64(q), last), s.small_row), element)
        for q in range(few)
    ]

    def step(k: Any, sums: list[Any], mask: Any = None) -> list[Any]:
        right = [load(b, at(b, x, k, element), lib.vector, mask) for x in small]
        made: list[Any] = []
        for row in big:
            left = load(b, at(b, row, k, element), lib.vector, mask)
            made += [fma(b, left, x, sums[len(made) + q]) for q, x in enumerate(right)]
        return made

    zero = ir.Constant(lib.vector, None)
    whole = b.mul(b.sdiv(s.k, i64(lanes)), i64(lanes))
    sums = carry(b, i64(0), whole, lanes, [zero] * (height * few), step)
    rest = b.sub(s.k, whole)
    held, mask = sums, first_lanes(b, rest, lanes)
    more = b.icmp_signed(">", rest, i64(0))
    sums = choose(b, more, held, lambda: step(whole, held, mask))
    values = [total(b, x) for x in sums]
    by_rows = b.trunc(s.by_rows, I1)
    grid = [values[i * few : (i + 1) * few] for i in range(height)]
    with b.if_else(by_rows) as (rows, columns):
        with rows:
            _dots_to_rows(b, lib, s, p, grid)
        with columns:
            _dots_to_columns(b, lib, s, p, grid)


def _dots_to_rows(b: Any, lib: Library, s: Any, p: Any, grid: list[Any]) -> None:
    """Each row of sums is a row of C."""
    mask = first_lanes(b, s.few, lib.tile.lanes)
    for i, values in enumerate(grid):
        pointer = at(b, s.c, b.mul(b.add(p, i64(i)), s.c_big), lib.element)
        row = b.add(s.row, b.add(p, i64(i)))
        place = Place(row, s.column, mask, s.context)
        value = lane(b, lib.vector, values)
        _write(b, lib, s, value, pointer, b.trunc(s.finish, I1), place)


def _dots_to_columns(b: Any, lib: Library, s: Any, p: Any, grid: list[Any]) -> None:
    """Each column of sums is part of a row of C."""
    mask = first_lanes(b, i64(len(grid)), lib.tile.lanes)
    for q, values in enumerate(zip(*grid, strict=True)):
        with b.if_then(b.icmp_signed("<", i64(q), s.few)):
            offset = b.add(b.mul(s.c_small, i64(q)), p)
            pointer = at(b, s.c, offset, lib.element)
            place = Place(b.add(s.row, i64(q)), b.add(s.column, p), mask, s.context)
            value = lane(b, lib.vector, values)
            _write(b, lib, s, value, pointer, b.trunc(s.finish, I1), place)


def _emit_sums(lib: Library, most: int, chunk: int) -> ir.Function:
    """``sums[q, x] = sum over k of small[q, k] * big[k, x]``, in order of k."""
    with lib.routine("sums", SUMS) as (b, s, made):
        one = b.icmp_signed("==", s.few, i64(1))
        with b.if_else(one) as (single, several):
            with single:
                _add_up(b, lib, s, 1, chunk)
            with several, b.if_then(b.icmp_signed(">", s.few, i64(0))):
                _add_up(b, lib, s, most, chunk)
    return made


def _add_up(b: Any, lib: Library, s: Any, few: int, chunk: int) -> None:
    zero = ir.Constant(lib.vector, None)
    for q in range(few):
        row = at(b, s.sums, i64(q * chunk), lib.element)
        with loop(b, i64(0), s.count, i64(lib.tile.lanes)) as x:
            store(b, zero, at(b, row, x, lib.element))
    steps = STEPS if few == 1 else STEPS // 2  # scales are held in registers
    whole = b.mul(b.sdiv(s.k, i64(steps)), i64(steps))
    with loop(b, i64(0), whole, i64(steps)) as k:
        _add_columns(b, lib, s, few, chunk, k, steps)
    with loop(b, whole, s.k) as k:
        _add_columns(b, lib, s, few, chunk, k, 1)


def _add_columns(
    b: Any, lib: Library, s: Any, few: int, chunk: int, k: Any, steps: int
) -> None:
    """Add ``steps`` rows of big, from row k on, to each of the sums."""
    lanes, element = lib.tile.lanes, lib.element
    last = b.sub(s.few, i64(1))
    big, scale = [], []
    for u in range(steps):
        here = b.add(k, i64(u))
        big.append(at(b, s.big, b.mul(here, s.big_k), element))
        for q in range(few):
            row = b.mul(minimum(b, i64(q), last), s.small_row)
            item = at(b, s.small, b.add(row, b.mul(here, s.small_k)), element)
            scale.append(splat(b, b.load(item, typ=element), lanes))
    sums = [at(b, s.sums, i64(q * chunk), element) for q in range(few)]

    def add(x: Any, mask: Any = None) -> None:
        values = [load(b, at(b, row, x, element), lib.vector, mask) for row in big]
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
    with lib.routine("deliver", DELIVER) as (b, s, made):
        branch(
            b,
            b.trunc(s.by_rows, I1),
            lambda: _deliver_rows(b, lib, s, most, chunk),
            lambda: _deliver_columns(b, lib, s, chunk),
        )
    return made


def _deliver_rows(b: Any, lib: Library, s: Any, most: int, chunk: int) -> None:
    mask = first_lanes(b, s.few, lib.tile.lanes)
    with loop(b, i64(0), s.count) as x:
        items = [
            at(b, s.sums, b.add(x, i64(q * chunk)), lib.element) for q in range(most)
        ]
        value = lane(b, lib.vector, [b.load(i, typ=lib.element) for i in items])
        pointer = at(b, s.c, b.mul(x, s.c_row), lib.element)
        place = Place(b.add(s.row, x), s.column, mask, s.context)
        _write(b, lib, s, value, pointer, I1(1), place)


def _deliver_columns(b: Any, lib: Library, s: Any, chunk: int) -> None:
    lanes = lib.tile.lanes
    with loop(b, i64(0), s.few) as q, loop(b, i64(0), s.count, i64(lanes)) as x:
        source = at(b, s.sums, b.add(b.mul(q, i64(chunk)), x), lib.element)
        pointer = at(b, s.c, b.add(b.mul(q, s.c_row), x), lib.element)
        mask = first_lanes(b, b.sub(s.count, x), lanes)
        place = Place(b.add(s.row, q), b.add(s.column, x), mask, s.context)
        _write(b, lib, s, load(b, source, lib.vector), pointer, I1(1), place)
