"""Loops over runs that are contiguous in memory.

Where heads side by side become one axis, a loop over it reads ``x[i // 64, i % 64]``.
Vectors are made of such elements one by one; as a loop over the runs around one over
the elements of each, they are loaded whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from weft.compile import targets
from weft.compile.loop.ir import For, Kernel, Store, When
from weft.compile.loop.rewrite import uses
from weft.compile.loop.schedule import tile
from weft.compile.targets.cpu.streaming_stores import is_large
from weft.core.size import Atom, Size


def in_runs(kernel: Kernel) -> Kernel:
    """A kernel whose innermost loops read or write runs of elements, run by run.

        for i < 384:                      for ir0 < 6:
          y[i] = x[i // 64, i % 64]   →     for ie0 < 64:
                                              y[ie0 + 64*ir0] = x[ir0, ie0]

    Kernels with streaming stores stay as they are.
    """
    if any(is_large(b.shape, b.dtype.itemsize) for b in kernel.buffers):
        return kernel
    return kernel._replace(body=_each(kernel, kernel.body, itertools.count()))


def _each(kernel: Kernel, body: list[Any], numbers: Iterator[int]) -> list[Any]:
    stmts = []
    for stmt in body:
        if isinstance(stmt, For) and (run := _length(stmt)):
            stmt = _parted(kernel, stmt, run, next(numbers))
        elif isinstance(stmt, (For, When)):
            stmt = stmt._replace(body=_each(kernel, stmt.body, numbers))
        stmts.append(stmt)
    return stmts


def _length(loop: For) -> int:
    """The length of runs that are contiguous everywhere; 0 if unknown or short."""
    if isinstance(loop.extent, Size) or loop.vector:
        return 0
    if not all(isinstance(stmt, Store) for stmt in loop.body):
        return 0
    found = [a.b if a.kind in ("//", "%") else 0 for a in _intricate(loop)]
    if not found or not all(type(n) is int and n > 0 for n in found):
        return 0
    run = min(found)
    whole = all(n % run == 0 for n in (loop.extent, *found))
    least = targets.current().cost.loops.least_run
    return run if whole and least <= run < loop.extent else 0


def _parted(kernel: Kernel, loop: For, run: int, number: int) -> For:
    """A loop over runs, if no index in a run is divided; else the loop itself."""
    names = f"{loop.var}r{number}", f"{loop.var}e{number}"
    alone = kernel._replace(parallel=(), body=[loop])
    (outer,) = tile(alone, loop.var, run, names=names).body
    return loop if any(_intricate(outer.body[0])) else outer


def _intricate(loop: For) -> Iterator[Atom]:
    """Quotients and remainders of a loop's variable among its indices."""
    for _, place in uses(loop.body):
        for index in place:
            for atoms, _ in index.terms if isinstance(index, Size) else ():
                for atom in atoms:
                    if atom.a is not None and _mentions(atom, loop.var):
                        yield atom


def _mentions(atom: Atom, name: str) -> bool:
    return any(isinstance(p, Size) and name in p.symbols for p in (atom.a, atom.b))
