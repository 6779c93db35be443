"""A sum of thin products becomes one product of concatenated operands.

    %a: float32[9, 8] = matmul(%p, %q)
    %b: float32[9, 8] = matmul(%r, %s)         %left = cat(%p, %r, dim=1)
    %c: float32[9, 8] = add(%a, %b)        →   %right = cat(%q, %s, dim=0)
                                               %c = matmul(%left, %right)

A weight that an unrolled loop reads in each step has such a gradient: many thin
products, each added to the whole. In one product, the sum stays in registers. The
gradient of a bias is a sum of sums over rows that such products read too: one sum over
the concatenated rows. Terms are added in another order, so the pass does nothing in
strict mode.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from weft.compile import targets
from weft.compile.passes.policy import Policy
from weft.compile.passes.simplify_views import PERMUTE
from weft.compile.passes.walk import Call, Replacement, Walk
from weft.core.op import find_op
from weft.graph.ir import Graph, Node

_ADD = find_op("add")
_CAT = find_op("cat")
_MATMUL = find_op("matmul")
_SUM = find_op("sum")
_TRANSPOSE = (1, 0)


def merge_product_sums(graph: Graph) -> Graph:
    """Replace sums of thin products by products of concatenated operands.

    >>> def fn(w, *xs):
    ...     return sum((x @ w).sum() for x in xs)
    >>> w, xs = weft.ones(9, 8), [weft.ones(2, 9) for _ in range(4)]
    >>> g = weft.graph.gradients(weft.graph.capture(fn, w, *xs).graph)
    >>> names = [n.op.name for n in weft.compile.passes.merge_product_sums(g)]
    >>> names.count("matmul") - names.count("cat")
    7
    """
    return _Sums(graph).run()


class _Sums(Walk):
    ops = frozenset([_ADD])
    needs = frozenset([_MATMUL])

    @cached_property
    def inside(self) -> set[str]:
        """The names of sums that are terms of others."""
        adds = [n for n in self.graph.nodes if n.op is _ADD]
        terms = [i for n in adds for i in n.inputs if type(i) is Node]
        return {i.name for i in terms if i.op is _ADD}

    @cached_property
    def order(self) -> dict[str, int]:
        return {node.name: k for k, node in enumerate(self.graph.nodes)}

    def visit(self, node: Node) -> Replacement:
        if node.op is not _ADD or not Policy.ROUNDING.allows(node.dtype):
            return None
        if node.name in self.inside and self.used_once(node):
            return None  # it is part of a longer sum
        thin, rows, rest = self.terms(node)
        merged: list[Any] = []
        many = targets.current().cost.fusion.merged_sums
        for terms, whole in ((thin, _product), (rows, _total)):
            merged += [whole(self._in_order(terms))] if len(terms) >= many else terms
        if len(merged) == len(thin) + len(rows):
            return None
        total, *others = merged + rest
        for one in others:
            total = Call(_ADD, (total, one))
        return total

    def terms(self, root: Node) -> tuple[list[Node], list[Node], list[Any]]:
        """The thin products of a sum, the sums over rows, and its other terms."""
        thin, rows, rest, stack = [], [], [], list(reversed(root.inputs))
        while stack:
            one = stack.pop()
            if type(one) is not Node or not self.used_once(one):
                rest.append(one)
            elif one.op is _ADD:
                stack.extend(reversed(one.inputs))
            elif _thin(one, root):
                thin.append(one)
            elif self._over_rows(one, root):
                rows.append(one)
            else:
                rest.append(one)
        return thin, rows, rest

    def _over_rows(self, node: Node, root: Node) -> bool:
        """Whether a node sums the rows of a matrix that is concatenated anyway."""
        if node.op is not _SUM or node.after or node.type != root.type:
            return False
        (x,) = node.inputs
        if type(x) is not Node or len(x.shape) != 2 or x.name not in self.merged:
            return False
        plain = node.params["dim"] == (0,) and not node.params["keepdim"]
        return plain and all(isinstance(n, int) for n in x.shape)

    def _in_order(self, terms: list[Node]) -> list[Node]:
        """Terms in the order in which their operands are concatenated already, or as
        they are computed."""
        for side in range(len(terms[0].inputs)):
            names = [_base(one.inputs[side]).name for one in terms]
            position = self.rows.get(frozenset(names))
            if position and len(position) == len(names):
                operand = dict(zip((one.name for one in terms), names, strict=True))
                return sorted(terms, key=lambda one: position[operand[one.name]])
        return sorted(terms, key=lambda one: self.order.get(one.name, -1))

    @cached_property
    def rows(self) -> dict[frozenset[str], dict[str, int]]:
        """The position of each matrix in existing concatenations of rows."""
        cats = [n for n in self.graph.nodes if n.op is _CAT and n.params["dim"] == 0]
        positions = [{i.name: k for k, i in enumerate(n.inputs)} for n in cats]
        return {frozenset(position): position for position in positions}

    @cached_property
    def merged(self) -> set[str]:
        """The names of matrices that thin products read, transposed or not."""
        thin = [n for n in self.graph.nodes if n.op is _MATMUL and _thin(n, n)]
        return {_base(operand).name for n in thin for operand in n.inputs}


def _base(operand: Any) -> Any:
    """An operand of a product before it was transposed."""
    return operand.inputs[0] if operand.op is PERMUTE else operand


def _product(terms: list[Node]) -> Call:
    """The sum of products, as one product."""
    left = _concat([one.inputs[0] for one in terms], 1)
    right = _concat([one.inputs[1] for one in terms], 0)
    return Call(_MATMUL, (left, right), terms[0].params)


def _total(terms: list[Node]) -> Call:
    """The sum of sums over rows, as one sum."""
    return Call(_SUM, (_concat([t.inputs[0] for t in terms], 0),), terms[0].params)


def _thin(node: Node, root: Node) -> bool:
    """Whether a node is a product whose operands are small beside it."""
    if node.op is not _MATMUL or node.after or node.type != root.type:
        return False
    a, b = (i for i in node.inputs)
    if not (type(a) is type(b) is Node) or not len(a.shape) == len(b.shape) == 2:
        return False
    sizes = *node.shape, a.shape[1]
    return all(isinstance(n, int) for n in sizes) and 2 * sizes[2] <= min(sizes[:2])


def _concat(pieces: list[Node], dim: int) -> Call:
    """The concatenation of matrices; transposed ones are transposed after it."""
    if all(p.op is PERMUTE and p.params["dims"] == _TRANSPOSE for p in pieces):
        bases = tuple([p.inputs[0] for p in pieces])
        whole = Call(_CAT, bases, {"dim": 1 - dim})
        return Call(PERMUTE, (whole,), {"dims": _TRANSPOSE})
    return Call(_CAT, tuple(pieces), {"dim": dim})
