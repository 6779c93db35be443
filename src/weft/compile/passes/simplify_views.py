"""Views that do nothing, and chains of views that are one.

    %a: float32[2, 8] = reshape(%x, shape=(2, 8))
    %b: float32[16] = reshape(%a, shape=(16,))   →  reshape(%x, shape=(16,))

In a graph values have no addresses, so ``clone``, ``alias`` and ``detach`` are equal to
their input (derivatives have been taken by now). An executor gives each output memory
of its own.
"""

from __future__ import annotations

from typing import Any

from weft.compile.passes.facts import (
    CAST,
    EXPAND,
    RESHAPE,
    exact_cast,
    is_reduction,
    is_same,
)
from weft.compile.passes.policy import Policy
from weft.compile.passes.walk import Call, Local, Replacement, Walk
from weft.core.op import Op, find_op
from weft.core.size import Size, is_one, same_shape
from weft.graph.ir import Graph, Node, sized

PERMUTE = find_op("permute")
SLICE, PUT_SLICE = find_op("slice"), find_op("put_slice")
FLIP = find_op("flip")
CAT = find_op("cat")
SUM = find_op("sum")


def simplify_views(graph: Graph) -> Graph:
    """Remove views that do nothing, and merge chains of views.

    >>> g = weft.graph.capture(lambda x: x.T.T.reshape(6).detach(), weft.ones(2, 3))
    >>> print(weft.compile.passes.simplify_views(g.graph))
    graph program(%x: float32[2, 3]) {
      %reshape: float32[6] = reshape(%x, shape=(6,))
      return %reshape
    }
    """
    return _Views(graph).run()


class _Views(Walk):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.ops = frozenset(op for op in graph.ops if rules_of(op))

    def visit(self, node: Node) -> Replacement:
        for rule in rules_of(node.op):
            replacement = rule(node)
            if replacement is not None:
                return replacement
        return None


# -- operators that change nothing


def _itself(node: Node) -> Replacement:
    """clone(x) = alias(x) = detach(x) = renew(x, y) = x"""
    return node.inputs[0]


def _same_shape(node: Node) -> Replacement:
    """reshape(x, x.shape) = expand(x, x.shape) = x"""
    x = node.inputs[0]
    return x if same_shape(node.shape, x.shape) else None


def _same_order(node: Node) -> Replacement:
    """permute(x, (0, 1, 2)) = x"""
    return node.inputs[0] if _counts(node.params["dims"]) else None


def _whole(node: Node) -> Replacement:
    """x[:, :] = x"""
    x = node.inputs[0]
    items = node.params["index"]
    shape = x.shape[: len(items)]
    whole = len(items) == len(shape) and all(map(whole_axis, items, shape))
    return x if whole else None


def whole_axis(item: Any, size: Any) -> bool:
    """Whether an index takes all of an axis."""
    if type(item) is not slice or sized(item):
        return False
    if item.step not in (None, 1) or item.start not in (None, 0):
        return False
    return item.stop is None or (not isinstance(size, Size) and item.stop >= size)


def _same_index(one: Node, other: Node) -> bool:
    index = one.params["index"]
    return not any(map(sized, index)) and index == other.params["index"]


def _reads_back(node: Node) -> Replacement:
    """put_slice(x, y, i)[i] = y"""
    x = node.inputs[0]
    return x.inputs[1] if x.op is PUT_SLICE and _same_index(x, node) else None


def _puts_back(node: Node) -> Replacement:
    """put_slice(x, x[i], i) = x"""
    x, y = node.inputs
    there = y.op is SLICE and y.inputs[0] is x and _same_index(y, node)
    return x if there else None


def _puts_over(node: Node) -> Replacement:
    """put_slice(put_slice(x, y, i), z, i) = put_slice(x, z, i)"""
    x, z = node.inputs
    if x.op is not PUT_SLICE or not _same_index(x, node):
        return None
    return Call(PUT_SLICE, (x.inputs[0], z), node.params)


def _one_piece(node: Node) -> Replacement:
    """cat([x]) = x"""
    return node.inputs[0] if len(node.inputs) == 1 else None


def _same_dtype(node: Node) -> Replacement:
    """cast(x, x.dtype) = x"""
    x = node.inputs[0]
    return x if x.dtype is node.dtype else None


# -- pairs that are one view


def _reshapes(node: Node) -> Replacement:
    """reshape(reshape(x, a), b) = reshape(x, b)"""
    x = node.inputs[0]
    return Call(RESHAPE, x.inputs, node.params) if x.op is RESHAPE else None


def _expands(node: Node) -> Replacement:
    """expand(expand(x, a), b) = expand(x, b)"""
    x = node.inputs[0]
    return Call(EXPAND, x.inputs, node.params) if x.op is EXPAND else None


def _leading_ones(node: Node) -> Replacement:
    """expand(reshape(x, (1, *x.shape)), b) = expand(x, b)"""
    x = node.inputs[0]
    if x.op is not RESHAPE:
        return None
    below = x.inputs[0]
    lead = len(x.shape) - len(below.shape)
    ones = lead > 0 and all(map(is_one, x.shape[:lead]))
    if ones and same_shape(x.shape[lead:], below.shape):
        return Call(EXPAND, (below,), node.params)
    return None


def _permutes(node: Node) -> Replacement:
    """permute(permute(x, a), b) = permute(x, a[b])"""
    x = node.inputs[0]
    if x.op is not PERMUTE:
        return None
    first = x.params["dims"]
    dims = tuple([first[d] for d in node.params["dims"]])
    return x.inputs[0] if _counts(dims) else Call(PERMUTE, x.inputs, {"dims": dims})


def _moves_ones(node: Node) -> Replacement:
    """permute(x: [1, 3], (1, 0)) = reshape(x, (3, 1))"""
    shape = node.inputs[0].shape
    moved = [d for d in node.params["dims"] if not is_one(shape[d])]
    if moved == sorted(moved):
        return Call(RESHAPE, node.inputs, {"shape": node.shape})
    return None


def _flips(node: Node) -> Replacement:
    """flip(flip(x, d), d) = x"""
    x = node.inputs[0]
    twice = x.op is FLIP and x.params == node.params
    return x.inputs[0] if twice else None


def _casts(node: Node) -> Replacement:
    """cast(cast(x, a), b) = cast(x, b) if every x is an a"""
    x = node.inputs[0]
    if x.op is not CAST or not exact_cast(x.inputs[0].dtype, x.dtype):
        return None
    below = x.inputs[0]
    return below if below.dtype is node.dtype else Call(CAST, x.inputs, node.params)


# -- reductions and axes of size 1


def _drops_reduced(node: Node) -> Replacement:
    """reshape(sum(x, d, keepdim=True), without d) = sum(x, d)"""
    x = node.inputs[0]
    if not is_reduction(x.op):
        return None
    params = dict(x.params, keepdim=not x.params["keepdim"])
    shape = x.inputs[0].shape
    dims = params["dim"]
    if params["keepdim"]:
        want: tuple[Any, ...] = tuple(
            [1 if i in dims else n for i, n in enumerate(shape)]
        )
    else:
        want = tuple([n for i, n in enumerate(shape) if i not in dims])
    same = len(want) == len(node.shape) and same_shape(want, node.shape)
    return Call(x.op, x.inputs, params) if same else None


def _over_ones(node: Node) -> Replacement:
    """sum(x: [3, 1], 1) = reshape(x, (3,)); of a sum, -0 becomes 0"""
    x = node.inputs[0]
    policy = Policy.ZEROS if node.op is SUM else Policy.EXACT
    if node.dtype is not x.dtype or not policy.allows(node.dtype):
        return None
    if all(is_one(x.shape[d]) for d in node.params["dim"]):
        return Call(RESHAPE, (x,), {"shape": node.shape})
    return None


def _counts(dims: Any) -> bool:
    """Whether dimensions are 0, 1, 2, …"""
    return all(i == d for i, d in enumerate(dims))


_RULES: dict[Op, tuple[Local, ...]] = {
    RESHAPE: (_same_shape, _reshapes, _drops_reduced),
    EXPAND: (_same_shape, _expands, _leading_ones),
    PERMUTE: (_same_order, _permutes, _moves_ones),
    SLICE: (_whole, _reads_back),
    PUT_SLICE: (_puts_back, _puts_over),
    FLIP: (_flips,),
    CAT: (_one_piece,),
    CAST: (_same_dtype, _casts),
}


def rules_of(op: Op) -> tuple[Local, ...]:
    """The rules that may change a node of an operator."""
    if is_same(op):
        return (_itself,)
    return (_over_ones,) if is_reduction(op) else _RULES.get(op, ())
