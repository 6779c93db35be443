"""Permutes move towards the outputs, until they meet their inverse.

    %t: float32[2, 4, 4, 3] = permute(%x, dims=(0, 2, 3, 1))
    %r: float32[2, 4, 4, 3] = relu(%t)                →  %y = relu(%x)
    %y: float32[2, 3, 4, 4] = permute(%r, dims=(0, 3, 1, 2))

A program whose images have their channels last, around convolutions that want them
first, thus has one conversion at its inputs and one at its outputs. Permutes move
through element-wise operators, reductions, slices, paddings, concatenations and
resampling. If nothing cancels, the graph stays as it is: a permute costs nothing where
it is, because whoever reads it reads its base.

Numbers may be added in another order, so sums are left alone in strict mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.compile.passes.facts import EXPAND, FULL, RESHAPE, is_reduction, rounds
from weft.compile.passes.policy import Policy
from weft.compile.passes.simplify_views import CAT, FLIP, PERMUTE, SLICE, rules_of
from weft.compile.passes.walk import Call, Replacement, Walk
from weft.core.op import Op, find_op
from weft.core.size import is_one
from weft.graph.ir import Graph, Node

PLACE = find_op("place")
RESAMPLE = find_op("resample")
POOLS = frozenset(map(find_op, ("max_pool", "max_pool_tap", "max_pool_spread")))
DEEPEST = 3  # operators between a value that is repeated and its reader
Dims = tuple[int, ...]


def sink_permutes(graph: Graph) -> Graph:
    """Move permutes towards the outputs, if fewer are left then.

    >>> def fn(x):
    ...     return (x.permute(0, 2, 3, 1) * 2).exp().permute(0, 3, 1, 2)
    >>> g = weft.graph.capture(fn, weft.ones(1, 2, 3, 3)).graph
    >>> print(weft.compile.passes.sink_permutes(g))
    graph fn(%x: float32[1, 2, 3, 3]) {
      %mul/mul: float32[1, 2, 3, 3] = mul(%x, 2)
      %exp/exp: float32[1, 2, 3, 3] = exp(%mul/mul)
      return %exp/exp
    }
    """
    sunk = _Layout(graph).run()
    return sunk if conversions(sunk) < conversions(graph) else graph


def conversions(graph: Graph) -> int:
    """The number of distinct permutes in a graph."""
    nodes = [n for n in graph.nodes if n.op is PERMUTE]
    return len({(n.inputs[0], n.params["dims"]) for n in nodes})


class _Layout(Walk):
    """Replaces each operation on permuted operands by a permuted operation."""

    needs = frozenset([PERMUTE])

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        permutes = [n for n in graph.nodes if n.op is PERMUTE]
        self.there = {(n.inputs[0].name, n.params["dims"]) for n in permutes}
        self.own = {n.name for n in graph.nodes}  # the other nodes are new

    def visit(self, node: Node) -> Replacement:
        for rule in rules_of(node.op):
            replacement = rule(node)
            if replacement is not None:
                return replacement
        if node.op.facts.elementwise:
            return self.elementwise(node)
        if node.op is CAT:
            return self.concatenation(node)
        if node.op in POOLS:
            return self.pool(node)
        move = _reduced if is_reduction(node.op) else MOVES.get(node.op)
        x, *_ = (*node.inputs, None)
        if move is None or type(x) is not Node or x.op is not PERMUTE:
            return None
        return move(node, x.inputs[0], x.params["dims"])

    # -- operators with several operands

    def elementwise(self, node: Node) -> Replacement:
        """relu(permute(x)) = permute(relu(x))"""
        dims = _dims(node)
        inputs = None if dims is None else self.unpermuted(node, dims)
        if inputs is None:
            return None
        return Call(PERMUTE, (Call(node.op, inputs, node.params),), {"dims": dims})

    def concatenation(self, node: Node) -> Replacement:
        """cat(permute(x), permute(y), dim) = permute(cat(x, y, dims[dim]))"""
        dims = _dims(node)
        inputs = None if dims is None else self.unpermuted(node, dims)
        if dims is None or inputs is None:
            return None
        params = dict(node.params, dim=dims[node.params["dim"]])
        return Call(PERMUTE, (Call(CAT, inputs, params),), {"dims": dims})

    def pool(self, node: Node) -> Replacement:
        """max_pool(permute(x)) = permute(max_pool(x)), of windows of one channel.

        Channels that come last are another axis of the images.
        """
        dims, rank = _dims(node), len(node.shape)
        if dims != (0, rank - 1, *range(1, rank - 1)):
            return None
        inputs = self.unpermuted(node, dims)
        if inputs is None:
            return None
        wide = [
            Call(RESHAPE, (x,), {"shape": (n, 1, *rest)})
            for x, (n, c, *axes) in zip(inputs, _shapes(node), strict=True)
            for rest in [(*axes, c)]
        ]
        n, c, *axes = node.shape
        ends = {"padding": 0, "counts": c, "size": c}
        params = {
            name: (*sizes, ends.get(name, 1)) for name, sizes in node.params.items()
        }
        out = Call(RESHAPE, (Call(node.op, tuple(wide), params),),
                   {"shape": (n, *axes, c)})  # fmt: skip
        return Call(PERMUTE, (out,), {"dims": dims})

    def unpermuted(self, node: Node, dims: Dims) -> tuple[Any, ...] | None:
        """The operands before they were permuted; None if one would need a permute."""
        sources = [self.source(i, dims, node) for i in node.inputs]
        return None if None in sources else tuple(sources)

    def source(self, value: Any, dims: Dims, node: Node, depth: int = 0) -> Any:
        """The value whose permute a value is, if it exists or costs nothing."""
        if type(value) is not Node or value.shape == ():
            return value
        if len(value.shape) != len(node.shape):
            return None
        if value.op is PERMUTE and value.params["dims"] == dims:
            return value.inputs[0]
        back = inverse(dims)
        shape = tuple([value.shape[d] for d in back])
        if value.op is FULL:
            return Call(FULL, (), dict(value.params, shape=shape))
        if value.op is EXPAND and (few := _reordered(value.inputs[0], back)):
            return Call(EXPAND, (few,), {"shape": shape})
        if (
            value.op.facts.elementwise and depth < DEEPEST
        ):  # of values that are repeated
            inputs = [self.source(i, dims, value, depth + 1) for i in value.inputs]
            if None not in inputs:
                return Call(value.op, tuple(inputs), value.params)
        if node.name in self.own and (value.name, back) in self.there:
            return Call(PERMUTE, (value,), {"dims": back})
        return None


def inverse(dims: Dims) -> Dims:
    """The order of axes that undoes another one.

    >>> from weft.compile.passes.sink_permutes import inverse
    >>> inverse((0, 2, 3, 1))
    (0, 3, 1, 2)
    """
    return tuple([dims.index(d) for d in range(len(dims))])


def _shapes(node: Node) -> list[Any]:
    return [i.shape for i in node.inputs if type(i) is Node]


def _dims(node: Node) -> Dims | None:
    """The dimensions of the first permuted operand."""
    nodes = [i for i in node.inputs if type(i) is Node and i.op is PERMUTE]
    return nodes[0].params["dims"] if nodes else None


def _reordered(x: Node, back: Dims) -> Call | None:
    """An expanded value in another order of axes, if only axes of size 1 move."""
    full = (*(1,) * (len(back) - len(x.shape)), *x.shape)
    moved = [d for d in back if not is_one(full[d])]
    if moved != sorted(moved):
        return None
    return Call(RESHAPE, (x,), {"shape": tuple([full[d] for d in back])})


# -- operators with one operand, of a permuted x


def _reduced(node: Node, x: Node, dims: Dims) -> Replacement:
    """sum(permute(x), d) = permute(sum(x, dims[d]))"""
    policy = Policy.ROUNDING if rounds(node.op) else Policy.EXACT
    if not policy.allows(node.dtype):
        return None
    axes = node.params["dim"]
    moved = tuple(sorted([dims[d] for d in axes]))
    inner = Call(node.op, (x,), dict(node.params, dim=moved))
    if node.params["keepdim"]:
        return Call(PERMUTE, (inner,), {"dims": dims})
    kept = [d for i, d in enumerate(dims) if i not in axes]
    order = tuple([sorted(kept).index(d) for d in kept])
    return Call(PERMUTE, (inner,), {"dims": order}) if kept != sorted(kept) else inner


def _repeated(node: Node, x: Node, dims: Dims) -> Replacement:
    """expand(permute(x)) = permute(expand(x))"""
    if len(node.shape) != len(dims):
        return None
    shape = tuple([node.shape[d] for d in inverse(dims)])
    return Call(PERMUTE, (Call(EXPAND, (x,), {"shape": shape}),), {"dims": dims})


def _cut(node: Node, x: Node, dims: Dims) -> Replacement:
    """permute(x)[a, b] = permute(x[b, a])"""
    index = _index_before(node.params["index"], dims)
    if index is None:
        return None
    return Call(PERMUTE, (Call(SLICE, (x,), {"index": index}),), {"dims": dims})


def _put(node: Node, x: Node, dims: Dims) -> Replacement:
    """Zeros around permute(x) = permute(zeros around x)"""
    index = _index_before(node.params["index"], dims)
    if index is None or len(node.shape) != len(dims):
        return None
    shape = tuple([node.shape[d] for d in inverse(dims)])
    params = dict(node.params, shape=shape, index=index)
    return Call(PERMUTE, (Call(PLACE, (x,), params),), {"dims": dims})


def _index_before(index: Any, dims: Dims) -> Any:
    """A range for each axis, in the order before a permute."""
    if not all(type(i) is slice for i in index):
        return None
    whole = (*index, *(slice(None),) * (len(dims) - len(index)))
    return tuple([whole[d] for d in inverse(dims)])


def _flipped(node: Node, x: Node, dims: Dims) -> Replacement:
    """flip(permute(x), d) = permute(flip(x, dims[d]))"""
    moved = tuple([dims[d] for d in node.params["dims"]])
    return Call(PERMUTE, (Call(FLIP, (x,), {"dims": moved}),), {"dims": dims})


def _resampled(node: Node, x: Node, dims: Dims) -> Replacement:
    """resample(permute(x), d) = permute(resample(x, dims[d]))"""
    params = dict(node.params, dim=dims[node.params["dim"]])
    return Call(PERMUTE, (Call(RESAMPLE, (x,), params),), {"dims": dims})


MOVES: dict[Op, Callable[[Node, Node, Dims], Replacement]] = {
    EXPAND: _repeated,
    SLICE: _cut,
    PLACE: _put,
    FLIP: _flipped,
    RESAMPLE: _resampled,
}
