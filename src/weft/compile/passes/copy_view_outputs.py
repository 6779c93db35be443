"""Outputs that are views, as copies that a kernel makes.

    %t: float32[4096, 1024] = permute(%x, dims=(1, 0))      →  %t/copy = copy(%t)
    return %t                                                   return %t/copy

An output has memory of its own. Kernels write it faster than NumPy copies a view, and a
value that only an output reads need not be stored before.
"""

from __future__ import annotations

import math

from weft.compile import targets
from weft.compile.emit import scalar
from weft.compile.fusion.groups import copied
from weft.core.lowering import View
from weft.core.size import hinted
from weft.graph.ir import Graph, Node


def copy_view_outputs(graph: Graph) -> Graph:
    """Replace large outputs that are views by copies.

    >>> from weft.compile.passes.copy_view_outputs import copy_view_outputs
    >>> g = weft.graph.capture(lambda x: x.T, weft.ones(64, 64)).graph
    >>> copy_view_outputs(g).outputs
    (<copy 'permute/copy' float32[64, 64]>,)
    """
    copies = {out: copied(out) for out in graph.outputs if _is_view(out)}
    if not copies:
        return graph
    outputs = [copies.get(out, out) for out in graph.outputs]
    nodes = [*graph.nodes, *copies.values()]
    return Graph(graph.name, nodes, outputs, graph.sizes, graph.inputs)


def _is_view(node: Node) -> bool:
    if not isinstance(node.op.lower, View) or not scalar.has_dtype(node.dtype):
        return False
    sizes = hinted(node.shape)
    least = targets.current().cost.fusion.copied_view
    return sizes is not None and math.prod(sizes) >= least
