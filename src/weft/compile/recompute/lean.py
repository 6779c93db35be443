"""Cheap values that no compiled step keeps, because computing them costs nothing.

    forward     %c = conv(%x, %w)                 backward reads %d, %n and a mask:
                %d = sub(%c, mean)                %n and the mask are recomputed from
                %n = mul(%d, 1/spread)            %d and %r in the same loops
                %r = relu(%n * a + b)

A value that gradients read element by element, and that is a few sums and products of
others that are kept anyway, is recomputed where it is read: it takes no memory, it is
neither written nor read, and the loads of other values hide the work. If several such
values are functions of one array that is not kept, that array is kept instead of them,
whatever the functions.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from weft.compile import targets
from weft.compile.fusion.elements import lowering_of
from weft.compile.fusion.groups import Operand, inlined
from weft.compile.passes.recompute import BackwardRuns, copyable, recompute
from weft.core.lowering import Pointwise
from weft.core.size import hinted
from weft.graph.ir import ASSIGN, CONSTANT, INPUT, READ, Graph, Node, Variable

_GIVEN = (INPUT, READ, CONSTANT)


def lean(graph: Graph, in_place: Collection[Variable] = ()) -> Graph:
    """Let gradients recompute cheap values.

    >>> from weft.compile.recompute.lean import lean
    >>> model = weft.nn.Linear(128, 128)
    >>> def step(x):
    ...     model(weft.nn.functional.relu(model(x))).square().sum().backward()
    >>> graph = weft.graph.capture(step, weft.ones(128, 128)).graph
    >>> made = lean(weft.compile.pipeline.run(graph))
    >>> [node.role.recomputes for node in made.nodes if node.role.is_copy]
    ['grad/relu/gt']
    """
    dropped = _Choice(graph).dropped
    return recompute(graph, lambda node: node not in dropped) if dropped else graph


class _Choice:
    """The values that are recomputed."""

    def __init__(self, graph: Graph) -> None:
        self.runs = BackwardRuns(graph).of
        self.cost = targets.current().cost.recompute
        self.dropped: set[Node] = set()
        if not self.runs:
            return
        self._look(graph)
        for node in graph.nodes:  # inputs of values come before them
            if node in self.saved and self._free(node, steps := {node}):
                self.dropped |= steps
        self._swap(graph)

    def _look(self, graph: Graph) -> None:
        """Find the values that gradients read, and those that must be stored."""
        self.saved: set[Node] = set()
        fixed: set[Node] = {Operand(n).base for n in graph.outputs}
        self.needed: set[Node] = set()  # values that others than pointwise nodes read
        for node in graph.nodes:
            bases = [Operand(i).base for i in node.inputs if type(i) is Node]
            if node in self.runs:
                here = {b for b in bases if b not in self.runs and self._large(b)}
                self.saved |= here
                if not isinstance(lowering_of(node), Pointwise):
                    fixed |= here
            if node.op is ASSIGN or targets.current().library_call(node) is not None:
                fixed.update(bases)
            if not isinstance(lowering_of(node), Pointwise):
                self.needed.update(bases)
        self.fixed = fixed

    def _large(self, node: Node) -> bool:
        return not _given(node) and _count(node) >= self.cost.least

    def _sources(self, node: Node) -> list[Node]:
        """The operands of a value that are not much smaller than it."""
        bases = [Operand(i).base for i in node.inputs if type(i) is Node]
        count, limit = _count(node), self.cost.smaller
        return [b for b in bases if not _given(b) and _count(b) * limit > count]

    def _may_go(self, node: Node) -> bool:
        pointwise = isinstance(lowering_of(node), Pointwise)
        return pointwise and node not in self.fixed and copyable(node)

    def _free(self, node: Node, steps: set[Node]) -> bool:
        """Whether a value takes only a few cheap operations on kept ones."""
        if node.op.facts.cost > 1 or len(steps) > self.cost.steps:
            return False
        if not self._may_go(node):
            return False
        here = self.saved - self.dropped
        others = {b for b in self._sources(node) if b not in here}
        steps |= others
        return all(self._free(other, steps) for other in others)

    # -- one array kept instead of several

    def _swap(self, graph: Graph) -> None:
        groups: dict[Node, list[Node]] = {}
        between: dict[Node, set[Node]] = {}
        for node in graph.nodes:
            if node in self.saved - self.dropped and self._may_go(node):
                inner: set[Node] = set()
                root = self._root(node, inner)
                if root is not None and root not in self.saved:
                    groups.setdefault(root, []).append(node)
                    between.setdefault(root, set()).update(inner)
        for root, values in groups.items():
            dropped = between[root]
            kept = self._neck(root, dropped)
            saved = sum(_bytes(value) for value in values if value in dropped)
            if saved > (0 if kept in values else _bytes(kept)):
                self.dropped |= dropped

    def _neck(self, root: Node, dropped: set[Node]) -> Node:
        """The last value that all the others depend on; it is kept, not dropped."""
        while True:
            readers = [node for node in dropped if root in self._sources(node)]
            if len(readers) != 1 or _bytes(readers[0]) > _bytes(root):
                return root
            (root,) = readers
            dropped.discard(root)

    def _root(self, node: Node, inner: set[Node]) -> Node | None:
        """The only array that a value is an element-wise function of, if it is one.

        It is the first such array that is made of several.
        """
        inner.add(node)
        roots: set[Node] = set()
        for base in self._sources(node):
            if base in self.saved and base not in self.dropped and base not in inner:
                continue
            further = None
            if self._may_go(base) and self._passed(base) and len(inner) < 16:
                further = self._root(base, more := set(inner))
            if further is None:
                roots.add(base)
            else:
                inner |= more
                roots.add(further)
        return roots.pop() if len(roots) == 1 else None

    def _passed(self, node: Node) -> bool:
        """Whether what a value is made of may be kept instead of it.

        A reduction may have it stored anyway; but what is smaller is cheaper to keep.
        """
        size = sum(_bytes(source) for source in self._sources(node))
        return node not in self.needed or size < _bytes(node)


def _given(node: Node) -> bool:
    """Whether a value is there without being computed, or is made where it is read."""
    return node.op in _GIVEN or inlined(node)


def _count(node: Node) -> int:
    sizes = hinted(node.shape) if hasattr(node.type, "shape") else None
    return 0 if sizes is None else math.prod(sizes)


def _bytes(node: Node) -> int:
    return _count(node) * node.dtype.itemsize
