"""Dot products of rows: C from operands that are both contiguous along k.

Some rows of the big operand are multiplied with all rows of the small one: sums are
vectors, whose lanes are added up at the end.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import zeros
from weft.compile.emit.flow import carry, choose, if_else, loop, when
from weft.compile.emit.values import minimum
from weft.compile.emit.vectors import first_lanes, prefetch, totals
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.kinds import Kind
from weft.compile.targets.cpu.matmul.tiling import Tiling

_COST = COST.matmul
DOTS = "item*big big_row count item*small small_row few k later *sums"


def several_limit(tile: Tiling, kind: Kind) -> int:
    """The most rows of C for dot products of rows; 0 if they don't pay."""
    return _COST.dot_rows if tile.many and kind.along is kind else 0


def emit_dots(
    lib: Library, most: int, chunk: int, by_rows: bool, tag: str
) -> ir.Function:
    """``sums[q, p]`` (+)= the dot product of big's row p and small's row q."""
    with lib.function(f"dots{tag}", DOTS) as (s, function):
        s.by_rows = by_rows
        one = s.few.equals(1)
        with if_else(one) as (single, several):
            with single:
                _dot_rows(lib, s, chunk, 8, 1)
            with several, when(s.few > 0):
                _dot_rows(lib, s, chunk, 4, most)
    return function


def emit_several_dots(
    lib: Library, most: int, chunk: int, by_rows: bool, tag: str
) -> ir.Function:
    """As ``dots``, for more rows of small: some of big's are held for all of them."""
    chunk = chunk * most // _COST.dot_rows
    with lib.function(f"several_dots{tag}", DOTS) as (s, function):
        s.by_rows = by_rows
        for start, stop, rows in _steps(s.count, 4):
            with loop(start, stop, rows) as p, loop(0, s.few, most, name="q") as first:
                _put_dots(lib, s, chunk, p, rows, most, first)
    return function


def _dot_rows(lib: Library, s: Any, chunk: int, height: int, few: int) -> None:
    """All rows of the big operand, some at a time, then one at a time."""
    for start, stop, rows in _steps(s.count, height):
        with loop(start, stop, rows) as p:
            _put_dots(lib, s, chunk, p, rows, few, 0)


def _steps(count: Any, height: int) -> list[tuple[Any, Any, int]]:
    """A range in steps of some height, and the remainder in steps of one."""
    whole = count // height * height
    return [(0, whole, height), (whole, count, 1)]


def _put_dots(
    lib: Library, s: Any, chunk: int, p: Any, rows: int, few: int, first: Any
) -> None:
    """The sums of big's rows from p on, times small's from ``first`` on."""
    sums = _dot_tile(lib, s, p, rows, few, first)
    for q in range(few):
        row = (first + q) * chunk
        place = s.sums + (p + row)
        _put(lib, s, sums[q::few], place)


def _put(lib: Library, s: Any, sums: list[Any], place: Any) -> None:
    """Store totals of vectors; later blocks of k add theirs to those before."""
    later = s.later > 0
    most = lib.tile.lanes
    for start in range(0, len(sums), most):
        total = totals(sums[start : start + most])
        here = place + start
        (total,) = choose(later, [total], functools.partial(added, total, here))
        here.store(total)


def added(value: Any, pointer: Any, mask: Any = None) -> list[Any]:
    return [pointer.load(value.type, mask) + value]


def _dot_tile(
    lib: Library, s: Any, p: Any, height: int, few: int, first: Any
) -> list[Any]:
    """Vectors whose totals are the dot products of some rows."""
    kind, item = lib.kind.along, lib.item
    many = lib.tile.lanes * kind.group
    items = ir.VectorType(item, many)
    big = [s.big + (p + i) * s.big_row for i in range(height)]
    last = s.few - 1
    small = [  # those beyond the last repeat it, and are not stored
        s.small + minimum(x, last) * s.small_row
        for x in (first + q for q in range(few))
    ]

    def words(row: Any, k: Any, mask: Any, right: bool) -> Any:
        return kind.words((row + k).load(items, mask), right)

    def step(k: Any, sums: list[Any], mask: Any = None) -> list[Any]:
        right = [words(x, k, mask, s.by_rows) for x in small]
        added_sums: list[Any] = []
        for row in big:
            if few == 1 and mask is None:  # each is read once: it comes from afar
                later = k + _COST.dots_ahead * height * s.big_row
                prefetch(row + later, level=2)
            left = words(row, k, mask, not s.by_rows)
            added_sums += [
                kind.dot(left, x, sums[len(added_sums) + q])
                for q, x in enumerate(right)
            ]
        return added_sums

    zero = zeros(lib.vector)
    whole = s.k // many * many
    sums = carry(0, whole, many, [zero] * (height * few), step)
    rest = s.k - whole
    mask = first_lanes(rest, many)
    more = rest > 0
    return choose(more, sums, lambda: step(whole, sums, mask))
