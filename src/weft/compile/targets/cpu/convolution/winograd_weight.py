"""The weights' gradient by Winograd's method: smaller products stand for a large one.

It is the transpose of what `winograd` computes: tiles of the image and of the result's
gradient are transformed, multiplied and summed over all tiles, and the sums of each
pair of channels become a kernel. Sums stay in the workspace, as in `weight`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I64, i64, loop
from weft.compile.emit.vectors import at, minimum
from weft.compile.targets.cpu.convolution.epilogue import call_epilogue
from weft.compile.targets.cpu.convolution.record import read_job
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


class Kernels:
    """Emits the function that computes a rectangle of kernels."""

    def __init__(self, emitters: Emitters, transforms: Transforms) -> None:
        self.emitters, self.lib, self.transforms = emitters, emitters.lib, transforms
        self.scheme = transforms.scheme

    def emit(self) -> ir.Function:
        """The rectangle's function: rows are x's channels, columns y's."""
        lib, tile = self.lib, self.lib.tile
        with lib.function(f"kernels_part{self.scheme.name}", RECTANGLE) as (
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
                rest = b.add(s.deep, i64(tile.lanes - 1))
                s.vectors = b.sdiv(rest, i64(tile.lanes))
                end = b.add(p, s.deep)
                call_windows(b, self.emitters.windows, s, p, end)
                tile_windows(b, self.emitters.windows, s, s.other_step, p, end)
                self._panels(b, s)
                by_heights(
                    b,
                    tile.heights,
                    s.row_begin,
                    s.row_end,
                    lambda row, height: self._strip(b, s, row, height),
                )
            self._finish(b, s)
        return function

    def _begin(self, b: Any, s: Any) -> None:
        lib = self.lib
        s.across = b.sub(s.column_end, s.column_begin)
        s.image = at(b, s.image, b.mul(s.group, s.image_group), lib.element)
        s.gradient = at(b, s.other, b.mul(s.group, s.other_group), lib.element)
        s.sums_point = apart(b, b.mul(b.sub(s.row_end, s.row_begin), s.sums_row))
        slack = i64(lib.tile.width * lib.tile.lanes)  # transposing writes whole vectors
        s.panel_point = apart(b, b.add(b.mul(s.block, s.task_columns), slack))
        s.strip_point = apart(b, b.mul(s.block, i64(lib.tile.height)))
        s.gradient_point = apart(b, b.mul(s.block, i64(lib.tile.width)))

    def _panels(self, b: Any, s: Any) -> None:
        """Transformed tiles of the gradient, transposed, as panels of channels."""
        element, width = self.lib.element, i64(self.lib.tile.width)
        with loop(b, i64(0), s.across, width, name="j") as j:
            channel = b.add(s.column_begin, j)
            windows = at(b, s.y_windows, b.mul(channel, i64(8)), I64)
            count = minimum(b, width, b.sub(s.across, j))
            where = [s.gradient, windows, s.y_masks, s.y_runs, s.y_counts]
            what = [
                i64(0),
                s.vectors,
                count,
                s.gradients,
                s.block,
                s.gradient_point,
                s.step,
            ]
            b.call(self.transforms.gradients, where + what)
            first = at(b, s.panels, b.mul(j, s.deep), element)
            with loop(b, i64(0), i64(self.scheme.points), name="point") as point:
                source = at(b, s.gradients, b.mul(point, s.gradient_point), element)
                to = at(b, first, b.mul(point, s.panel_point), element)
                panel = [source, s.block, to, s.deep, count]
                b.call(self.emitters.packing.transposed_panel, panel)

    def _strip(self, b: Any, s: Any, row: Any, height: int) -> None:
        """Transformed tiles of some channels of the image, times all panels."""
        windows = at(b, s.windows, b.mul(row, i64(2 * self.scheme.pixels)), I64)
        where = [s.image, windows, s.masks, s.runs, s.counts]
        what = [i64(0), s.vectors, i64(height), s.workspace, s.block, s.strip_point]
        b.call(self.transforms.pixels, [*where, *what, s.step])
        multiply_points(b, self.emitters, s, row, height, self.scheme.points)

    def _finish(self, b: Any, s: Any) -> None:
        """The kernels of each pair of channels, from the sums of their points."""
        element = self.lib.element
        out = at(b, s.out, b.mul(s.group, s.out_group), element)
        row = b.mul(s.row_begin, i64(self.scheme.taps))
        out = at(b, out, b.add(b.mul(s.column_begin, s.out_row), row), element)
        rows = b.sub(s.row_end, s.row_begin)
        sums = [s.sums, s.sums_row, s.sums_point, rows, s.across]
        b.call(self.transforms.kernels, [*sums, out, s.out_row])
        start = b.mul(s.group, s.columns)
        filters = b.add(start, s.column_begin), b.add(start, s.column_end)
        call_epilogue(b, s, filters, [row, b.mul(s.row_end, i64(self.scheme.taps))])
