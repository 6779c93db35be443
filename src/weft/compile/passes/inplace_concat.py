"""Make the pieces of long concatenations contiguous, so that each can be copied.

    %c: float32[64, 1024] = cat(%a, %b, …, dim=0)

In one kernel, each element would have to find out which piece it belongs to. Instead
each piece is copied into the whole by a launch of its own (``program.concat``), or
computed there.
"""

from __future__ import annotations

from weft.compile import targets
from weft.compile.emit import scalar
from weft.compile.fusion.groups import COPY, Operand, inlined, shares_quotients
from weft.compile.passes.walk import Call, Replacement, Walk
from weft.core.op import find_op
from weft.core.size import same
from weft.graph.ir import Graph, Node

_CAT, _RESHAPE = find_op("cat"), find_op("reshape")


def is_joined(node: Node) -> bool:
    """Whether a node concatenates so many pieces that launches copy them one by one."""
    return (
        node.op is _CAT
        and len(node.inputs) >= targets.current().cost.fusion.concat_pieces
        and scalar.has_dtype(node.dtype)
        and not any(same(n, 0) for n in node.shape)
    )


def inplace_concat(graph: Graph) -> Graph:
    """Copy operands that are not contiguous, where memory must be read in order.

    Such are the pieces of long concatenations, and the operands of operators that
    divide indices, whose loops are vectors only then.

    >>> from weft.compile.passes.inplace_concat import inplace_concat
    >>> def fn(x):
    ...     return weft.cat([x, x, x.T, x, x, x])
    >>> g = weft.graph.capture(fn, weft.ones(2, 2)).graph
    >>> [node.op.name for node in inplace_concat(g) if node.inputs]
    ['permute', 'copy', 'cat']
    """
    return _Contiguous(graph).run()


class _Contiguous(Walk):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.pinned = set()  # the node stays where it is; only its operands are copied

    def visit(self, node: Node) -> Replacement:
        wanted = is_joined(node) or shares_quotients(node.op.lower)
        if not wanted or not any(map(_is_strided, node.inputs)):
            return None
        inputs = [Call(COPY, (i,)) if _is_strided(i) else i for i in node.inputs]
        return Call(node.op, tuple(inputs), node.params)


def _is_strided(piece: Node) -> bool:
    """Whether a piece is not in memory, or not contiguous there."""
    operand = Operand(piece)
    return inlined(operand.base) or any(v.op is not _RESHAPE for v in operand.views)
