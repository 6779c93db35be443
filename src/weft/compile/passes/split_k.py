"""Split-K: a long product with few results, as the sum of several products.

    %y: float32[64, 64] = matmul(%a, %b)        %a: float32[64, 8192]
    →
    %p: float32[4, 64, 64] = matmul(...)        a quarter of the sums in each
    %y: float32[64, 64] = sum(%p, dim=(0,))

Threads that share out few results all read one operand; those that share out the
sums read each number once. How it is cut depends on shapes alone, so results do not
depend on the number of threads. Variables on the right stay: they may be kept packed.
"""

from __future__ import annotations

from weft.compile import targets
from weft.compile.fusion.groups import Operand
from weft.compile.passes.walk import Call, Found, Walk
from weft.compile.targets.cpu.matmul.call import product_kind
from weft.compile.targets.cpu.matmul.kinds import FLOATS
from weft.config import config
from weft.core.op import find_op
from weft.graph.ir import READ, Graph, Node
from weft.ops.products import matmul_op

_RESHAPE, _PERMUTE, _SUM = (find_op(name) for name in ("reshape", "permute", "sum"))


def split_k(graph: Graph) -> Graph:
    """The graph with deep products of few results in parts.

    >>> from weft.compile.passes.split_k import split_k
    >>> a, b = weft.ones(8, 4096), weft.ones(4096, 8)
    >>> g = weft.graph.capture(lambda a, b: a @ b, a, b).graph
    >>> [node.op.name for node in split_k(g).nodes[2:]]
    ['reshape', 'permute', 'reshape', 'matmul', 'sum']
    """
    return graph if config.batch_invariant else _Shortened(graph).run()


class _Shortened(Walk):
    ops = frozenset([matmul_op])

    def visit(self, node: Node) -> Found:
        if product_kind(node) not in FLOATS or not _is_deep(node):
            return None
        if _is_variable(node.inputs[1]):
            return None
        left, right = _left(node.inputs[0]), _right(node.inputs[1])
        if left is None or right is None:
            return None
        product = Call(matmul_op, (left, right))
        return Call(_SUM, (product,), {"dim": (0,), "keepdim": False})


def _is_deep(node: Node) -> bool:
    sizes = (*node.shape, node.inputs[0].shape[-1])
    if len(sizes) != 3 or not all(type(n) is int for n in sizes):
        return False
    (m, n, k), cost = sizes, targets.default().cost.split_k
    return k >= cost.least_k and k % cost.blocks == 0 and 0 < m * n <= cost.most_results


def _left(x: Node) -> Call | None:
    """Parts of an operand's columns, as matrices."""
    (m, k), blocks = x.shape, targets.default().cost.split_k.blocks
    if _is_turned(x):
        return _swapped(_cut(x.inputs[0], (blocks, k // blocks, m)), (0, 2, 1))
    return _swapped(_cut(x, (m, blocks, k // blocks)), (1, 0, 2))


def _right(x: Node) -> Call | None:
    """Parts of an operand's rows, as matrices."""
    (k, n), blocks = x.shape, targets.default().cost.split_k.blocks
    if _is_turned(x):
        return _swapped(_cut(x.inputs[0], (n, blocks, k // blocks)), (1, 2, 0))
    return _cut(x, (blocks, k // blocks, n))


def _is_turned(x: Node) -> bool:
    return x.op is _PERMUTE and x.params["dims"] == (1, 0)


def _cut(x: Node, shape: tuple[int, ...]) -> Call | None:
    """A value with its long axis as two; a view of another one would be copied."""
    return None if Operand(x).views else Call(_RESHAPE, (x,), {"shape": shape})


def _is_variable(x: Node) -> bool:
    return Operand(x).base.op is READ


def _swapped(x: Call | None, dims: tuple[int, ...]) -> Call | None:
    return None if x is None else Call(_PERMUTE, (x,), {"dims": dims})
