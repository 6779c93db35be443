"""Scales and shifts after a convolution, folded into its weights and bias.

    conv(x, w) * s      →  conv(x, w * s)          s: one number a channel
    conv(x, w) + t      →  conv(x, w) with the bias t
    (conv(x, w, b)) * s →  conv(x, w * s, b * s)

A batch norm at inference is such a chain, so convolution, batch norm and activation
become one convolution and the activation. New weights are computed from the old ones in
each run, which is a fraction of the work that this saves; frozen, they are constants.
Results may differ in the last bits, so the pass does nothing in strict mode.
"""

from __future__ import annotations

import math
from typing import Any

from weft.compile.passes.facts import EXPAND, FULL, RESHAPE, splat
from weft.compile.passes.policy import Policy
from weft.compile.passes.walk import Call, Replacement, Walk
from weft.config import config
from weft.core.op import find_op
from weft.core.size import Size, is_one
from weft.graph.ir import Graph, Node

_CONV = find_op("conv")
_BIASED = find_op("conv_bias")
_ADD, _SUB, _MUL, _NEG = map(find_op, ("add", "sub", "mul", "neg"))


def fold_into_convolution(graph: Graph) -> Graph:
    """Fold scales and shifts of channels into the convolutions before them.

    >>> def fn(x, w, s):
    ...     return weft.nn.functional.conv2d(x, w) * s
    >>> g = weft.graph.capture(
    ...     fn, weft.ones(1, 1, 9, 9), weft.ones(2, 1, 3, 3), weft.ones(2, 1, 1)).graph
    >>> g = weft.compile.passes.fold_into_convolution(g)
    >>> [node.op.name for node in g if node.inputs]
    ['reshape', 'reshape', 'expand', 'mul', 'conv']
    """
    return _Convolution(graph).run()


class _Convolution(Walk):
    ops = frozenset([_ADD, _SUB, _MUL])

    def concerns(self, graph: Graph) -> bool:
        return not graph.ops.isdisjoint((_CONV, _BIASED)) and super().concerns(graph)

    def visit(self, node: Node) -> Replacement:
        if node.op not in (_ADD, _SUB, _MUL) or not Policy.ROUNDING.allows(node.dtype):
            return None
        x, y = node.inputs
        if node.op is not _SUB and not self.changeable(x):
            x, y = y, x
        values = _by_channel(y, x) if self.changeable(x) else None
        return None if values is None else _merged(node, x, values)

    def changeable(self, value: Any) -> bool:
        """Whether a value is a convolution with one use."""
        if type(value) is not Node or value.op not in (_CONV, _BIASED):
            return False
        return self.used_once(value)


def _by_channel(value: Any, conv: Node) -> Call | None:
    """An operand as a vector of one number a channel, if it is constant elsewhere."""
    channels = conv.shape[1]
    number = splat(value)
    if number is not None:
        params = {"shape": (channels,), "value": number, "dtype": conv.dtype}
        return Call(FULL, (), params)
    if type(value) is not Node or value.op is not EXPAND:
        return None
    shape = value.inputs[0].shape
    full = (*(1,) * (len(conv.shape) - len(shape)), *shape)
    others = [n for i, n in enumerate(full) if i != 1]
    if not all(map(is_one, others)) or isinstance(full[1], Size):
        return None
    if isinstance(channels, Size) or full[1] != channels:
        return None
    return Call(RESHAPE, value.inputs, {"shape": (channels,)})


def _merged(node: Node, conv: Node, values: Call) -> Replacement:
    x, w, *rest = conv.inputs
    if node.op is not _MUL:
        if not rest:
            bias: Any = values if node.op is _ADD else Call(_NEG, (values,))
        else:
            bias = Call(node.op, (rest[0], values))
        return Call(_BIASED, (x, w, bias), conv.params)
    if not _worth(conv, w):
        return None
    return Call(
        conv.op,
        (x, _scaled(w, values), *[Call(_MUL, (b, values)) for b in rest]),
        conv.params,
    )


def _scaled(w: Node, values: Call) -> Call:
    aligned = Call(
        RESHAPE, (values,), {"shape": (w.shape[0], *(1,) * len(w.shape[1:]))}
    )
    return Call(_MUL, (w, Call(EXPAND, (aligned,), {"shape": w.shape})))


def _worth(conv: Node, w: Node) -> bool:
    """Whether there are fewer weights than results; a symbolic size counts as large.

    This depends on the batch size, which must not matter in batch-invariant mode.
    """
    if config.batch_invariant:
        return False
    sizes = [n for n in conv.shape if not isinstance(n, Size)]
    return len(sizes) < len(conv.shape) or math.prod(w.shape) <= math.prod(sizes)
