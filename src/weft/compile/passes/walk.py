"""The walk that most passes are: each node in turn, and what stands in its place.

A pass is a ``Walk`` with a ``visit``: it gets a node whose inputs are new already
and returns None (keep it), a node of the new graph, or a ``Call`` to make. What
was made is visited again. A replaced value keeps its name, role, line and module.

A node with control edges, or that another one comes after, is never replaced: the
order that such an edge asks for stays in the graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

from weft.core.op import Op
from weft.errors import WeftError
from weft.graph.ir import INPUT, Graph, Node, has_graphs
from weft.graph.passes import dead_code
from weft.graph.verify import Unassuming, same_type

DEEPEST = 64  # how often what was made for one node may be replaced in turn


class Call(NamedTuple):
    """An operator to apply: to nodes of the new graph, numbers and other calls."""

    op: Op
    inputs: tuple[Any, ...] = ()
    params: dict[str, Any] = {}


Found = Node | Call | None
Local = Callable[[Node], Found]


class Walk:
    """One walk over a graph, from its first node to its last."""

    ops: frozenset[Op] | None = None  # those that ``visit`` looks at, if not all
    needs: frozenset[Op] = frozenset()  # without one of which there is nothing to do

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Node] = []
        self.new: dict[Node, Node] = {}  # what stands for a node of the old graph
        self.changed = False
        self.pinned = {other for node in graph.nodes for other in node.after}
        self._names: set[str] | None = None
        self.notes = type(self).note is not Walk.note

    def visit(self, node: Node) -> Found:
        """What stands in the place of a node; None keeps it."""
        return None

    def note(self, node: Node) -> None:
        """Called with each node of the new graph, in order."""

    def used_once(self, node: Node) -> bool:
        """Whether one edge alone leads to a node (by its name, which it keeps)."""
        return self._uses[node.name] <= 1

    @cached_property
    def _uses(self) -> Counter[str]:
        names = [out.name for out in self.graph.outputs]
        for node in self.graph.nodes:
            for i in (*node.inputs, *node.after):
                if type(i) is Node:
                    names.append(i.name)
        return Counter(names)

    def inner(self, graph: Graph) -> Graph:
        """The same pass over a graph in a parameter."""
        return type(self)(graph).run()

    def concerns(self, graph: Graph) -> bool:
        """Whether there is anything to do in a graph."""
        there = graph.ops
        some = self.ops is None or not self.ops.isdisjoint(there)
        return some and self.needs <= there

    def run(self) -> Graph:
        graph, ops = self.graph, self.ops
        if not self.concerns(graph):
            return graph
        new, nested = self.new, graph.nested
        for node in graph.nodes:
            fresh = self.renewed(node) if nested or self.changed else node
            if ops is None or node.op in ops:
                new[node] = self.settled(node, fresh)
            else:
                new[node] = fresh
                self.nodes.append(fresh)
                if self.notes:
                    self.note(fresh)
        if not self.changed:
            return graph
        outputs = [self.new[out] for out in graph.outputs]
        return dead_code(
            Graph(graph.name, self.nodes, outputs, graph.sizes, graph.inputs)
        )

    # -- one node

    def settled(self, old: Node, node: Node) -> Node:
        """Place a node, or what ``visit`` puts in its place."""
        if node.op is INPUT or node.after or old in self.pinned:
            return self.placed(node)
        found = self.visit(node)
        return self.placed(node) if found is None else self.replaced(node, found)

    def replaced(self, node: Node, found: Found) -> Node:
        """What a node gives way to, which may give way in turn."""
        for _ in range(DEEPEST):
            if type(found) is Node:
                self.changed = True
                return found
            fresh = self.made(found, node) if type(found) is Call else None
            if fresh is None:
                break
            self.changed, node = True, fresh
            found = self.visit(node)
        return self.placed(node)

    def placed(self, node: Node) -> Node:
        self.nodes.append(node)
        if self.notes:
            self.note(node)
        return node

    def made(self, call: Call, like: Node, name: str = "") -> Node | None:
        """The node of a call, not placed yet; None if it has another type."""
        inputs = [
            self.part(one, like) if type(one) is Call else one for one in call.inputs
        ]
        kind = None if None in inputs else self.typed(call, inputs)
        if kind is None or (not name and not same_type(kind, like.type)):
            return None
        return Node(
            call.op, tuple(inputs), call.params, kind, name or like.name, (),
            like.module, like.code, like.lasti, like.role.part if name else like.role,
        )  # fmt: skip

    def part(self, call: Call, like: Node) -> Node | None:
        """A call inside another one, as a node of the new graph."""
        node = self.made(call, like, self.free(f"{like.name}/{call.op.name}"))
        return None if node is None else self.settled(node, node)

    def typed(self, call: Call, inputs: list[Any]) -> Any:
        types = [i.type if type(i) is Node else i for i in inputs]
        assert call.op.type is not None
        try:
            if not self.graph.sizes.hints:
                return call.op.type(*types, **call.params)
            with Unassuming(self.graph.sizes) as sizes:
                found = call.op.type(*types, **call.params)
            return None if sizes.assumed else found
        except WeftError:
            return None  # not a program on such types

    def free(self, name: str) -> str:
        """The name itself, or with a number behind it if it is taken."""
        if self._names is None:
            self._names = {node.name for node in self.graph.nodes}
        found, k = name, 0
        while found in self._names:
            k += 1
            found = f"{name}_{k}"
        self._names.add(found)
        return found

    # -- the old graph's nodes over the new one's

    def renewed(self, node: Node) -> Node:
        new, params = self.new, node.params
        if params and self.graph.nested:
            params = self.params(node)
        for i in (*node.inputs, *node.after):
            if type(i) is Node and new[i] is not i:
                break
        else:
            if params is node.params:
                return node
        inputs = tuple([new[i] if type(i) is Node else i for i in node.inputs])
        after = tuple([new[i] for i in node.after]) if node.after else ()
        return Node(
            node.op, inputs, params, node.type, node.name, after,
            node.module, node.code, node.lasti, node.role,
        )  # fmt: skip

    def params(self, node: Node) -> dict[str, Any]:
        """The parameters, with the pass applied to graphs among them."""
        if not has_graphs(node.params):
            return node.params
        found = {k: self._param(v) for k, v in node.params.items()}
        if all(found[k] is v for k, v in node.params.items()):
            return node.params
        self.changed = True
        return found

    def _param(self, value: Any) -> Any:
        if isinstance(value, Graph):
            return self.inner(value)
        if type(value) is tuple and any(isinstance(one, Graph) for one in value):
            found = tuple([self._param(one) for one in value])
            same = all(a is b for a, b in zip(found, value, strict=True))
            return value if same else found
        return value
