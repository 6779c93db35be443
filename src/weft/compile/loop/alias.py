"""Whether what a kernel writes may take the place of what it reads.

    for i < n: y[i] = x[i] * 2        y may lie where x is
    for i < n: y[i] = x[n-1-i]        it may not

It may where every element is read for the last time before, or when, the element in
its place is written. That is proven, or the answer is no:

    the buffer is written by one statement, which never writes a position twice;
    every use of the other comes before it, or is part of it, and is at the same flat
    position of the same loops: of those that both are inside of, or of loops alike.

So an iteration reads only positions that no other one writes, and this holds for
vectors of iterations and for threads too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from weft.compile.loop.ir import (
    Buffer,
    For,
    Kernel,
    Let,
    Load,
    Store,
    When,
    parts,
    statements,
    values_of,
)
from weft.compile.loop.ranges import at_most, ranges_of
from weft.core.size import Size, same
from weft.graph.ir import GraphError


class _Place(NamedTuple):
    """A flat position that a statement reads or writes, and the loops around it."""

    flat: Any
    loops: dict[str, Any]  # extents by variable
    order: int  # of the statement


def may_share(kernel: Kernel, given: str, made: str) -> bool:
    """Whether buffer ``made`` may be written in the memory of ``given``.

    >>> from weft.compile.loop import Buffer, For, Kernel, Load, Store
    >>> from weft.core.size import Scope
    >>> scope = Scope()
    >>> i = scope.symbol("i")
    >>> x, y = (Buffer(name, (8,), weft.float32) for name in "xy")
    >>> body = [For("i", 8, [Store(y, (i,), Load(x, (i,)))])]
    >>> may_share(Kernel("copy", (x, y), (), (), body, scope), "x", "y")
    True
    >>> body = [For("i", 8, [Store(y, (i,), Load(x, (7 - i,)))])]
    >>> may_share(Kernel("flip", (x, y), (), (), body, scope), "x", "y")
    False
    """
    if given == made or not _alike(_buffer(kernel, given), _buffer(kernel, made)):
        return False
    found = list(_places(kernel.body, dict(kernel.parallel), itertools.count()))
    stores = [place for name, place, writes in found if name == made and writes]
    if len(stores) != 1 or not _once(stores[0], kernel):
        return False
    return all(_before(place, stores[0]) for name, place, _ in found if name == given)


def flat_position(index: tuple[Any, ...], shape: tuple[Any, ...]) -> Any:
    """An index of a shape as a position in row-major order."""
    total: Any = 0
    for i, n in zip(index, shape, strict=True):
        total = total * n + i
    return total


def _buffer(kernel: Kernel, name: str) -> Buffer:
    for buffer in kernel.buffers:
        if buffer.name == name:
            return buffer
    names = ", ".join(b.name for b in kernel.buffers)
    raise GraphError(f"{kernel.name}: expected a buffer among {names}, got {name!r}")


def _alike(a: Buffer, b: Buffer) -> bool:
    """Whether one takes as much memory as the other."""
    count = same(math.prod(a.shape), math.prod(b.shape))
    return count and a.dtype.itemsize == b.dtype.itemsize


def _places(
    body: list[Any], loops: dict[str, Any], order: Iterator[int]
) -> Iterator[tuple[str, _Place, bool]]:
    """What statements read and write: the buffer, where, and whether they write."""
    for stmt in body:
        at = next(order)
        for value in parts(values_of(stmt)):
            if isinstance(value, Load):
                flat = flat_position(value.at, value.buffer.shape)
                yield value.buffer.name, _Place(flat, loops, at), False
        if isinstance(stmt, Store):
            flat = flat_position(stmt.at, stmt.buffer.shape)
            yield stmt.buffer.name, _Place(flat, loops, at), True
        if isinstance(stmt, For):
            yield from _places(stmt.body, {**loops, stmt.var: stmt.extent}, order)
        elif isinstance(stmt, When):
            yield from _places(stmt.body, loops, order)


def _before(use: _Place, store: _Place) -> bool:
    """Whether a use is of what the store's own iteration, and no other, replaces."""
    if use.order > store.order or not same(use.flat, store.flat):
        return False
    names = store.loops.keys() & _symbols(store.flat)
    return all(
        name in use.loops and same(use.loops[name], store.loops[name]) for name in names
    )


def _symbols(index: Any) -> set[str]:
    return index.symbols if isinstance(index, Size) else set()


def _once(store: _Place, kernel: Kernel) -> bool:
    """Whether a store writes another position in every iteration.

    The position must be a number whose digits are the loop variables: each is
    multiplied by at least what those before it may come to.
    """
    loops = {v: n for v, n in store.loops.items() if not same(n, 1)}
    chosen = {s.var for s in statements(kernel.body) if isinstance(s, Let)}
    digits = [_digit(store.flat, name, {*loops, *chosen}) for name in loops]
    if None in digits or chosen & _symbols(store.flat):
        return False
    below: Any = 0
    for factor, term in sorted(filter(None, digits), key=_rank):
        if not any(at_most(high + 1, factor) for _, high in ranges_of(below, loops)):
            return False
        below = below + term
    return True


def _digit(flat: Any, name: str, variables: set[str]) -> tuple[Any, Any] | None:
    """What a variable is multiplied by, and the product; None if it isn't just that."""
    terms = flat.terms if isinstance(flat, Size) else ()
    found = [t for t in terms if any(_uses(atom, name) for atom in t[0])]
    if len(found) != 1:
        return None
    ((atoms, factor),) = found
    rest = tuple(atom for atom in atoms if atom.kind != name)
    if len(rest) != len(atoms) - 1 or any(_uses(a, v) for a in rest for v in variables):
        return None
    coefficient = Size((rest, factor), scope=flat.scope) if rest else factor
    return coefficient, Size(found[0], scope=flat.scope)


def _uses(atom: Any, name: str) -> bool:
    inner = [p for p in (atom.a, atom.b) if isinstance(p, Size)]
    return atom.kind == name or any(name in part.symbols for part in inner)


def _rank(digit: tuple[Any, Any]) -> tuple[int, Any]:
    """Smaller factors first, as far as can be told."""
    ((atoms, factor),) = digit[1].terms
    return len(atoms), factor
