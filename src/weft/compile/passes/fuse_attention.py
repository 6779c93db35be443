"""Attention written out becomes the operator, which never stores its scores.

    softmax(q @ k^T * scale + mask) @ v                   →  attention(q, k, v, mask)
    softmax(where(m, q @ k^T * scale, -inf)) @ v          →  attention(q, k, v, m)

if nothing else reads the weights: a backward pass that was captured with them keeps
both as they are. A mask that hides just the keys after each query, however it is
computed, becomes ``causal``. The order of sums changes, so the pass does nothing in
strict mode.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from weft.compile.passes.facts import EXPAND, RESHAPE, WHERE, splat
from weft.compile.passes.policy import Policy
from weft.compile.passes.simplify_views import PERMUTE
from weft.compile.passes.walk import Call, Replacement, Walk
from weft.core.lowering import Filled
from weft.core.op import Op, find_op
from weft.core.size import Size, is_one
from weft.graph.ir import CONSTANT, PICK, Graph, Node
from weft.ops.attention import attention_op

_MATMUL, _DIV, _EXP, _SUB, _SUM, _AMAX, _MUL, _ADD, _NOT = map(
    find_op, ("matmul", "div", "exp", "sub", "sum", "amax", "mul", "add", "bitwise_not")
)
_MOST = 1 << 23  # elements of a mask that are computed to recognise it


def fuse_attention(graph: Graph) -> Graph:
    """Replace attention that is written out by the operator.

    >>> def fn(q, k, v):
    ...     return (q @ k.T * 0.5).softmax(-1) @ v
    >>> q = weft.ones(3, 4)
    >>> g = weft.compile.passes.simplify_views(weft.graph.capture(fn, q, q, q).graph)
    >>> [node.op.name for node in weft.compile.passes.fuse_attention(g) if node.inputs]
    ['permute', 'permute', 'attention', 'pick']
    """
    return _Attention(graph).run()


class _Scores(NamedTuple):
    """``left @ right * scale`` and a mask, if there is one."""

    left: Node
    right: Node
    scale: float = 1.0
    mask: Node | Call | None = None


class _Attention(Walk):
    ops = frozenset([_MATMUL])
    needs = frozenset([_DIV, _EXP, _SUB, _SUM, _AMAX])

    def visit(self, node: Node) -> Replacement:
        if node.op is not _MATMUL or node.dtype.name not in ("float32", "float64"):
            return None
        if not Policy.ROUNDING.allows(node.dtype):
            return None
        logits = self.softmax_input(node.inputs[0])
        scores = None if logits is None else self.masked(logits)
        if scores is None:
            return None
        k = Call(PERMUTE, (scores.right,), {"dims": _swapped(len(node.shape))})
        inputs = [scores.left, k, node.inputs[1]]
        causal = scores.mask is not None and _is_causal(scores.mask)
        inputs += [] if scores.mask is None or causal else [scores.mask]
        params = {"causal": causal, "scale": scores.scale, "zeros": False}
        return Call(PICK, (Call(attention_op, tuple(inputs), params),), {"index": 0})

    def uses(self, value: Any, op: Op, most: int = 1) -> bool:
        """Whether a value is an operator's result with at most so many uses."""
        if type(value) is not Node or value.op is not op:
            return False
        return self._uses[value.name] <= most

    def softmax_input(self, weights: Any) -> Node | None:
        """The input of the softmax along the last axis that the weights are."""
        if not self.uses(weights, _DIV):
            return None
        e, total = weights.inputs
        if not self.uses(e, _EXP, 2) or self.reduced(total, _SUM) is not e:
            return None
        if not self.uses(e.inputs[0], _SUB):
            return None
        scores, top = e.inputs[0].inputs
        return scores if self.reduced(top, _AMAX) is scores else None

    def reduced(self, value: Any, op: Op) -> Any:
        """The input of a reduction of rows that is expanded along the rows again."""
        if not self.uses(value, EXPAND) or not self.uses(value.inputs[0], op):
            return None
        one = value.inputs[0]
        last = len(value.shape) - 1
        along = one.params["dim"] in (last, (last,)) and one.params["keepdim"]
        return one.inputs[0] if along else None

    def masked(self, scores: Node) -> _Scores | None:
        """The product, scale and mask of scores that only the softmax reads."""
        if self.uses(scores, _ADD, 2):
            for x, mask in (scores.inputs, reversed(scores.inputs)):
                product = self.scaled(x)
                if product is not None and type(mask) is Node:
                    return product._replace(mask=mask)
        if self.uses(scores, WHERE, 2):
            condition, x, other = scores.inputs
            if _is_hidden(other):
                product = self.scaled(x)
                return product and product._replace(mask=condition)
            product = self.scaled(other) if _is_hidden(x) else None
            return product and product._replace(mask=Call(_NOT, (condition,)))
        return self.scaled(scores, 2)

    def scaled(self, x: Any, most: int = 1) -> _Scores | None:
        if self.uses(x, _MATMUL, most):
            return _Scores(x.inputs[0], x.inputs[1])
        if self.uses(x, _MUL, most) or self.uses(x, _DIV, most):
            product, by = x.inputs
            if x.op is _MUL and not self.uses(product, _MATMUL):
                product, by = by, product
            number = splat(_unexpanded(by))
            if number and self.uses(product, _MATMUL):
                scale = float(number) if x.op is _MUL else 1 / float(number)
                return _Scores(product.inputs[0], product.inputs[1], scale)
        return None


def _unexpanded(value: Any) -> Any:
    return value.inputs[0] if type(value) is Node and value.op is EXPAND else value


def _is_hidden(value: Any) -> bool:
    """Whether a value is -infinity everywhere."""
    return splat(_unexpanded(value)) == -math.inf


def _is_causal(mask: Node | Call) -> bool:
    """Whether a mask is known to hide the keys after each query, and no others."""
    inverted = type(mask) is Call
    node: Any = mask.inputs[0] if type(mask) is Call else mask
    while node.op is EXPAND and len(node.inputs[0].shape) >= 2:
        node = node.inputs[0]
    *lead, rows, keys = node.shape
    if isinstance(rows, Size) or isinstance(keys, Size) or not all(map(is_one, lead)):
        return False
    value = _known(node) if rows * keys <= _MOST else None
    if value is None:
        return False
    seen = value == 0 if inverted or value.dtype != bool else value
    if value.dtype != bool and not np.all(seen | (value == -math.inf)):
        return False
    return bool(np.all(seen == np.tril(np.ones((rows, keys), bool))))


def _known(node: Any) -> Any:
    """The value of an element-wise function of constants; None for anything else."""
    if type(node) is not Node:
        return None if isinstance(node, Size) else node
    if node.op is CONSTANT:
        return node.params["value"]
    view = node.op is EXPAND or node.op is RESHAPE
    filled = isinstance(node.op.lower, Filled)
    plain = filled or node.op.facts.elementwise or view
    if not plain or any(isinstance(n, Size) for n in node.shape):
        return None
    inputs = [_known(i) for i in node.inputs]
    if any(i is None for i in inputs):
        return None
    with np.errstate(all="ignore"):
        return np.asarray(node.op.eval(*inputs, **node.params))


def _swapped(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)
