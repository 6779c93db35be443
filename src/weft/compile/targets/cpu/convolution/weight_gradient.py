"""The weights' gradient: windows times the result's gradient, summed over pixels.

C[element of a window, channel] = sum over pixels of window * gradient. Rows of windows
need no transposing for this, and gradients are few beside them. C stays in the
workspace until all pixels are summed, in blocks of a fixed length and in order; then
its transpose is stored. Where windows are single pixels and no block goes from an image
to the next, they are read unpacked.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I64, i64, loop
from weft.compile.emit.vectors import at, minimum, while_less
from weft.compile.targets.cpu.convolution.record import read_job
from weft.compile.targets.cpu.convolution.rectangles import RECTANGLE
from weft.compile.targets.cpu.convolution.routines import Emitters
from weft.compile.targets.cpu.convolution.windows import call_windows
from weft.compile.targets.cpu.matmul.strip import along, by_heights
from weft.compile.targets.cpu.matmul.tasks import divide


class Weight:
    """Emits the function that computes a rectangle of a gradient's C."""

    def __init__(self, emitters: Emitters) -> None:
        self.emitters, self.lib = emitters, emitters.lib

    def emit(self) -> ir.Function:
        """The rectangle's function."""
        lib = self.lib
        with lib.function("weight", RECTANGLE) as (b, t, function):
            s = read_job(b, t.job, t.worker)
            vars(s).update(vars(t))
            s.across = b.sub(s.column_end, s.column_begin)
            s.image = at(b, s.image, b.mul(s.group, s.image_group), lib.element)
            s.gradient = at(b, s.other, b.mul(s.group, s.other_group), lib.element)
            s.direct = b.icmp_signed("!=", s.image_row, i64(0))
            some = b.select(b.icmp_signed(">", s.k, i64(0)), s.k, i64(1))
            with loop(b, i64(0), some, s.block, name="p") as p:
                s.p, s.deep = p, minimum(b, s.block, b.sub(s.k, p))
                s.add = b.zext(b.icmp_signed(">", p, i64(0)), I64)
                with b.if_then(b.not_(s.direct)):
                    call_windows(b, self.emitters.windows, s, p, b.add(p, s.deep))
                self._panels(b, s)
                by_heights(
                    b,
                    lib.tile.heights,
                    s.row_begin,
                    s.row_end,
                    lambda row, height: self._strip(b, s, row, height),
                )
            self.emitters.deliver.weight(b, s)
        return function

    def _panels(self, b: Any, s: Any) -> None:
        """The gradient of these pixels, transposed, as panels of channels."""
        element, width = self.lib.element, i64(self.lib.tile.width)
        with loop(b, i64(0), s.across, width, name="j") as j:
            channel = b.add(s.column_begin, j)
            source = at(b, s.gradient, b.mul(channel, s.other_row), element)
            panel = at(b, s.panels, b.mul(j, s.deep), element)
            count = minimum(b, width, b.sub(s.across, j))
            with while_less(b, i64(0), s.deep) as (k, advance):
                n, q = divide(b, b.add(s.p, k), s.pixels)
                run = minimum(b, b.sub(s.pixels, q), b.sub(s.deep, k))
                here = at(b, source, b.add(b.mul(n, s.other_step), q), element)
                to = at(b, panel, b.mul(k, width), element)
                b.call(
                    self.emitters.packing.transposed_panel,
                    [here, s.other_row, to, run, count],
                )
                advance(run)

    def _strip(self, b: Any, s: Any, row: Any, height: int) -> None:
        tile, element = self.lib.tile, self.lib.element
        left, stride = self._left(b, s, row, height)
        width = i64(tile.width)
        c = at(b, s.sums, b.mul(b.sub(row, s.row_begin), s.sums_row), element)
        panel = [s.panels, width, b.mul(width, s.deep)]
        size = [c, s.sums_row, s.across, s.deep, s.add]
        ahead = at(b, left, b.mul(stride, i64(height)), element)
        strides = along(stride, rows=True)
        arguments = [left, *strides, *panel, *size, ahead, *strides]
        self.emitters.strips.call(b, height, False, arguments)

    def _left(self, b: Any, s: Any, row: Any, height: int) -> tuple[Any, Any]:
        """The address of rows of windows, packed or not, and their stride."""
        tile, depth = self.lib.tile, i64(self.lib.tile.depth)
        with b.if_then(b.not_(s.direct)):
            vectors = b.sdiv(b.add(s.deep, i64(tile.lanes - 1)), i64(tile.lanes))
            to = [i64(0), vectors, i64(height), s.workspace, depth]
            self.emitters.patches.fill(b, s, s.image, row, to)
        n, q = divide(b, s.p, s.pixels)
        offset = b.add(b.add(b.mul(n, s.image_step), q), b.mul(row, s.image_row))
        here = at(b, s.image, offset, self.lib.element)
        left = b.select(s.direct, here, s.workspace)
        return left, b.select(s.direct, s.image_row, depth)
