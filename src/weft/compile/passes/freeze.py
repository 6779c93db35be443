"""Freezing: variables that will not change any more become constants.

    %w: float32[3] = read(@w)   →   constant([1.0, 2.0, 3.0])

This is not among the passes that always run, because only the caller knows which
variables are final. After it, ``fold`` computes everything that depends on frozen
weights alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from weft.compile.passes.walk import Call, Replacement, Walk
from weft.errors import ArgumentError
from weft.graph.ir import ASSIGN, CONSTANT, READ, Graph, Node


def freeze(graph: Graph, values: Mapping[str, np.ndarray]) -> Graph:
    """Replace reads of variables by their values, given by name.

    >>> w = weft.tensor([1.0, 2.0])
    >>> g = weft.graph.capture(lambda x: x * w, weft.ones(2)).graph
    >>> print(weft.compile.passes.freeze(g, {"w": w.numpy()}))
    graph program(%x: float32[2]) {
      %w: float32[2] = constant([1.0, 2.0])
      %mul: float32[2] = mul(%x, %w)
      return %mul
    }
    """
    assigned = [n.params["variable"].name for n in graph if n.op is ASSIGN]
    changing = [name for name in assigned if name in values]
    if changing:
        raise ArgumentError(
            f"freeze: expected variables that {graph.name!r} only reads, but it "
            f"assigns {changing[0]!r}; leave that one out"
        )
    return _Freeze(graph, values).run()


class _Freeze(Walk):
    def __init__(self, graph: Graph, values: Mapping[str, np.ndarray]) -> None:
        super().__init__(graph)
        self.values = values

    def inner(self, graph: Graph) -> Graph:
        return _Freeze(graph, self.values).run()

    def visit(self, node: Node) -> Replacement:
        if node.op is not READ:
            return None
        value = self.values.get(node.params["variable"].name)
        return None if value is None else Call(CONSTANT, (), {"value": value.copy()})
