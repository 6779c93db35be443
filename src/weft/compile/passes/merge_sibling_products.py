"""Siblings: products that share their left operand become one product.

    q = x @ a                          y = x @ cat([a, b, c])
    k = x @ b        a, b, c frozen →  q, k, v = y[:, :n], y[:, n:m], y[:, m:]
    v = x @ c

Convolutions of one input with the same kernel size, stride, padding and dilation are
merged likewise. Weights must be constants: concatenating variables would copy them in
every run, which costs more than one launch saves on a CPU. Results may differ in the
last bits, so the pass does nothing in strict mode.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.compile.passes.cse import key_of
from weft.compile.passes.policy import Policy
from weft.compile.passes.walk import Call, Replacement, Walk
from weft.core.op import find_op
from weft.graph.ir import CONSTANT, Graph, Node

_MATMUL = find_op("matmul")
_CONV = find_op("conv")
_BIASED = find_op("conv_bias")
_SLICE = find_op("slice")


def merge_sibling_products(graph: Graph) -> Graph:
    """Merge sibling products of frozen weights.

    >>> a, b = weft.ones(3, 4), weft.ones(3, 5)
    >>> g = weft.graph.capture(lambda x: (x @ a, x @ b), weft.ones(2, 3)).graph
    >>> g = weft.compile.passes.freeze(g, {"a": a.numpy(), "b": b.numpy()})
    >>> g = weft.compile.passes.merge_sibling_products(g)
    >>> [node.op.name for node in g if node.inputs]
    ['matmul', 'slice', 'slice']
    """
    return _Siblings(graph).run()


class _Siblings(Walk):
    ops = frozenset([_MATMUL, _CONV, _BIASED])
    needs = frozenset([CONSTANT])

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.groups: dict[Any, list[Node]] = {}
        for node in graph.nodes:
            if _merges(node):
                self.groups.setdefault(_kind(node), []).append(node)
        self.merged: dict[Any, Node] = {}

    def visit(self, node: Node) -> Replacement:
        """A slice of the merged product, which the first sibling adds."""
        group = self.groups.get(_kind(node), ()) if _merges(node) else ()
        names = [one.name for one in group]
        if len(names) < 2 or node.name not in names:
            return None
        kind = _kind(node)
        if kind not in self.merged:
            self.merged[kind] = self.product(node, group)
        k = names.index(node.name)
        axis = _axis(node)
        start = sum(one.shape[axis] for one in group[:k])
        item = slice(start, start + node.shape[axis])
        index = (*(slice(None),) * axis, item)
        return Call(_SLICE, (self.merged[kind],), {"index": index})

    def product(self, node: Node, group: Any) -> Node:
        weights = []
        for k in range(1, len(node.inputs)):
            arrays = [one.inputs[k].params["value"] for one in group]
            axis = 1 if node.op is _MATMUL else 0
            value = np.concatenate(arrays, axis)
            weights.append(Call(CONSTANT, (), {"value": value}))
        merged = self.part(Call(node.op, (node.inputs[0], *weights), node.params), node)
        assert merged is not None
        return merged


def _merges(node: Node) -> bool:
    """Whether a node is a product with constants that can be merged with others."""
    if node.op not in (_MATMUL, _CONV, _BIASED) or node.after:
        return False
    if not Policy.ROUNDING.allows(node.dtype) or node.params.get("groups", 1) != 1:
        return False
    weights = node.inputs[1:]
    if not all(type(w) is Node and w.op is CONSTANT for w in weights):
        return False
    return node.op is not _MATMUL or len(weights[0].shape) == 2


def _kind(node: Node) -> Any:
    """The key that siblings have in common."""
    w = node.inputs[1]
    shape = w.shape[:1] if node.op is _MATMUL else w.shape[1:]
    params = tuple([key_of(v) for v in node.params.values()])
    return node.op, node.inputs[0].name, shape, params


def _axis(node: Node) -> int:
    """The axis along which results are concatenated."""
    return len(node.shape) - 1 if node.op is _MATMUL else 1
