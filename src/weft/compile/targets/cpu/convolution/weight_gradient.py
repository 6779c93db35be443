"""The weights' gradient: windows times the result's gradient, summed over pixels.

C[element of a window, channel] = sum over pixels of window * gradient. Rows of windows
need no transposing for this, and gradients are few beside them. C stays in the
workspace until all pixels are summed, in blocks of a fixed length and in order; then
its transpose is stored. Where windows are single pixels and no block goes from an image
to the next, they are read unpacked.
"""

from __future__ import annotations

from typing import Any

from weft.compile.emit.flow import loop, when, while_less
from weft.compile.emit.values import call, minimum, select
from weft.compile.targets.cpu.convolution.tasks import Rectangle
from weft.compile.targets.cpu.convolution.windows import call_windows
from weft.compile.targets.cpu.matmul.strip import along
from weft.compile.targets.cpu.matmul.tasks import divide


class Weight(Rectangle):
    """Emits the function that computes a rectangle of a gradient's C."""

    name = "weight"

    def begin(self, s: Any) -> None:
        """Decide whether windows are read unpacked."""
        s.direct = s.image_row.differs(0)

    def finish(self, s: Any) -> None:
        self.emitters.deliver.weight(s)

    def block(self, s: Any) -> None:
        """The gradient of these pixels, transposed, as panels of channels."""
        with when(~s.direct):
            call_windows(self.emitters.windows, s, s.p, s.p + s.deep)
        width = self.lib.tile.width
        with loop(0, s.across, width, name="j") as j:
            channel = s.column_begin + j
            source = s.other + channel * s.other_row
            panel = s.panels + j * s.deep
            count = minimum(width, s.across - j)
            with while_less(0, s.deep) as (k, advance):
                n, q = divide(s.p + k, s.pixels)
                run = minimum(s.pixels - q, s.deep - k)
                here = source + (n * s.other_step + q)
                to = panel + k * width
                call(
                    self.emitters.packing.transposed_panel,
                    [here, s.other_row, to, run, count],
                )
                advance(run)

    def strip(self, s: Any, row: Any, height: int) -> None:
        tile = self.lib.tile
        left, stride = self._left(s, row, height)
        width = tile.width
        c = s.sums + (row - s.row_begin) * s.sums_row
        panel = [s.panels, width, width * s.deep]
        size = [c, s.sums_row, s.across, s.deep, s.add]
        ahead = left + stride * height
        strides = along(stride, rows=True)
        arguments = [left, *strides, *panel, *size, ahead, *strides]
        self.emitters.strips.call(height, False, arguments)

    def _left(self, s: Any, row: Any, height: int) -> tuple[Any, Any]:
        """The address of rows of windows, packed or not, and their stride."""
        tile, depth = self.lib.tile, self.lib.tile.depth
        with when(~s.direct):
            vectors = (s.deep + (tile.lanes - 1)) // tile.lanes
            to = [0, vectors, height, s.workspace, depth]
            self.emitters.patches.fill(s, s.image, row, to)
        n, q = divide(s.p, s.pixels)
        offset = n * s.image_step + q + row * s.image_row
        here = s.image + offset
        left = select(s.direct, here, s.workspace)
        return left, select(s.direct, s.image_row, depth)
