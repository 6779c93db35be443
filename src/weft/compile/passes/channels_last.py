"""Convolutions of arrays whose channels come last, where the target prefers them.

    %y = conv(%x, %w)    →    %y = permute(conv_last(permute(%x), permute(%w)))

``sink_permutes`` then moves the permutes towards each other, through all that is
between convolutions. A convolution of single pixels is a product of matrices, whose
rows are the pixels of all images.
"""

from __future__ import annotations

import math
from typing import Any

from weft.compile import targets
from weft.compile.passes.facts import EXPAND, RESHAPE
from weft.compile.passes.simplify_views import PERMUTE
from weft.compile.passes.walk import Call, Replacement, Walk
from weft.core.op import Op, find_op
from weft.graph.ir import Graph, Node
from weft.ops.conv import is_pointwise

_CONV, _BIASED = find_op("conv"), find_op("conv_bias")
_INPUT_GRAD, _WEIGHT_GRAD = find_op("conv_input_grad"), find_op("conv_weight_grad")
_ADD, _MATMUL = find_op("add"), find_op("matmul")
_LAST: dict[Op, Op] = {
    op: find_op(op.name.replace("conv", "conv_last"))
    for op in (_CONV, _INPUT_GRAD, _WEIGHT_GRAD)
}


def channels_last(graph: Graph) -> Graph:
    """Replace convolutions by ones of channels-last arrays.

    >>> from weft.compile.passes.channels_last import channels_last
    >>> x, w = weft.ones(1, 2, 5, 5), weft.ones(3, 2, 3, 3)
    >>> g = weft.graph.capture(weft.nn.functional.conv2d, x, w).graph
    >>> channels_last(g) is g  # the CPU's kernels read rows of pixels
    True
    """
    return _ChannelsLast(graph).run()


class _ChannelsLast(Walk):
    ops = frozenset([*_LAST, _BIASED])

    def visit(self, node: Node) -> Replacement:
        if node.op not in self.ops or not targets.current().channels_last(node):
            return None
        if node.op is _BIASED:
            return _with_bias(node)
        make = _product if is_pointwise(node) else _convolution
        return _first(make(node), len(node.shape))


def _convolution(node: Node) -> Call:
    return Call(_LAST[node.op], tuple(map(_last, node.inputs)), node.params)


def _with_bias(node: Node) -> Call:
    """conv(x, w) + b, whose two parts are visited again."""
    x, w, b = node.inputs
    shape = (b.shape[0], *(1,) * (len(node.shape) - 2))
    bias = Call(EXPAND, (Call(RESHAPE, (b,), {"shape": shape}),), {"shape": node.shape})
    return Call(_ADD, (Call(_CONV, (x, w), node.params), bias))


def _product(node: Node) -> Call:
    """A convolution of single pixels, its result with channels last."""
    a, b = node.inputs
    shape = (node.shape[0], *node.shape[2:], node.shape[1])
    if node.op is _WEIGHT_GRAD:
        pixels = Call(PERMUTE, (_pixels(b),), {"dims": (1, 0)})
        out = Call(_MATMUL, (pixels, _pixels(a)))
    else:
        rows, columns = b.shape[:2]
        w: Any = Call(RESHAPE, (b,), {"shape": (rows, columns)})
        if node.op is _CONV:
            w = Call(PERMUTE, (w,), {"dims": (1, 0)})
        out = Call(_MATMUL, (_pixels(a), w))
    return Call(RESHAPE, (out,), {"shape": shape})


def _pixels(x: Node) -> Call:
    """Images as a matrix: a row for each pixel."""
    count = math.prod((x.shape[0], *x.shape[2:]))
    return Call(RESHAPE, (_last(x),), {"shape": (count, x.shape[1])})


def _last(x: Node) -> Call:
    """Channels as the last axis."""
    return Call(PERMUTE, (x,), {"dims": (0, *range(2, len(x.shape)), 1)})


def _first(call: Call, rank: int) -> Call:
    """Channels as the second axis."""
    return Call(PERMUTE, (call,), {"dims": (0, rank - 1, *range(1, rank - 1))})
