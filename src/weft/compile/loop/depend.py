"""Dependences: what statements read and write, from iteration to iteration.

Positions are compared as polynomials; where that does not settle a question, the
answer is the careful one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from weft.compile.loop.ir import (
    For,
    Let,
    Load,
    Local,
    Set,
    Store,
    When,
    statements,
    subvalues,
    values_of,
)
from weft.compile.loop.ranges import below, coefficient
from weft.core.size import Size, same


class Access(NamedTuple):
    """A flat position that a statement reads or writes, and the loops around it."""

    flat: Any
    loops: dict[str, Any]  # extents by variable
    order: int  # of the statement


def flat_position(index: tuple[Any, ...], shape: tuple[Any, ...]) -> Any:
    """An index of a shape as a position in row-major order.

    >>> flat_position((2, 3), (4, 10))
    23
    """
    total: Any = 0
    for i, n in zip(index, shape, strict=True):
        total = total * n + i
    return total


def accesses(body: list[Any], loops: dict[str, Any]) -> list[tuple[str, Access, bool]]:
    """The accesses of statements: buffer, access, and whether it is a write."""
    return list(_places(body, loops, itertools.count()))


def _places(
    body: list[Any], loops: dict[str, Any], order: Iterator[int]
) -> Iterator[tuple[str, Access, bool]]:
    known: set[int] = set()  # values that were computed before, and are not recomputed
    for stmt in body:
        at = next(order)
        for value in subvalues(values_of(stmt), known):
            if isinstance(value, Load):
                flat = flat_position(value.at, value.buffer.shape)
                yield value.buffer.name, Access(flat, loops, at), False
        if isinstance(stmt, Store):
            flat = flat_position(stmt.at, stmt.buffer.shape)
            yield stmt.buffer.name, Access(flat, loops, at), True
        if isinstance(stmt, For):
            yield from _places(stmt.body, {**loops, stmt.var: stmt.extent}, order)
        elif isinstance(stmt, When):
            yield from _places(stmt.body, loops, order)
        if isinstance(stmt, (For, When)):
            known.clear()


def chosen(body: list[Any]) -> set[str]:
    """The index variables that are set from values."""
    return {stmt.var for stmt in statements(body) if isinstance(stmt, Let)}


def symbols_of(index: Any) -> set[str]:
    return index.symbols if isinstance(index, Size) else set()


def alike(a: Access, b: Access) -> bool:
    """Whether two accesses are at the same position, in loops that are alike."""
    names = b.loops.keys() & symbols_of(b.flat)
    return same(a.flat, b.flat) and all(
        name in a.loops and same(a.loops[name], b.loops[name]) for name in names
    )


def once(flat: Any, loops: dict[str, Any], others: Iterable[str] = ()) -> bool:
    """Whether a position is distinct in every iteration of some loops.

    It must be a number whose digits are the loop variables: each is multiplied by at
    least what those before it may come to. ``others`` change as well, and may not be
    part of it.

    >>> from weft.core.size import Scope
    >>> i, j = map(Scope().symbol, "ij")
    >>> once(10 * i + j, {"i": 5, "j": 10}), once(10 * i + j, {"i": 5, "j": 11})
    (True, False)
    """
    loops = {v: n for v, n in loops.items() if not same(n, 1)}
    factors = {name: coefficient(flat, name) for name in loops}
    changing = {*loops, *others}
    if symbols_of(flat) & set(others) or any(
        f is None or symbols_of(f) & changing for f in factors.values()
    ):
        return False
    low: Any = 0
    for name in sorted(loops, key=lambda name: _rank(factors[name])):
        if not below(low, factors[name], loops):
            return False
        low = low + flat.scope.symbol(name) * factors[name]
    return True


def _rank(factor: Any) -> tuple[int, Any]:
    """A sort key: smaller factors first, as far as is known."""
    if not isinstance(factor, Size):
        return 0, factor
    return max((len(atoms), number) for atoms, number in factor.terms)


def independent(var: str, body: list[Any], extent: Any) -> str | None:
    """Why the iterations of a loop depend on one another; None if they do not."""
    carried = sorted(_carried(body))
    if carried:
        return f"{carried[0]} is carried from one iteration to the next"
    return conflict([var, ""], ["", var], {var: extent}, body)


def conflict(
    have: list[str], want: list[str], extents: dict[str, Any], body: list[Any]
) -> str | None:
    """Why loops around a body may not have another order; None if they may.

    An empty name stands for an order that is not known: what is before it may come
    after.
    """
    for at, name in enumerate(want):
        later = symbols_of(extents.get(name)) & set(want[at + 1 :])
        if later:
            return f"{name} ends at {extents[name]}"
    have, want = ([v for v in order if not same(extents.get(v), 1)]
                  for order in (have, want))  # fmt: skip
    picked = chosen(body)
    found = accesses(body, extents)
    for name in {name: None for name, _, writes in found if writes}:
        stores = [p for other, p, writes in found if other == name and writes]
        uses = [p for other, p, _ in found if other == name]
        why = _clash(name, stores[0], uses, (have, want), picked)
        if why:
            return why
    return _ordered(body)


def _clash(
    name: str, store: Access, uses: list[Access], orders: Any, picked: set[str]
) -> str | None:
    """Why a buffer's contents depend on the order of loops."""
    if not all(alike(access, store) for access in uses):
        return f"{name} is used at other positions than it is written"
    used = symbols_of(store.flat)
    if not once(
        store.flat, {v: n for v, n in store.loops.items() if v in used}, picked
    ):
        return f"{name} may be written at one position more than once"
    have, want = ([v for v in order if v not in used] for order in orders)
    if have != want:
        return f"{name} is written again in another order"
    return None


def following(var: str, extent: Any, first: list[Any], then: list[Any]) -> str | None:
    """Why one loop must be over before another over the same variable begins."""
    before, after = (accesses(body, {var: extent}) for body in (first, then))
    picked = chosen([*first, *then])
    for name, a, writes in before:
        for other, b, also in after:
            if name != other or not (writes or also):
                continue
            if picked & symbols_of(b.flat) or not _in_order(a, b, var, extent):
                return f"{name} is used at positions that depend on the order"
    return _handed_on(first, then)


def _in_order(a: Access, b: Access, var: str, extent: Any) -> bool:
    """Whether no later iteration of the first loop accesses what the second does."""
    used = symbols_of(b.flat)
    if alike(a, b) and once(b.flat, {v: n for v, n in b.loops.items() if v in used}):
        return var in used
    if set(a.loops) != {var} or set(b.loops) != {var}:
        return False
    distance, step = b.flat - a.flat, coefficient(b.flat, var)
    if isinstance(distance, Size) or isinstance(step, Size) or not step or step < 0:
        return False
    return distance <= 0 or (not isinstance(extent, Size) and distance >= step * extent)


def _handed_on(first: list[Any], then: list[Any]) -> str | None:
    """A local that one loop leaves to the next, other than a sum in any order."""
    made = {s.local.name for s in statements(first) if isinstance(s, Set)}
    used = _unset(then, set()) | {s.local.name for s in statements(then)
                                  if isinstance(s, Set)}  # fmt: skip
    for name in sorted(made & used):
        sets = [s for s in statements([*first, *then]) if isinstance(s, Set)]
        if not all(s.reorder for s in sets if s.local.name == name) or _ordered(
            [*first, *then]
        ):
            return f"{name} is handed on"
    return None


def _ordered(body: list[Any]) -> str | None:
    """A local whose value depends on the order of iterations."""
    carried = _carried(body)
    for stmt in statements(body):
        own = stmt.local.name if isinstance(stmt, Set) else ""
        reads = {v.name for v in subvalues(values_of(stmt)) if isinstance(v, Local)}
        bad = sorted((reads & carried) - {own})
        if own in carried and not stmt.reorder:
            bad = [own]
        if bad:
            return f"{bad[0]} is carried from one iteration to the next"
    return None


def _carried(body: list[Any]) -> set[str]:
    """The locals that an iteration has from the one before it."""
    names = {s.local.name for s in statements(body) if isinstance(s, Set)}
    return names & _unset(body, set())


def _unset(body: list[Any], known: set[str]) -> set[str]:
    """The locals that statements read before they surely set them."""
    unset: set[str] = set()
    for stmt in body:
        reads = {v.name for v in subvalues(values_of(stmt)) if isinstance(v, Local)}
        unset |= reads - known
        if isinstance(stmt, (For, When)):
            unset |= _unset(stmt.body, set(known))
        elif isinstance(stmt, Set):
            known = {*known, stmt.local.name}
    return unset
