"""Fusion: which nodes are computed together, in one pass over memory.

A group computes, for every index of one shape, all its nodes at that index:

    full nodes       one element for each index of the shape
    row nodes        one element for each index of the axes that are not reduced

A node joins the youngest group among those that made its inputs, if its elements
are those of the group's own indices; else it begins another group. Inputs of the
older ones are loaded. So an edge always leads from an older to a younger unit, and
there is never a cycle. Views are not computed at all: whoever reads one reads its
base at another index. Loops in which one element depends on others before it are
groups of their own; what has no element-wise meaning is a call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from weft.compile.elements import lowering_of
from weft.core.lowering import Element, Reduction, Scan, Scatter, View, reshaped
from weft.core.size import Scope, same, same_shape
from weft.graph.ir import CONSTANT, INPUT, READ, Graph, Node

Index = tuple[Any, ...]
OUTSIDE = -1  # the order of inputs, variables and constants


class Operand:
    """What a node reads: a base, at an index that views derive from the node's."""

    __slots__ = ("base", "views")

    def __init__(self, node: Node) -> None:
        self.views: list[Node] = []
        while isinstance(node.op.lower, View):
            self.views.append(node)
            node = node.inputs[0]
        self.base = node

    def index(self, out: Index) -> Index:
        """Where the base's element is, for an index of the operand."""
        for view in self.views:
            rule = view.op.lower.at
            out = rule(out, view.inputs[0].shape, **view.params)
        return out


class Call:
    """A node that is run as a whole."""

    def __init__(self, order: int, node: Node) -> None:
        self.order = order
        self.node = node
        self.nodes = [node]

    def __repr__(self) -> str:
        return f"<call {self.node.name}>"


class Group:
    """Nodes that are computed together, element by element."""

    def __init__(self, order: int, shape: Index, scope: Scope) -> None:
        self.order = order
        self.shape = shape
        self.scope = Scope()
        self.scope.hints = dict(scope.hints)
        self.scope.equal = dict(scope.equal)
        self.vars = tuple(self._variable(d, n) for d, n in enumerate(shape))
        self.reduced: tuple[int, ...] | None = None
        self.nodes: list[Node] = []
        self.home: dict[Node, Index] = {}  # each node's index, in the loop variables
        self.rows: set[Node] = set()
        self.operands: dict[Node, list[Any]] = {}
        self.outputs: list[Node] = []
        self.alone = False  # nothing may join

    def _variable(self, dim: int, size: Any) -> Any:
        name = f"i{dim}"
        self.scope.bounds[name] = size
        return self.scope.symbol(name)

    @property
    def kept(self) -> list[int]:
        """The axes that are not reduced."""
        return [d for d in range(len(self.shape)) if d not in (self.reduced or ())]

    def row_index(self, node: Node) -> Index:
        """A row node's index, in the variables of the axes that are kept."""
        out = tuple(self.vars[d] for d in self.kept)
        return reshaped(out, node.shape, shape=tuple(self.shape[d] for d in self.kept))

    def full_index(self, node: Node) -> Index:
        return reshaped(self.vars, node.shape, shape=self.shape)

    def reads_here(self, operand: Operand, out: Index | None) -> bool:
        """Whether an operand's element is the one computed at the same index."""
        home = self.home[operand.base]
        return out is not None and same_shape(operand.index(out), home)

    def add(self, node: Node, home: Index, *, row: bool) -> None:
        self.nodes.append(node)
        self.home[node] = home
        if row:
            self.rows.add(node)
        self.operands[node] = operands_of(node)

    def __repr__(self) -> str:
        return f"<group {[n.name for n in self.nodes]}>"


Unit = Call | Group
Supported = Callable[[Node], bool]


def indices_of(node: Node, home: Index) -> list[Index | None]:
    """Where a node reads each of its inputs; None where that is not one place."""
    rule = lowering_of(node)
    if not isinstance(rule, Element):
        return [home] * len(node.inputs)
    if rule.here is None:
        return [None] * len(node.inputs)
    return list(rule.here(home, **node.params))


def operands_of(node: Node) -> list[Any]:
    """What a node reads: operands, or numbers."""
    return [Operand(i) if type(i) is Node else i for i in node.inputs]


class Fusion:
    """One pass over a graph's nodes."""

    def __init__(self, graph: Graph, supported: Supported) -> None:
        self.graph = graph
        self.supported = supported
        self.units: list[Unit] = []
        self.unit: dict[Node, Unit] = {}
        self.why: dict[Node, str] = {}  # why a node did not join its producer's group
        for node in graph.nodes:
            self._place(node)
        self._find_outputs()

    def _place(self, node: Node) -> None:
        if node.op in (INPUT, CONSTANT, READ):
            return
        lower = lowering_of(node)
        if isinstance(lower, View) and self.supported(node):
            return
        if not self.supported(node) or lower is None:
            self._call(node)
        elif isinstance(lower, Reduction):
            self._reduce(node)
        elif isinstance(lower, (Scatter, Scan)):
            self._alone(node)
        else:
            self._point(node)

    def order(self, base: Node) -> int:
        found = self.unit.get(base)
        return OUTSIDE if found is None else found.order

    def _call(self, node: Node) -> None:
        unit = Call(len(self.units), node)
        self.units.append(unit)
        self.unit[node] = unit

    def _youngest(self, operands: Iterable[Any]) -> Unit | None:
        bases = [o.base for o in operands if isinstance(o, Operand)]
        units = [self.unit[b] for b in bases if b in self.unit]
        return max(units, key=lambda u: u.order, default=None)

    def _new(self, shape: Index) -> Group:
        group = Group(len(self.units), shape, self.graph.sizes)
        self.units.append(group)
        return group

    def _alone(self, node: Node) -> None:
        group = self._new(node.shape)
        group.alone = True
        group.add(node, group.vars, row=False)
        self.unit[node] = group

    # -- element by element

    def _point(self, node: Node) -> None:
        operands = operands_of(node)
        group = self._youngest(operands)
        if isinstance(group, Group):
            role = self._role(group, node, operands)
            if role is not None:
                home = group.row_index(node) if role else group.full_index(node)
                group.add(node, home, row=role)
                self.unit[node] = group
                return
        elif group is not None:
            self.why[node] = f"{group.node.op.name} is computed as a whole"
        group = self._new(node.shape)
        group.add(node, group.vars, row=False)
        self.unit[node] = group

    def _role(self, group: Group, node: Node, operands: list[Any]) -> bool | None:
        """Whether a node is a row node (True) or a full one of a group; else None."""
        if group.alone:
            self.why[node] = f"{group.nodes[0].op.name} is a loop of its own"
            return None
        mine = [
            (o, k)
            for k, o in enumerate(operands)
            if isinstance(o, Operand) and self.unit.get(o.base) is group
        ]
        count, whole = math.prod(node.shape), math.prod(group.shape)
        if same(count, whole):
            home, row = group.full_index(node), False
        elif group.reduced is not None and same(
            count, math.prod(group.shape[d] for d in group.kept)
        ):
            home, row = group.row_index(node), True
        else:
            self.why[node] = f"{node.shape} is not the shape {group.shape}"
            return None
        places = indices_of(node, home)
        if row and any(o.base not in group.rows for o, _ in mine):
            self.why[node] = "a row would need single elements"
            return None
        if not all(group.reads_here(o, places[k]) for o, k in mine):
            self.why[node] = "it reads other elements of the group than its own"
            return None
        return row

    # -- reductions

    def _reduce(self, node: Node) -> None:
        (operand,) = operands_of(node)
        shape = node.inputs[0].shape
        dim = node.params["dim"]
        reduced = (dim,) if isinstance(dim, int) else tuple(sorted(dim))
        group = self._youngest([operand])
        if not isinstance(group, Group) or not self._may_reduce(
            group, node, operand, shape, reduced
        ):
            group = self._new(shape)
        group.reduced = reduced
        group.add(node, group.row_index(node), row=True)
        self.unit[node] = group

    def _may_reduce(
        self, group: Group, node: Node, operand: Operand, shape: Index, reduced: Any
    ) -> bool:
        if group.alone or not same_shape(group.shape, shape):
            self.why[node] = f"{shape} is not the shape {group.shape}"
            return False
        if group.reduced not in (None, reduced):
            self.why[node] = f"the group reduces axes {group.reduced}"
            return False
        if operand.base in group.rows or not group.reads_here(operand, group.vars):
            self.why[node] = "it reads other elements of the group than its own"
            return False
        return True

    # -- what leaves a group

    def _find_outputs(self) -> None:
        needed: set[Node] = set()
        for node in self.graph.outputs:
            needed.add(Operand(node).base)
        for unit in self.units:
            for node in unit.nodes:
                for i in node.inputs:
                    if type(i) is Node:
                        base = Operand(i).base
                        if self.unit.get(base) is not unit:
                            needed.add(base)
        for unit in self.units:
            if isinstance(unit, Group):
                unit.outputs = [n for n in unit.nodes if n in needed]


def fuse(graph: Graph, supported: Supported) -> list[Unit]:
    """The units of a graph, in an order in which they can run."""
    return Fusion(graph, supported).units
