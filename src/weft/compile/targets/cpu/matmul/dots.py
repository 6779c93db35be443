"""Dot products of rows: C from operands that are both contiguous along k.

Some rows of the big operand are multiplied with all rows of the small one: sums are
vectors, whose lanes are added up at the end.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import i64, loop, zeros
from weft.compile.emit.vectors import (
    at,
    carry,
    choose,
    first_lanes,
    load,
    minimum,
    plus,
    prefetch,
    store,
    totals,
)  # fmt: skip
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.kinds import Kind
from weft.compile.targets.cpu.matmul.tiling import Tiling

_COST = COST.matmul
DOTS = "*big big_row count *small small_row few k later *sums"


def several_limit(tile: Tiling, kind: Kind) -> int:
    """The most rows of C for dot products of rows; 0 if they don't pay."""
    return _COST.dot_rows if tile.many and kind.along is kind else 0


def emit_dots(
    lib: Library, most: int, chunk: int, by_rows: bool, tag: str
) -> ir.Function:
    """``sums[q, p]`` (+)= the dot product of big's row p and small's row q."""
    with lib.function(f"dots{tag}", DOTS) as (b, s, function):
        s.by_rows = by_rows
        one = b.icmp_signed("==", s.few, i64(1))
        with b.if_else(one) as (single, several):
            with single:
                _dot_rows(b, lib, s, chunk, 8, 1)
            with several, b.if_then(b.icmp_signed(">", s.few, i64(0))):
                _dot_rows(b, lib, s, chunk, 4, most)
    return function


def emit_several_dots(
    lib: Library, most: int, chunk: int, by_rows: bool, tag: str
) -> ir.Function:
    """As ``dots``, for more rows of small: some of big's are held for all of them."""
    chunk = chunk * most // _COST.dot_rows
    with lib.function(f"several_dots{tag}", DOTS) as (b, s, function):
        s.by_rows = by_rows
        for start, stop, rows in _steps(b, s.count, 4):
            with (
                loop(b, start, stop, i64(rows)) as p,
                loop(b, i64(0), s.few, i64(most), name="q") as first,
            ):
                _put_dots(b, lib, s, chunk, p, rows, most, first)
    return function


def _dot_rows(b: Any, lib: Library, s: Any, chunk: int, height: int, few: int) -> None:
    """All rows of the big operand, some at a time, then one at a time."""
    for start, stop, rows in _steps(b, s.count, height):
        with loop(b, start, stop, i64(rows)) as p:
            _put_dots(b, lib, s, chunk, p, rows, few, i64(0))


def _steps(b: Any, count: Any, height: int) -> list[tuple[Any, Any, int]]:
    """A range in steps of some height, and the remainder in steps of one."""
    whole = b.mul(b.sdiv(count, i64(height)), i64(height))
    return [(i64(0), whole, height), (whole, count, 1)]


def _put_dots(
    b: Any, lib: Library, s: Any, chunk: int, p: Any, rows: int, few: int, first: Any
) -> None:
    """The sums of big's rows from p on, times small's from ``first`` on."""
    sums = _dot_tile(b, lib, s, p, rows, few, first)
    for q in range(few):
        row = b.mul(b.add(first, i64(q)), i64(chunk))
        place = at(b, s.sums, b.add(p, row), lib.element)
        _put(b, lib, s, sums[q::few], place)


def _put(b: Any, lib: Library, s: Any, sums: list[Any], place: Any) -> None:
    """Store totals of vectors; later blocks of k add theirs to those before."""
    later = b.icmp_signed(">", s.later, i64(0))
    most = lib.tile.lanes
    for start in range(0, len(sums), most):
        total = totals(b, sums[start : start + most])
        here = at(b, place, i64(start), lib.element)
        held = functools.partial(added, b, total, here)
        (total,) = choose(b, later, [total], held)
        store(b, total, here)


def added(b: Any, value: Any, pointer: Any, mask: Any = None) -> list[Any]:
    return [plus(b, load(b, pointer, value.type, mask), value)]


def _dot_tile(
    b: Any, lib: Library, s: Any, p: Any, height: int, few: int, first: Any
) -> list[Any]:
    """Vectors whose totals are the dot products of some rows."""
    kind, item = lib.kind.along, lib.item
    many = lib.tile.lanes * kind.group
    items = ir.VectorType(item, many)
    big = [
        at(b, s.big, b.mul(b.add(p, i64(i)), s.big_row), item) for i in range(height)
    ]
    last = b.sub(s.few, i64(1))
    small = [  # those beyond the last repeat it, and are not stored
        at(b, s.small, b.mul(minimum(b, x, last), s.small_row), item)
        for x in (b.add(first, i64(q)) for q in range(few))
    ]

    def words(row: Any, k: Any, mask: Any, right: bool) -> Any:
        return kind.words(b, load(b, at(b, row, k, item), items, mask), right)

    def step(k: Any, sums: list[Any], mask: Any = None) -> list[Any]:
        right = [words(x, k, mask, s.by_rows) for x in small]
        added_sums: list[Any] = []
        for row in big:
            if few == 1 and mask is None:  # each is read once: it comes from afar
                later = b.add(k, b.mul(i64(_COST.dots_ahead * height), s.big_row))
                prefetch(b, at(b, row, later, item), level=2)
            left = words(row, k, mask, not s.by_rows)
            added_sums += [
                kind.dot(b, left, x, sums[len(added_sums) + q])
                for q, x in enumerate(right)
            ]
        return added_sums

    zero = zeros(lib.vector)
    whole = b.mul(b.sdiv(s.k, i64(many)), i64(many))
    sums = carry(b, i64(0), whole, many, [zero] * (height * few), step)
    rest = b.sub(s.k, whole)
    mask = first_lanes(b, rest, many)
    more = b.icmp_signed(">", rest, i64(0))
    return choose(b, more, sums, lambda: step(whole, sums, mask))
