"""The partition of C into tasks, by a model of their cost.

Times are multiplications for each of k, as for products (``matmul.tasks``): a task of
some rows and columns multiplies each with each, and packs both. Windows are packed run
by run (``windows``), so those of short rows take longer.
"""

from __future__ import annotations

import functools
import heapq
from typing import NamedTuple

from weft.compile.targets.cpu.convolution.job_builder import ceil, up
from weft.compile.targets.cpu.convolution.tables import View
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.tiling import Tiling

_COST = COST.convolution


class Work(NamedTuple):
    """The sizes of C, and the time of packing an element of a row or of a column."""

    rows: int
    columns: int
    groups: int
    row: int = _COST.packing
    column: int = 2 * _COST.packing

    def task(self, rows: int, columns: int) -> int:
        """The time of a task."""
        rows = min(rows, self.rows)
        return rows * columns + rows * self.row + columns * self.column


def runs_of(view: View, lanes: int) -> int:
    """How many runs a vector of a view's columns has, about."""
    last = view.axes[-1]
    straight = view.step == 1 and last.length == view.size[-1]
    length = view.pixels if straight else last.length
    return 1 + (lanes - 1) // max(length, 1) + (length % lanes > 0)


@functools.lru_cache(1024)
def best_cut(
    work: Work, tile: Tiling, most: int, threads: int, tall: int = 1 << 62
) -> tuple[int, int]:
    """The rows and the columns of a task: at most ``tall``, and ``most``.

    >>> from weft.compile.targets.cpu.convolution.partition import Work, best_cut
    >>> from weft.compile.targets.cpu.matmul.tiling import tiling
    >>> from weft.compile.targets.cpu.object_code import host_isa
    >>> tile = tiling(4, host_isa("avx2"))
    >>> best_cut(Work(256, 1568, 1), tile, 512, 2)  # not 512 columns, and 32 at last
    (256, 400)
    """
    tallest = ceil(work.rows, tile.height)
    least = ceil(work.rows, tall)
    downs = {least << bit for bit in range((2 * threads).bit_length())}
    downs.add(up(least, threads))
    heights = {up(ceil(work.rows, min(n, tallest)), _COST.even) for n in downs}
    widest = up(min(most, work.columns), tile.width)
    cuts = [
        (_finish(work, height, across, threads), -across, height)
        for across in range(tile.width, widest + 1, tile.width)
        for height in heights
    ]
    _, across, height = min(cuts)
    return height, -across


def _finish(work: Work, height: int, across: int, threads: int) -> int:
    """When threads that take one task after the other are done with all."""
    down = ceil(work.rows, height) * work.groups
    whole, rest = divmod(work.columns, across)
    many, few = whole * down, down if rest else 0
    large, small = work.task(height, across), work.task(height, rest)
    late = (large if whole else small) // _COST.late
    if many >= _COST.equal_tasks * threads:
        return (many * large + few * small) // threads + late
    each, more = divmod(many, threads)
    ends = [large * (each + (k < more)) for k in range(threads)]
    heapq.heapify(ends)
    for _ in range(few):
        heapq.heapreplace(ends, ends[0] + small)
    return max(ends) + late
