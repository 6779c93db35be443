"""Images by Winograd's method: smaller products stand for a large one.

For 3x3 and 5x5 kernels with a stride of 1. Tiles of the result are columns, numbered
through all images. The products are summed in the workspace over blocks of channels in
order.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I64, i64, loop
from weft.compile.emit.vectors import PTR, at, minimum
from weft.compile.targets.cpu.convolution.epilogue import emit_tile_epilogues, some_rows
from weft.compile.targets.cpu.convolution.record import read_job
from weft.compile.targets.cpu.convolution.rectangles import RECTANGLE
from weft.compile.targets.cpu.convolution.routines import Emitters
from weft.compile.targets.cpu.convolution.windows import call_windows
from weft.compile.targets.cpu.convolution.winograd_transforms import (
    POINT_GAP,
    Transforms,
)
from weft.compile.targets.cpu.matmul.strip import along, by_heights


class Winograd:
    """Emits the function that computes a rectangle of tiles."""

    def __init__(self, emitters: Emitters, transforms: Transforms) -> None:
        self.emitters, self.lib, self.transforms = emitters, emitters.lib, transforms
        self.tile_epilogues = emit_tile_epilogues(emitters.lib)

    def emit(self) -> ir.Function:
        """The rectangle's function."""
        lib = self.lib
        with lib.function(f"winograd{self.transforms.scheme.name}", RECTANGLE) as (
            b,
            t,
            function,
        ):
            s = read_job(b, t.job, t.worker)
            vars(s).update(vars(t))
            self._begin(b, s)
            with loop(b, i64(0), s.k, s.block, name="p") as p:
                s.p, s.deep = p, minimum(b, s.block, b.sub(s.k, p))
                s.add = b.zext(b.icmp_signed(">", p, i64(0)), I64)
                self._panels(b, s)
                by_heights(
                    b,
                    lib.tile.heights,
                    s.row_begin,
                    s.row_end,
                    lambda row, height: self._strip(b, s, row, height),
                )
            self._finish(b, s)
        return function

    def _begin(self, b: Any, s: Any) -> None:
        """Find the operands of this rectangle, and its windows."""
        element = self.lib.element
        s.across = b.sub(s.column_end, s.column_begin)
        s.image = at(b, s.image, b.mul(s.group, s.image_group), element)
        s.weights = at(b, s.other, b.mul(s.group, s.other_group), element)
        s.sums_point = apart(b, b.mul(b.sub(s.row_end, s.row_begin), s.sums_row))
        s.panel_point = apart(b, b.mul(s.block, s.task_columns))
        s.strip_point = apart(b, b.mul(s.block, i64(self.lib.tile.height)))
        call_windows(b, self.emitters.windows, s, s.column_begin, s.column_end)

    def _panels(self, b: Any, s: Any) -> None:
        """Transformed tiles as panels, for each of the points."""
        tile, element = self.lib.tile, self.lib.element
        vectors = b.sdiv(b.add(s.across, i64(tile.lanes - 1)), i64(tile.lanes))
        windows = at(
            b, s.windows, b.mul(s.p, i64(2 * self.transforms.scheme.pixels)), I64
        )
        with loop(b, i64(0), s.across, i64(tile.width), name="j") as j:
            first = b.sdiv(j, i64(tile.lanes))
            last = minimum(b, vectors, b.add(first, i64(tile.vectors)))
            to = at(b, s.panels, b.mul(j, s.deep), element)
            where = [s.image, windows, s.masks, s.runs, s.counts, first, last, s.deep]
            what = [to, i64(tile.width), s.panel_point, s.step]
            b.call(self.transforms.pixels, where + what)

    def _strip(self, b: Any, s: Any, row: Any, height: int) -> None:
        """Transformed weights of some channels, times all panels."""
        element = self.lib.element
        offset = b.add(b.mul(row, s.other_row), b.mul(s.p, s.order_step))
        kernels = [at(b, s.weights, offset, element), s.other_row, s.order_step]
        size = [i64(height), s.deep, s.workspace, s.block, s.strip_point]
        rotated = b.icmp_signed("!=", s.order_run, i64(0))
        with b.if_else(rotated) as (yes, no):
            with yes:
                b.call(self.transforms.weights(True), kernels + size)
            with no:
                b.call(self.transforms.weights(False), kernels + size)
        points = self.transforms.scheme.points
        multiply_points(b, self.emitters, s, row, height, points)

    def _finish(self, b: Any, s: Any) -> None:
        """The results of the tiles, from the sums of their points."""
        element = self.lib.element
        columns = s.column_begin, s.column_end
        tile_windows(b, self.emitters.windows, s, s.out_step, *columns)
        out = at(b, s.out, b.mul(s.group, s.out_group), element)
        biased = b.icmp_unsigned("!=", b.ptrtoint(s.bias, I64), i64(0))
        some = some_rows(b, b.mul(s.across, i64(4)))
        with loop(b, s.row_begin, s.row_end, some, name="some") as row:
            end = minimum(b, s.row_end, b.add(row, some))
            channel = b.add(b.mul(s.group, s.rows), row)
            bias = at(b, s.bias, b.select(biased, channel, i64(0)), element)
            first = at(b, s.sums, b.mul(b.sub(row, s.row_begin), s.sums_row), element)
            to = at(b, out, b.mul(row, s.out_row), element)
            sums = [first, s.sums_row, s.sums_point, b.sub(end, row), s.across, bias]
            place = [to, s.out_row, s.y_size2, s.y_masks, s.masks_row]
            b.call(self.transforms.results, [*sums, *place, s.y_runs, s.y_counts])
            self._call_epilogues(b, s, channel, b.add(channel, b.sub(end, row)))

    def _call_epilogues(self, b: Any, s: Any, first: Any, last: Any) -> None:
        """Call the epilogue for some channels of these tiles, if there is one."""
        with b.if_then(b.icmp_unsigned("!=", s.epilogue, PTR(None))):
            channels = b.mul(s.groups, s.rows)
            size = [channels, s.pixels, s.y_size1, s.y_size2]
            tiles = [s.column_begin, s.column_end]
            called = [s.epilogue, s.context, first, last, *size, *tiles]
            b.call(self.tile_epilogues, called)


def apart(b: Any, size: Any) -> Any:
    """The distance of points' memory: an odd number of lines, at least a size.

    With an even one, a tile's stores would be in few sets of the first cache.
    """
    return b.or_(size, i64(POINT_GAP))


def tile_windows(
    b: Any, made: ir.Function, s: Any, image_step: Any, begin: Any, end: Any
) -> None:
    """The positions of the four results of some tiles."""
    where = [s.y_places, s.y_places_row, s.pixels, image_step, i64(1)]
    size = [s.y_size1, s.y_size2, i64(2), s.y_taps, i64(4)]
    to = [s.y_masks, s.masks_row, s.y_runs, s.y_counts]
    b.call(made, [*where, *size, *to, begin, end])


def multiply_points(
    b: Any, emitters: Emitters, s: Any, row: Any, height: int, points: int
) -> None:
    """A strip of C for each point: packed rows in the workspace times panels."""
    lib, width = emitters.lib, i64(emitters.lib.tile.width)
    first = b.mul(b.sub(row, s.row_begin), s.sums_row)
    with loop(b, i64(0), i64(points), name="point") as point:
        left = at(b, s.workspace, b.mul(point, s.strip_point), lib.element)
        right = at(b, s.panels, b.mul(point, s.panel_point), lib.element)
        place = b.add(first, b.mul(point, s.sums_point))
        c = [at(b, s.sums, place, lib.element), s.sums_row]
        panel = [right, width, b.mul(width, s.deep)]
        a = [left, *along(s.block, rows=True)]
        rest = [s.across, s.deep, s.add, *a]
        emitters.strips.call(b, height, False, [*a, *panel, *c, *rest])
