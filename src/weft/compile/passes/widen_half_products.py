"""Products of half-precision elements, as wide products and a cast.

    %y: bfloat16[2, 4] = matmul(%a, %b)     %y/wide_matmul: float32[2, 4] =
                                                wide_matmul(%a, %b, dtype=float32)
                                        →   %y: bfloat16[2, 4] =
                                                cast(%y/wide_matmul, dtype=bfloat16)

The cast becomes part of the product's epilogue. Wide products that the target's library
cannot compute become products of cast operands.
"""

from __future__ import annotations

from weft.compile import targets
from weft.compile.passes.walk import Call, Replacement, Walk
from weft.dtype import bfloat16, float16, float32, int8, int32, uint8
from weft.graph.ir import Graph, Node
from weft.ops.copies import cast_op
from weft.ops.products import matmul_op, wide_matmul_op

_WIDE = {int8: int32, uint8: int32, float16: float32, bfloat16: float32}


class _Narrow(Walk):
    ops = frozenset([matmul_op, wide_matmul_op])

    def visit(self, node: Node) -> Replacement:
        if node.op not in self.ops or targets.current().library_call(node) is not None:
            return None
        if node.op is matmul_op:
            return _with_wide_result(node)
        cast = [Call(cast_op, (i,), node.params) for i in node.inputs]
        return Call(matmul_op, tuple(cast))


def _with_wide_result(node: Node) -> Replacement:
    wide = _WIDE.get(node.dtype)
    if wide is None:
        return None
    product = Call(wide_matmul_op, node.inputs, {"dtype": wide})
    return Call(cast_op, (product,), {"dtype": node.dtype})


def widen_half_products(graph: Graph) -> Graph:
    """Replace products of short elements by those that kernels compute.

    >>> from weft.compile.passes.widen_half_products import widen_half_products
    >>> x = weft.ones(2, 2, dtype=weft.int8)
    >>> graph = weft.graph.capture(lambda a: a @ a, x).graph
    >>> [node.op.name for node in widen_half_products(graph).nodes]
    ['input', 'wide_matmul', 'cast']
    """
    return _Narrow(graph).run()
