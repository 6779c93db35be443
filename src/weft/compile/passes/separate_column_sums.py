"""Sums of columns that compute their terms anew, apart from sums of rows.

    %t = mul(%g, %n)         %r = sum(%u, dim=(1,))
    %u = mul(%g, %w)         …
    %c = sum(%t, dim=(0,))   →   %t/again = mul(%g, %n) after %r
    %r = sum(%u, dim=(1,))       %c = sum(%t/again, dim=(0,))

One kernel adds up either rows or columns. Where element-wise values are the terms of
both, as in the gradients of a layer norm, the sums of columns compute those that they
need again, from values that are in memory anyway; then the values themselves never are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.compile import targets
from weft.compile.fusion.elements import lowering_of
from weft.compile.fusion.groups import Operand
from weft.compile.passes.recompute import copy_of, copyable, on_inputs
from weft.core.lowering import Pointwise, Reduction, View
from weft.core.size import same_shape
from weft.graph.ir import Graph, Node
from weft.graph.passes import dead_code

_COST = 16  # of the values that are computed again, in all
_NEAR = 64  # element-wise values to look through for a sum of rows


def separate_column_sums(graph: Graph) -> Graph:
    """Let sums of columns compute their terms apart from sums of rows, on targets
    where one kernel cannot do both.

    >>> from weft.compile.passes.separate_column_sums import separate_column_sums
    >>> def fn(x, y):
    ...     z = x * y
    ...     return z.sum(0), z.sum(1)
    >>> graph = weft.graph.capture(fn, weft.ones(8, 8), weft.ones(8, 8)).graph
    >>> separate_column_sums(graph) is graph  # the CPU's kernels do both
    True
    """
    if not targets.current().cost.fusion.separate_sums:
        return graph
    return _Separated(graph).run()


class _Separated:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.readers: dict[Node, list[Node]] = {}
        for node in graph.nodes:
            for i in dict.fromkeys(i for i in node.inputs if type(i) is Node):
                self.readers.setdefault(i, []).append(node)
        self.outputs = set(graph.outputs)
        self.nodes: list[Node] = []
        self.new: dict[Node, Node] = {}
        self.names = {node.name for node in graph.nodes}
        self.copies: dict[tuple[Node, Node], Node] = {}

    def run(self) -> Graph:
        graph = self.graph
        rows = {n: r for n in graph.nodes if (r := self._row_sum(n)) is not None}
        if not rows:
            return graph
        for node in graph.nodes:
            self._add(node, rows)
        outputs = [self.new[out] for out in graph.outputs]
        inputs = [self.new[node] for node in graph.inputs]
        made = Graph(graph.name, self.nodes, outputs, graph.sizes, inputs)
        return dead_code(made)

    # -- which sums

    def _row_sum(self, node: Node) -> Node | None:
        """The sum of rows that a sum of columns is kept apart from, if there is one."""
        if not _reduces(node, last=False):
            return None
        terms = self._terms(node)
        if not terms or sum(t.op.facts.cost for t in terms) > _COST:
            return None
        return next(self._row_sums(terms, node), None)

    def _terms(self, node: Node) -> list[Node]:
        """The values to compute again: element-wise ones of the node's backward run."""
        found: dict[Node, None] = {}
        waiting = [Operand(node.inputs[0]).base]
        while waiting:
            value = waiting.pop()
            if value in found or not self._again(value, node.inputs[0]):
                continue
            found[value] = None
            waiting += [Operand(i).base for i in value.inputs if type(i) is Node]
        return list(found)

    def _again(self, value: Node, like: Node) -> bool:
        part = value.role.is_gradient or value.role.is_copy
        return (
            part and _elementwise(value) and same_shape(value.shape, like.shape)
            and not self._stored(value)
        )  # fmt: skip

    def _seen_by(self, value: Node) -> Iterator[Node]:
        """The nodes that read a value, through views or not."""
        for reader in self.readers.get(value, ()):
            if isinstance(lowering_of(reader), View):
                yield from self._seen_by(reader)
            else:
                yield reader

    def _stored(self, value: Node) -> bool:
        """Whether a value is in memory anyway, for readers that no kernel joins."""
        if value in self.outputs:
            return True
        kinds = Pointwise, Reduction
        return any(
            not isinstance(lowering_of(reader), kinds)
            for reader in self._seen_by(value)
        )

    def _row_sums(self, terms: list[Node], column_sum: Node) -> Iterator[Node]:
        """The sums of rows whose terms would share a kernel with these.

        Their terms depend on these, or on values that these are made of.
        """
        sources = [Operand(i).base for t in terms for i in t.inputs if type(i) is Node]
        like = [s for s in sources if same_shape(s.shape, terms[0].shape)]
        beside = [
            reader
            for source in like
            for reader in self._seen_by(source)
            if self._again(reader, terms[0])
        ]
        waiting = [*dict.fromkeys([*terms, *beside])]
        seen = set(waiting)
        while waiting and len(seen) < _NEAR:
            for reader in self.readers.get(waiting.pop(), ()):
                if _reduces(reader, last=True):
                    if not self._depends(reader, column_sum):
                        yield reader
                elif (
                    reader not in seen and _elementwise(reader)
                    and same_shape(reader.shape, terms[0].shape)
                ):  # fmt: skip
                    seen.add(reader)
                    waiting.append(reader)

    def _depends(self, node: Node, other: Node) -> bool:
        seen, waiting = {node}, [node]
        while waiting:
            for parent in waiting.pop().parents:
                if parent is other:
                    return True
                if parent not in seen:
                    seen.add(parent)
                    waiting.append(parent)
        return False

    # -- the new graph

    def _add(self, first: Node, rows: dict[Node, Node]) -> None:
        """Add a node, after all that it waits for."""
        stack = [first]
        while stack:
            node = stack[-1]
            before = [*node.parents, *([rows[node]] if node in rows else [])]
            missing = [n for n in before if n not in self.new]
            if node in self.new or not missing:
                stack.pop()
            stack += missing
            if not missing and node not in self.new:
                self.new[node] = made = self._made(node, rows.get(node))
                self.nodes.append(made)

    def _made(self, node: Node, row_sum: Node | None) -> Node:
        if row_sum is None:
            inputs = [self.new[i] if type(i) is Node else i for i in node.inputs]
            return on_inputs(
                node, tuple(inputs), tuple(self.new[n] for n in node.after)
            )
        terms = set(self._terms(node))
        operand = self._value(node.inputs[0], terms, node, self.new[row_sum])
        return on_inputs(node, (operand,), tuple(self.new[n] for n in node.after))

    def _value(
        self, value: Any, terms: set[Node], column_sum: Node, row_sum: Node
    ) -> Any:
        """What a copy reads: copies of the terms, through the same views."""
        if type(value) is not Node:
            return value
        if Operand(value).base not in terms:
            return self.new[value]
        key = column_sum, value
        if key not in self.copies:
            inputs = tuple(
                self._value(i, terms, column_sum, row_sum) for i in value.inputs
            )
            after = (row_sum,) if value in terms else ()
            copy = copy_of(value, inputs, after, self.names)
            self.copies[key] = copy
            self.nodes.append(copy)
        return self.copies[key]


def _elementwise(node: Node) -> bool:
    if not isinstance(lowering_of(node), Pointwise):
        return False
    return copyable(node) if not node.after else node.role.is_copy


def _reduces(node: Node, *, last: bool) -> bool:
    """Whether a node adds up rows (the last axis) or columns (others) of a matrix."""
    if not isinstance(lowering_of(node), Reduction) or len(node.inputs) != 1:
        return False
    rank = len(node.inputs[0].shape)
    dim = node.params["dim"]
    axes = {d % rank for d in ((dim,) if isinstance(dim, int) else dim)}
    return rank > 1 and bool(axes) and (rank - 1 in axes) == last
