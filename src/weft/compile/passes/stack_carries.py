"""A carry that a loop also gives step by step is kept in the stack alone.

    carry' , (y, …) = body(carry, x)       with y = carry or y = carry'

    last, ys = scan(first, …)          →   stack = scan(first, …, stacked)
                                           ys = stack[:-1] or stack[1:]
                                           last = stack[-1]

The stack has a row for the first value and one for each step. A step reads its carry in
one row and writes the new one to the next, so that nothing is copied. The states of a
recurrent network are such carries: they are its outputs, and gradients need the ones
before each step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.compile.passes.walk import Call, Replacement, Walk
from weft.core.op import find_op
from weft.graph.control.repeat import scan_op
from weft.graph.ir import PICK, Graph, Node
from weft.graph.passes import dead_code

_SLICE = find_op("slice")


def stack_carries(graph: Graph) -> Graph:
    """Give stacks of carries instead of copies.

    >>> def fn(xs):
    ...     return weft.scan(lambda h, x: ((h * x).tanh(), h), xs[0], xs)
    >>> g = weft.graph.capture(fn, weft.ones(3, 2)).graph
    >>> g = weft.compile.passes.stack_carries(g)
    >>> [n.params.get("stacked") for n in g if n.op.name == "scan"]
    [(0,)]
    """
    return _Stacks(graph).run()


class _Loop(NamedTuple):
    """A scan that gives stacks."""

    node: Node
    moved: dict[int, int]  # the new index of each output that it still has
    stacks: dict[int, tuple[int, bool]]  # of others: the carry, and whether a new one
    carries: set[int]  # of which the last is a row of the stack


class _Stacks(Walk):
    ops = frozenset([scan_op, PICK])
    needs = frozenset([scan_op])

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.loops: dict[str, _Loop] = {}

    def visit(self, node: Node) -> Replacement:
        if node.op is scan_op:
            stacks = _stacks(node)
            if stacks and node.name not in self.loops:
                self.loops[node.name] = self._stacked(node, stacks)
            return None  # nothing reads it any more
        loop = self.loops.get(node.inputs[0].name)
        if loop is None or loop.node is node.inputs[0]:
            return None
        index = node.params["index"]
        if index in loop.stacks:
            carry, new = loop.stacks[index]
            return self._rows(loop, carry, new)
        if index in loop.carries:
            return self._last(loop, index)
        return Call(PICK, (loop.node,), {"index": loop.moved[index]})

    def _stacked(self, node: Node, stacks: dict[int, tuple[int, bool]]) -> _Loop:
        params, body = node.params, node.params["body"]
        kept = [k for k in range(len(body.outputs)) if k not in stacks]
        outputs = [body.outputs[k] for k in kept]
        new = dead_code(Graph(body.name, body.nodes, outputs, body.sizes, body.inputs))
        carries = {carry for carry, _ in stacks.values()}
        more = {"body": new, "saved": 0, "stacked": tuple(sorted(carries))}
        scan = self.part(Call(scan_op, node.inputs, {**params, **more}), node)
        assert scan is not None
        moved = {k: at for at, k in enumerate(kept)}
        return _Loop(scan, moved, stacks, carries)

    def _rows(self, loop: _Loop, carry: int, new: bool) -> Call:
        """The carries before each step, or the new ones after it."""
        length = loop.node.params["length"]
        later = new != loop.node.params["reverse"]
        rows = slice(1, length + 1) if later else slice(0, length)
        return self._slice(loop, carry, rows)

    def _last(self, loop: _Loop, carry: int) -> Call:
        first = loop.node.params["reverse"]
        return self._slice(loop, carry, 0 if first else loop.node.params["length"])

    def _slice(self, loop: _Loop, carry: int, rows: Any) -> Call:
        stack = Call(PICK, (loop.node,), {"index": carry})
        return Call(_SLICE, (stack,), {"index": (rows,)})


def _stacks(node: Node) -> dict[int, tuple[int, bool]]:
    """The outputs that are carries, old or new ones, and whose."""
    params = node.params
    body, fixed, carried = params["body"], params["fixed"], params["carried"]
    if params.get("stacked"):
        return {}
    old = {body.inputs[fixed + k]: k for k in range(carried)}
    new = {body.outputs[k]: k for k in range(carried)}
    found: dict[int, tuple[int, bool]] = {}
    for k in range(carried, len(body.outputs)):
        out = body.outputs[k]
        if out in new:
            found[k] = new[out], True
        elif out in old:
            found[k] = old[out], False
    # A carry that does not change, or that is another one's new value, is no stack.
    ends = body.outputs[:carried]
    taken = [k for k in range(carried) if ends[k] in old or ends.count(ends[k]) > 1]
    return {k: pair for k, pair in found.items() if pair[0] not in taken}
