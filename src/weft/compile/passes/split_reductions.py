"""Reductions of much to little, in parts: each is one thread's work.

    %s: float32[] = sum(%x, dim=(0, 1))      %x: float32[4096, 1024]
    →
    %p: float32[256] = sum_parts(%x, dim=(0, 1), length=16)
    %s: float32[] = sum(%p, dim=(0,))

The length of a part depends on shapes alone, so results do not depend on the number of
threads. Few numbers are added one after the other, so rounding errors stay small.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from weft.compile import targets
from weft.compile.passes.facts import is_reduction, rounds
from weft.compile.passes.walk import Call, Replacement, Walk
from weft.config import config
from weft.core.lowering import Reduction
from weft.core.op import Op, TensorType, find_op
from weft.core.size import hinted
from weft.graph.ir import Graph, Node

_CAST, _RESHAPE = find_op("cast"), find_op("reshape")


def split_reductions(graph: Graph) -> Graph:
    """Split reductions to few elements into parts.

    >>> from weft.compile.passes.split_reductions import split_reductions
    >>> g = weft.graph.capture(lambda x: x.sum(), weft.ones(256, 1024)).graph
    >>> print(split_reductions(g))
    graph program(%x: float32[256, 1024]) {
      %sum/sum_parts: float32[16] = sum_parts(%x, dim=(0, 1), length=16)
      %sum: float32[] = sum(%sum/sum_parts, dim=(0,), keepdim=False)
      return %sum
    }
    """
    return graph if config.batch_invariant else _SplitReductions(graph).run()


class _SplitReductions(Walk):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.ops = frozenset(op for op in graph.ops if is_reduction(op))

    def visit(self, node: Node) -> Replacement:
        split = _split(node) if is_reduction(node.op) else None
        if split is None:
            return None
        outer, dims, length = split
        params = {"dim": dims, "length": length}
        parts = Call(_parts_of(node.op), (node.inputs[0],), params)
        rest = (0, *(1 + d for d in outer))  # the parts, and axes not yet reduced
        total = Call(node.op, (parts,), {"dim": rest, "keepdim": False})
        if node.dtype.to_total() is not node.dtype and rounds(node.op):
            total = Call(_CAST, (total,), {"dtype": node.dtype})
        if node.params["keepdim"]:
            total = Call(_RESHAPE, (total,), {"shape": node.shape})
        return total


class Split(NamedTuple):
    """The split of a reduction into parts."""

    outer: tuple[int, ...]  # axes that are reduced later
    dims: tuple[int, ...]  # axes that are reduced in parts
    length: int  # of a part, along the first of these


def _split(node: Node) -> Split | None:
    """The split of a reduction, if it pays."""
    shape, cost = hinted(node.inputs[0].shape), targets.current().cost.reductions
    dims = tuple(sorted(node.params["dim"]))
    if shape is None or not dims or node.inputs[0].dtype.is_complex:
        return None
    if math.prod(shape) < 2 * cost.task:
        return None
    kept = [d for d in range(len(shape)) if d not in dims]
    columns = shape[-1] if kept[-1:] == [len(shape) - 1] else 1
    if math.prod(shape[d] for d in kept) // columns >= cost.few_results:
        return None
    inner, least = 1, max(cost.task // columns, cost.least_rows if columns > 1 else 1)
    at = len(dims) - 1
    while at and inner * shape[dims[at]] < least:
        inner *= shape[dims[at]]
        at -= 1
    size, outer = shape[dims[at]], math.prod(shape[d] for d in dims[:at])
    length = -(-least // inner)
    if columns > 1:
        length = max(length, -(-size * outer // cost.most_tasks))
        length = min(length, max(cost.most_rows // inner, 1))
    if outer * size < cost.least_tasks * length:
        return None
    most = outer * size // cost.least_tasks
    return Split(dims[:at], dims[at:], _even(size, length, most))


def _even(size: int, length: int, most: int) -> int:
    """The next divisor of ``size`` from ``length`` on; ``length`` if none is near."""
    divisors = (n for n in range(length, min(2 * length, most + 1)) if size % n == 0)
    return next(divisors, length)


# -- the operators


def _type_of(op: Op) -> Callable[..., TensorType]:
    def rule(x: TensorType, *, dim: tuple[int, ...], length: int) -> TensorType:
        kept = tuple(n for d, n in enumerate(x.shape) if d not in dim)
        count = (x.shape[dim[0]] + (length - 1)) // length
        whole = op.type(x, dim=dim, keepdim=False)  # type: ignore[misc]
        dtype = whole.dtype.to_total() if rounds(op) else whole.dtype
        return TensorType((count, *kept), dtype)

    return rule


def _eval_of(op: Op) -> Callable[..., Any]:
    ufunc: Any = find_op(op.lower.combine).eval

    def evaluate(x: Any, *, dim: tuple[int, ...], length: int) -> Any:
        if rounds(op) and x.dtype.itemsize == 2:
            x = x.astype(np.float32)
        first, *others = dim
        x = op.eval(x, dim=tuple(others), keepdim=True)
        starts = np.arange(0, x.shape[first], length)
        parts = np.moveaxis(ufunc.reduceat(x, starts, first), first, 0)
        return parts.squeeze(tuple(others))

    return evaluate


@functools.cache
def _parts_of(op: Op) -> Op:
    """The operator that reduces to one element for each part of the first axis."""
    return Op(
        f"{op.name}_parts",
        inputs="x",
        eval=_eval_of(op),
        type=_type_of(op),
        lower=Reduction(op.lower.combine),
    )
