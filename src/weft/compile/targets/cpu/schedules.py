"""Schedules for CPUs: the form that the loops of a kernel get.

flat     axes that are contiguous together become one loop, cut into chunks; else
         parallel over the outer axes
         buffers that are read by columns: small squares, transposed on the way
rows     parallel over the kept axes; reduced axes become one loop where they can
columns  where the last axis is kept: parallel over blocks of it, inside the loops
         over the reduced axes, so that memory is read in order
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

from weft.compile.fusion.groups import Group
from weft.compile.loop.depend import flat_position
from weft.compile.loop.ir import (
    Call,
    For,
    Kernel,
    Load,
    Set,
    Store,
    When,
    statements,
    subvalues,
)
from weft.compile.loop.nest import (
    apart,
    counted_by_launch,
    divisors_of,
    fused,
    in_parallel,
    is_empty,
    is_linear,
    neighbours,
    nest_of,
    one_column,
    values_in,
)
from weft.compile.loop.ranges import coefficient
from weft.compile.loop.schedule import fuse, join, parallelise, reorder, tile, unroll
from weft.compile.loop.staging import cache, most, sink
from weft.compile.lower.pairwise_sums import in_levels
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.streaming_stores import is_large
from weft.compile.tuning.choices import Loops
from weft.core.size import Size, hinted, same
from weft.graph.ir import GraphError

_COST = COST.loops
# -- nothing is reduced


def flat_schedule(kernel: Kernel, *, loops: Loops) -> Kernel:
    """Loops over all elements of a shape."""
    if is_empty(kernel):
        return kernel
    kernel = fused(kernel)
    nest = nest_of(kernel)
    if not nest:
        return kernel
    names = [loop.var for loop in nest]
    try:
        if len(nest) == 1 and is_linear(kernel):
            return _in_chunks(kernel, nest[0], loops.chunk)
        by_columns = _read_by_columns(kernel, names)
        if by_columns:
            return _in_squares(kernel, names, by_columns, loops.square)
        return _in_quotients(in_parallel(kernel, names[:-1]))
    except GraphError:
        return apart(kernel, len(names) - 1)


def _in_quotients(kernel: Kernel) -> Kernel:
    """The iterations whose indices share a quotient ``i // 2``, written out.

    Memory at the quotient is then read in order, and once for all of them.
    """
    (loop,) = nest_of(kernel)
    by = divisors_of(kernel, loop.var)
    factor = by.pop() if len(by) == 1 else 0
    if isinstance(factor, Size) or not 1 < factor <= _COST.shared_quotient:
        return kernel
    return unroll(kernel, loop.var, factor)


def _in_chunks(kernel: Kernel, loop: For, chunk: int) -> Kernel:
    """The only loop, cut into chunks.

    If all memory is read and written in order, how much there is becomes an argument
    of the kernel, so that the updates of all parameters share one.
    """
    if not any(is_large(b.shape, b.dtype.itemsize) for b in kernel.buffers):
        kernel = counted_by_launch(kernel, loop)  # else stores bypass the caches
    kernel = tile(kernel, loop.var, chunk, names=("chunk", "i"))
    kernel = parallelise(kernel, "chunk")
    return unroll(kernel, "i", 4) if _uses(kernel, "random") else kernel


def _uses(kernel: Kernel, prefix: str) -> bool:
    """Whether values are made with functions of some name."""
    return any(isinstance(v, Call) and v.name.startswith(prefix)
               for v in values_in(kernel))  # fmt: skip


# -- buffers that are read by columns


def _read_by_columns(kernel: Kernel, names: list[str]) -> tuple[str, list[str]] | None:
    """A loop other than the last along which buffers are contiguous, and these."""
    buffers: dict[str, list[str]] = {}
    for value in values_in(kernel):
        if not isinstance(value, Load):
            continue
        flat = flat_position(value.at, value.buffer.shape)
        last = coefficient(flat, names[-1])
        if last is None or same(last, 0) or same(last, 1):
            continue
        for name in names[:-1]:
            if same(coefficient(flat, name), 1):
                buffers.setdefault(name, []).append(value.buffer.name)
    first = next(iter(buffers), None)
    return None if first is None else (first, list(dict.fromkeys(buffers[first])))


def _reads_in_order(kernel: Kernel, buffers: list[str]) -> bool:
    """Whether squares are taken in the order of reads, not in that of writes.

    That is better where all reads are transposed, and caches hold little of them.
    """
    read = {v.buffer.name for v in values_in(kernel) if isinstance(v, Load)}
    found = [b for b in kernel.buffers if b.name in read]
    return read <= set(buffers) and all(
        is_large(b.shape, b.dtype.itemsize, _COST.far) for b in found
    )


def _in_squares(kernel: Kernel, names: list[str], by_columns: Any, side: int) -> Kernel:
    """Small squares of two axes, so that lines read by columns stay in a cache."""
    (dim, buffers), last = by_columns, names[-1]
    kernel = tile(kernel, dim, side, names=("u", "a"))
    kernel = tile(kernel, last, side, names=("v", "b"))
    squares = ["v", "u"] if _reads_in_order(kernel, buffers) else ["u", "v"]
    outer = [name for name in names if name not in (dim, last)] + squares
    kernel = in_parallel(reorder(kernel, [*outer, "a", "b"]), outer)
    sides = [most(loop.extent) for loop in nest_of(kernel)]
    for buffer in buffers if sides == [side, side] else ():
        try:
            kernel = cache(kernel, buffer)
        except GraphError:
            continue  # read at several indices, or partly out of bounds
    return kernel


# -- reductions


def row_schedule(group: Group, kernel: Kernel, *, loops: Loops) -> Kernel:
    """Loops over kept axes, around those over reduced axes."""
    return kernel if is_empty(kernel) else _jammed(_row_loops(group, kernel, loops))


def _row_loops(group: Group, kernel: Kernel, loops: Loops) -> Kernel:
    for outer, inner in neighbours(group.inner):
        try:
            kernel = fuse(kernel, f"i{outer}", f"i{inner}", name=f"i{outer}")
        except GraphError:
            continue
    names = [name for name, _ in group.outer]
    if len(group.shape) - 1 in group.kept and not group.tall:
        kernel, names = one_column(kernel, names)
    kernel = apart(kernel, len(names))
    if group.tall:
        return kernel._replace(body=_rows_in_levels(kernel, kernel.body, group.tall))
    if len(group.shape) - 1 not in group.kept:
        return in_levels(kernel)
    short = (
        in_levels(kernel, COST.reductions.serial_columns) if _tall(group) else kernel
    )
    try:
        size = _width(dict(kernel.parallel)[names[-1]], len(names), loops)
        return sink(tile(short, names[-1], size, names=("block", "j")), "j")
    except GraphError:  # one column after the other, each added up in the same order
        return short._replace(body=_in_order(short.body))


def _jammed(kernel: Kernel) -> Kernel:
    """Combine several rows at a time, where rows are added to one in scratch memory.

    Each element is combined in the same order, but read and written less often.
    """
    stmts = list(statements(kernel.body))
    found = [s for s in stmts if isinstance(s, For) and _combines_rows(s)]
    for var in dict.fromkeys(loop.var for loop in found):
        if sum(s.var == var for s in stmts if isinstance(s, For)) > 1:
            continue
        (inner,) = next(loop.body for loop in found if loop.var == var)
        with suppress(GraphError):
            kernel = join(unroll(kernel, var, _COST.jammed_rows), inner.var)
    return kernel


def _combines_rows(loop: For) -> bool:
    """Whether a loop does nothing but combine rows, with few operations."""
    inner = loop.body[0] if len(loop.body) == 1 else None
    if isinstance(loop.extent, Size) or not isinstance(inner, For):
        return False
    if not all(isinstance(s, Store) and s.buffer.scratch for s in inner.body):
        return False
    calls = [v for v in subvalues(s.value for s in inner.body) if isinstance(v, Call)]
    return loop.extent >= _COST.jammed_rows and len(calls) <= _COST.jammed_operations


def _in_order(body: list[Any]) -> list[Any]:
    """Statements whose sums are made one number after the other."""
    stmts = []
    for stmt in body:
        if isinstance(stmt, (For, When)):
            stmt = stmt._replace(body=_in_order(stmt.body))
        stmts.append(stmt._replace(reorder=False) if isinstance(stmt, Set) else stmt)
    return stmts


def _tall(group: Group) -> bool:
    """Whether many numbers are added up one after the other, as far as is known."""
    sizes = hinted(tuple(group.shape[d] for d in group.inner))
    return sizes is not None and math.prod(sizes) > COST.reductions.serial_columns


def _rows_in_levels(kernel: Kernel, body: list[Any], axes: Any) -> list[Any]:
    """Statements in which the sums of each row have several levels."""
    if not axes:
        return in_levels(kernel._replace(body=body)).body
    first, rest = f"i{axes[0]}", axes[1:]
    return [
        s._replace(body=_rows_in_levels(kernel, s.body, rest))
        if isinstance(s, For) and s.var == first
        else s
        for s in body
    ]


def _width(size: Any, outer: int, loops: Loops) -> int:
    """How many of ``size`` columns one iteration takes, in so many outer loops.

    Memory is read fastest in order, but threads need several iterations. Short pieces
    of long rows would each be in another page.
    """
    narrow = not isinstance(size, Size) and size < 4 * _COST.wide
    if not narrow or outer > 1:
        return loops.wide
    return loops.block if size < _COST.long_row else 4 * loops.block
