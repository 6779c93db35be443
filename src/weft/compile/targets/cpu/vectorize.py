"""The last transformation of a kernel: each loop is marked with how it runs.

    for i < n:                            for i < n, 64 totals:
      t = t + x[i]                →         t = t + x[i]

A sum has totals side by side, stores of results that no cache keeps bypass the caches,
and small squares are transposed in registers. Loops over every second element are
vectors to their end, where there are masks. The loops then say what runs: the order
of a sum depends on nothing else, and any width of vectors may be used.
"""

from __future__ import annotations

from typing import Any

from weft.compile.emit.isa import Isa
from weft.compile.loop.depend import flat_position
from weft.compile.loop.ir import For, Kernel, Let, Set, When, sums_of
from weft.compile.loop.ranges import coefficient
from weft.compile.loop.rewrite import uses
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.register_transpose import transposed_square
from weft.compile.targets.cpu.streaming_stores import streamed
from weft.core.size import Size

_TOTALS = COST.loops.totals


def lanes_of(extent: Any) -> int:
    """The totals that a sum of so many numbers has side by side; 0 for one alone.

    >>> from weft.compile.targets.cpu.vectorize import lanes_of
    >>> [lanes_of(n) for n in (10, 20, 48, 100, 128, 1000)]
    [0, 16, 16, 32, 64, 64]
    """
    if isinstance(extent, Size):
        return _TOTALS[0]
    whole = [n for n in _TOTALS if extent % n == 0 and extent >= n]
    rest = [n for n in _TOTALS if extent >= (2 * n if n > _TOTALS[-1] else n)]
    return next(iter([*whole, *rest]), 0)


def vectorize(kernel: Kernel, isa: Isa) -> Kernel:
    """The kernel with its loops marked; the same one, if none needs a mark."""
    known = {*kernel.sizes, *[name for name, _ in kernel.parallel]}
    body = _body(kernel.body, kernel, isa, known)
    return kernel if body is kernel.body else kernel._replace(body=body)


def _body(body: list[Any], kernel: Kernel, isa: Isa, known: set[str]) -> list[Any]:
    """The statements; the same list, if none changes. ``known`` are the symbols."""
    stmts = []
    for stmt in body:
        if isinstance(stmt, For):
            stmt = _loop(stmt, kernel, isa, known)
        elif isinstance(stmt, When):
            inner = _body(stmt.body, kernel, isa, set(known))
            stmt = stmt if inner is stmt.body else stmt._replace(body=inner)
        elif isinstance(stmt, Let):
            known.add(stmt.var)
        stmts.append(stmt)
    return body if all(map(_same, body, stmts)) else stmts


def _same(a: Any, b: Any) -> bool:
    return a is b


def _loop(stmt: For, kernel: Kernel, isa: Isa, known: set[str]) -> For:
    if transposed_square(stmt) is not None:
        return stmt._replace(in_registers=True)
    totals = lanes_of(stmt.extent) if sums_of(stmt) else 0
    if totals:
        return stmt._replace(totals=totals)
    stores = streamed(stmt, kernel, isa, known)
    if stores:
        return stmt._replace(streaming=tuple(s.buffer.name for s in stores))
    if isa.bits == 512 and _strided(stmt, isa.lanes(4)):
        return stmt._replace(vector=isa.lanes(4))
    inner = _body(stmt.body, kernel, isa, {*known, stmt.var})
    return stmt if inner is stmt.body else stmt._replace(body=inner)


def _strided(loop: For, lanes: int) -> bool:
    """Whether a loop takes every second element, or every few, of floats' size.

    Vectors are then shuffled, and masks keep those at its end inside: LLVM by itself
    would not make vectors of a short row. Of the shortest, it could not.
    """
    if isinstance(loop.extent, Size) or 2 * loop.extent < lanes:
        return False
    if any(isinstance(stmt, (For, When, Let, Set)) for stmt in loop.body):
        return False
    steps = []
    for buffer, at in uses(loop.body):
        step = coefficient(flat_position(at, buffer.shape), loop.var)
        if step is None or isinstance(step, Size) or buffer.dtype.itemsize > 4:
            return False
        steps.append(step)
    return 1 < max(steps, default=0) <= COST.loops.stride and min(steps) >= 0
