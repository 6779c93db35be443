"""Packing operands whose words are made of several items, or of wider ones.

    across    words from rows of k: contiguous columns of B, or rows of A
    along     words from contiguous items, row by row
    turn      the transpose of that: a panel of B from contiguous items along k
    collect   words from items anywhere

Items beyond the last of k are zero.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I1, I32, i64, loop, zeros
from weft.compile.emit.known_values import branch
from weft.compile.emit.vectors import (
    at,
    carry,
    first_lanes,
    lane,
    load,
    minimum,
    store,
    totals,
    transpose,
)  # fmt: skip
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.pack import Packing, words_of

SIDES = ("left", "right")


class Words(Packing):
    """The packing functions of a library whose words are made, for A and for B."""

    def __init__(self, lib: Library) -> None:
        super().__init__(lib)
        self.made: dict[tuple[Any, bool], ir.Function] = {}

    def _function(self, emit: Callable[..., ir.Function], right: bool) -> ir.Function:
        if (emit, right) not in self.made:
            self.made[emit, right] = emit(self.lib, right)
        return self.made[emit, right]

    @functools.cached_property
    def shift(self) -> ir.Function:
        """The function that computes the corrections of a packed strip's rows."""
        return _emit_shift(self.lib)

    def rows(self, b: Any, s: Any, a: Any, height: Any) -> None:
        """Pack rows of A from ``a`` on: as columns of words if rows are contiguous."""
        tile, h, to = self.lib.tile, height, s.workspace
        depth = i64(tile.depth)

        def columns() -> None:
            call = [a, s.a_col, to, i64(tile.together), s.deep, h]
            b.call(self._function(_emit_across, False), call)

        def contiguous() -> None:
            call = [a, s.a_row, to, depth, h, s.deep]
            b.call(self._function(_emit_along, False), call)

        def other() -> None:
            call = [a, s.a_row, s.a_col, to, depth, i64(1), h, s.deep]
            b.call(self._function(_emit_collect, False), call)

        def by_rows() -> None:
            branch(b, s.unit_a_col, contiguous, other)

        branch(b, s.by_columns, columns, by_rows)

    def panel(self, b: Any, s: Any, here: Any, to: Any, rows: Any, count: Any) -> None:
        """Some rows of one panel."""
        width = i64(self.lib.tile.width)

        def straight() -> None:
            call = [here, s.b_row, to, width, rows, count]
            b.call(self._function(_emit_across, True), call)

        def transposed() -> None:
            call = [here, s.b_col, to, rows, count]
            b.call(self._function(_emit_transpose, True), call)

        def other() -> None:
            call = [here, s.b_col, s.b_row, to, i64(1), width, count, rows]
            b.call(self._function(_emit_collect, True), call)

        branch(
            b,
            s.unit_b_col,
            straight,
            lambda: branch(b, s.unit_b_row, transposed, other),
        )


def _name(what: str, right: bool) -> str:
    return f"{what}_{SIDES[right]}"


def _whole(b: Any, count: Any, step: int) -> Any:
    """The most of a count that is a multiple of a power of two."""
    return b.and_(count, i64(-step))


def _emit_across(lib: Library, right: bool) -> ir.Function:
    """``to[q, j]`` is the word of ``source[group * q + ..., j]``, j below ``count``."""
    group = lib.kind.group
    arguments = "*source source_row *to to_row rows count"
    with lib.function(_name("across", right), arguments) as (b, s, function):
        whole = _whole(b, s.rows, group)
        with loop(b, i64(0), whole, i64(group)) as k:
            _interleave(b, lib, right, s, k, None)
        rest = b.sub(s.rows, whole)
        if group > 1:
            with b.if_then(b.icmp_signed(">", rest, i64(0))):
                _interleave(b, lib, right, s, whole, rest)
    return function


def _interleave(b: Any, lib: Library, right: bool, s: Any, k: Any, rest: Any) -> None:
    """One row of words; only the first ``rest`` rows of items are there, if given."""
    kind, lanes = lib.kind, lib.tile.lanes
    items = ir.VectorType(lib.item, lanes)
    word = b.lshr(k, i64(kind.group.bit_length() - 1))
    to = at(b, s.to, b.mul(word, s.to_row), lib.element)
    there = [
        True if rest is None else b.icmp_signed("<", i64(t), rest)
        for t in range(kind.group)
    ]
    starts = []
    for t, condition in enumerate(there):
        row = b.add(k, i64(t))
        if condition is not True:  # one that is not there is read as the first
            row = b.select(condition, row, k)
        starts.append(at(b, s.source, b.mul(row, s.source_row), lib.item))

    def put(j: Any, mask: Any = None) -> None:
        rows = [load(b, at(b, start, j, lib.item), items, mask) for start in starts]
        for t, condition in enumerate(there):
            if condition is not True:
                rows[t] = b.select(condition, rows[t], zeros(items))
        words = kind.words(b, _zipped(b, rows), right)
        store(b, words, at(b, to, j, lib.element), mask)

    _in_vectors(b, s.count, lanes, put)


def _in_vectors(b: Any, count: Any, lanes: int, put: Callable[..., None]) -> None:
    """``put(j)`` for whole vectors, and ``put(j, mask)`` for the last lanes."""
    whole = _whole(b, count, lanes)
    with loop(b, i64(0), whole, i64(lanes)) as j:
        put(j)
    rest = b.sub(count, whole)
    with b.if_then(b.icmp_signed(">", rest, i64(0))):
        put(whole, first_lanes(b, rest, lanes))


def _zipped(b: Any, rows: list[Any]) -> Any:
    """Interleave vectors: the first lane of each, then the second, and so on."""
    while len(rows) > 1:  # the first half of rows has every second item
        half = len(rows) // 2
        count = rows[0].type.count
        order = [i + count * t for i in range(count) for t in range(2)]
        pick = ir.Constant(ir.VectorType(I32, 2 * count), order)
        rows = [b.shuffle_vector(rows[t], rows[t + half], pick) for t in range(half)]
    return rows[0]


def _emit_along(lib: Library, right: bool) -> ir.Function:
    """``to[i, q]`` is the word of ``source[i, group * q + ...]``, below ``count``."""
    step = lib.tile.lanes * lib.kind.group
    items = ir.VectorType(lib.item, step)
    words = lib.kind.group.bit_length() - 1
    arguments = "*source source_row *to to_row rows count"
    with lib.function(_name("along", right), arguments) as (b, s, made):
        last = words_of(b, s.count, lib.kind)
        with loop(b, i64(0), s.rows) as i:
            source = at(b, s.source, b.mul(i, s.source_row), lib.item)
            to = at(b, s.to, b.mul(i, s.to_row), lib.element)

            def put(
                k: Any, mask: Any = None, source: Any = source, to: Any = to
            ) -> None:
                value = load(b, at(b, source, k, lib.item), items, mask)
                made = lib.kind.words(b, value, right)
                q = b.lshr(k, i64(words))
                left = None
                if mask is not None:
                    left = first_lanes(b, b.sub(last, q), lib.tile.lanes)
                store(b, made, at(b, to, q, lib.element), left)

            _in_vectors(b, s.count, step, put)
    return made


def _emit_transpose(lib: Library, right: bool) -> ir.Function:
    """``to[q, j]`` is the word of ``source[j, group * q + ...]``: see ``pack``."""
    lanes, width = lib.tile.lanes, i64(lib.tile.width)
    step = lanes * lib.kind.group
    items = ir.VectorType(lib.item, step)
    name = _name("turn", right)
    with lib.function(name, "*source source_row *to k count") as (b, s, function):
        last = b.sub(s.count, i64(1))
        with loop(b, i64(0), s.count, i64(lanes), name="j") as j:
            rows = []
            for x in range(lanes):  # columns beyond the last repeat it
                row = b.mul(minimum(b, b.add(j, i64(x)), last), s.source_row)
                rows.append(at(b, s.source, row, lib.item))

            def put(k: Any, mask: Any = None, rows: Any = rows, j: Any = j) -> None:
                found = [load(b, at(b, row, k, lib.item), items, mask) for row in rows]
                words = [lib.kind.words(b, one, right) for one in found]
                q = b.lshr(k, i64(lib.kind.group.bit_length() - 1))
                for x, value in enumerate(transpose(b, words)):
                    place = b.add(b.mul(b.add(q, i64(x)), width), j)
                    store(b, value, at(b, s.to, place, lib.element))

            _in_vectors(b, s.k, step, put)
    return function


def _emit_collect(lib: Library, right: bool) -> ir.Function:
    """``to[i, q]`` is the word of ``source[i, group * q + ...]``, for any strides."""
    group, items = lib.kind.group, ir.VectorType(lib.item, lib.kind.group)
    arguments = "*source source_row source_k *to to_row to_k rows k"
    with lib.function(_name("collect", right), arguments) as (b, s, function):
        last = b.sub(s.k, i64(1))
        with (
            loop(b, i64(0), s.rows) as i,
            loop(b, i64(0), words_of(b, s.k, lib.kind)) as q,
        ):
            row = b.mul(i, s.source_row)
            loaded = []
            for t in range(group):
                k = b.add(b.mul(q, i64(group)), i64(t))
                inside = b.mul(minimum(b, k, last), s.source_k)
                item = b.load(
                    at(b, s.source, b.add(row, inside), lib.item), typ=lib.item
                )
                there = b.icmp_signed("<=", k, last)
                loaded.append(b.select(there, item, ir.Constant(lib.item, 0)))
            words = lib.kind.words(b, lane(b, items, loaded), right)
            place = b.add(b.mul(i, s.to_row), b.mul(q, s.to_k))
            word = b.extract_element(words, I32(0))
            b.store(word, at(b, s.to, place, lib.element))
    return function


def _emit_shift(lib: Library) -> ir.Function:
    """``to[i]`` corrects row i: for words of A by rows, or by columns."""
    kind: Any = lib.kind
    tile, lanes = lib.tile, lib.tile.lanes
    zero = zeros(lib.vector)
    with lib.function("shift", "*source *to rows words by_columns") as (b, s, function):

        def sum_of(step: int, count: Any, mask: bool, source: Any) -> Any:
            def add(q: Any, sums: list[Any]) -> list[Any]:
                left = first_lanes(b, b.sub(count, q), lanes) if mask else None
                words = load(b, at(b, source, q, lib.element), lib.vector, left)
                return [kind.row_sums(b, words, sums[0])]

            (sums,) = carry(b, i64(0), count, step, [zero], add)
            return kind.correction(b, sums)

        def columns() -> None:
            count = b.mul(s.words, i64(tile.together))
            for first in range(0, tile.together, lanes):
                source = at(b, s.source, i64(first), lib.element)
                sums = sum_of(tile.together, count, False, source)
                store(b, sums, at(b, s.to, i64(first), lib.element))

        def by_rows() -> None:
            with loop(b, i64(0), s.rows) as i:
                row = at(b, s.source, b.mul(i, i64(tile.depth)), lib.element)
                total = totals(b, [sum_of(lanes, s.words, True, row)])
                one = b.extract_element(total, I32(0))
                b.store(one, at(b, s.to, i, lib.element))

        branch(b, b.trunc(s.by_columns, I1), columns, by_rows)
    return function
