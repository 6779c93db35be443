"""Images from images: weights times windows, packed panel by panel.

C[channel, pixel] = sum over k of weights[channel, k] * window[k, pixel], summed in the
workspace over blocks of k in order, and then stored in the image.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I64, i64, loop
from weft.compile.emit.vectors import at, minimum, splat, store
from weft.compile.targets.cpu.convolution.record import read_job
from weft.compile.targets.cpu.convolution.rectangles import RECTANGLE
from weft.compile.targets.cpu.convolution.routines import Emitters
from weft.compile.targets.cpu.convolution.windows import call_windows
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.pack import Packing
from weft.compile.targets.cpu.matmul.strip import along, by_heights


class Image:
    """Emits the function that computes a rectangle of an image's C."""

    def __init__(self, emitters: Emitters) -> None:
        self.emitters, self.lib = emitters, emitters.lib

    @functools.cache  # noqa: B019  an emitter lives as long as its module
    def gather(self, height: int) -> ir.Function:
        """Columns of weights from anywhere."""
        return _emit_gather(self.lib, height)

    @functools.cached_property
    def ordered(self) -> ir.Function:
        """Rows of weights in the order of windows."""
        return _emit_order(self.lib, self.emitters.packing)

    def emit(self) -> ir.Function:
        """The rectangle's function."""
        lib = self.lib
        with lib.function("image", RECTANGLE) as (b, t, function):
            s = read_job(b, t.job, t.worker)
            vars(s).update(vars(t))
            s.across = b.sub(s.column_end, s.column_begin)
            s.image = at(b, s.image, b.mul(s.group, s.image_group), lib.element)
            s.weights = at(b, s.other, b.mul(s.group, s.other_group), lib.element)
            call_windows(b, self.emitters.windows, s, s.column_begin, s.column_end)
            biased = b.icmp_unsigned("!=", b.ptrtoint(s.bias, I64), i64(0))
            with b.if_then(biased):
                _put_bias(b, lib, s)
            some = b.select(b.icmp_signed(">", s.k, i64(0)), s.k, i64(1))
            with loop(b, i64(0), some, s.block, name="p") as p:
                s.p, s.deep = p, minimum(b, s.block, b.sub(s.k, p))
                later = b.icmp_signed(">", p, i64(0))
                s.add = b.zext(b.or_(later, biased), I64)
                self._panels(b, s)
                by_heights(
                    b,
                    lib.tile.heights,
                    s.row_begin,
                    s.row_end,
                    lambda row, height: self._strip(b, s, row, height),
                )
            self.emitters.deliver.image(b, s)
        return function

    def _panels(self, b: Any, s: Any) -> None:
        """Windows as panels, one after the other."""
        tile = self.lib.tile
        vectors = b.sdiv(b.add(s.across, i64(tile.lanes - 1)), i64(tile.lanes))
        with loop(b, i64(0), s.across, i64(tile.width), name="j") as j:
            first = b.sdiv(j, i64(tile.lanes))
            last = minimum(b, vectors, b.add(first, i64(tile.vectors)))
            to = at(b, s.panels, b.mul(j, s.deep), self.lib.element)
            rest = [first, last, s.deep, to, i64(tile.width)]
            self.emitters.patches.fill(b, s, s.image, s.p, rest)

    def _strip(self, b: Any, s: Any, row: Any, height: int) -> None:
        """Some rows of C over this block of k."""
        tile, element = self.lib.tile, self.lib.element
        start = at(b, s.weights, b.mul(row, s.other_row), element)
        width = i64(tile.width)
        c = at(b, s.sums, b.mul(b.sub(row, s.row_begin), s.sums_row), element)
        common = [s.panels, width, b.mul(width, s.deep)]
        common += [c, s.sums_row, s.across, s.deep, s.add]
        near = b.icmp_signed("==", s.order_run, i64(1))
        far = b.icmp_signed("<", s.order_run, i64(0))
        with b.if_else(b.or_(near, far)) as (columns, rows):
            with columns:
                self._columns(b, s, start, height, common, near)
            with rows:
                self._rows(b, s, start, height, common)

    def _columns(
        self, b: Any, s: Any, start: Any, height: int, common: list[Any], near: Any
    ) -> None:
        """A column of weights for each step of k; ``near`` ones are contiguous."""
        tile, element = self.lib.tile, self.lib.element
        here = at(b, start, b.mul(s.p, s.order_step), element)
        to = [s.workspace, i64(tile.height)]
        with b.if_else(near) as (straight, any_):
            with straight:
                size = [s.deep, i64(height)]
                b.call(self.emitters.packing.copy, [here, s.order_step, *to, *size])
            with any_:
                order = at(b, s.order, s.p, I64)
                b.call(self.gather(height), [start, s.other_row, order, *to, s.deep])
        ahead = at(b, here, i64(height), element)
        left, beyond = along(to[1], rows=False), along(s.order_step, rows=False)
        arguments = [to[0], *left, *common, ahead, *beyond]
        self.emitters.strips.call(b, height, True, arguments)

    def _rows(self, b: Any, s: Any, start: Any, height: int, common: list[Any]) -> None:
        """Weights by rows, in the order of windows."""
        tile, element = self.lib.tile, self.lib.element
        here = at(b, start, s.p, element)
        straight = b.icmp_signed("==", s.order_run, i64(0))
        few = b.icmp_signed("<=", s.across, i64(tile.width))
        direct = b.and_(straight, few)  # read so seldom that a copy does not pay
        with b.if_then(b.not_(direct)):
            self._pack(b, s, start, here, straight, height)
        left = b.select(direct, here, s.workspace)
        stride = b.select(direct, s.other_row, i64(tile.depth))
        ahead = at(b, here, b.mul(s.other_row, i64(height)), element)
        beyond = along(s.other_row, rows=True)
        arguments = [left, *along(stride, rows=True), *common, ahead, *beyond]
        self.emitters.strips.call(b, height, False, arguments)

    def _pack(
        self, b: Any, s: Any, start: Any, here: Any, straight: Any, height: int
    ) -> None:
        to = [s.workspace, i64(self.lib.tile.depth)]
        with b.if_else(straight) as (rows, ordered):
            with rows:
                size = [i64(height), s.deep]
                b.call(self.emitters.packing.copy, [here, s.other_row, *to, *size])
            with ordered:
                order = at(b, s.order, s.p, I64)
                rest = [order, s.order_run, *to, i64(height), s.deep]
                b.call(self.ordered, [start, s.other_row, *rest])


def _put_bias(b: Any, lib: Library, s: Any) -> None:
    """Begin each row's sums with its bias."""
    with loop(b, s.row_begin, s.row_end) as row:
        channel = b.add(b.mul(s.group, s.rows), row)
        value = b.load(at(b, s.bias, channel, lib.element), typ=lib.element)
        vector = splat(b, value, lib.tile.lanes)
        start = b.mul(b.sub(row, s.row_begin), s.sums_row)
        with loop(b, i64(0), s.across, i64(lib.tile.lanes), name="j") as j:
            store(b, vector, at(b, s.sums, b.add(start, j), lib.element))


def _emit_order(lib: Library, packing: Packing) -> ir.Function:
    """``to[i, k] = source[i, order[k]]``, for an order that is made of runs."""
    arguments = "*source source_row *order run *to to_row rows k"
    with (
        lib.function("order", arguments) as (b, s, function),
        loop(b, i64(0), s.k, s.run, name="k") as k,
    ):
        place = b.load(at(b, s.order, k, I64), typ=I64)
        source = at(b, s.source, place, lib.element)
        rest = [at(b, s.to, k, lib.element), s.to_row, s.rows, s.run]
        b.call(packing.copy, [source, s.source_row, *rest])
    return function


def _emit_gather(lib: Library, height: int) -> ir.Function:
    """``to[k, i] = source[i, order[k]]`` for so many rows, which are written out."""
    arguments = "*source source_row *order *to to_row k"
    with lib.function(f"gather{height}", arguments) as (b, s, function):
        steps = [b.mul(s.source_row, i64(i)) for i in range(height)]
        with loop(b, i64(0), s.k, name="k") as k:
            place = b.load(at(b, s.order, k, I64), typ=I64)
            start = at(b, s.source, place, lib.element)
            to = at(b, s.to, b.mul(k, s.to_row), lib.element)
            items = [b.load(at(b, start, step, lib.element), typ=lib.element)
                     for step in steps]  # fmt: skip
            for i, item in enumerate(items):
                b.store(item, at(b, to, i64(i), lib.element))
    return function
