"""The weights' gradient by Winograd's method: smaller products stand for a large one.

It is the transpose of what `winograd` computes: tiles of the image and of the result's
gradient are transformed, multiplied and summed over all tiles, and the sums of each
pair of channels become a kernel. Sums stay in the workspace, as in `weight`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from weft.compile.emit.flow import loop
from weft.compile.emit.values import call, minimum
from weft.compile.targets.cpu.convolution.epilogue import call_epilogue
from weft.compile.targets.cpu.convolution.record import JOB
from weft.compile.targets.cpu.convolution.rectangles import RECTANGLE
from weft.compile.targets.cpu.convolution.routines import Emitters
from weft.compile.targets.cpu.convolution.windows import call_windows
from weft.compile.targets.cpu.convolution.winograd import (
    apart,
    multiply_points,
    tile_windows,
)
from weft.compile.targets.cpu.convolution.winograd_transforms import Transforms
from weft.compile.targets.cpu.matmul.strip import by_heights
from weft.compile.targets.cpu.matmul.tasks import read_job


class Kernels:
    """Emits the function that computes a rectangle of kernels."""

    def __init__(self, emitters: Emitters, transforms: Transforms) -> None:
        self.emitters, self.lib, self.transforms = emitters, emitters.lib, transforms
        self.scheme = transforms.scheme

    def emit(self) -> ir.Function:
        """The rectangle's function: rows are x's channels, columns y's."""
        lib, tile = self.lib, self.lib.tile
        with lib.function(f"kernels_part{self.scheme.name}", RECTANGLE) as (
            t,
            function,
        ):
            s = read_job(lib, JOB, t.job, t.worker)
            vars(s).update(vars(t))
            self._begin(s)
            with loop(0, s.k, s.block, name="p") as p:
                s.p, s.deep = p, minimum(s.block, s.k - p)
                s.add = (p > 0).unsigned()
                rest = s.deep + (tile.lanes - 1)
                s.vectors = rest // tile.lanes
                end = p + s.deep
                call_windows(self.emitters.windows, s, p, end)
                tile_windows(self.emitters.windows, s, s.other_step, p, end)
                self._panels(s)
                by_heights(
                    tile.heights,
                    s.row_begin,
                    s.row_end,
                    lambda row, height: self._strip(s, row, height),
                )
            self._finish(s)
        return function

    def _begin(self, s: Any) -> None:
        lib = self.lib
        s.across = s.column_end - s.column_begin
        s.image = s.image + s.group * s.image_group
        s.gradient = s.other + s.group * s.other_group
        s.sums_point = apart((s.row_end - s.row_begin) * s.sums_row)
        slack = lib.tile.width * lib.tile.lanes  # transposing writes whole vectors
        s.panel_point = apart(s.block * s.task_columns + slack)
        s.strip_point = apart(s.block * lib.tile.height)
        s.gradient_point = apart(s.block * lib.tile.width)

    def _panels(self, s: Any) -> None:
        """Transformed tiles of the gradient, transposed, as panels of channels."""
        width = self.lib.tile.width
        with loop(0, s.across, width, name="j") as j:
            channel = s.column_begin + j
            windows = s.y_windows + channel * 8
            count = minimum(width, s.across - j)
            where = [s.gradient, windows, s.y_masks, s.y_runs, s.y_counts]
            what = [
                0,
                s.vectors,
                count,
                s.gradients,
                s.block,
                s.gradient_point,
                s.step,
            ]
            call(self.transforms.gradients, where + what)
            first = s.panels + j * s.deep
            with loop(self.scheme.points, name="point", beside=j) as point:
                source = s.gradients + point * s.gradient_point
                to = first + point * s.panel_point
                panel = [source, s.block, to, s.deep, count]
                call(self.emitters.packing.transposed_panel, panel)

    def _strip(self, s: Any, row: Any, height: int) -> None:
        """Transformed tiles of some channels of the image, times all panels."""
        windows = s.windows + row * (2 * self.scheme.pixels)
        where = [s.image, windows, s.masks, s.runs, s.counts]
        what = [0, s.vectors, height, s.workspace, s.block, s.strip_point]
        call(self.transforms.pixels, [*where, *what, s.step])
        multiply_points(self.emitters, s, row, height, self.scheme.points)

    def _finish(self, s: Any) -> None:
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
