"""The weights' gradient by Winograd's method: smaller products stand for a large one.

It is the transpose of what `winograd` computes: tiles of the image and of the result's
gradient are transformed, multiplied and summed over all tiles, and the sums of each
pair of channels become a kernel. Sums stay in the workspace, as in `weight`.
"""

from __future__ import annotations

from typing import Any

from weft.compile.emit.flow import loop
from weft.compile.emit.values import call, minimum
from weft.compile.targets.cpu.convolution.epilogue import call_epilogue
from weft.compile.targets.cpu.convolution.tasks import Emitters, Rectangle
from weft.compile.targets.cpu.convolution.windows import call_windows
from weft.compile.targets.cpu.convolution.winograd import (
    apart,
    multiply_points,
    tile_windows,
)
from weft.compile.targets.cpu.convolution.winograd_transforms import Transforms


class Kernels(Rectangle):
    """Emits the function that computes a rectangle of kernels."""

    def __init__(self, emitters: Emitters, transforms: Transforms) -> None:
        super().__init__(emitters)
        self.transforms, self.scheme = transforms, transforms.scheme
        self.name = f"kernels_part{self.scheme.name}"

    def begin(self, s: Any) -> None:
        """Find the distances of points: rows are x's channels, columns y's."""
        lib = self.lib
        s.sums_point = apart((s.row_end - s.row_begin) * s.sums_row)
        slack = lib.tile.width * lib.tile.lanes  # transposing writes whole vectors
        s.panel_point = apart(s.block * s.task_columns + slack)
        s.strip_point = apart(s.block * lib.tile.height)
        s.gradient_point = apart(s.block * lib.tile.width)

    def block(self, s: Any) -> None:
        """Transformed tiles of the gradient, transposed, as panels of channels."""
        s.vectors = (s.deep + (self.lib.tile.lanes - 1)) // self.lib.tile.lanes
        end = s.p + s.deep
        call_windows(self.emitters.windows, s, s.p, end)
        tile_windows(self.emitters.windows, s, s.other_step, s.p, end)
        width = self.lib.tile.width
        with loop(0, s.across, width, name="j") as j:
            channel = s.column_begin + j
            windows = s.y_windows + channel * 8
            count = minimum(width, s.across - j)
            where = [s.other, windows, s.y_masks, s.y_runs, s.y_counts]
            what = [0, s.vectors, count, s.gradients, s.block, s.gradient_point, s.step]
            call(self.transforms.gradients, where + what)
            first = s.panels + j * s.deep
            with loop(self.scheme.points, name="point", beside=j) as point:
                source = s.gradients + point * s.gradient_point
                to = first + point * s.panel_point
                panel = [source, s.block, to, s.deep, count]
                call(self.emitters.packing.transposed_panel, panel)

    def strip(self, s: Any, row: Any, height: int) -> None:
        """Transformed tiles of some channels of the image, times all panels."""
        windows = s.windows + row * (2 * self.scheme.pixels)
        where = [s.image, windows, s.masks, s.runs, s.counts]
        what = [0, s.vectors, height, s.workspace, s.block, s.strip_point]
        call(self.transforms.pixels, [*where, *what, s.step])
        multiply_points(self.emitters, s, row, height, self.scheme.points)

    def finish(self, s: Any) -> None:
        """The kernels of each pair of channels, from the sums of their points."""
        out = s.out + s.group * s.out_group
        row = s.row_begin * self.scheme.taps
        out = out + (s.column_begin * s.out_row + row)
        rows = s.row_end - s.row_begin
        sums = [s.sums, s.sums_row, s.sums_point, rows, s.across]
        call(self.transforms.kernels, [*sums, out, s.out_row])
        start = s.group * s.columns
        filters = start + s.column_begin, start + s.column_end
        call_epilogue(s, filters, [row, s.row_end * self.scheme.taps])
