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

from weft.compile.emit.flow import choose, loop, while_less
from weft.compile.emit.values import PTR, Pointer, call, minimum, select
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.functions import Library, names_of
from weft.compile.targets.cpu.matmul.pack import Packing, panel_length, words_of
from weft.compile.targets.cpu.matmul.tiling import Tiling

_COST = COST.matmul
# A job: these as 64-bit integers, one after the other. It is a context for the thread
# pool, which keeps its status in front; worker w has the workspace at
# ``workspace + w * workspace_bytes``.
JOB = [
    "status", "item*a", "item*b", "*c", "*packed", "*epilogue", "*context", "m", "n",
    "k", "a_row", "a_col", "b_row", "b_col", "c_row", "keep", "whole", "first_row",
    "a_batch", "b_batch", "c_batch", "task_rows", "task_columns", "i8*workspace",
    "workspace_bytes",
]  # fmt: skip
NAMES = names_of(JOB)
TASKS = "i64*job begin end worker"


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
    with lib.function("tasks", TASKS, public=True) as (s, function):
        job = read_job(lib, JOB, s.job, s.worker)
        down = block_count(job.m, job.task_rows)
        job.across = block_count(job.n, job.task_columns)
        with while_less(s.begin, s.end) as (task, advance):
            block, first = divide(task, down)
            last = minimum(down, first + (s.end - task))
            call(product, _arguments(lib, job, block, first, last))
            advance(last - first)
    return function


def emit_pack(lib: Library, packing: Packing) -> ir.Function:
    """``void name_pack(job, begin, end, worker)``: B as panels of all its rows.

    A task is a panel. The job is that of a product; the panels are stored at its ``c``.
    """
    tile = lib.tile
    with lib.function("pack", TASKS, public=True) as (s, function):
        job = read_job(lib, JOB, s.job, s.worker)
        for name in ("b_row", "b_col"):
            unit = getattr(job, name).equals(1)
            setattr(job, f"unit_{name}", unit)
        length = panel_length(words_of(job.k, lib.kind), tile.lanes)
        with loop(s.begin, s.end) as q:
            j = q * tile.width
            here = job.b + j * job.b_col
            to = job.c + j * length
            count = minimum(tile.width, job.n - j)
            packing.panel(job, here, to, job.k, count)
    return function


def divide(x: Any, y: Any) -> tuple[Any, Any]:
    """Quotient and remainder; division by one, the usual case, is not carried out."""
    many = y.differs(1)
    (quotient,) = choose(many, [x], lambda: [x // y])
    return quotient, x - quotient * y


def block_count(size: Any, block: Any) -> Any:
    """The number of blocks that cover a size; at least one, for it is a divisor."""
    some = select(size > 0, size, 1)
    return (some + block - 1) // block


def read_job(lib: Library, words: list[str], job: Any, worker: Any) -> Any:
    """The fields of a job, by name; ``workspace`` is this worker's.

    Fields that end with ``_at`` are bytes into it, of parts that are read as addresses.
    """
    s = SimpleNamespace()
    for index, word in enumerate(words):
        pointed, name = lib.declaration(word)
        if pointed is None or name.endswith("_at"):
            setattr(s, name, job[index])
        else:
            address = (job + index).load(PTR)
            setattr(s, name, Pointer(job.b, address.ir, pointed))
    s.workspace += worker * s.workspace_bytes
    for word in words:
        pointed, name = lib.declaration(word)
        if name.endswith("_at"):
            part = (s.workspace + getattr(s, name)).of(pointed)
            setattr(s, name.removesuffix("_at"), part)
    s.workspace = s.workspace.of(lib.element)
    return s


def _arguments(lib: Library, job: Any, block: Any, first: Any, last: Any) -> list[Any]:
    """The product's arguments for some blocks of rows in one block of columns."""
    matrix, column = divide(block, job.across)

    def operand(name: str) -> Any:
        offset = matrix * getattr(job, f"{name}_batch")
        kind = lib.element if name == "c" else lib.item
        return getattr(job, name).of(kind) + offset

    row_begin = first * job.task_rows
    row_end = minimum(job.m, last * job.task_rows)
    column_begin = column * job.task_columns
    column_end = minimum(job.n, column_begin + job.task_columns)
    first_row = job.first_row + matrix * job.m
    sizes = [
        getattr(job, n) for n in NAMES[NAMES.index("m") : NAMES.index("first_row")]
    ]
    place = [first_row, row_begin, row_end, column_begin, column_end]
    operands = [operand(name) for name in "abc"]
    pointers = [*operands, job.packed, job.epilogue, job.context]
    return [*pointers, *sizes, *place, job.workspace]
