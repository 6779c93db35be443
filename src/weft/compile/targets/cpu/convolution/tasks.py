"""Tasks of a convolution: the record of a job, rectangles of C, shared functions.

Three kinds of tasks read it. *Image* tasks compute an image from an image and weights
(forward, or a gradient's phase): C[rows, columns] where a column is a pixel of the
result, counted through all images. *Weight* tasks compute the weights' gradient:
C[rows, columns] where a row is an element of a window and a column an output channel,
summed over pixels. *Direct* ones do the same without packing, for few rows. *Winograd*
ones are image tasks whose columns are tiles; ``y_`` fields describe where tiles go.

Rectangles of C are tasks that threads share. They are numbered group by group, then by
blocks of columns, then by blocks of rows; neighbours in a block of columns run as one,
so that windows are packed once for them.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from weft.compile.emit.flow import loop, when, while_less
from weft.compile.emit.values import call, minimum, select
from weft.compile.targets.cpu.convolution.patches import Patches
from weft.compile.targets.cpu.convolution.windows import emit_windows
from weft.compile.targets.cpu.convolution.write_back import Deliver
from weft.compile.targets.cpu.matmul.functions import Library, names_of
from weft.compile.targets.cpu.matmul.pack import Packing
from weft.compile.targets.cpu.matmul.strip import Strips, by_heights
from weft.compile.targets.cpu.matmul.tasks import TASKS, block_count, divide, read_job

# ``image`` is what windows are read from. ``other`` is the weights (image tasks) or the
# result's gradient (weight tasks). Steps, rows and groups are distances in elements;
# sizes that end with ``_at`` are bytes into the workspace. `tables` has the arrays.
# ``image_row`` is 0 unless rows of windows are an image's own, one after the other.
JOB = [
    "status", "*image", "*other", "*bias", "*out", "*epilogue", "*context",
    "rows", "columns", "k", "block", "groups", "images", "pixels",
    "image_step", "image_group", "image_row", "size0", "size1", "size2", "step",
    "i32*places", "places_row", "i32*taps", "tap_count", "i64*windows",
    "i64*order", "order_run", "order_step", "other_step", "other_row", "other_group",
    "i64*spots", "spot_run", "out_step", "out_row", "out_group",
    "task_rows", "task_columns", "task_groups", "sums_row",
    "*panels_at", "*sums_at", "i8*masks_at", "masks_row", "i64*runs_at",
    "i64*counts_at",
    "i32*y_places", "y_places_row", "i32*y_taps", "i64*y_windows", "y_size1",
    "y_size2", "*gradients_at", "i8*y_masks_at", "i64*y_runs_at", "i64*y_counts_at",
    "i8*workspace", "workspace_bytes",
]  # fmt: skip
NAMES = names_of(JOB)
RECTANGLE = "i64*job worker group row_begin row_end column_begin column_end"


class Emitters:
    """The functions that a module of convolutions has once."""

    def __init__(self, lib: Library) -> None:
        self.lib = lib
        self.windows = emit_windows(lib)
        self.patches = Patches(lib)
        self.packing = Packing(lib)
        self.strips = Strips(lib)
        self.deliver = Deliver(lib, self.packing)


class Rectangle:
    """Emits the function that computes a rectangle of C, block by block of k."""

    name: str  # of the function

    def __init__(self, emitters: Emitters) -> None:
        self.emitters, self.lib = emitters, emitters.lib

    def begin(self, s: Any) -> None:
        """Prepare a rectangle: ``s`` has its job's fields."""

    def block(self, s: Any) -> None:
        """Prepare the block of k from ``s.p`` on."""

    def strip(self, s: Any, row: Any, height: int) -> None:
        """Compute some rows of C for this block of k."""

    def finish(self, s: Any) -> None:
        """Store the finished sums."""

    def emit(self) -> ir.Function:
        """The rectangle's function."""
        with self.lib.function(self.name, RECTANGLE) as (t, function):
            s = read_job(self.lib, JOB, t.job, t.worker)
            vars(s).update(vars(t))
            s.across, s.biased = s.column_end - s.column_begin, False
            s.image += s.group * s.image_group
            s.other += s.group * s.other_group
            self.begin(s)
            with loop(0, select(s.k > 0, s.k, 1), s.block, name="p") as s.p:
                s.deep = minimum(s.block, s.k - s.p)
                s.add = ((s.p > 0) | s.biased).unsigned()
                self.block(s)
                strip = functools.partial(self.strip, s)
                by_heights(self.lib.tile.heights, s.row_begin, s.row_end, strip)
            self.finish(s)
        return function


def emit_rectangles(lib: Library, name: str, rectangle: ir.Function) -> ir.Function:
    """``void name(job, begin, end, worker)``: a loop body for the thread pool.

    Numbers beyond a job's last group are no work: jobs of one launch are counted alike.
    """
    with lib.function(name, TASKS, public=True) as (t, function):
        s = read_job(lib, JOB, t.job, t.worker)
        down = block_count(s.rows, s.task_rows)
        across = block_count(s.columns, s.task_columns)
        with while_less(t.begin, t.end) as (task, advance):
            block, first = divide(task, down)
            last = minimum(down, first + (t.end - task))
            group, column = divide(block, across)
            with when(group < s.groups):
                rows = _range(first, last, s.task_rows, s.rows)
                end = column + 1
                columns = _range(column, end, s.task_columns, s.columns)
                call(rectangle, [t.job, t.worker, group, *rows, *columns])
            advance(last - first)
    return function


def _range(first: Any, last: Any, step: Any, size: Any) -> list[Any]:
    """The first and last positions of some blocks of a size."""
    return [first * step, minimum(size, last * step)]
