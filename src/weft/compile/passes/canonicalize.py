"""One form for what can be written in several: numbers, and small before large.

    %one: float32[3] = full(shape=(3,), value=1, dtype=float32)
    %a: float32[3] = add(%x, %one)               →  add(%x, 1)

    %a: float32[2, 3] = expand(%x, shape=(2, 3))    %b/exp: float32[3] = exp(%x)
    %b: float32[2, 3] = exp(%a)                  →  %b = expand(%b/exp, shape=(2, 3))

An operator on repeated elements is applied once to each, and the results are repeated.
Both forms give the same bits.
"""

from __future__ import annotations

from typing import Any

from weft.compile.passes.facts import EXPAND, FULL, WHERE, splat, takes_numbers
from weft.compile.passes.walk import Call, Replacement, Walk
from weft.core.op import Op, TensorType
from weft.core.size import same_shape
from weft.graph.ir import CONSTANT, Graph, Node

_SPREAD = (FULL, EXPAND, CONSTANT)  # repeated elements, or one number


def canonicalize(graph: Graph) -> Graph:
    """Bring a graph into its canonical form.

    >>> g = weft.graph.capture(lambda x: x.expand(9, 3).exp(), weft.ones(3)).graph
    >>> print(weft.compile.passes.canonicalize(g))
    graph program(%x: float32[3]) {
      %exp/exp: float32[3] = exp(%x)
      %exp: float32[9, 3] = expand(%exp/exp, shape=(9, 3))
      return %exp
    }
    """
    return _Canonical(graph).run()


class _Canonical(Walk):
    def visit(self, node: Node) -> Replacement:
        for one in node.inputs:
            if type(one) is Node and one.op in _SPREAD:
                break
        else:
            return None
        if not node.op.facts.elementwise:
            return None
        return _with_numbers(node) or _before_expand(node)


def _with_numbers(node: Node) -> Replacement:
    """add(x, full(1)) = add(x, 1)"""
    operands = node.inputs[1:] if node.op is WHERE else node.inputs
    if len(operands) != 2 or not _takes(node.op, operands):
        return None
    tensors = [type(o) is Node for o in operands]
    numbers = [splat(o) for o in operands]
    if not all(tensors) or (numbers[0] is None) is (numbers[1] is None):
        return None
    pairs = zip(numbers, operands, strict=True)
    plain = tuple([o if n is None else n for n, o in pairs])
    lead = node.inputs[:1] if node.op is WHERE else ()
    return Call(node.op, (*lead, *plain), node.params)


def _takes(op: Op, operands: tuple[Any, ...]) -> bool:
    dtype = next((o.dtype for o in operands if type(o) is Node), None)
    if dtype is None or not takes_numbers(dtype):
        return False
    numbers = op.facts.numbers
    return numbers == "all" or (numbers == "inexact" and dtype.is_inexact)


def _before_expand(node: Node) -> Replacement:
    """exp(expand(x)) = expand(exp(x))"""
    below = None
    for one in node.inputs:
        if type(one) is not Node or one.op is FULL:
            continue
        if one.op is not EXPAND:
            return None
        shape = one.inputs[0].shape
        if below is not None and not same_shape(shape, below):
            return None
        below = shape
    if below is None or not isinstance(node.type, TensorType):
        return None
    small = tuple([_below(one, below) for one in node.inputs])
    return Call(EXPAND, (Call(node.op, small, node.params),), {"shape": node.shape})


def _below(one: Any, shape: tuple[Any, ...]) -> Any:
    """An operand before it was repeated."""
    if type(one) is not Node:
        return one
    if one.op is FULL:
        return Call(FULL, (), dict(one.params, shape=shape))
    return one.inputs[0]
