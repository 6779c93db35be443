"""Hoist small values that depend only on inputs, before they split a group.

    %y = conv(%x, %w)                       %s = rsqrt(%var)
    %s = rsqrt(%var)                    →   %y = conv(%x, %w)
    %z = mul(%y, expand(%s))                %z = mul(%y, expand(%s))

So it is there when a large value is made, and does not part what is computed from that
value: a batch norm's numbers for each channel, an optimizer's numbers of a step.
"""

from __future__ import annotations

import math

from weft.compile import targets
from weft.compile.fusion.elements import lowering_of
from weft.compile.passes.facts import EXPAND
from weft.core.lowering import Filled, Pointwise, View
from weft.core.size import Size
from weft.graph.ir import ASSIGN, CONSTANT, INPUT, READ, Graph, Node


def hoist_small_values(graph: Graph) -> Graph:
    """The graph with small functions of what is given, that are repeated, first.

    >>> from weft.compile.passes.hoist_small_values import hoist_small_values
    >>> def fn(x, w, v):
    ...     return (x @ w) * v.rsqrt()
    >>> g = weft.graph.capture(fn, weft.ones(2, 3), weft.ones(3, 2), weft.ones(2))
    >>> [node.op.name for node in hoist_small_values(g.graph).nodes[3:]]
    ['rsqrt', 'matmul', 'expand', 'mul']
    """
    first = _repeated(graph, _independent(graph))
    nodes = [n for n in graph.nodes if n in first]
    nodes += [n for n in graph.nodes if n not in first]
    if nodes == graph.nodes:
        return graph
    return Graph(graph.name, nodes, graph.outputs, graph.sizes, graph.inputs)


def _repeated(graph: Graph, able: set[Node]) -> set[Node]:
    """Those nodes that one of many elements is made of."""
    found: set[Node] = set()
    for node in reversed(graph.nodes):
        if node in found or (node.op is EXPAND and node not in able):
            found.update(i for i in node.inputs if i in able)
    return found | {n for n in graph.nodes if n.op is INPUT}


def _independent(graph: Graph) -> set[Node]:
    """Nodes that could come first."""
    found: set[Node] = set()
    assigned = set()
    waited_for = {other for node in graph.nodes for other in node.after}
    for node in graph.nodes:
        if node.op is ASSIGN:
            assigned.add(node.params["variable"])
        if node.after or node in waited_for:
            continue
        if node.op is READ:
            if node.params["variable"] not in assigned:
                found.add(node)
        elif node.op in (INPUT, CONSTANT) or _moves(node, found):
            found.add(node)
    return found


def _moves(node: Node, found: set[Node]) -> bool:
    """Whether a node is cheap, cannot fail, and needs only hoisted values."""
    rule = lowering_of(node)
    if node.op is EXPAND:
        return False
    if not isinstance(rule, (Pointwise, Filled, View)) or not node.dtype.is_inexact:
        return False
    if any(isinstance(n, Size) for n in node.shape):
        return False
    if math.prod(node.shape) > targets.default().cost.fusion.hoisted:
        return False
    return all(i in found for i in node.inputs if type(i) is Node)
