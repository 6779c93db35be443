"""Schedules for GPUs: which loops become threads.

flat     a thread for each element; where memory is read and written in order, each
         thread has as many neighbours as fill its widest load
rows     a block for each row: its threads share the loops over the row, and combine
         what they accumulate
columns  where the last axis is kept: a thread for each column, so that neighbouring
         threads read neighbouring elements
"""

from __future__ import annotations

import math
from typing import Any

from weft.compile.fusion.groups import Group
from weft.compile.loop.depend import flat_position, independent
from weft.compile.loop.ir import (
    Buffer,
    For,
    Kernel,
    Let,
    Load,
    Set,
    Store,
    When,
    block_size,
    combined,
    statements,
    subvalues,
    values_of,
)
from weft.compile.loop.nest import (
    apart,
    counted_by_launch,
    fused,
    in_parallel,
    is_empty,
    is_linear,
    neighbours,
    nest_of,
    one_column,
)
from weft.compile.loop.ranges import coefficient
from weft.compile.loop.rewrite import uses
from weft.compile.loop.schedule import fuse, jam, parallelise, tile
from weft.compile.targets.cuda.cost_model import COST
from weft.core.size import Size, hinted, same
from weft.graph.ir import GraphError

_COST = COST.blocks


def flat_schedule(kernel: Kernel) -> Kernel:
    """A thread for each element of a shape, or for several neighbours."""
    if is_empty(kernel):
        return kernel
    kernel = fused(kernel)
    names = [loop.var for loop in nest_of(kernel)]
    if not names:
        return kernel
    try:
        if len(names) == 1 and is_linear(kernel):
            return _in_vectors(kernel, nest_of(kernel)[0])
        kernel, names = _without_quotients(kernel, names)
        if count := _vector_of_last(kernel):
            kernel = tile(kernel, names[-1], count, names=("vector", "i"))
            kernel = in_parallel(kernel, [*names[:-1], "vector"])
            (inner,) = kernel.body
            return kernel._replace(body=[inner._replace(vector=count)])
        return in_parallel(kernel, names)
    except GraphError:  # positions are too intricate for a proof
        return apart(kernel, len(names))


def _in_vectors(kernel: Kernel, loop: For) -> Kernel:
    """Threads of as many neighbouring elements as the widest load holds.

    In long loops each thread has several such loads, a block's threads apart.
    """
    long = (hinted((loop.extent,)) or [0])[0] >= _COST.long
    kernel = counted_by_launch(kernel, loop)
    widest = max(buffer.dtype.itemsize for buffer in kernel.buffers)
    count = _COST.vector // max(widest, 2)
    if count < 2:
        return parallelise(kernel, loop.var)
    if long and _COST.long_loads > 1:
        threads, times = _COST.threads, _COST.long_loads
        size = threads * times * count
        kernel = tile(kernel, loop.var, size, names=("block", "i"))
        kernel = parallelise(kernel, "block")
        (inner,) = kernel.body
        inner = inner._replace(vector=count, threads=threads, times=times)
        return kernel._replace(body=[inner])
    kernel = tile(kernel, loop.var, count, names=("thread", "i"))
    kernel = parallelise(kernel, "thread")
    (inner,) = kernel.body
    return kernel._replace(body=[inner._replace(vector=count)])


def _without_quotients(kernel: Kernel, names: list[str]) -> tuple[Kernel, list[str]]:
    """The last of some loops, taken apart where indices take its positions apart.

    A transpose that reads ``x[i//64, i%64]`` reads ``x[part, i]``: neighbours in order.
    """
    last = names[-1]
    extent = dict(kernel.parallel).get(last) or nest_of(kernel)[-1].extent
    count = _common_divisor(kernel.body, last)
    if isinstance(extent, Size) or count < 2 or extent % count or extent == count:
        return kernel, names
    kernel = tile(kernel, last, count, names=("part_of_last", last))
    if kernel.parallel and kernel.parallel[-1][0] == "part_of_last":
        kernel = parallelise(kernel, last)
    return kernel, [*names[:-1], "part_of_last", last]


def _common_divisor(body: list[Any], name: str) -> int:
    """The greatest number that divides all divisors of a variable's values; 0: none."""
    atoms = [
        atom
        for _, at in uses(body) for index in at if isinstance(index, Size)
        for term, _ in index.terms for atom in term
    ]  # fmt: skip
    found = 0
    while atoms:
        atom = atoms.pop()
        parts = [p for p in (atom.a, atom.b) if isinstance(p, Size)]
        if not any(name in part.symbols for part in parts):
            continue
        if atom.kind in ("//", "%"):
            if isinstance(atom.b, Size):
                return 0
            found = math.gcd(found, atom.b)
        atoms += [a for part in parts for term, _ in part.terms for a in term]
    return found


def _vector_of_last(kernel: Kernel) -> int:
    """The neighbours along the last axis that a thread takes at once; 0: one.

    Everything is stored in order, or is the same for all of them.
    """
    loop = nest_of(kernel)[-1]
    if isinstance(loop.extent, Size) or any(isinstance(s, For) for s in loop.body):
        return 0
    widths = _along(loop.var, loop.body)
    if widths is None:
        return 0
    count = _COST.vector // max([2, *widths])
    return count if count >= 2 and loop.extent % count == 0 else 0


def row_schedule(group: Group, kernel: Kernel) -> Kernel:
    """Kept axes in parallel: a block for each row, or a thread for each column."""
    if is_empty(kernel):
        return kernel
    for outer, inner in neighbours(group.inner):
        try:
            kernel = fuse(kernel, f"i{outer}", f"i{inner}", name=f"i{outer}")
        except GraphError:
            continue
    names = [name for name, _ in group.outer]
    if len(group.shape) - 1 in group.kept:
        kernel, names = one_column(kernel, names)
        return _wider(apart(kernel, len(names)))
    return _on_threads(apart(kernel, len(names)))


def grid_schedule(kernel: Kernel) -> Kernel:
    """Given parallel loops: a block for each iteration where rows are read in order,
    else a thread."""
    stmts = list(statements(kernel.body))
    rows = [s for s in stmts if isinstance(s, For) and _is_row(s)]
    inside = {id(s) for row in rows for s in row.body}
    last = kernel.parallel[-1][0] if kernel.parallel else ""
    columns = any(_runs_along(last, buffer, at) for buffer, at in uses(kernel.body))
    along = any(_runs_along(s.var, b, at) for s in rows for b, at in uses(s.body))
    alone = {
        s.buffer.name for s in stmts if isinstance(s, Store) and id(s) not in inside
    }
    values = subvalues(v for s in stmts for v in values_of(s))
    again = any(isinstance(v, Load) and v.buffer.name in alone for v in values)
    return kernel if columns or again or not along else _on_threads(kernel)


def _runs_along(var: str, buffer: Buffer, at: tuple[Any, ...]) -> bool:
    """Whether neighbouring values of a variable are neighbours in a buffer."""
    step = coefficient(flat_position(at, buffer.shape), var)
    return step is not None and same(step, 1)


def _wider(kernel: Kernel) -> Kernel:
    """Several columns for each thread, where loads would be short."""
    kernel, _ = _without_quotients(kernel, [name for name, _ in kernel.parallel])
    name, extent = kernel.parallel[-1]
    sizes = [n for _, n in kernel.parallel]
    loops = [s for s in kernel.body if isinstance(s, For)]
    accesses = _along(name, [stmt for loop in loops for stmt in loop.body])
    if accesses is None or any(isinstance(n, Size) for n in sizes):
        return kernel
    count = _COST.column // max([2, *accesses])
    if count < 2 or extent % count or math.prod(sizes) < count * _COST.columns:
        return kernel
    try:
        return jam(kernel, name, count)
    except GraphError:
        return kernel


def _along(name: str, body: list[Any]) -> list[int] | None:
    """The sizes of elements that statements read or write in order along an axis.

    None where they go through memory otherwise.
    """
    steps = [
        (buffer, coefficient(flat_position(at, buffer.shape), name))
        for buffer, at in uses(body)
    ]
    if not all(step is not None and _at_most_one(step) for _, step in steps):
        return None
    return [b.dtype.itemsize for b, step in steps if not same(step, 0)]


def _on_threads(kernel: Kernel) -> Kernel:
    """The innermost loops of rows, shared out to the threads of a block."""
    rows = [s for s in statements(kernel.body) if isinstance(s, For) and _is_row(s)]
    lengths = [hinted((s.extent,)) for s in rows]
    if not rows:
        return kernel
    known = [length[0] for length in lengths if length is not None]
    widths = [n for s in rows for n in _along(s.var, s.body) or [_COST.vector]]
    short = _COST.short_row // max([2, *widths])
    if known and len(known) == len(lengths) and max(known) <= short:
        return kernel._replace(body=_unrolled(kernel.body))
    vector = _vector(kernel, rows)
    loads = _COST.loads if len(rows) == 1 else _COST.loads_again
    count = max(known, default=0) // max(vector, 1) // loads
    threads = _threads(count) if known else _COST.unknown_row
    threads, times = _times(rows, threads, vector)
    return kernel._replace(body=_marked(kernel.body, threads, vector, times))


def _times(rows: list[For], threads: int, vector: int) -> tuple[int, int]:
    """The threads of a block, and how often each of them goes on along all rows.

    There are more threads than given where each would keep too much in registers. It is
    0 times if that is not enough, or if not all go on as often.
    """
    extent, step = rows[0].extent, threads * vector
    if not step or any(isinstance(s.extent, Size) or s.extent != extent for s in rows):
        return threads, 0
    values = subvalues(v for row in rows for s in row.body for v in values_of(s))
    arrays = {v.buffer.name for v in values if isinstance(v, Load)}
    while step <= _COST.most_row * vector:
        times, rest = divmod(extent, step)
        if times and not rest and times * vector * len(arrays) <= _COST.held:
            return step // vector, times
        step *= 2
    return threads, 0


def _vector(kernel: Kernel, rows: list[For]) -> int:
    """The neighbours that a thread takes at once; 0 if rows cannot be cut so."""
    found = [_along(s.var, s.body) for s in rows]
    if any(widths is None for widths in found):
        return 0
    count = _COST.vector // max([2, *[n for widths in found for n in widths or ()]])
    whole = all(not isinstance(s.extent, Size) and s.extent % count == 0 for s in rows)
    long = whole and max(s.extent for s in rows) >= count * _COST.least_row
    return count if count >= 2 and long else 0


def _at_most_one(step: Any) -> bool:
    return same(step, 0) or same(step, 1)


def _threads(count: int) -> int:
    """Whole warps, whose threads each have several loads on their way."""
    power = 1 << max(count - 1, 0).bit_length()
    return min(max(power, _COST.least_row), _COST.most_row)


def _is_row(loop: For) -> bool:
    """Whether a loop's iterations may run in any order: threads may share them."""
    if any(isinstance(s, (For, When)) for s in loop.body):
        return False
    sums = {s.local for s in combined(loop)}
    rest = [s for s in loop.body if not (isinstance(s, Set) and s.local in sums)]
    if any(isinstance(s, Set) or (isinstance(s, Store) and s.buffer.scratch)
           for s in rest):  # fmt: skip
        return False  # scratch memory is a thread's own
    return independent(loop.var, rest, loop.extent) is None


def _unrolled(body: list[Any]) -> list[Any]:
    """Short rows without a branch, so that neighbours are read at once."""
    stmts = []
    for stmt in body:
        if (
            isinstance(stmt, For)
            and _is_row(stmt)
            and not isinstance(stmt.extent, Size)
        ):
            stmt = stmt._replace(vector=stmt.extent)
        elif isinstance(stmt, (For, When)):
            stmt = stmt._replace(body=_unrolled(stmt.body))
        stmts.append(stmt)
    return stmts


def _marked(body: list[Any], threads: int, vector: int, times: int) -> list[Any]:
    stmts = []
    for stmt in body:
        if isinstance(stmt, For) and _is_row(stmt):
            stmt = stmt._replace(threads=threads, vector=vector, times=times)
        elif isinstance(stmt, (For, When)):
            stmt = stmt._replace(body=_marked(stmt.body, threads, vector, times))
        stmts.append(stmt)
    return stmts


def refuses(kernel: Kernel) -> str:
    """The reason why a kernel cannot run: a thread's own memory is small."""
    sizes = [
        math.prod(buffer.shape) * buffer.dtype.itemsize for buffer in kernel.scratch
    ]
    if any(isinstance(n, Size) for n in sizes):
        return "its scratch memory has a size that is an argument"
    if sum(sizes) > _COST.scratch:
        return f"it needs {sum(sizes)} bytes of scratch memory a thread"
    return ""


def spread(kernel: Kernel) -> Kernel:
    """A kernel of serial loops, with long inner ones shared out to threads.

    Scatters walk over their updates one after the other; the elements of each update
    are independent.
    """
    stmts = list(statements(kernel.body))
    if any(isinstance(s, For) and (s.threads or s.vector) for s in stmts):
        return kernel
    rows = [s for s in stmts if isinstance(s, For) and _moves_much(s)]
    if not rows or not _serial_around(kernel, rows):
        return kernel
    kernel = _on_threads(kernel)
    return kernel._replace(body=_looking_ahead(kernel.body, block_size(kernel)))


def _looking_ahead(body: list[Any], threads: int) -> list[Any]:
    """Loops over a condition that seldom holds, as a scatter's into some rows."""
    if threads < _COST.least_row:
        return body
    stmts = []
    for stmt in body:
        if isinstance(stmt, For) and _seeks(stmt):
            stmt = stmt._replace(ahead=threads)
        elif isinstance(stmt, For):
            stmt = stmt._replace(body=_looking_ahead(stmt.body, threads))
        stmts.append(stmt)
    return stmts


def _seeks(loop: For) -> bool:
    """Whether a loop does something only where a condition holds, and keeps that."""
    *lets, last = loop.body
    if not isinstance(last, When) or not all(isinstance(s, Let) for s in lets):
        return False
    written = {s.buffer.name for s in statements(last.body) if isinstance(s, Store)}
    values = subvalues([last.condition, *[let.value for let in lets]])
    return not any(isinstance(v, Load) and v.buffer.name in written for v in values)


def _moves_much(loop: For) -> bool:
    short = not isinstance(loop.extent, Size) and loop.extent < _COST.least_row
    return not short and _is_row(loop) and any(isinstance(s, Store) for s in loop.body)


def _serial_around(kernel: Kernel, rows: list[For]) -> bool:
    """Whether such loops are inside of others, as a scatter's are."""
    outer = [s for s in kernel.body if isinstance(s, For) and s not in rows]
    return any(row in list(statements(s.body)) for s in outer for row in rows)
