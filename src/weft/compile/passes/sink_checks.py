"""Move checks of values beside the nodes that need them.

    %ok = require(%x, %holds)               %all = all(%holds)
    %y = exp(%ok)                      →    %ok = require(%all, %all)
                                            %y = exp(%x)

The check then splits no fusion group, and stores one number. When it fails, the program
is run again as it was captured, and the error tells the value.
"""

from __future__ import annotations

from weft.compile.passes.walk import Call, Replacement, Walk
from weft.core.op import find_op
from weft.graph.ir import Graph, Node

_REQUIRE, _ALL = find_op("require"), find_op("all")


def sink_checks(graph: Graph) -> Graph:
    """Reduce every check to one number that nothing else reads.

    >>> from weft.ops.require import require
    >>> def fn(x):
    ...     return require(x, lambda x: x > 0, "not above 0").exp()
    >>> g = weft.graph.capture(fn, weft.ones(2)).graph
    >>> for node in list(weft.compile.passes.sink_checks(g))[1:]:
    ...     print(node.op.name, [i.name for i in node.inputs if i != 0])
    gt ['x']
    all ['gt']
    require ['require/all', 'require/all']
    exp ['x']
    """
    return _Checks(graph).run()


class _Checks(Walk):
    ops = frozenset([_REQUIRE])

    def inner(self, graph: Graph) -> Graph:
        return graph  # it is interpreted, and tells the value itself

    def visit(self, node: Node) -> Replacement:
        if node.op is not _REQUIRE or node.inputs[0] is node.inputs[1]:
            return None
        x, holds = node.inputs
        dims = {"dim": tuple(range(len(holds.shape))), "keepdim": False}
        flag = self.part(Call(_ALL, (holds,), dims), node)
        self.part(Call(_REQUIRE, (flag, flag), node.params), node)
        return x
