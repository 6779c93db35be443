"""Hoist small values that depend only on inputs, before they split a group.

    %y = conv(%x, %w)                       %s = rsqrt(%var)
    %s = rsqrt(%var)                    →   %y = conv(%x, %w)
    %z = mul(%y, expand(%s))                %z = mul(%y, expand(%s))

The small value is then known when a large one is computed, and does not split the
fusion group of nodes that depend on both: a batch norm's values for each channel, an
optimizer's numbers of a step.
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
    """Hoist small values that depend only on inputs and are expanded later.

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
    """The nodes that can be hoisted and that an expanded value depends on."""
    needed: set[Node] = set()
    for node in reversed(graph.nodes):
        if node in needed or (node.op is EXPAND and node not in able):
            needed.update(i for i in node.inputs if i in able)
    return needed | {n for n in graph.nodes if n.op is INPUT}


def _independent(graph: Graph) -> set[Node]:
    """The nodes that can be hoisted."""
    able: set[Node] = set()
    assigned = set()
    waited_for = {other for node in graph.nodes for other in node.after}
    for node in graph.nodes:
        if node.op is ASSIGN:
            assigned.add(node.params["variable"])
        if node.after or node in waited_for:
            continue
        if node.op is READ:
            if node.params["variable"] not in assigned:
                able.add(node)
        elif node.op in (INPUT, CONSTANT) or _moves(node, able):
            able.add(node)
    return able


def _moves(node: Node, able: set[Node]) -> bool:
    """Whether a node is cheap, cannot fail, and needs only hoisted values."""
    rule = lowering_of(node)
    if node.op is EXPAND:
        return False
    if not isinstance(rule, (Pointwise, Filled, View)) or not node.dtype.is_inexact:
        return False
    if any(isinstance(n, Size) for n in node.shape):
        return False
    if math.prod(node.shape) > targets.current().cost.fusion.hoisted:
        return False
    return all(i in able for i in node.inputs if type(i) is Node)
