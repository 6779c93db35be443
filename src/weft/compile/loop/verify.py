"""Bounds, proven before code is emitted.

Every index of a load or a store must lie in its buffer for all values of the loop
variables; those that values give lie in their limits, which must not be empty. Extents
are polynomials, so the largest value of an index is found by
putting each variable at its end; where that is not provably inside, the kernel is
refused (and its nodes are run as calls).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from weft.compile.loop.ir import (
    Choice,
    For,
    Kernel,
    Let,
    Load,
    Set,
    Store,
    When,
    parts,
)
from weft.compile.loop.pieces import is_clamped
from weft.core.size import Size, larger, same, smaller
from weft.graph.ir import GraphError


def verify_kernel(kernel: Kernel) -> None:
    """Raise a GraphError that names the first index which may be out of bounds."""
    limits = dict(kernel.parallel)
    if not any(_never(extent) for extent in limits.values()):
        _body(kernel.body, limits, kernel)


def _never(extent: Any) -> bool:
    """Whether a loop does not run at all."""
    return not isinstance(extent, Size) and extent <= 0


def _body(body: list[Any], limits: dict[str, Any], kernel: Kernel) -> None:
    for stmt in body:
        if isinstance(stmt, For) and _never(stmt.extent):
            continue
        if isinstance(stmt, For):
            _body(stmt.body, {**limits, stmt.var: stmt.extent}, kernel)
        elif isinstance(stmt, Set):
            _values(stmt.value, limits, kernel)
        elif isinstance(stmt, Store):
            _check(stmt, limits, kernel)
            _values(stmt.value, limits, kernel)
        elif isinstance(stmt, Let):
            _values(stmt.value, limits, kernel)
            _not_empty(stmt.limit, stmt.var, kernel)
            limits = {**limits, stmt.var: stmt.limit}
        elif isinstance(stmt, When):
            _values(stmt.condition, limits, kernel)
            _body(stmt.body, limits, kernel)


def _not_empty(limit: Any, what: Any, kernel: Kernel) -> None:
    """That there is an element at all, or that each run makes sure of it."""
    if isinstance(limit, int) and limit > 0:
        return
    if not any(same(limit, n) for n in kernel.positive):
        raise GraphError(f"{kernel.name}: {what} is an index below {limit}")


def _values(value: Any, limits: dict[str, Any], kernel: Kernel) -> None:
    for one in parts([value]):
        if isinstance(one, Load):
            _check(one, limits, kernel)
        elif isinstance(one, Choice):
            raise GraphError(f"{kernel.name}: the choice at {one.at} is not settled")


def _check(place: Any, limits: dict[str, Any], kernel: Kernel) -> None:
    for i, n in zip(place.at, place.buffer.shape, strict=True):
        if is_clamped(i) is not None and same(is_clamped(i), n):
            _not_empty(n, i, kernel)
            continue
        ranges = [*_blocked(i, limits), index_range(i, limits)]
        if not any(_at_most(0, a) and _at_most(b + 1, n) for a, b in ranges):
            raise GraphError(
                f"{kernel.name}: index {i} of {place.buffer} may be outside 0 to {n}"
            )


def _at_most(a: Any, b: Any) -> bool:
    """Whether a <= b for all sizes (which are at least 0)."""
    gap = b - a
    if not isinstance(gap, Size):
        return gap >= 0
    return all(factor >= 0 for _, factor in gap.terms)


def index_range(index: Any, limits: dict[str, Any]) -> tuple[Any, Any]:
    """The least and the greatest value of an index expression."""
    if not isinstance(index, Size):
        return index, index
    low: Any = 0
    high: Any = 0
    for atoms, factor in index.terms:
        least: Any = factor
        most: Any = factor
        for atom in atoms:
            a, b = _atom_range(atom, limits, index)
            least, most = least * a, most * b
        if factor < 0:
            least, most = most, least
        low, high = low + least, high + most
    return low, high


def _blocked(index: Any, limits: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """``block * K + i`` with ``i < min(n - block * K, K)`` reaches n - 1.

    Variables are put at their ends before blocks are, so that these cancel out.
    """
    steps = []
    for atoms, factor in index.terms if isinstance(index, Size) else ():
        if len(atoms) == 1 and factor > 0 and atoms[0].a is None:
            one = Size(((atoms[0],), 1), scope=index.scope)
            ends = [e for e in _ends(limits.get(str(one))) if _mentions(e, limits)]
            steps.append([(end - 1 - one) * factor for end in ends])
    for found in itertools.islice(itertools.product(*[s for s in steps if s]), 16):
        last = sum(found, start=index)
        yield index_range(index, limits)[0], index_range(last, limits)[1]


def _mentions(value: Any, limits: dict[str, Any]) -> bool:
    return isinstance(value, Size) and bool(value.symbols & limits.keys())


def _ends(extent: Any) -> list[Any]:
    """The bounds of a loop: both arguments, if it ends at the smaller of two."""
    if not isinstance(extent, Size):
        return []
    if len(extent.terms) == 1:
        ((atoms, factor),) = extent.terms
        if factor == 1 and len(atoms) == 1 and atoms[0].kind == "min":
            return [atoms[0].a, atoms[0].b]
    return [extent]


def _atom_range(atom: Any, limits: dict[str, Any], index: Size) -> tuple[Any, Any]:
    if atom.a is None:
        extent = limits.get(atom.kind)
        if extent is None:
            one = Size(((atom,), 1), scope=index.scope)
            return one, one
        return 0, index_range(extent, limits)[1] - 1
    (a_low, a_high), (b_low, b_high) = (
        index_range(p, limits) for p in (atom.a, atom.b)
    )
    known = same(b_low, b_high) and _at_most(1, b_low)
    if atom.kind == "//" and known and _at_most(0, a_low):
        count = a_high + 1
        exact = same(count % b_low, 0)
        return 0, (count // b_low - 1 if exact else a_high // b_low)
    if atom.kind == "%" and same(b_low, b_high):
        return 0, b_low - 1
    if atom.kind == "min":
        return smaller(a_low, b_low), smaller(a_high, b_high)
    if atom.kind == "max":
        return larger(a_low, b_low), larger(a_high, b_high)
    raise GraphError(f"no bounds are known for {atom}")
