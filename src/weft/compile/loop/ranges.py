"""Ranges of indices, for all values of the loop variables.

Extents are polynomials, so the ends of an index are found by putting each variable at
its own ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from weft.compile.loop.rewrite import substitute
from weft.core.size import Size, larger, may_be_negative, same, smaller
from weft.graph.ir import GraphError

Range = tuple[Any, Any]


def inside(index: Any, size: Any, limits: dict[str, Any]) -> bool:
    """Whether an index is surely at least 0 and less than a size.

    ``limits`` are the loops around it, from the outside in.

    >>> from weft.core.size import Scope, smaller
    >>> part, i, n, m = map(Scope().symbol, ("part", "i", "n", "m"))
    >>> rows = {"part": (n + 9) // 10, "i": smaller(n - 10 * part, 10) * m}
    >>> inside(10 * m * part + i, n * m, rows), inside(i + 1, n * m, rows)
    (True, False)
    """
    try:
        ranges = [index_range(index, limits), *_blocked(index, limits)]
    except GraphError:  # some term has no known bounds
        return False
    if any(at_most(0, low) and at_most(high + 1, size) for low, high in ranges):
        return True
    low = at_most(0, ranges[0][0]) or below(-1 - index, 0, limits)
    return low and below(index, size, limits)


def below(index: Any, size: Any, limits: dict[str, Any]) -> bool:
    """Whether an index is surely less than a size, the loops ending where they do."""
    return _none_above(index - size + 1, list(limits.items()), [200])


def _none_above(
    expression: Any, loops: list[tuple[str, Any]], steps: list[int]
) -> bool:
    """Whether an expression is never more than 0.

    Variables are put at their ends, the innermost loop's first; of the smaller of two
    sizes, either is a bound.
    """
    steps[0] -= 1
    if at_most(expression, 0):
        return True
    if not isinstance(expression, Size) or steps[0] < 0:
        return False
    while loops and loops[-1][0] not in expression.symbols:
        loops = loops[:-1]
    name, extent = loops[-1] if loops else ("", 1)
    rising = coefficient(expression, name) if loops else None
    if rising is not None and (at_most(0, rising) or at_most(rising, 0)):
        end = extent - 1 if at_most(0, rising) else 0
        if _none_above(substitute(expression, name=name, by=end), loops[:-1], steps):
            return True
    for term in expression.terms:
        bounds, enough = _bounds(term)
        rest = expression - Size(term, scope=expression.scope)
        tried = (_none_above(rest + bound, loops, steps) for bound in bounds)
        if bounds and enough(tried):
            return True
        if _takes_away(term, loops, steps) and _none_above(rest, loops, steps):
            return True
    return False


def _takes_away(term: Any, loops: list[tuple[str, Any]], steps: list[int]) -> bool:
    """Whether a term is surely not positive, by the operands of its atom."""
    atoms, factor = term
    if factor > 0 or len(atoms) != 1 or atoms[0].kind not in ("min", "max", "//"):
        return False
    sides = [atoms[0].a] if atoms[0].kind == "//" else [atoms[0].a, atoms[0].b]
    enough = any if atoms[0].kind == "max" else all
    return enough(_none_above(0 - side, loops, steps) for side in sides)


def _bounds(term: Any) -> tuple[list[Any], Any]:
    """Upper bounds of a term, and whether any or all of them must hold."""
    atoms, factor = term
    if len(atoms) != 1:
        return [], any
    kind, a, b = atoms[0].kind, atoms[0].a, atoms[0].b
    if kind in ("min", "max"):
        return [a * factor, b * factor], any if (kind == "min") == (factor > 0) else all
    if kind == "//" and not isinstance(b, Size) and factor % b == 0:
        return [(a - (b - 1 if factor < 0 else 0)) * (factor // b)], any
    return [], any


def coefficient(index: Any, name: str) -> Any:
    """The factor of a variable, if it is used in no other way; else None.

    >>> from weft.core.size import Scope
    >>> i, n = map(Scope().symbol, "in")
    >>> coefficient(n * i + i + 4, "i"), coefficient(i // 2, "i")
    (n + 1, None)
    """
    total: Any = 0
    for atoms, factor in index.terms if isinstance(index, Size) else ():
        plain = [atom for atom in atoms if atom.kind == name]
        rest = tuple(atom for atom in atoms if atom.kind != name)
        inner = [p for a in rest for p in (a.a, a.b) if isinstance(p, Size)]
        if len(plain) > 1 or any(name in part.symbols for part in inner):
            return None
        if plain:
            total = total + (
                Size((rest, factor), scope=index.scope) if rest else factor
            )
    return total


def at_most(a: Any, b: Any) -> bool:
    """Whether a <= b for all sizes (which are at least 0)."""
    return not may_be_negative(b - a)


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
    """The bounds of a loop: two, if it ends at the smaller one, or its multiple."""
    if not isinstance(extent, Size):
        return []
    if len(extent.terms) == 1:
        ((atoms, factor),) = extent.terms
        rest = [atom for atom in atoms if atom.kind != "min"]
        times = Size((tuple(rest), factor), scope=extent.scope) if rest else factor
        if len(rest) == len(atoms) - 1 and at_most(0, times):
            (least,) = (atom for atom in atoms if atom.kind == "min")
            return [least.a * times, least.b * times]
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
    fixed = same(b_low, b_high)
    if atom.kind == "//" and fixed and at_most(0, a_low) and at_most(0, b_low):
        for _, last in ((a_low, a_high), *_blocked(atom.a, limits)):
            count = last + 1  # never 0 where it is an index: none is divided by 0
            if same(count % b_low, 0):
                return 0, count // b_low - 1
    if atom.kind == "//" and fixed and at_most(1, b_low):
        return a_low // b_low, a_high // b_low
    if atom.kind == "%" and fixed:
        return 0, b_low - 1
    if atom.kind == "min":
        return smaller(a_low, b_low), smaller(a_high, b_high)
    if atom.kind == "max":
        return larger(a_low, b_low), larger(a_high, b_high)
    raise GraphError(f"no bounds are known for {atom}")
