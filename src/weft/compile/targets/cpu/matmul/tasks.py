"""A product as tasks that threads share, and batches of products.

C is cut into rectangles, numbered matrix by matrix, then by blocks of columns, then
by blocks of rows. A thread takes one after the other. In a range of them, neighbours
in a block of columns run as one, so that B is packed once for them.
"""

from __future__ import annotations

import functools
import heapq
from types import SimpleNamespace
from typing import Any, NamedTuple

from llvmlite import ir

from weft.compile.emit.control_flow import I8, I64, i64, loop
from weft.compile.emit.vectors import PTR, at, choose, minimum, while_less
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.pack import Packing, panel_length, words_of
from weft.compile.targets.cpu.matmul.tiling import Tiling

_COST = COST.matmul
# A job: these as 64-bit integers, one after the other. It is a context for the thread
# pool, which keeps its status in front; worker w has the workspace at
# ``workspace + w * workspace_bytes``.
JOB = [
    "status", "*a", "*b", "*c", "*packed", "*epilogue", "*context", "m", "n", "k",
    "a_row", "a_col", "b_row", "b_col", "c_row", "keep", "whole", "first_row",
    "a_batch", "b_batch", "c_batch", "task_rows", "task_columns", "*workspace",
    "workspace_bytes",
]  # fmt: skip


class Split(NamedTuple):
    """A partition of C: the rectangles' sizes, and their number."""

    rows: int
    columns: int
    tasks: int


def split(
    tile: Tiling,
    m: int,
    n: int,
    k: int,
    *,
    batch: int = 1,
    threads: int = 1,
    whole: bool = False,
    blocks: tuple[int, int] = (0, 0),
) -> Split:
    """Rectangles for a number of threads, of ``whole`` rows if asked.

    ``blocks`` gives the numbers of blocks of columns and of rows instead. Results are
    the same for every split.

    >>> from weft.compile.targets.cpu.object_code import host_isa
    >>> from weft.compile.targets.cpu.matmul.tasks import split
    >>> from weft.compile.targets.cpu.matmul.tiling import tiling
    >>> split(tiling(4, host_isa("avx2")), 1024, 1024, 1024, threads=2)
    Split(rows=516, columns=512, tasks=4)
    """
    if not blocks[0] or (whole and blocks[0] > 1):
        if not is_cut(m, n, k, batch, threads):
            return Split(max(m, 1), max(n, 1), batch)
        return best_split(tile, m, n, batch, threads, whole)[0]
    return _cut(tile, m, n, batch, *blocks)


def is_cut(m: int, n: int, k: int, batch: int, threads: int) -> bool:
    """Whether matrices of a batch are worth cutting for a number of threads."""
    work = batch * m * n * k
    return threads > 1 and batch < _COST.matrices * threads and work > _COST.serial


def _cut(tile: Tiling, m: int, n: int, batch: int, across: int, down: int) -> Split:
    """The partition into blocks ``across`` columns and ``down`` rows, or fewer."""
    columns = _ceil(_ceil(n, across), tile.width) * tile.width
    rows = _ceil(_ceil(m, down), tile.height) * tile.height
    return Split(rows, columns, batch * _ceil(n, columns) * _ceil(m, rows))


@functools.lru_cache(1024)
def best_split(
    tile: Tiling, m: int, n: int, batch: int, threads: int, whole: bool
) -> tuple[Split, int]:
    """The split that a model of costs has finish first, and its time.

    Times are multiplications for each of k. Every block of rows packs its columns of
    B, and every block of columns its rows of A.

    >>> from weft.compile.targets.cpu.object_code import host_isa
    >>> from weft.compile.targets.cpu.matmul.tasks import best_split
    >>> from weft.compile.targets.cpu.matmul.tiling import tiling
    >>> tile = tiling(4, host_isa("avx2"))
    >>> best_split(tile, 128, 4096, 1, 2, False)[0]  # B is packed once
    Split(rows=132, columns=512, tasks=8)
    """
    most = 1 if whole else _COST.tasks[-1] * threads
    cuts = {
        _cut(tile, m, n, batch, across, _ceil(times * threads, across * batch))
        for across in (1 << bit for bit in range(most.bit_length()))
        for times in _COST.tasks
    }
    timed = ((_finish(tile, m, n, batch, threads, cut), cut) for cut in cuts)
    time, cut = min(timed, key=lambda one: (one[0], one[1].tasks, one[1].rows))
    return cut, time


def _finish(tile: Tiling, m: int, n: int, batch: int, threads: int, cut: Split) -> int:
    """The time at which threads that take one task after the other finish."""
    ends, longest = [0] * threads, 0
    for columns in _sizes(n, cut.columns) * batch:
        blocks = _ceil(columns, tile.columns)
        for rows in _sizes(m, cut.rows):
            packed = columns + rows * blocks + tile.width  # as if: to begin takes time
            task = rows * columns + _COST.packing * packed
            heapq.heapreplace(ends, ends[0] + task)
            longest = max(longest, task)
    return max(ends) + longest // _COST.late


def _sizes(size: int, block: int) -> list[int]:
    """The sizes of the blocks of a size."""
    return [min(block, size - start) for start in range(0, size, block)]


def _ceil(x: int, y: int) -> int:
    return max(-(-x // y), 1)


def emit_tasks(lib: Library, product: ir.Function) -> ir.Function:
    """``void name_tasks(job, begin, end, worker)``: a loop body for the thread pool."""
    arguments = "*job begin end worker"
    with lib.function("tasks", arguments, public=True) as (b, s, function):
        job = SimpleNamespace(**fields(b, s.job, JOB))
        offset = b.mul(s.worker, job.workspace_bytes)
        job.workspace = at(b, job.workspace, offset, I8)
        down = block_count(b, job.m, job.task_rows)
        job.across = block_count(b, job.n, job.task_columns)
        with while_less(b, s.begin, s.end) as (task, advance):
            block, first = divide(b, task, down)
            last = minimum(b, down, b.add(first, b.sub(s.end, task)))
            call = _arguments(b, lib, job, block, first, last)
            b.call(product, call)
            advance(b.sub(last, first))
    return function


def emit_pack(lib: Library, packing: Packing) -> ir.Function:
    """``void name_pack(job, begin, end, worker)``: B as panels of all its rows.

    A task is a panel. The job is that of a product; the panels are stored at its ``c``.
    """
    tile, element = lib.tile, lib.element
    with lib.function("pack", "*job begin end worker", public=True) as (b, s, function):
        job = SimpleNamespace(**fields(b, s.job, JOB))
        for name in ("b_row", "b_col"):
            unit = b.icmp_signed("==", getattr(job, name), i64(1))
            setattr(job, f"unit_{name}", unit)
        length = panel_length(b, words_of(b, job.k, lib.kind), tile.lanes)
        with loop(b, s.begin, s.end) as q:
            j = b.mul(q, i64(tile.width))
            here = at(b, job.b, b.mul(j, job.b_col), lib.item)
            to = at(b, job.c, b.mul(j, length), element)
            count = minimum(b, i64(tile.width), b.sub(job.n, j))
            packing.panel(b, job, here, to, job.k, count)
    return function


def divide(b: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Quotient and remainder; division by one, the usual case, is not carried out."""
    many = b.icmp_signed("!=", y, i64(1))
    (quotient,) = choose(b, many, [x], lambda: [b.sdiv(x, y)])
    return quotient, b.sub(x, b.mul(quotient, y))


def block_count(b: Any, size: Any, block: Any) -> Any:
    """The number of blocks that cover a size; at least one, for it is a divisor."""
    some = b.select(b.icmp_signed(">", size, i64(0)), size, i64(1))
    return b.sdiv(b.sub(b.add(some, block), i64(1)), block)


def fields(b: Any, job: Any, names: list[str]) -> dict[str, Any]:
    """A job's fields by name."""
    values = {}
    for index, word in enumerate(names):
        kind = PTR if word.startswith("*") else I64
        place = at(b, job, i64(index), I64)
        values[word.lstrip("*")] = b.load(place, typ=kind)
    return values


def _arguments(
    b: Any, lib: Library, job: Any, block: Any, first: Any, last: Any
) -> list[Any]:
    """The product's arguments for some blocks of rows in one block of columns."""
    matrix, column = divide(b, block, job.across)

    def operand(name: str) -> Any:
        offset = b.mul(matrix, getattr(job, f"{name}_batch"))
        kind = lib.element if name == "c" else lib.item
        return at(b, getattr(job, name), offset, kind)

    row_begin = b.mul(first, job.task_rows)
    row_end = minimum(b, job.m, b.mul(last, job.task_rows))
    column_begin = b.mul(column, job.task_columns)
    column_end = minimum(b, job.n, b.add(column_begin, job.task_columns))
    first_row = b.add(job.first_row, b.mul(matrix, job.m))
    sizes = [
        getattr(job, name) for name in JOB[JOB.index("m") : JOB.index("first_row")]
    ]
    place = [first_row, row_begin, row_end, column_begin, column_end]
    operands = [operand(name) for name in "abc"]
    pointers = [*operands, job.packed, job.epilogue, job.context]
    return [*pointers, *sizes, *place, job.workspace]
