"""Checked indices, hoisted out of the loops that do not change them.

    for j < n:                          w = b[i] within m
      w = b[i] within m             →   for j < n:
      y[i, j] = x[w, j]                   y[i, j] = x[w, j]

Loops without them inside become vectors more easily.
"""

from __future__ import annotations

from typing import Any

from weft.compile.loop.ir import (
    For,
    Let,
    Load,
    Local,
    Position,
    Set,
    Store,
    When,
    statements,
    subvalues,
)
from weft.core.size import Size


def hoisted(body: list[Any]) -> list[Any]:
    """The statements, with indices as far outside as they may be."""
    stmts: list[Any] = []
    for stmt in body:
        if isinstance(stmt, (For, When)):
            stmt = stmt._replace(body=hoisted(stmt.body))
        if isinstance(stmt, For):
            outside = _constant(stmt)
            rest = [s for s in stmt.body if not any(s is out for out in outside)]
            stmts += [*outside, stmt._replace(body=rest)]
        else:
            stmts.append(stmt)
    return stmts


def _constant(loop: For) -> list[Let]:
    """The indices of a loop that its iterations do not change."""
    changing = {loop.var}
    written: set[str] = set()
    for stmt in statements(loop.body):
        if isinstance(stmt, For):
            changing.add(stmt.var)
        elif isinstance(stmt, Store):
            written.add(stmt.buffer.name)
        elif isinstance(stmt, Set):
            written.add(stmt.local.name)
    constant = []
    for stmt in loop.body:
        if isinstance(stmt, Let):
            if _reads(stmt.value, changing, written):
                changing.add(stmt.var)
            else:
                constant.append(stmt)
    return constant


def _reads(value: Any, symbols: set[str], written: set[str]) -> bool:
    """Whether a value depends on some variables, or on what is written."""
    for one in subvalues([value]):
        if isinstance(one, Local) and one.name in written:
            return True
        if isinstance(one, Load) and one.buffer.name in written:
            return True
        indices = one.at if isinstance(one, Load) else ()
        if isinstance(one, Position):
            indices = (one.at,)
        for index in indices:
            if isinstance(index, Size) and index.symbols & symbols:
                return True
    return False
