"""Operators that are programs of others, written out before fusion."""

from __future__ import annotations

from typing import Any

from weft.compile.fusion.elements import lowering_of
from weft.compile.passes.walk import Call, Replacement, Walk
from weft.core.lowering import Composed, Varied
from weft.core.op import find_op
from weft.graph.ir import Graph, Node


class _Compose(Walk):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        rules = Composed, Varied
        self.ops = frozenset(op for op in graph.ops if isinstance(op.lower, rules))

    def visit(self, node: Node) -> Replacement:
        rule = lowering_of(node)
        if not isinstance(rule, Composed):
            return None
        return rule.calls(_call, *node.inputs, **node.params)


def _call(name: str, *inputs: Any, **params: Any) -> Call:
    return Call(find_op(name), inputs, params)


def expand_composites(graph: Graph) -> Graph:
    """Replace operators that have no kernel by the operators they are composed of."""
    return _Compose(graph).run()
