"""Passes: pure functions from graph to graph."""

from __future__ import annotations

from weft.graph.ir import Graph, Node, has_effect


def dead_code(graph: Graph) -> Graph:
    """Remove the nodes that neither outputs nor nodes with an effect need.

    >>> g = weft.graph.capture(lambda x: (x + 1, x * 2)[0], weft.ones(2)).graph
    >>> len(g), len(weft.graph.passes.dead_code(g))
    (3, 2)
    """
    needed = {*graph.outputs, *graph.inputs}
    kept = []
    for node in reversed(graph.nodes):
        if node in needed or has_effect(node):
            kept.append(node)
            needed.update(node.after)
            for i in node.inputs:
                if type(i) is Node:
                    needed.add(i)
    if len(kept) == len(graph.nodes):
        return graph
    kept.reverse()
    return Graph(graph.name, kept, graph.outputs, graph.sizes, graph.inputs)
