"""Algebra: equations that make a program smaller.

    %a: float32[3] = neg(%y)
    %b: float32[3] = add(%x, %a)   →  sub(%x, %y)

``EQUATIONS`` is the whole list, each line under the exactness that it costs (see
``policy``); rules that need more than an equation follow it. Complex numbers are left
alone, because the equations do not hold for their real and imaginary parts.
"""

from __future__ import annotations

import math
from typing import Any

from weft.compile.passes.equations import Equation, equations, fitting, table
from weft.compile.passes.facts import FINITE, NOT_INFINITE, Ranges, splat, takes_numbers
from weft.compile.passes.policy import Policy
from weft.compile.passes.walk import Call, Replacement, Walk
from weft.config import config
from weft.core.op import TensorType, find_op
from weft.graph.ir import Graph, Node

EQUATIONS = [
    *equations(Policy.EXACT, """
        mul(x, 1) = x
        mul(x, -1) = neg(x)
        div(x, 1) = x
        div(x, -1) = neg(x)
        sub(x, 0) = x
        add(x, -0.0) = x
        neg(neg(x)) = x
        add(x, neg(y)) = sub(x, y)
        sub(x, neg(y)) = add(x, y)
        mul(neg(x), neg(y)) = mul(x, y)
        div(neg(x), neg(y)) = div(x, y)
        abs(neg(x)) = abs(x)
        abs(abs(x)) = abs(x)
        square(x) = mul(x, x)
        reciprocal(x) = div(1, x)
        pow(x, 0) = 1
        pow(x, 1) = x
        relu(relu(x)) = relu(x)
        maximum(x, x) = x
        minimum(x, x) = x
        where(c, x, x) = x
        where(1, x, y) = x
        where(0, x, y) = y
        where(logical_not(c), x, y) = where(c, y, x)
        logical_not(logical_not(x)) = x
        logical_and(x, x) = x
        logical_and(x, 1) = x
        logical_and(x, 0) = 0
        logical_or(x, x) = x
        logical_or(x, 1) = 1
        logical_or(x, 0) = x
    """),
    *equations(Policy.ZEROS, """
        add(x, 0) = x
        sub(0, x) = neg(x)
        neg(sub(x, y)) = sub(y, x)
        absorb(0, x) = 0
    """),
    *equations(Policy.FINITE, """
        mul(x, 0) = 0
        mul(x, -0.0) = 0
        absorb(x, 0) = 0
        sub(x, x) = 0
    """),
    *equations(Policy.ROUNDING, """
        pow(x, 2) = mul(x, x)
        pow(x, 3) = mul(mul(x, x), x)
        pow(x, -1) = div(1, x)
        pow(x, 0.5) = sqrt(x)
        div(1, div(x, y)) = div(y, x)
    """),
]  # fmt: skip

_TABLE = table(EQUATIONS)
_ABS = find_op("abs")
_ABSORB = find_op("absorb")
_MUL = find_op("mul")
_DIV = find_op("div")


def simplify(graph: Graph) -> Graph:
    """Apply the equations.

    >>> g = weft.graph.capture(lambda x, y: x * 1 + -y, weft.ones(3), weft.ones(3))
    >>> print(weft.compile.passes.simplify(g.graph))
    graph program(%x: float32[3], %y: float32[3]) {
      %add: float32[3] = sub(%x, %y)
      return %add
    }
    """
    return _Simplify(graph).run()


class _Simplify(Walk):
    ops = frozenset([*_TABLE, _ABSORB, _DIV])

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.ranges = Ranges()
        self.rows: dict[Any, list[Equation]] = {}  # by operators of nodes and inputs

    def note(self, node: Node) -> None:
        self.ranges.note(node)

    def visit(self, node: Node) -> Replacement:
        if not isinstance(node.type, TensorType) or node.dtype.is_complex:
            return None
        if node.op is _ABS and not node.dtype.is_signed:
            return node.inputs[0]  # of unsigned integers: abs(253) is 253, not 3
        key: list[Any] = [node.op]
        for i in node.inputs:
            key.append(i.op if type(i) is Node else None)
        rows = self.rows.get(tuple(key))
        if rows is None:
            rows = self.rows[tuple(key)] = fitting(_TABLE.get(node.op, ()), node)
        finite = not node.dtype.is_inexact or all(
            self.ranges[i] == FINITE for i in node.inputs
        )
        for one in rows:
            if one.policy is Policy.FINITE and not finite:
                continue
            replacement = one(node)
            if replacement is not None:
                return replacement
        if node.op is _ABSORB:
            return self.plain_product(node)
        return _halves(node) if node.op is _DIV else None

    def plain_product(self, node: Node) -> Replacement:
        """absorb(g, d) = mul(g, d) where zero cannot meet infinity or NaN.

        They differ where g is 0 and d not finite, and where d is 0 and g infinite.
        """
        g, d = node.inputs
        harmless = (
            config.strict_ieee
            or not node.dtype.is_inexact
            or _finite_factor(g)
            or _finite_factor(d)
            or (self.ranges[d] == FINITE and self.ranges[g] >= NOT_INFINITE)
        )
        return Call(_MUL, (g, d)) if harmless else None


def _finite_factor(value: Any) -> bool:
    number = splat(value)
    return number is not None and number != 0 and math.isfinite(number)


def _halves(node: Node) -> Replacement:
    """div(x, 2**n) = mul(x, 2**-n), both rounded from the same number."""
    number = splat(node.inputs[1])
    if type(number) not in (int, float) or not takes_numbers(node.dtype):
        return None
    if number == 0 or not math.isfinite(number) or math.frexp(number)[0] not in HALVES:
        return None
    most = 12 if node.dtype.itemsize == 2 else 100
    if abs(math.frexp(number)[1]) > most or type(node.inputs[0]) is not Node:
        return None  # beyond that, the other factor might be subnormal
    return Call(_MUL, (node.inputs[0], 1 / number))


HALVES = (0.5, -0.5)
