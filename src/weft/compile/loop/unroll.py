"""Loops with several iterations written out: what they share is computed once.

    for i < n: body(i)   →   for q < n//4: body(4*q) … body(4*q + 3)
                             for t < n%4: body(n//4*4 + t)

The iterations are the same ones, so what was proven of the loop still holds.
"""

from __future__ import annotations

from typing import Any

from weft.compile.loop.ir import For
from weft.compile.loop.rewrite import replaced
from weft.core.size import Scope


def unrolled(loop: For, scope: Scope) -> list[For]:
    """A loop as one over groups of iterations, and one over the rest."""
    count = loop.unroll
    group, rest = scope.symbol(f"{loop.var}q"), scope.symbol(f"{loop.var}t")
    whole = loop.extent // count

    def at(index: Any) -> list[Any]:
        memo: dict[int, Any] = {}
        return [replaced(stmt, loop.var, index, memo) for stmt in loop.body]

    body = [stmt for k in range(count) for stmt in at(group * count + k)]
    return [
        For(f"{loop.var}q", whole, body),
        For(f"{loop.var}t", loop.extent - whole * count, at(whole * count + rest)),
    ]
