"""Images by Winograd's method: smaller products stand for a large one.

For 3x3 and 5x5 kernels with a stride of 1. Tiles of the result are columns, numbered
through all images. The products are summed in the workspace over blocks of channels in
order.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from weft.compile.emit.flow import if_else, loop, when
from weft.compile.emit.values import call, minimum, select
from weft.compile.targets.cpu.convolution.epilogue import emit_tile_epilogues, some_rows
from weft.compile.targets.cpu.convolution.tasks import Emitters, Rectangle
from weft.compile.targets.cpu.convolution.windows import call_windows
from weft.compile.targets.cpu.convolution.winograd_transforms import (
    POINT_GAP,
    Transforms,
)
from weft.compile.targets.cpu.matmul.strip import along


class Winograd(Rectangle):
    """Emits the function that computes a rectangle of tiles."""

    def __init__(self, emitters: Emitters, transforms: Transforms) -> None:
        super().__init__(emitters)
        self.transforms = transforms
        self.name = f"winograd{transforms.scheme.name}"
        self.tile_epilogues = emit_tile_epilogues(emitters.lib)

    def begin(self, s: Any) -> None:
        """Find the distances of points, and the windows."""
        s.sums_point = apart((s.row_end - s.row_begin) * s.sums_row)
        s.panel_point = apart(s.block * s.task_columns)
        s.strip_point = apart(s.block * self.lib.tile.height)
        call_windows(self.emitters.windows, s, s.column_begin, s.column_end)

    def block(self, s: Any) -> None:
        """Transformed tiles as panels, for each of the points."""
        tile = self.lib.tile
        vectors = (s.across + (tile.lanes - 1)) // tile.lanes
        windows = s.windows + s.p * (2 * self.transforms.scheme.pixels)
        with loop(0, s.across, tile.width, name="j") as j:
            first = j // tile.lanes
            last = minimum(vectors, first + tile.vectors)
            to = s.panels + j * s.deep
            where = [s.image, windows, s.masks, s.runs, s.counts, first, last, s.deep]
            what = [to, tile.width, s.panel_point, s.step]
            call(self.transforms.pixels, where + what)

    def strip(self, s: Any, row: Any, height: int) -> None:
        """Transformed weights of some channels, times all panels."""
        offset = row * s.other_row + s.p * s.order_step
        kernels = [s.other + offset, s.other_row, s.order_step]
        size = [height, s.deep, s.workspace, s.block, s.strip_point]
        rotated = s.order_run.differs(0)
        with if_else(rotated) as (yes, no):
            with yes:
                call(self.transforms.weights(True), kernels + size)
            with no:
                call(self.transforms.weights(False), kernels + size)
        points = self.transforms.scheme.points
        multiply_points(self.emitters, s, row, height, points)

    def finish(self, s: Any) -> None:
        """The results of the tiles, from the sums of their points."""
        columns = s.column_begin, s.column_end
        tile_windows(self.emitters.windows, s, s.out_step, *columns)
        out = s.out + s.group * s.out_group
        biased = s.bias.is_given()
        some = some_rows(s.across * 4)
        with loop(s.row_begin, s.row_end, some, name="some") as row:
            end = minimum(s.row_end, row + some)
            channel = s.group * s.rows + row
            bias = s.bias + select(biased, channel, 0)
            first = s.sums + (row - s.row_begin) * s.sums_row
            to = out + row * s.out_row
            sums = [first, s.sums_row, s.sums_point, end - row, s.across, bias]
            place = [to, s.out_row, s.y_size2, s.y_masks, s.masks_row]
            call(self.transforms.results, [*sums, *place, s.y_runs, s.y_counts])
            self._call_epilogues(s, channel, channel + (end - row))

    def _call_epilogues(self, s: Any, first: Any, last: Any) -> None:
        """Call the epilogue for some channels of these tiles, if there is one."""
        with when(s.epilogue.is_given()):
            channels = s.groups * s.rows
            size = [channels, s.pixels, s.y_size1, s.y_size2]
            tiles = [s.column_begin, s.column_end]
            called = [s.epilogue, s.context, first, last, *size, *tiles]
            call(self.tile_epilogues, called)


def apart(size: Any) -> Any:
    """The distance of points' memory: an odd number of lines, at least a size.

    With an even one, a tile's stores would be in few sets of the first cache.
    """
    return size | POINT_GAP


def tile_windows(
    made: ir.Function, s: Any, image_step: Any, begin: Any, end: Any
) -> None:
    """The positions of the four results of some tiles."""
    where = [s.y_places, s.y_places_row, s.pixels, image_step, 1]
    size = [s.y_size1, s.y_size2, 2, s.y_taps, 4]
    to = [s.y_masks, s.masks_row, s.y_runs, s.y_counts]
    call(made, [*where, *size, *to, begin, end])


def multiply_points(
    emitters: Emitters, s: Any, row: Any, height: int, points: int
) -> None:
    """A strip of C for each point: packed rows in the workspace times panels."""
    width = emitters.lib.tile.width
    first = (row - s.row_begin) * s.sums_row
    with loop(points, name="point", beside=row) as point:
        left = s.workspace + point * s.strip_point
        right = s.panels + point * s.panel_point
        place = first + point * s.sums_point
        c = [s.sums + place, s.sums_row]
        panel = [right, width, width * s.deep]
        a = [left, *along(s.block, rows=True)]
        rest = [s.across, s.deep, s.add, *a]
        emitters.strips.call(height, False, [*a, *panel, *c, *rest])
