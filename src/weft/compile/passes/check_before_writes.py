"""Indices of what is written into state are checked before anything is written.

                                            %fine = all(index in range)
    %c = put(read(cache), %at, %row)   →    %check = require(%fine, %fine)
    assign(cache, %c)                       %c = put(read(cache), %at, %row, checked)
                                            assign(cache, %c)

A kernel that checks its indices while it writes can fail when it has written: state
could not be written in place by it, and all of it would be copied for a row.
"""

from __future__ import annotations

from collections.abc import Collection

from weft.compile.passes.walk import Call, Replacement, Walk
from weft.core.op import find_op
from weft.dtype import int64
from weft.graph.ir import ASSIGN, Graph, Node, Variable

_PUT, _REQUIRE, _ALL = find_op("put"), find_op("require"), find_op("all")
_FULL, _AND = find_op("full"), find_op("logical_and")
_GE, _LT, _CAST = find_op("ge"), find_op("lt"), find_op("cast")


def check_before_writes(graph: Graph, in_place: Collection[Variable] = ()) -> Graph:
    """Check the indices of each ``put`` whose result is the new value of state.

    >>> from weft.compile.passes.check_before_writes import check_before_writes
    >>> cache = weft.zeros(8, 4)
    >>> def write(at, row):
    ...     cache[at] = row
    >>> g = weft.graph.capture(write, weft.tensor(3), weft.ones(4)).graph
    >>> made = check_before_writes(g, g.variables.values())
    >>> [node.op.name for node in made.nodes][-4:]
    ['all', 'require', 'put', 'assign']
    """
    written = {
        n.inputs[0]
        for n in graph.nodes
        if n.op is ASSIGN and n.params["variable"] in in_place
    }
    return _Checks(graph, {n.name for n in written if n.op is _PUT}).run()


class _Checks(Walk):
    ops = frozenset([_PUT])

    def __init__(self, graph: Graph, names: Collection[str] = ()) -> None:
        super().__init__(graph)
        self.names = names

    def visit(self, node: Node) -> Replacement:
        if node.name not in self.names or node.params.get("checked"):
            return None
        x, index, _ = node.inputs
        size = x.shape[node.params["axis"]]
        at = Call(_CAST, (index,), {"dtype": int64})
        low, high = (
            Call(_FULL, (), {"shape": index.shape, "value": n, "dtype": int64})
            for n in (-size, size)
        )
        inside = Call(_AND, (Call(_GE, (at, low)), Call(_LT, (at, high))))
        dims = {"dim": tuple(range(len(index.shape))), "keepdim": False}
        flag = self.part(Call(_ALL, (inside,), dims), node)
        told = {"error": "OutOfRangeError", "text": "put: an index is out of range"}
        self.part(Call(_REQUIRE, (flag, flag), told), node)
        return Call(_PUT, node.inputs, {**node.params, "checked": True})
