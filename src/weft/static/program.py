"""A program as three lists: what the user wrote, what was derived, what updates."""

from __future__ import annotations

from typing import Any

from weft.graph.ir import ASSIGN, GROUP, Graph, Node
from weft.graph.text import node_text


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
        snapshot: Graph = roots[0].graph.snapshot()
        needed = snapshot.ancestors([r.node for r in roots])
        self.ops = [node for node in snapshot.nodes if node in needed]
        derived = {node for node in self.ops if _derived(node)}
        values = [node for node in self.ops if node.op is ASSIGN]
        updating = set(values) | {n for n in self.ops if n.op is GROUP}
        before = _behind(derived) | self._forward_roots(derived, updating)
        self.forward = [n for n in self.ops if n in before and n not in derived]
        self.backward = [n for n in self.ops if n in derived]
        self.update = [n for n in self.ops if n not in before and n not in derived]

    def _forward_roots(self, derived: set[Node], updating: set[Node]) -> set[Node]:
        """All of the program if nothing is derived or assigned."""
        return set() if derived or updating else set(self.ops)

    def __str__(self) -> str:
        parts = []
        for title in ("forward", "backward", "update"):
            lines = [f"  {node_text(n)}" for n in getattr(self, title)]
            parts.append("\n".join([f"{title}:", *lines]))
        return "\n".join(parts)


def _derived(node: Node) -> bool:
    return node.name.startswith("grad/") or "/grad/" in node.name


def _behind(nodes: set[Node]) -> set[Node]:
    """What the backward part takes values from, and what leads there."""
    seen: set[Node] = set()
    stack = [p for n in nodes for p in n.parents]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(node.parents)
    return seen
