"""Integers and conditions that may be known while code is generated.

A known integer is a Python ``int`` and a known condition a ``bool``: code that
depends on them is decided now, and the branch not taken is never emitted.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from weft.compile.emit.control_flow import i64

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "<=": operator.le, "<": operator.lt,
    ">=": operator.ge, ">": operator.gt,
}  # fmt: skip
Action = Callable[[], None]


def value(x: Any) -> Any:
    """An integer as an operand."""
    return i64(x) if isinstance(x, int) else x


def compare(b: Any, relation: str, x: Any, y: Any) -> Any:
    """Whether two integers are in a relation.

    >>> from weft.compile.emit.known_values import compare
    >>> compare(None, "<=", 3, 4)
    True
    """
    if isinstance(x, int) and isinstance(y, int):
        return _COMPARE[relation](x, y)
    return b.icmp_signed(relation, value(x), value(y))


def times(b: Any, x: Any, y: Any) -> Any:
    """A product of integers."""
    known = isinstance(x, int) and isinstance(y, int)
    return x * y if known else b.mul(value(x), value(y))


def added(b: Any, x: Any, y: Any) -> Any:
    """A sum of integers."""
    known = isinstance(x, int) and isinstance(y, int)
    return x + y if known else b.add(value(x), value(y))


def rounded(b: Any, x: Any, step: int) -> Any:
    """The next multiple of a step.

    >>> from weft.compile.emit.known_values import rounded
    >>> rounded(None, 5, 4)
    8
    """
    if isinstance(x, int):
        return -(-x // step) * step
    return b.mul(b.sdiv(b.add(x, i64(step - 1)), i64(step)), i64(step))


def both(b: Any, p: Any, q: Any) -> Any:
    """Whether two conditions hold."""
    if isinstance(p, bool):
        return q if p else False
    if isinstance(q, bool):
        return p if q else False
    return b.and_(p, q)


def negate(b: Any, p: Any) -> Any:
    """Whether a condition does not hold."""
    return not p if isinstance(p, bool) else b.not_(p)


def either(b: Any, p: Any, q: Any) -> Any:
    """Whether one of two conditions holds."""
    return negate(b, both(b, negate(b, p), negate(b, q)))


def pick(b: Any, p: Any, x: Any, y: Any) -> Any:
    """``x`` if a condition holds, else ``y``."""
    if isinstance(p, bool):
        return value(x) if p else value(y)
    return b.select(p, value(x), value(y))


def branch(b: Any, p: Any, yes: Action, no: Action | None = None) -> None:
    """Emit ``if p: yes() else: no()``."""
    if isinstance(p, bool):
        chosen = yes if p else no
        if chosen is not None:
            chosen()
    elif no is None:
        with b.if_then(p):
            yes()
    else:
        with b.if_else(p) as (then, otherwise):
            with then:
                yes()
            with otherwise:
                no()
