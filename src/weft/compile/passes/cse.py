"""Common subexpressions: what is computed twice is computed once.

    %a: float32[3] = exp(%x)          %a: float32[3] = exp(%x)
    %b: float32[3] = exp(%x)       →
    %c: float32[3] = add(%a, %b)      %c: float32[3] = add(%a, %a)

Two nodes are merged if their operators, inputs and parameters are equal, bit by bit.
Random operators are functions of a seed and a counter, so equal ones give equal
numbers; each draw of a program advances the counter, so draws are never merged. Reads
of a variable are equal until it is assigned. Nodes with control edges stay.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from weft.compile.passes.walk import Replacement, Walk
from weft.core.size import Size
from weft.graph.ir import ASSIGN, GROUP, READ, Graph, Node, Variable

LARGE = 1 << 16  # bytes beyond which arrays are compared by identity


def cse(graph: Graph) -> Graph:
    """Merge equal nodes.

    >>> g = weft.graph.capture(lambda x: x.exp() * x.exp(), weft.ones(3)).graph
    >>> print(weft.compile.passes.cse(g))
    graph program(%x: float32[3]) {
      %exp: float32[3] = exp(%x)
      %mul: float32[3] = mul(%exp, %exp)
      return %mul
    }
    """
    return _Cse(graph).run()


class _Cse(Walk):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.seen: dict[Any, Node] = {}
        self.assigned: Counter[Variable] = Counter()

    def note(self, node: Node) -> None:
        if node.op is ASSIGN:
            self.assigned[node.params["variable"]] += 1

    def visit(self, node: Node) -> Replacement:
        if node.op is ASSIGN or node.op is GROUP or node.op.facts.effect:
            return None
        first = self.seen.setdefault(self.key(node), node)
        return None if first is node else first

    def key(self, node: Node) -> Any:
        if node.op is READ:
            variable = node.params["variable"]
            return READ, variable, self.assigned[variable]
        inputs = [i if type(i) is Node else key_of(i) for i in node.inputs]
        if node.op.facts.commutes:
            inputs.sort(key=_rank)
        params = node.params
        return node.op, tuple(inputs), tuple([key_of(params[k]) for k in params])


def _rank(one: Any) -> int:
    """The rank of an operand: numbers first, nodes by identity."""
    return id(one) if type(one) is Node else 0


def key_of(value: Any) -> Any:
    """A key of a parameter; equal keys mean equal parameters."""
    kind = type(value)
    if kind is tuple:
        return (kind, *map(key_of, value))
    if kind is int or kind is str or kind is bool or value is None:
        return kind, value
    if kind is float or kind is complex or kind is Size:
        return kind, str(value)  # -0.0 is not 0.0; sizes are not to be compared
    if kind is slice:
        return kind, key_of(value.start), key_of(value.stop), key_of(value.step)
    if kind is np.ndarray and value.nbytes <= LARGE:
        return value.dtype.str, value.shape, value.tobytes()
    return kind, id(value)
