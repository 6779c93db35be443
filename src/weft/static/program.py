"""A program as three lists: what the user wrote, what was derived, what updates."""

from __future__ import annotations

from typing import Any

from weft.graph.ir import ASSIGN, GROUP, Graph, Node
from weft.graph.text import node_text
from weft.static.graph import node_of


class Program:
    """A graph's operators in order: forward, then backward, then update.

    The update is what assignments need beyond the forward and backward part.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     x = weft.static.placeholder(weft.float32, [], name="x")
    ...     w = weft.static.Variable(2.0, name="w")
    ...     loss = weft.square(x * w)
    ...     step = weft.static.train.GradientDescentOptimizer(0.1).minimize(loss)
    >>> program = weft.static.Program(step)
    >>> [node.op.name for node in program.forward]
    ['input', 'read', 'mul', 'square']
    >>> program.update[-1].op.name
    'group'
    """

    def __init__(self, *roots: Any) -> None:
        graph = roots[0].graph
        snapshot: Graph = graph.snapshot()
        needed = snapshot.ancestors([node_of(graph, r) for r in roots])
        derived = {node for node in needed if node in graph.derived}
        losses = {y for node in derived for y in graph.derived[node]}
        before = (snapshot.ancestors(losses) | _behind(derived)) - derived
        if not derived and not any(n.op in (ASSIGN, GROUP) for n in needed):
            before = needed  # nothing is derived or assigned: all of it is forward
        self.ops = [node for node in snapshot.nodes if node in needed | before]
        self.forward = [n for n in self.ops if n in before]
        self.backward = [n for n in self.ops if n in derived]
        rest = before | derived
        self.update = [n for n in self.ops if n not in rest]

    def __str__(self) -> str:
        parts = []
        for title in ("forward", "backward", "update"):
            lines = [f"  {node_text(n)}" for n in getattr(self, title)]
            parts.append("\n".join([f"{title}:", *lines]))
        return "\n".join(parts)


def _behind(nodes: set[Node]) -> set[Node]:
    """The nodes that backward takes values from, and those that they depend on."""
    seen: set[Node] = set()
    stack = [p for n in nodes for p in n.parents]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(node.parents)
    return seen
