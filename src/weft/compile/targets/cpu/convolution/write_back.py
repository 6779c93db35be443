"""Storing finished sums in the result."""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from weft.compile.emit.flow import if_else, loop, while_less
from weft.compile.emit.values import call, minimum, select
from weft.compile.emit.vectors import first_lanes, mask_of, shuffle
from weft.compile.targets.cpu.convolution.epilogue import (
    call_epilogue,
    channels_of,
    some_rows,
)
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.pack import Packing, load_transposed
from weft.compile.targets.cpu.matmul.tasks import divide


class Deliver:
    """The functions that store results, emitted when first called."""

    def __init__(self, lib: Library, packing: Packing) -> None:
        self.lib, self.packing = lib, packing

    @functools.cached_property
    def scatter(self) -> ir.Function:
        """Rows of pixels to places that a table lists."""
        return _emit_scatter(self.lib)

    @functools.cached_property
    def transposed(self) -> ir.Function:
        """A matrix's transpose."""
        return _emit_transpose(self.lib)

    def image(self, s: Any) -> None:
        """C[channel, pixel] to images, one image after the other."""
        out = s.out + s.group * s.out_group
        out = out + s.row_begin * s.out_row
        plain = ~s.spots.is_given()
        with while_less(s.column_begin, s.column_end) as (j, advance):
            n, p = divide(j, s.pixels)
            count = minimum(s.pixels - p, s.column_end - j)
            source = s.sums + (j - s.column_begin)
            to = out + n * s.out_step
            with if_else(plain) as (straight, spread):
                with straight:
                    self._rows(s, n, source, to, p, count)
                with spread:
                    spots = s.spots + p
                    rows = s.row_end - s.row_begin
                    rest = [to, s.out_row, spots, rows, count, p, s.spot_run]
                    call(self.scatter, [source, s.sums_row, *rest])
            advance(count)

    def _rows(self, s: Any, n: Any, source: Any, to: Any, p: Any, count: Any) -> None:
        """An image's pixels from p on, a few channels at a time, and their epilogue."""
        to = to + p
        some = some_rows(count)
        with loop(s.row_begin, s.row_end, some, name="some") as row:
            end = minimum(s.row_end, row + some)
            i = row - s.row_begin
            here = source + i * s.sums_row, s.sums_row
            there = to + i * s.out_row, s.out_row
            call(self.packing.copy, [*here, *there, end - row, count])
            call_epilogue(s, channels_of(s, n, row, end), [p, p + count])

    def weight(self, s: Any) -> None:
        """C[element, channel] to weights (channel, element)."""
        out = s.out + s.group * s.out_group
        offset = s.column_begin * s.out_row + s.row_begin
        to = out + offset
        sizes = s.row_end - s.row_begin, s.across
        call(self.transposed, [s.sums, s.sums_row, to, s.out_row, *sizes])
        start = s.group * s.columns
        filters = start + s.column_begin, start + s.column_end
        call_epilogue(s, filters, [s.row_begin, s.row_end])


def _emit_scatter(lib: Library) -> ir.Function:
    """``to[i, spots[j]] = source[i, j]``.

    ``run`` above 0 says that spots are every second place for so many, counted from
    ``first`` before the first of them.
    """
    arguments = "*source source_row *to to_row i64*spots rows count first run"
    with (
        lib.function("scatter", arguments) as (s, function),
        if_else(s.run > 0) as (second, any_),
    ):
        with second:
            _scatter_second(lib, s)
        with any_, loop(s.rows) as i:
            source = s.source + i * s.source_row
            to = s.to + i * s.to_row
            with loop(s.count, name="j") as j:
                spot = s.spots[j]
                item = source[j]
                to[spot] = item
    return function


def _scatter_second(lib: Library, s: Any) -> None:
    """Runs of each row to every second place, a vector to two at a time."""
    lanes = lib.tile.lanes
    first = s.run - s.first % s.run  # of a run that began before
    with loop(s.rows) as i:
        row = s.source + i * s.source_row
        to = s.to + i * s.to_row
        with while_less(0, s.count) as (j, advance):
            begun = j.equals(0)
            some = minimum(select(begun, first, s.run), s.count - j)
            spot = s.spots[j]
            source, place = row + j, to + spot
            with loop(0, some, lanes, name="v") as v:
                far = place + v * 2
                here = source + v
                _spread(lib, here, far, some - v)
            advance(some)


def _spread(lib: Library, source: Any, to: Any, count: Any) -> None:
    """A vector's first lanes to every second place."""
    lanes = lib.tile.lanes
    some = minimum(count, lanes)
    value = source.load(lib.vector, first_lanes(some, lanes))
    bits = (1 << some * 2) - 1
    bits = bits & int("01" * lanes, 2)
    for k in (0, lanes):
        turns = [(k + lane) // 2 for lane in range(lanes)]
        half = shuffle(value, value, turns)
        mask = mask_of(bits.shift_right(k), lanes)
        (to + k).store(half, mask)


def _emit_transpose(lib: Library) -> ir.Function:
    """``to[j, i] = source[i, j]`` for i below rows and j below count.

    Source rows may be read to the end of their last vector.
    """
    lanes = lib.tile.lanes
    arguments = "*source source_row *to to_row rows count"
    with lib.function("turned", arguments) as (s, function):
        last = s.rows - 1
        with loop(0, s.count, lanes, name="j") as j, loop(0, s.rows, lanes) as i:
            left = s.rows - i
            for lane, value in enumerate(load_transposed(lib, s, i, j, last)):
                column = j + lane
                there = column < s.count
                mask = first_lanes(select(there, left, 0), lanes)
                place = s.to + (column * s.to_row + i)
                place.store(value, mask)
    return function
