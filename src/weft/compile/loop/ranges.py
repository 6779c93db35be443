"""How far an index reaches, for all values of the loop variables.

Extents are polynomials, so the ends of an index are found by putting each variable at
its own ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from weft.core.size import Size, larger, same, smaller
from weft.graph.ir import GraphError

Range = tuple[Any, Any]


def ranges_of(index: Any, limits: dict[str, Any]) -> list[Range]:
    """Bounds of an index that all hold; which of them is the closest, sizes decide."""
    plain = [index_range(index, one) for one in _either(index, limits)]
    return [*_blocked(index, limits), *plain]


def _either(index: Any, limits: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The limits, and those with one bound for each loop that ends at the smaller of
    two."""
    yield limits
    names = sorted(index.symbols & limits.keys()) if isinstance(index, Size) else []
    ends = {name: _ends(limits[name]) for name in names}
    several = {name: found for name, found in ends.items() if len(found) > 1}
    if several:
        for found in itertools.islice(itertools.product(*several.values()), 16):
            yield {**limits, **dict(zip(several, found, strict=True))}


def at_most(a: Any, b: Any) -> bool:
    """Whether a <= b for all sizes (which are at least 0)."""
    gap = b - a
    if not isinstance(gap, Size):
        return gap >= 0
    return all(factor >= 0 for _, factor in gap.terms)


def index_range(index: Any, limits: dict[str, Any]) -> Range:
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


def _blocked(index: Any, limits: dict[str, Any]) -> Iterator[Range]:
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


def _atom_range(atom: Any, limits: dict[str, Any], index: Size) -> Range:
    if atom.a is None:
        extent = limits.get(atom.kind)
        if extent is None:
            one = Size(((atom,), 1), scope=index.scope)
            return one, one
        return 0, index_range(extent, limits)[1] - 1
    (a_low, a_high), (b_low, b_high) = (
        index_range(p, limits) for p in (atom.a, atom.b)
    )
    known = same(b_low, b_high) and at_most(1, b_low)
    if atom.kind == "//" and known and at_most(0, a_low):
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
