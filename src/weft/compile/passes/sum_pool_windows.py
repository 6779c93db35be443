"""Overlapping max pools, whose gradients are sums over windows instead of scatters.

    %i = max_pool_index(%x)                    %t = max_pool_tap(%x)
    %p = %i + the start of each image      →
    %y = take(reshape(%x), reshape(%p))        %y = max_pool(%x)
    %d = add_at(%g, reshape(%p))               %d = max_pool_spread(%g, %t)

An element asks the windows that it is in whether it is their largest. On targets with
many threads, a scatter would keep each thread busy with looking for its updates.
"""

from __future__ import annotations

import math
from typing import Any

from weft.compile import targets
from weft.compile.passes.facts import EXPAND, RESHAPE, splat
from weft.compile.passes.walk import Call, Replacement, Walk
from weft.core.op import find_op
from weft.core.size import is_one, same, same_shape
from weft.graph.ir import Graph, Node
from weft.ops.pooling import WRITTEN, max_pool_spread_op, max_pool_tap_op, windows_of

_TAKE, _ADD_AT, _ADD, _MUL, _ARANGE, _INDEX, _POOL = map(
    find_op, ("take", "add_at", "add", "mul", "arange", "max_pool_index", "max_pool")
)


def sum_pool_windows(graph: Graph) -> Graph:
    """Replace takes and scatters at the largest elements of windows.

    >>> from weft.compile.passes.sum_pool_windows import sum_pool_windows
    >>> def fn(x):
    ...     return weft.nn.functional.max_pool2d(x, 3, 2, 1)
    >>> x = weft.ones(1, 1, 6, 6, requires_grad=True)
    >>> g = weft.graph.capture(fn, x).graph
    >>> sum_pool_windows(g) is g  # the CPU scatters
    True
    """
    return _Pools(graph).run()


class _Pools(Walk):
    ops = frozenset([_TAKE, _ADD_AT])
    needs = frozenset([_INDEX])

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.taps: dict[str, Node] = {}  # by the name of the indices' node

    def concerns(self, graph: Graph) -> bool:
        return targets.current().cost.ordering.window_sums and super().concerns(graph)

    def visit(self, node: Node) -> Replacement:
        if node.op not in (_TAKE, _ADD_AT):
            return None
        value, places = node.inputs
        found = _indices(places)
        if found is None or not _fits(found):
            return None
        (x,) = found.inputs
        if found.name not in self.taps:
            tap = self.part(Call(max_pool_tap_op, (x,), found.params), found)
            assert tap is not None
            self.taps[found.name] = tap
        if node.op is _TAKE:
            if not _flattens(value, x):
                return None
            return _flat(Call(_POOL, (x,), found.params), node)
        if not same(node.shape[0], math.prod(x.shape)):
            return None
        sizes = {name: found.params[name] for name in ("kernel", "stride", "padding")}
        dy = Call(RESHAPE, (value,), {"shape": found.shape})
        params = {"size": tuple(x.shape[2:]), **sizes}
        return _flat(
            Call(max_pool_spread_op, (dy, self.taps[found.name]), params), node
        )


def _flat(call: Call, node: Node) -> Call:
    return Call(RESHAPE, (call,), {"shape": node.shape})


def _fits(found: Node) -> bool:
    """Whether an element is in few windows, and windows have no holes."""
    params = found.params
    numbers = (*params["kernel"], *params["stride"], *params["dilation"])
    if not all(type(n) is int for n in numbers):
        return False
    windows = math.prod(map(len, windows_of(params["kernel"], params["stride"])))
    few = max(windows, math.prod(params["kernel"])) <= WRITTEN
    return few and all(d == 1 for d in params["dilation"])


def _flattens(value: Any, x: Node) -> bool:
    return type(value) is Node and value.op is RESHAPE and value.inputs[0] is x


def _indices(places: Any) -> Node | None:
    """The indices into images that places in all of them are made of."""
    if type(places) is not Node or places.op is not RESHAPE:
        return None
    (total,) = places.inputs
    if type(total) is not Node or total.op is not _ADD:
        return None
    index, starts = total.inputs
    if type(index) is not Node or index.op is not _INDEX:
        return None
    size = math.prod(index.inputs[0].shape[2:])
    return index if _are_starts(starts, index.shape, size) else None


def _are_starts(value: Any, shape: Any, size: Any) -> bool:
    """Whether a value is the flat index of the first element of each image."""
    if type(value) is Node and value.op is EXPAND:
        (value,) = value.inputs
    if type(value) is not Node or value.op is not RESHAPE:
        return False
    images, ones = value.shape[:2], value.shape[2:]
    if not same_shape(images, shape[:2]) or not all(map(is_one, ones)):
        return False
    (product,) = value.inputs
    if product.op is not _MUL or type(product.inputs[0]) is not Node:
        return False
    numbers, factor = product.inputs
    if numbers.op is not _ARANGE:
        return False
    first, step = numbers.params["start"], numbers.params["step"]
    return (first, step) == (0, 1) and same(splat(factor), size)
