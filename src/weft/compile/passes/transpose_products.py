"""A transposed product becomes the product of its transposed operands.

    %t: float32[3, 2] = permute(%a, dims=(1, 0))
    %p: float32[3, 4] = matmul(%t, %g)           %r/permute = permute(%g, dims=(1, 0))
    %r: float32[4, 3] = permute(%p, dims=(1, 0)) →  %r = matmul(%r/permute, %a)

A linear layer's weight gradient is such a product. Transposed, it has the layout of the
weight, so that the optimizer's update reads both in order. The sums inside have the
same terms, but a kernel may add them in another order, so the pass does nothing in
strict mode.
"""

from __future__ import annotations

from weft.compile.passes.policy import Policy
from weft.compile.passes.simplify_views import PERMUTE
from weft.compile.passes.walk import Call, Replacement, Walk
from weft.core.op import find_op
from weft.graph.ir import Graph, Node

_MATMUL = find_op("matmul")


def transpose_products(graph: Graph) -> Graph:
    """Replace transposed products by products of transposed operands.

    >>> g = weft.graph.capture(
    ...     lambda a, g: (a.T @ g).T, weft.ones(2, 3), weft.ones(2, 4)).graph
    >>> print(weft.compile.passes.transpose_products(g))
    graph program(%a: float32[2, 3], %g: float32[2, 4]) {
      %permute_1/permute: float32[4, 2] = permute(%g, dims=(1, 0))
      %permute_1: float32[4, 3] = matmul(%permute_1/permute, %a)
      return %permute_1
    }
    """
    return _Products(graph).run()


class _Products(Walk):
    ops = frozenset([PERMUTE])
    needs = frozenset([_MATMUL])

    def visit(self, node: Node) -> Replacement:
        if node.op is not PERMUTE or not Policy.ROUNDING.allows(node.dtype):
            return None
        product: Node = node.inputs[0]
        if product.op is not _MATMUL or not self.used_once(product):
            return None
        if len(node.shape) < 2:
            return None
        *lead, a, b = range(len(node.shape))
        swap = (*lead, b, a)
        if node.params["dims"] != swap:
            return None
        x, y = product.inputs
        if not len(x.shape) == len(y.shape) == len(swap):
            return None
        return Call(
            _MATMUL, (_transposed(y, swap), _transposed(x, swap)), product.params
        )


def _transposed(x: Node, swap: tuple[int, ...]) -> Node | Call:
    if x.op is PERMUTE and x.params["dims"] == swap:
        return x.inputs[0]
    return Call(PERMUTE, (x,), {"dims": swap})
