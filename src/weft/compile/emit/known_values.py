"""Integers and conditions that may be known while code is generated.

A known integer is a Python ``int`` and a known condition a ``bool``; operators and
``select`` decide by them now (see `values`). These do what Python's operators cannot.
"""

from __future__ import annotations

from typing import Any


def equal(x: Any, y: int) -> Any:
    """Whether an integer is another.

    >>> from weft.compile.emit.known_values import equal
    >>> equal(3, 4)
    False
    """
    return x == y if isinstance(x, int) else x.equals(y)


def negate(p: Any) -> Any:
    """Whether a condition does not hold."""
    return not p if isinstance(p, bool) else ~p


def rounded(x: Any, step: int) -> Any:
    """The next multiple of a step.

    >>> from weft.compile.emit.known_values import rounded
    >>> rounded(5, 4)
    8
    """
    return (x + (step - 1)) // step * step
