"""Storing finished sums in the result."""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I32, I64, i64, loop
from weft.compile.emit.vectors import (
    at,
    first_lanes,
    load,
    mask_of,
    minimum,
    store,
    while_less,
)  # fmt: skip
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

    def image(self, b: Any, s: Any) -> None:
        """C[channel, pixel] to images, one image after the other."""
        element = self.lib.element
        out = at(b, s.out, b.mul(s.group, s.out_group), element)
        out = at(b, out, b.mul(s.row_begin, s.out_row), element)
        plain = b.icmp_unsigned("==", b.ptrtoint(s.spots, I64), i64(0))
        with while_less(b, s.column_begin, s.column_end) as (j, advance):
            n, p = divide(b, j, s.pixels)
            count = minimum(b, b.sub(s.pixels, p), b.sub(s.column_end, j))
            source = at(b, s.sums, b.sub(j, s.column_begin), element)
            to = at(b, out, b.mul(n, s.out_step), element)
            with b.if_else(plain) as (straight, spread):
                with straight:
                    self._rows(b, s, n, source, to, p, count)
                with spread:
                    spots = at(b, s.spots, p, I64)
                    rows = b.sub(s.row_end, s.row_begin)
                    rest = [to, s.out_row, spots, rows, count, p, s.spot_run]
                    b.call(self.scatter, [source, s.sums_row, *rest])
            advance(count)

    def _rows(
        self, b: Any, s: Any, n: Any, source: Any, to: Any, p: Any, count: Any
    ) -> None:
        """An image's pixels from p on, a few channels at a time, and their epilogue."""
        element = self.lib.element
        to = at(b, to, p, element)
        some = some_rows(b, count)
        with loop(b, s.row_begin, s.row_end, some, name="some") as row:
            end = minimum(b, s.row_end, b.add(row, some))
            i = b.sub(row, s.row_begin)
            here = at(b, source, b.mul(i, s.sums_row), element), s.sums_row
            there = at(b, to, b.mul(i, s.out_row), element), s.out_row
            b.call(self.packing.copy, [*here, *there, b.sub(end, row), count])
            call_epilogue(b, s, channels_of(b, s, n, row, end), [p, b.add(p, count)])

    def weight(self, b: Any, s: Any) -> None:
        """C[element, channel] to weights (channel, element)."""
        element = self.lib.element
        out = at(b, s.out, b.mul(s.group, s.out_group), element)
        offset = b.add(b.mul(s.column_begin, s.out_row), s.row_begin)
        to = at(b, out, offset, element)
        sizes = b.sub(s.row_end, s.row_begin), s.across
        b.call(self.transposed, [s.sums, s.sums_row, to, s.out_row, *sizes])
        start = b.mul(s.group, s.columns)
        filters = b.add(start, s.column_begin), b.add(start, s.column_end)
        call_epilogue(b, s, filters, [s.row_begin, s.row_end])


def _emit_scatter(lib: Library) -> ir.Function:
    """``to[i, spots[j]] = source[i, j]``.

    ``run`` above 0 says that spots are every second place for so many, counted from
    ``first`` before the first of them.
    """
    arguments = "*source source_row *to to_row *spots rows count first run"
    with (
        lib.function("scatter", arguments) as (b, s, function),
        b.if_else(b.icmp_signed(">", s.run, i64(0))) as (second, any_),
    ):
        with second:
            _scatter_second(b, lib, s)
        with any_, loop(b, i64(0), s.rows) as i:
            source = at(b, s.source, b.mul(i, s.source_row), lib.element)
            to = at(b, s.to, b.mul(i, s.to_row), lib.element)
            with loop(b, i64(0), s.count, name="j") as j:
                spot = b.load(at(b, s.spots, j, I64), typ=I64)
                item = b.load(at(b, source, j, lib.element), typ=lib.element)
                b.store(item, at(b, to, spot, lib.element))
    return function


def _scatter_second(b: Any, lib: Library, s: Any) -> None:
    """Runs of each row to every second place, a vector to two at a time."""
    lanes, element = lib.tile.lanes, lib.element
    first = b.sub(s.run, b.srem(s.first, s.run))  # of a run that began before
    with loop(b, i64(0), s.rows) as i:
        row = at(b, s.source, b.mul(i, s.source_row), element)
        to = at(b, s.to, b.mul(i, s.to_row), element)
        with while_less(b, i64(0), s.count) as (j, advance):
            begun = b.icmp_signed("==", j, i64(0))
            some = minimum(b, b.select(begun, first, s.run), b.sub(s.count, j))
            spot = b.load(at(b, s.spots, j, I64), typ=I64)
            source, place = at(b, row, j, element), at(b, to, spot, element)
            with loop(b, i64(0), some, i64(lanes), name="v") as v:
                far = at(b, place, b.mul(v, i64(2)), element)
                here = at(b, source, v, element)
                _spread(b, lib, here, far, b.sub(some, v))
            advance(some)


def _spread(b: Any, lib: Library, source: Any, to: Any, count: Any) -> None:
    """A vector's first lanes to every second place."""
    lanes = lib.tile.lanes
    some = minimum(b, count, i64(lanes))
    value = load(b, source, lib.vector, first_lanes(b, some, lanes))
    bits = b.sub(b.shl(i64(1), b.mul(some, i64(2))), i64(1))
    bits = b.and_(bits, i64(int("01" * lanes, 2)))
    for k in (0, lanes):
        turns = [(k + lane) // 2 for lane in range(lanes)]
        order = ir.Constant(ir.VectorType(I32, lanes), turns)
        half = b.shuffle_vector(value, value, order)
        mask = mask_of(b, b.lshr(bits, i64(k)), lanes)
        store(b, half, at(b, to, i64(k), lib.element), mask)


def _emit_transpose(lib: Library) -> ir.Function:
    """``to[j, i] = source[i, j]`` for i below rows and j below count.

    Source rows may be read to the end of their last vector.
    """
    lanes, element = lib.tile.lanes, lib.element
    arguments = "*source source_row *to to_row rows count"
    with lib.function("turned", arguments) as (b, s, function):
        last = b.sub(s.rows, i64(1))
        with (
            loop(b, i64(0), s.count, i64(lanes), name="j") as j,
            loop(b, i64(0), s.rows, i64(lanes)) as i,
        ):
            left = b.sub(s.rows, i)
            for lane, value in enumerate(load_transposed(b, lib, s, i, j, last)):
                column = b.add(j, i64(lane))
                there = b.icmp_signed("<", column, s.count)
                mask = first_lanes(b, b.select(there, left, i64(0)), lanes)
                place = at(b, s.to, b.add(b.mul(column, s.to_row), i), element)
                store(b, value, place, mask)
    return function
