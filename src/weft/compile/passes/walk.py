"""The walk that most passes are: each node in turn, and what stands in its place.

A pass is a ``Walk`` with a ``visit``: it gets a node whose inputs are new already and
returns its replacement: None (keep it), a node of the new graph, or a ``Call`` to add.
The node of a call is visited again. A replaced value keeps its name, role, line and
module.

A node with control edges, or that another one comes after, is never replaced: the
order that such an edge demands stays in the graph.
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

DEEPEST = 64  # how often the replacement of one node may be replaced in turn


class Call(NamedTuple):
    """An operator to apply: to nodes of the new graph, numbers and other calls."""

    op: Op
    inputs: tuple[Any, ...] = ()
    params: dict[str, Any] = {}


Replacement = Node | Call | None
Local = Callable[[Node], Replacement]


class Walk:
    """A walk over a graph, from its first node to its last."""

    ops: frozenset[Op] | None = None  # operators of the nodes to visit; None: all
    needs: frozenset[Op] = frozenset()  # operators that a graph to change must have

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Node] = []
        self.new: dict[Node, Node] = {}  # the replacement of each old node
        self.changed = False
        self.pinned = {other for node in graph.nodes for other in node.after}
        self._names: set[str] | None = None
        self.notes = type(self).note is not Walk.note

    def visit(self, node: Node) -> Replacement:
        """The replacement of a node; None keeps it."""
        return None

    def note(self, node: Node) -> None:
        """Note a node of the new graph; called for each in order."""

    def used_once(self, node: Node) -> bool:
        """Whether a node has at most one use (by its name, which replacements keep)."""
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
        """The result of this pass on a graph in a parameter."""
        return type(self)(graph).run()

    def concerns(self, graph: Graph) -> bool:
        """Whether a graph has the operators that this pass changes."""
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
        """Add a node, or its replacement, to the new graph."""
        if node.op is INPUT or node.after or old in self.pinned:
            return self.added(node)
        new = self.visit(node)
        return self.added(node) if new is None else self.replaced(node, new)

    def replaced(self, node: Node, new: Replacement) -> Node:
        """The node of a replacement, which may be replaced in turn."""
        for _ in range(DEEPEST):
            if type(new) is Node:
                self.changed = True
                return new
            fresh = self.made(new, node) if type(new) is Call else None
            if fresh is None:
                break
            self.changed, node = True, fresh
            new = self.visit(node)
        return self.added(node)

    def added(self, node: Node) -> Node:
        self.nodes.append(node)
        if self.notes:
            self.note(node)
        return node

    def made(self, call: Call, like: Node, name: str = "") -> Node | None:
        """The node of a call, not added yet; None if it is of another type."""
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
        """Add a call inside another one to the new graph."""
        node = self.made(call, like, self.free(f"{like.name}/{call.op.name}"))
        return None if node is None else self.settled(node, node)

    def typed(self, call: Call, inputs: list[Any]) -> Any:
        types = [i.type if type(i) is Node else i for i in inputs]
        assert call.op.type is not None
        try:
            if not self.graph.sizes.hints:
                return call.op.type(*types, **call.params)
            with Unassuming(self.graph.sizes) as sizes:
                kind = call.op.type(*types, **call.params)
            return None if sizes.assumed else kind
        except WeftError:
            return None  # the operator does not take such types

    def free(self, name: str) -> str:
        """A name that is not taken: this one, or with a number behind it."""
        if self._names is None:
            self._names = {node.name for node in self.graph.nodes}
        free, k = name, 0
        while free in self._names:
            k += 1
            free = f"{name}_{k}"
        self._names.add(free)
        return free

    # -- old nodes on inputs of the new graph

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
        params = {k: self._param(v) for k, v in node.params.items()}
        if all(params[k] is v for k, v in node.params.items()):
            return node.params
        self.changed = True
        return params

    def _param(self, value: Any) -> Any:
        if isinstance(value, Graph):
            return self.inner(value)
        if type(value) is tuple and any(isinstance(one, Graph) for one in value):
            graphs = tuple([self._param(one) for one in value])
            same = all(a is b for a, b in zip(graphs, value, strict=True))
            return value if same else graphs
        return value
