"""A product as tasks that threads share, and batches of products.

C is cut into rectangles, numbered matrix by matrix, then by blocks of columns, then
by blocks of rows. A thread runs a range of them; neighbours in a block of columns run
as one, so that B is packed once for them.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

from llvmlite import ir

from weft.compile.llvm.emit import I8, I64, i64, loop
from weft.compile.llvm.gemm.pack import Packing, panel_length, words_of
from weft.compile.llvm.gemm.routine import Library
from weft.compile.llvm.gemm.tiling import Tiling
from weft.compile.llvm.gemm.vectors import PTR, at, choose, minimum, while_less

# A job: these as 64-bit integers, one after the other. It is a context for the thread
# pool, which keeps its status in front; worker w has the workspace at
# ``workspace + w * workspace_bytes``.
JOB = [
    "status", "*a", "*b", "*c", "*packed", "*follower", "*context", "m", "n", "k",
    "a_row", "a_col", "b_row", "b_col", "c_row", "keep", "whole", "first_row",
    "a_batch", "b_batch", "c_batch", "task_rows", "task_columns", "*workspace",
    "workspace_bytes",
]  # fmt: skip
SMALL = 1 << 19  # multiplications that are not worth sharing
_FEW_STRIPS = 4  # for which B is not packed more than once


class Split(NamedTuple):
    """How C is cut: the rectangles' sizes, and how many there are."""

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
    parts: tuple[int, int] = (0, 0),
) -> Split:
    """Rectangles for a number of threads, of ``whole`` rows if asked.

    ``parts`` says into how many blocks of columns and of rows instead. Results are the
    same for every split.

    >>> from weft.compile.llvm.target import host_target
    >>> from weft.compile.llvm.gemm.tasks import split
    >>> from weft.compile.llvm.gemm.tiling import tiling
    >>> split(tiling(4, host_target("avx2")), 1024, 1024, 1024, threads=2)
    Split(rows=516, columns=512, tasks=4)
    """
    across, down = parts
    if not across or (whole and across > 1):
        if threads == 1 or batch >= 4 * threads or batch * m * n * k <= SMALL:
            return Split(max(m, 1), max(n, 1), batch)
        across, down = _by_size(tile, m, n, threads, whole)
    columns = _ceil(_ceil(n, across), tile.width) * tile.width
    rows = _ceil(_ceil(m, down), tile.height) * tile.height
    return Split(rows, columns, batch * _ceil(n, columns) * _ceil(m, rows))


def _by_size(tile: Tiling, m: int, n: int, threads: int, whole: bool) -> Any:
    """Blocks of columns and of rows: two of them for each thread.

    Every block of rows packs all of B's columns, which few rows do not pay for.
    """
    if m <= _FEW_STRIPS * tile.height and not whole:
        across = min(2 * threads, _ceil(n, 2 * tile.width))
        if across >= threads:
            return across, 1
    across = 1 if whole else min(threads, _ceil(n, 4 * tile.width))
    return across, min(_ceil(2 * threads, across), _ceil(m, tile.height))


def _ceil(x: int, y: int) -> int:
    return max(-(-x // y), 1)


def emit_tasks(lib: Library, product: ir.Function) -> ir.Function:
    """``void name_tasks(job, begin, end, worker)``: a loop body for the thread pool."""
    arguments = "*job begin end worker"
    with lib.routine("tasks", arguments, public=True) as (b, s, made):
        job = SimpleNamespace(**fields(b, s.job, JOB))
        offset = b.mul(s.worker, job.workspace_bytes)
        job.workspace = at(b, job.workspace, offset, I8)
        down = blocks(b, job.m, job.task_rows)
        job.across = blocks(b, job.n, job.task_columns)
        with while_less(b, s.begin, s.end) as (task, advance):
            block, first = divide(b, task, down)
            last = minimum(b, down, b.add(first, b.sub(s.end, task)))
            call = _arguments(b, lib, job, block, first, last)
            b.call(product, call)
            advance(b.sub(last, first))
    return made


def emit_pack(lib: Library, packing: Packing) -> ir.Function:
    """``void name_pack(job, begin, end, worker)``: B as panels of all its rows.

    A task is a panel. The job is one of products; the panels go to its ``c``.
    """
    tile, element = lib.tile, lib.element
    with lib.routine("pack", "*job begin end worker", public=True) as (b, s, made):
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
    return made


def divide(b: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Quotient and remainder; division by one, the usual case, is not carried out."""
    many = b.icmp_signed("!=", y, i64(1))
    (quotient,) = choose(b, many, [x], lambda: [b.sdiv(x, y)])
    return quotient, b.sub(x, b.mul(quotient, y))


def blocks(b: Any, size: Any, block: Any) -> Any:
    """How many blocks cover a size: one at least, so that it can divide."""
    some = b.select(b.icmp_signed(">", size, i64(0)), size, i64(1))
    return b.sdiv(b.sub(b.add(some, block), i64(1)), block)


def fields(b: Any, job: Any, names: list[str]) -> dict[str, Any]:
    """A job's fields by name."""
    found = {}
    for index, word in enumerate(names):
        kind = PTR if word.startswith("*") else I64
        place = at(b, job, i64(index), I64)
        found[word.lstrip("*")] = b.load(place, typ=kind)
    return found


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
    pointers = [*operands, job.packed, job.follower, job.context]
    return [*pointers, *sizes, *place, job.workspace]
