"""Passes: pure functions from graph to graph."""

from __future__ import annotations

from typing import Any

from weft.graph.ir import ASSIGN, READ, Graph, Node, Variable, has_effect


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


def normalized(graph: Graph) -> Graph:
    """The graph with variables read first, in order of use, and names by number.

    Programs that compute the same in the same order then have the same text.

    >>> def step(x):
    ...     return (x * 2).exp()
    >>> g = weft.graph.capture(step, weft.ones(2)).graph
    >>> print(weft.graph.passes.normalized(g))
    graph program(%input0: float32[2]) {
      %mul1: float32[2] = mul(%input0, 2)
      %exp2: float32[2] = exp(%mul1)
      return %exp2
    }
    """
    used = dict.fromkeys(i for n in graph.nodes for i in n.inputs if type(i) is Node)
    early = set(_first_reads(graph))
    reads = [node for node in used if node in early]
    first = {*graph.inputs, *reads}
    order = [*graph.inputs, *reads, *[n for n in graph.nodes if n not in first]]
    names = {node.name: f"{node.op.name}{k}" for k, node in enumerate(order)}
    cells: dict[Any, Variable] = {}
    new: dict[Node, Node] = {}
    for node in order:
        new[node] = _renamed(node, names, cells, new)
    ends = [[new[n] for n in some] for some in (graph.outputs, graph.inputs)]
    return Graph("program", new.values(), ends[0], graph.sizes, ends[1])


def _first_reads(graph: Graph) -> list[Node]:
    """The reads that can come first: nothing is assigned or waited for before them."""
    reads, assigned = [], set()
    for node in graph.nodes:
        variable = node.params.get("variable")
        if node.op is ASSIGN:
            assigned.add(variable)
        elif node.op is READ and not node.after and variable not in assigned:
            reads.append(node)
    return reads


def _renamed(
    node: Node, names: dict[str, str], cells: dict[Any, Variable], new: dict[Node, Node]
) -> Node:
    params, cell = node.params, node.params.get("variable")
    if isinstance(cell, Variable):
        name = f"v{len(cells)}"
        made = cells.setdefault(
            cell, Variable(name, cell.type, trainable=cell.trainable)
        )
        params = {**params, "variable": made}
    role = node.role._replace(
        gradient=node.role.gradient and names.get(node.role.gradient, ""),
        recomputes=node.role.recomputes and names.get(node.role.recomputes, ""),
    )
    return Node(
        node.op, tuple([new[i] if type(i) is Node else i for i in node.inputs]), params,
        node.type, names[node.name], tuple([new[i] for i in node.after]), node.module,
        node.code, node.lasti, role,
    )  # fmt: skip
