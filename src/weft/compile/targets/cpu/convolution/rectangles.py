"""Rectangles of C as tasks that threads share.

They are numbered group by group, then by blocks of columns, then by blocks of rows;
neighbours in a block of columns run as one, so that windows are packed once for them.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from weft.compile.emit.flow import when, while_less
from weft.compile.emit.values import call, minimum
from weft.compile.targets.cpu.convolution.record import JOB
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.tasks import TASKS, block_count, divide, read_job

RECTANGLE = "i64*job worker group row_begin row_end column_begin column_end"


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
