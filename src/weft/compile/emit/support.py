"""The nodes that LLVM code can be emitted for, as a part of kernels."""

from __future__ import annotations

from weft.compile.emit import scalar
from weft.compile.fusion.elements import lowering_of
from weft.compile.passes.inplace_concat import is_joined
from weft.core.lowering import (
    Element,
    Filled,
    Pointwise,
    Reduction,
    Scan,
    Scatter,
    View,
)
from weft.core.size import same
from weft.graph.ir import Node


def supported(node: Node) -> bool:
    """Whether a node can be part of a kernel."""
    rule = lowering_of(node)
    if isinstance(rule, View):
        return True
    if is_joined(node):
        return False
    if isinstance(rule, (Element, Scatter, Scan)):
        inputs = [i for i in node.inputs if type(i) is Node]
        made = node.type if type(node.type) is tuple else (node.type,)
        if any(
            same(n, 0) for one in made for n in one.shape
        ):  # a call checks its indices all the same
            return False
        return all(scalar.has_dtype(n.dtype) for n in (*made, *inputs))
    if not isinstance(rule, (Pointwise, Reduction, Filled)):
        return False
    if isinstance(rule, Filled):
        return scalar.has_dtype(node.dtype)
    if isinstance(rule, Reduction):
        return scalar.has_function(rule.combine, [node.dtype] * 2, node.dtype)
    tensors = [i.dtype for i in node.inputs if type(i) is Node]
    if not tensors:
        return False
    like = tensors[-1]
    kinds = [i.dtype if type(i) is Node else like for i in node.inputs]
    return scalar.has_function(rule.scalar, kinds, node.dtype)
