"""Passes: pure functions from graph to graph."""

from __future__ import annotations

from weft.graph.ir import Graph


def dead_code(graph: Graph) -> Graph:
    """Without the nodes that no output and no assignment needs.

    >>> g = weft.graph.capture(lambda x: (x + 1, x * 2)[0], weft.ones(2)).graph
    >>> len(g), len(weft.graph.passes.dead_code(g))
    (3, 2)
    """
    needed = graph.ancestors([*graph.outputs, *graph.effects, *graph.inputs])
    if len(needed) == len(graph.nodes):
        return graph
    kept = [node for node in graph.nodes if node in needed]
    return Graph(graph.name, kept, graph.outputs, graph.sizes, graph.inputs)
