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

from weft.compile.emit.control_flow import zeros
from weft.compile.emit.flow import branch, carry, loop, when
from weft.compile.emit.values import call, minimum, select
from weft.compile.emit.vectors import first_lanes, lane, shuffle, totals, transpose
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.pack import Packing, words_of

SIDES = ("left", "right")


class Words(Packing):
    """The packing functions of a library whose words are made, for A and for B."""

    def __init__(self, lib: Library) -> None:
        super().__init__(lib)
        self.made: dict[tuple[Any, bool], ir.Function] = {}

    def _call(
        self, emit: Callable[..., ir.Function], right: bool, *arguments: Any
    ) -> None:
        if (emit, right) not in self.made:
            self.made[emit, right] = emit(self.lib, right)
        call(self.made[emit, right], arguments)

    @functools.cached_property
    def shift(self) -> ir.Function:
        """The function that computes the corrections of a packed strip's rows."""
        return _emit_shift(self.lib)

    def rows(self, s: Any, a: Any, height: Any) -> None:
        """Pack rows of A from ``a`` on: as columns of words if rows are contiguous."""
        to, together, depth = s.workspace, self.lib.tile.together, self.lib.tile.depth
        across, along, collect = (
            functools.partial(self._call, emit, False)
            for emit in (_emit_across, _emit_along, _emit_collect)
        )
        branch(
            s.by_columns,
            lambda: across(a, s.a_col, to, together, s.deep, height),
            lambda: branch(
                s.unit_a_col,
                lambda: along(a, s.a_row, to, depth, height, s.deep),
                lambda: collect(a, s.a_row, s.a_col, to, depth, 1, height, s.deep),
            ),
        )

    def panel(self, s: Any, here: Any, to: Any, rows: Any, count: Any) -> None:
        """Some rows of one panel."""
        width = self.lib.tile.width
        across, turn, collect = (
            functools.partial(self._call, emit, True)
            for emit in (_emit_across, _emit_transpose, _emit_collect)
        )
        branch(
            s.unit_b_col,
            lambda: across(here, s.b_row, to, width, rows, count),
            lambda: branch(
                s.unit_b_row,
                lambda: turn(here, s.b_col, to, rows, count),
                lambda: collect(here, s.b_col, s.b_row, to, 1, width, count, rows),
            ),
        )


def _name(what: str, right: bool) -> str:
    return f"{what}_{SIDES[right]}"


def _whole(count: Any, step: int) -> Any:
    """The most of a count that is a multiple of a power of two."""
    return count & -step


def _emit_across(lib: Library, right: bool) -> ir.Function:
    """``to[q, j]`` is the word of ``source[group * q + ..., j]``, j below ``count``."""
    group = lib.kind.group
    arguments = "item*source source_row *to to_row rows count"
    with lib.function(_name("across", right), arguments) as (s, function):
        whole = _whole(s.rows, group)
        with loop(0, whole, group) as k:
            _interleave(lib, right, s, k, None)
        rest = s.rows - whole
        if group > 1:
            with when(rest > 0):
                _interleave(lib, right, s, whole, rest)
    return function


def _interleave(lib: Library, right: bool, s: Any, k: Any, rest: Any) -> None:
    """One row of words; only the first ``rest`` rows of items are there, if given."""
    kind, lanes = lib.kind, lib.tile.lanes
    items = ir.VectorType(lib.item, lanes)
    word = k.shift_right(kind.group.bit_length() - 1)
    to = s.to + word * s.to_row
    there = [True if rest is None else t < rest for t in range(kind.group)]
    starts = []
    for t, condition in enumerate(there):
        row = k + t
        if condition is not True:  # one that is not there is read as the first
            row = select(condition, row, k)
        starts.append(s.source + row * s.source_row)

    def put(j: Any, mask: Any = None) -> None:
        rows = [(start + j).load(items, mask) for start in starts]
        for t, condition in enumerate(there):
            if condition is not True:
                rows[t] = select(condition, rows[t], zeros(items))
        words = kind.words(_zipped(rows), right)
        (to + j).store(words, mask)

    _in_vectors(s.count, lanes, put)


def _in_vectors(count: Any, lanes: int, put: Callable[..., None]) -> None:
    """``put(j)`` for whole vectors, and ``put(j, mask)`` for the last lanes."""
    whole = _whole(count, lanes)
    with loop(0, whole, lanes) as j:
        put(j)
    rest = count - whole
    with when(rest > 0):
        put(whole, first_lanes(rest, lanes))


def _zipped(rows: list[Any]) -> Any:
    """Interleave vectors: the first lane of each, then the second, and so on."""
    while len(rows) > 1:  # the first half of rows has every second item
        half = len(rows) // 2
        count = rows[0].type.count
        order = [i + count * t for i in range(count) for t in range(2)]
        rows = [shuffle(rows[t], rows[t + half], order) for t in range(half)]
    return rows[0]


def _emit_along(lib: Library, right: bool) -> ir.Function:
    """``to[i, q]`` is the word of ``source[i, group * q + ...]``, below ``count``."""
    step = lib.tile.lanes * lib.kind.group
    items = ir.VectorType(lib.item, step)
    words = lib.kind.group.bit_length() - 1
    arguments = "item*source source_row *to to_row rows count"
    with lib.function(_name("along", right), arguments) as (s, made):
        last = words_of(s.count, lib.kind)
        with loop(s.rows) as i:
            source = s.source + i * s.source_row
            to = s.to + i * s.to_row

            def put(
                k: Any, mask: Any = None, source: Any = source, to: Any = to
            ) -> None:
                value = (source + k).load(items, mask)
                made = lib.kind.words(value, right)
                q = k.shift_right(words)
                left = None
                if mask is not None:
                    left = first_lanes(last - q, lib.tile.lanes)
                (to + q).store(made, left)

            _in_vectors(s.count, step, put)
    return made


def _emit_transpose(lib: Library, right: bool) -> ir.Function:
    """``to[q, j]`` is the word of ``source[j, group * q + ...]``: see ``pack``."""
    lanes, width = lib.tile.lanes, lib.tile.width
    step = lanes * lib.kind.group
    items = ir.VectorType(lib.item, step)
    name = _name("turn", right)
    with lib.function(name, "item*source source_row *to k count") as (s, function):
        last = s.count - 1
        with loop(0, s.count, lanes, name="j") as j:
            rows = []
            for x in range(lanes):  # columns beyond the last repeat it
                row = minimum(j + x, last) * s.source_row
                rows.append(s.source + row)

            def put(k: Any, mask: Any = None, rows: Any = rows, j: Any = j) -> None:
                found = [(row + k).load(items, mask) for row in rows]
                words = [lib.kind.words(one, right) for one in found]
                q = k.shift_right(lib.kind.group.bit_length() - 1)
                for x, value in enumerate(transpose(words)):
                    place = (q + x) * width + j
                    s.to[place] = value

            _in_vectors(s.k, step, put)
    return function


def _emit_collect(lib: Library, right: bool) -> ir.Function:
    """``to[i, q]`` is the word of ``source[i, group * q + ...]``, for any strides."""
    group, items = lib.kind.group, ir.VectorType(lib.item, lib.kind.group)
    arguments = "item*source source_row source_k *to to_row to_k rows k"
    with lib.function(_name("collect", right), arguments) as (s, function):
        last = s.k - 1
        with loop(s.rows) as i, loop(words_of(s.k, lib.kind)) as q:
            row = i * s.source_row
            loaded = []
            for t in range(group):
                k = q * group + t
                inside = minimum(k, last) * s.source_k
                item = s.source[row + inside]
                there = k <= last
                loaded.append(select(there, item, ir.Constant(lib.item, 0)))
            words = lib.kind.words(lane(items, loaded), right)
            place = i * s.to_row + q * s.to_k
            word = words.lane(0)
            s.to[place] = word
    return function


def _emit_shift(lib: Library) -> ir.Function:
    """``to[i]`` corrects row i: for words of A by rows, or by columns."""
    kind: Any = lib.kind
    tile, lanes = lib.tile, lib.tile.lanes
    zero = zeros(lib.vector)
    with lib.function("shift", "*source *to rows words by_columns") as (s, function):

        def sum_of(step: int, count: Any, mask: bool, source: Any) -> Any:
            def add(q: Any, sums: list[Any]) -> list[Any]:
                left = first_lanes(count - q, lanes) if mask else None
                words = (source + q).load(lib.vector, left)
                return [kind.row_sums(words, sums[0])]

            (sums,) = carry(0, count, step, [zero], add)
            return kind.correction(sums)

        def columns() -> None:
            count = s.words * tile.together
            for first in range(0, tile.together, lanes):
                source = s.source + first
                sums = sum_of(tile.together, count, False, source)
                s.to[first] = sums

        def by_rows() -> None:
            with loop(s.rows) as i:
                row = s.source + i * tile.depth
                total = totals([sum_of(lanes, s.words, True, row)])
                one = total.lane(0)
                s.to[i] = one

        branch(s.by_columns.holds(), columns, by_rows)
    return function
