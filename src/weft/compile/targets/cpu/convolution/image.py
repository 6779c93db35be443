"""Images from images: weights times windows, packed panel by panel.

C[channel, pixel] = sum over k of weights[channel, k] * window[k, pixel], summed in the
workspace over blocks of k in order, and then stored in the image.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from weft.compile.emit.flow import if_else, loop, when
from weft.compile.emit.values import call, minimum, select
from weft.compile.emit.vectors import splat
from weft.compile.targets.cpu.convolution.tasks import Rectangle
from weft.compile.targets.cpu.convolution.windows import call_windows
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.pack import Packing
from weft.compile.targets.cpu.matmul.strip import along


class Image(Rectangle):
    """Emits the function that computes a rectangle of an image's C."""

    @functools.cache  # noqa: B019  an emitter lives as long as its module
    def gather(self, height: int) -> ir.Function:
        """Columns of weights from anywhere."""
        return _emit_gather(self.lib, height)

    @functools.cached_property
    def ordered(self) -> ir.Function:
        """Rows of weights in the order of windows."""
        return _emit_order(self.lib, self.emitters.packing)

    name = "image"

    def begin(self, s: Any) -> None:
        """Find the windows, and begin sums with the bias."""
        call_windows(self.emitters.windows, s, s.column_begin, s.column_end)
        s.biased = s.bias.is_given()
        with when(s.biased):
            _put_bias(self.lib, s)

    def finish(self, s: Any) -> None:
        self.emitters.deliver.image(s)

    def block(self, s: Any) -> None:
        """Windows as panels, one after the other."""
        tile = self.lib.tile
        vectors = (s.across + (tile.lanes - 1)) // tile.lanes
        with loop(0, s.across, tile.width, name="j") as j:
            first = j // tile.lanes
            last = minimum(vectors, first + tile.vectors)
            to = s.panels + j * s.deep
            rest = [first, last, s.deep, to, tile.width]
            self.emitters.patches.fill(s, s.image, s.p, rest)

    def strip(self, s: Any, row: Any, height: int) -> None:
        """Some rows of C over this block of k."""
        tile = self.lib.tile
        start = s.other + row * s.other_row
        width = tile.width
        c = s.sums + (row - s.row_begin) * s.sums_row
        common = [s.panels, width, width * s.deep]
        common += [c, s.sums_row, s.across, s.deep, s.add]
        near = s.order_run.equals(1)
        far = s.order_run < 0
        with if_else(near | far) as (columns, rows):
            with columns:
                self._columns(s, start, height, common, near)
            with rows:
                self._rows(s, start, height, common)

    def _columns(
        self, s: Any, start: Any, height: int, common: list[Any], near: Any
    ) -> None:
        """A column of weights for each step of k; ``near`` ones are contiguous."""
        tile = self.lib.tile
        here = start + s.p * s.order_step
        to = [s.workspace, tile.height]
        with if_else(near) as (straight, any_):
            with straight:
                size = [s.deep, height]
                call(self.emitters.packing.copy, [here, s.order_step, *to, *size])
            with any_:
                order = s.order + s.p
                call(self.gather(height), [start, s.other_row, order, *to, s.deep])
        ahead = here + height
        left, beyond = along(to[1], rows=False), along(s.order_step, rows=False)
        arguments = [to[0], *left, *common, ahead, *beyond]
        self.emitters.strips.call(height, True, arguments)

    def _rows(self, s: Any, start: Any, height: int, common: list[Any]) -> None:
        """Weights by rows, in the order of windows."""
        tile = self.lib.tile
        here = start + s.p
        straight = s.order_run.equals(0)
        few = s.across <= tile.width
        direct = straight & few  # read so seldom that a copy does not pay
        with when(~direct):
            self._pack(s, start, here, straight, height)
        left = select(direct, here, s.workspace)
        stride = select(direct, s.other_row, tile.depth)
        ahead = here + s.other_row * height
        beyond = along(s.other_row, rows=True)
        arguments = [left, *along(stride, rows=True), *common, ahead, *beyond]
        self.emitters.strips.call(height, False, arguments)

    def _pack(self, s: Any, start: Any, here: Any, straight: Any, height: int) -> None:
        to = [s.workspace, self.lib.tile.depth]
        with if_else(straight) as (rows, ordered):
            with rows:
                size = [height, s.deep]
                call(self.emitters.packing.copy, [here, s.other_row, *to, *size])
            with ordered:
                order = s.order + s.p
                rest = [order, s.order_run, *to, height, s.deep]
                call(self.ordered, [start, s.other_row, *rest])


def _put_bias(lib: Library, s: Any) -> None:
    """Begin each row's sums with its bias."""
    with loop(s.row_begin, s.row_end) as row:
        channel = s.group * s.rows + row
        value = s.bias[channel]
        vector = splat(value, lib.tile.lanes)
        start = (row - s.row_begin) * s.sums_row
        with loop(0, s.across, lib.tile.lanes, name="j") as j:
            (s.sums + (start + j)).store(vector)


def _emit_order(lib: Library, packing: Packing) -> ir.Function:
    """``to[i, k] = source[i, order[k]]``, for an order that is made of runs."""
    arguments = "*source source_row i64*order run *to to_row rows k"
    with (
        lib.function("order", arguments) as (s, function),
        loop(0, s.k, s.run, name="k") as k,
    ):
        place = s.order[k]
        source = s.source + place
        rest = [s.to + k, s.to_row, s.rows, s.run]
        call(packing.copy, [source, s.source_row, *rest])
    return function


def _emit_gather(lib: Library, height: int) -> ir.Function:
    """``to[k, i] = source[i, order[k]]`` for so many rows, which are written out."""
    arguments = "*source source_row i64*order *to to_row k"
    with lib.function(f"gather{height}", arguments) as (s, function):
        steps = [s.source_row * i for i in range(height)]
        with loop(s.k, name="k") as k:
            place = s.order[k]
            start = s.source + place
            to = s.to + k * s.to_row
            items = [start[step] for step in steps]
            for i, item in enumerate(items):
                to[i] = item
    return function
