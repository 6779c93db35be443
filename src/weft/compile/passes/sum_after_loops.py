"""Sums of products that a loop carries along become one product after the loop.

    body: sum' = sum + g.T @ x          body: gives g; x is an input of the scan
    scan: sum, … = scan(0, …)       →   scan: gs, … = scan(…)
                                        sum = gs.reshape(T*n, p).T @ xs.reshape(T*n, q)

The gradient of a weight that a loop reads is such a sum: in each step a thin product is
added to the whole. The gradient of a bias is a sum of sums over rows likewise. Terms
are added in another order, so the pass does nothing in strict mode.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from weft.compile.passes.policy import Policy
from weft.compile.passes.walk import Call, Replacement, Walk
from weft.core.op import find_op
from weft.graph.control.repeat import scan_op
from weft.graph.ir import PICK, Graph, Node
from weft.graph.passes import dead_code

_ADD = find_op("add")
_MATMUL = find_op("matmul")
_PERMUTE = find_op("permute")
_RESHAPE = find_op("reshape")
_SUM = find_op("sum")


def sum_after_loops(graph: Graph) -> Graph:
    """Take sums of products, and of rows, out of scans.

    >>> from weft.compile.passes import simplify, sum_after_loops, transpose_products
    >>> def fn(w, xs):
    ...     step = lambda h, x: ((h @ w + x).tanh(), None)
    ...     return weft.scan(step, xs[0], xs)[0].sum()
    >>> w, xs = weft.ones(8, 8), weft.ones(3, 2, 8)
    >>> g = weft.graph.gradients(weft.graph.capture(fn, w, xs).graph)
    >>> g = transpose_products(simplify(g))
    >>> [p.params["carried"] for p in g if p.op.name == "scan"]
    [1, 1, 2]
    >>> [p.params["carried"] for p in sum_after_loops(g) if p.op.name == "scan"]
    [1, 1, 1]
    """
    return _Sums(graph).run()


class _Term(NamedTuple):
    """What a step adds to a carry: the product of two values, or one value's rows."""

    carry: int
    values: tuple[Node, ...]  # left (transposed there) and right, or the rows


class _Loop(NamedTuple):
    """A scan without its sums."""

    node: Node  # the new scan
    old: Node
    moved: dict[int, int]  # the new index of each output that it still has
    terms: dict[int, _Term]
    rows: dict[Node, Any]  # the stack of each value: a call


class _Sums(Walk):
    ops = frozenset([scan_op, PICK])
    needs = frozenset([scan_op])

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.loops: dict[str, _Loop] = {}

    def visit(self, node: Node) -> Replacement:
        if node.op is scan_op:
            terms = _terms(node)
            if terms and node.name not in self.loops:
                self.loops[node.name] = self._without(node, terms)
            return None  # nothing reads it any more, if its sums are taken out
        loop = self.loops.get(node.inputs[0].name)
        if loop is None or loop.node is node.inputs[0]:
            return None
        index = node.params["index"]
        if index not in loop.terms:
            return Call(PICK, (loop.node,), {"index": loop.moved[index]})
        return self._total(loop, loop.terms[index])

    def _without(self, node: Node, terms: list[_Term]) -> _Loop:
        """A scan without these carries, that gives the values of their terms."""
        params = node.params
        body, fixed, carried = params["body"], params["fixed"], params["carried"]
        start, gone = fixed + carried, {term.carry for term in terms}
        outs = {k: n for k, n in enumerate(body.outputs) if k not in gone}
        index = {k: at for at, k in enumerate(outs)}
        made, sources = list(outs.values()), {}
        first = carried - len(gone)
        for value in dict.fromkeys(v for term in terms for v in term.values):
            if value in body.inputs[start:]:
                sources[value] = node.inputs[body.inputs.index(value)]
                continue
            if value not in made[first:]:
                made.append(value)
            sources[value] = first + made[first:].index(value)
        inputs = [i for k, i in enumerate(body.inputs) if k - fixed not in gone]
        left_out = {body.inputs[fixed + k] for k in gone}
        left_out |= {body.outputs[k] for k in gone}
        nodes = [n for n in body.nodes if n not in left_out]
        new = dead_code(Graph(body.name, nodes, made, body.sizes, inputs))
        given = tuple(i for k, i in enumerate(node.inputs) if k - fixed not in gone)
        call = Call(
            scan_op, given, {**params, "body": new, "carried": first, "saved": 0}
        )
        scan = self.part(call, node)
        assert scan is not None
        rows = {
            value: one if type(one) is Node else Call(PICK, (scan,), {"index": one})
            for value, one in sources.items()
        }
        by_carry = {term.carry: term for term in terms}
        return _Loop(scan, node, index, by_carry, rows)

    def _total(self, loop: _Loop, term: _Term) -> Replacement:
        params = loop.old.params
        start = loop.old.inputs[params["fixed"] + term.carry]
        stacks = [self._stacked(loop, value) for value in term.values]
        if len(stacks) == 1:
            total = Call(_SUM, (stacks[0],), {"dim": (0,), "keepdim": False})
        else:
            left = Call(_PERMUTE, (stacks[0],), {"dims": (1, 0)})
            total = Call(_MATMUL, (left, stacks[1]))
        return Call(_ADD, (start, total))

    def _stacked(self, loop: _Loop, value: Node) -> Call:
        """The rows of a value in all steps, below one another."""
        steps = loop.old.params["length"]
        rows, *rest = value.shape
        shape = (steps * rows, *rest)
        return Call(_RESHAPE, (loop.rows[value],), {"shape": shape})


def _terms(node: Node) -> list[_Term]:
    """The carries of a scan that are sums of products, or of rows."""
    body, fixed = node.params["body"], node.params["fixed"]
    uses = Counter(i for n in body.nodes for i in n.inputs if type(i) is Node)
    uses.update(body.outputs)
    terms = []
    for k in range(node.params["carried"]):
        carry, out = body.inputs[fixed + k], body.outputs[k]
        if out.op is not _ADD or out.after or uses[out] != 1 or uses[carry] != 1:
            continue
        if not Policy.ROUNDING.allows(out.dtype) or carry not in out.inputs:
            continue
        (term,) = [i for i in out.inputs if i is not carry] or [None]
        values = _factors(term)
        if values and term.type == out.type and uses[term] == 1:
            terms.append(_Term(k, values))
    return terms


def _factors(node: Any) -> tuple[Node, ...]:
    """The factors of a product with a transposed left one, or what rows are summed."""
    if type(node) is not Node or node.after:
        return ()
    inputs = [i for i in node.inputs if type(i) is Node]
    if any(len(i.shape) != 2 for i in inputs):
        return ()
    if node.op is _MATMUL and len(inputs) == 2:
        left, right = inputs
        if left.op is _PERMUTE and left.params["dims"] == (1, 0):
            return left.inputs[0], right
    if node.op is _SUM and node.params["dim"] == (0,) and not node.params["keepdim"]:
        return (inputs[0],)
    return ()
