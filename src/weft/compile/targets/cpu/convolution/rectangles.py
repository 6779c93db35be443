"""Rectangles of C as tasks that threads share.

They are numbered group by group, then by blocks of columns, then by blocks of rows;
neighbours in a block of columns run as one, so that windows are packed once for them.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import i64
from weft.compile.emit.vectors import minimum, while_less
from weft.compile.targets.cpu.convolution.record import read_job
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.tasks import block_count, divide

RECTANGLE = "*job worker group row_begin row_end column_begin column_end"
TASKS = "*job begin end worker"


def emit_rectangles(lib: Library, name: str, rectangle: ir.Function) -> ir.Function:
    """``void name(job, begin, end, worker)``: a loop body for the thread pool.

    Numbers beyond a job's last group are no work: jobs of one launch are counted alike.
    """
    with lib.function(name, TASKS, public=True) as (b, t, function):
        s = read_job(b, t.job, t.worker)
        down = block_count(b, s.rows, s.task_rows)
        across = block_count(b, s.columns, s.task_columns)
        with while_less(b, t.begin, t.end) as (task, advance):
            block, first = divide(b, task, down)
            last = minimum(b, down, b.add(first, b.sub(t.end, task)))
            group, column = divide(b, block, across)
            with b.if_then(b.icmp_signed("<", group, s.groups)):
                rows = _range(b, first, last, s.task_rows, s.rows)
                end = b.add(column, i64(1))
                columns = _range(b, column, end, s.task_columns, s.columns)
                b.call(rectangle, [t.job, t.worker, group, *rows, *columns])
            advance(b.sub(last, first))
    return function


def _range(b: Any, first: Any, last: Any, step: Any, size: Any) -> list[Any]:
    """Where some blocks of a size begin and end."""
    return [b.mul(first, step), minimum(b, size, b.mul(last, step))]
