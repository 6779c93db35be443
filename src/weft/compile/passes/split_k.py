"""Split-K: a long product with few results, as the sum of several products.

    %y: float32[64, 64] = matmul(%a, %b)        %a: float32[64, 8192]
    →
    %p: float32[4, 64, 64] = matmul(...)        a quarter of the sums in each
    %y: float32[64, 64] = sum(%p, dim=(0,))

Threads that share few results all read one operand; threads that share the sums read
each number once. The split depends on shapes alone, so results do not depend on the
number of threads. Products with variables on the right are not split, because these may
be kept packed.
"""

from __future__ import annotations

from weft.compile import targets
from weft.compile.fusion.groups import Operand
from weft.compile.passes.walk import Call, Replacement, Walk
from weft.compile.targets.cpu.matmul.call import product_kind
from weft.compile.targets.cpu.matmul.kinds import FLOATS
from weft.config import config
from weft.core.op import find_op
from weft.graph.ir import READ, Graph, Node
from weft.ops.products import matmul_op

_RESHAPE, _PERMUTE, _SUM = (find_op(name) for name in ("reshape", "permute", "sum"))


def split_k(graph: Graph) -> Graph:
    """Split deep products with few results into parts.

    >>> from weft.compile.passes.split_k import split_k
    >>> a, b = weft.ones(8, 4096), weft.ones(4096, 8)
    >>> g = weft.graph.capture(lambda a, b: a @ b, a, b).graph
    >>> [node.op.name for node in split_k(g).nodes[2:]]
    ['reshape', 'permute', 'reshape', 'matmul', 'sum']
    """
    return graph if config.batch_invariant else _SplitK(graph).run()


class _SplitK(Walk):
    ops = frozenset([matmul_op])

    def visit(self, node: Node) -> Replacement:
        if product_kind(node) not in FLOATS or not _is_deep(node):
            return None
        if Operand(node.inputs[1]).base.op is READ:
            return None  # a variable, which may be kept packed
        left, right = _left(node.inputs[0]), _right(node.inputs[1])
        if left is None or right is None:
            return None
        product = Call(matmul_op, (left, right))
        return Call(_SUM, (product,), {"dim": (0,), "keepdim": False})


def _is_deep(node: Node) -> bool:
    sizes = (*node.shape, node.inputs[0].shape[-1])
    if len(sizes) != 3 or not all(type(n) is int for n in sizes):
        return False
    (m, n, k), cost = sizes, targets.current().cost.split_k
    return k >= cost.least_k and k % cost.blocks == 0 and 0 < m * n <= cost.most_results


def _left(x: Node) -> Call | None:
    """The parts of an operand's columns, as a batch of matrices."""
    (m, k), blocks = x.shape, targets.current().cost.split_k.blocks
    if _is_transposed(x):
        return _permuted(_reshaped(x.inputs[0], (blocks, k // blocks, m)), (0, 2, 1))
    return _permuted(_reshaped(x, (m, blocks, k // blocks)), (1, 0, 2))


def _right(x: Node) -> Call | None:
    """The parts of an operand's rows, as a batch of matrices."""
    (k, n), blocks = x.shape, targets.current().cost.split_k.blocks
    if _is_transposed(x):
        return _permuted(_reshaped(x.inputs[0], (n, blocks, k // blocks)), (1, 2, 0))
    return _reshaped(x, (blocks, k // blocks, n))


def _is_transposed(x: Node) -> bool:
    return x.op is _PERMUTE and x.params["dims"] == (1, 0)


def _reshaped(x: Node, shape: tuple[int, ...]) -> Call | None:
    """A value with its long axis split; None for a view, which would be copied."""
    return None if Operand(x).views else Call(_RESHAPE, (x,), {"shape": shape})


def _permuted(x: Call | None, dims: tuple[int, ...]) -> Call | None:
    return None if x is None else Call(_PERMUTE, (x,), {"dims": dims})
