"""An update that was captured for one parameter, copied for others like it.

A rule works element by element, so its nodes for two parameters differ in their shapes
alone. The nodes of the first are a stamp: another parameter gets the same operators,
applied to its own gradient, value and state.
"""

from __future__ import annotations

from typing import Any

from weft.core.lowering import Pointwise
from weft.core.mode import mode
from weft.core.op import TensorType
from weft.core.tensor import Tensor
from weft.graph.ir import READ, Node
from weft.graph.symbol import Symbol
from weft.ops.broadcasting import expand_op
from weft.optim.flat import State


def likeness(tensors: list[Tensor]) -> Any:
    """The key that gradient, parameter and state share with others' whose nodes are the
    same; None where that cannot be known."""
    watched = mode.observers or mode.inference or mode.recording
    views = any(x._base is not None for x in tensors)
    if watched or views or tensors[0].ndim == 0:
        return None
    return tuple([(x.dtype, type(x) is Tensor) for x in tensors])


class Stamp:
    """The nodes of an update, with the gradient, value and state they begin from."""

    def __init__(self, nodes: list[Node], tensors: list[Any], new: Any, local: State):
        self.nodes = nodes
        held = [(k, x) for k, x in enumerate(tensors) if isinstance(x, Symbol)]
        self.positions = {x.node: k for k, x in held}
        self.given = [n for n in self.positions if n not in {*nodes}]
        self.fits = len(self.positions) == len(held) and all(
            self._repeats(node, tensors[0].shape) for node in nodes
        )
        self.new = self._source(new)
        self.local = {key: self._source(value) for key, value in local.items()}

    def _repeats(self, node: Node, shape: Any) -> bool:
        if node.op is READ:
            return node in self.positions
        if node.op is expand_op:
            return node.params["shape"] == shape
        return type(node.op.lower) is Pointwise and node.type.shape in ((), shape)

    def _source(self, value: Any) -> Any:
        """A value of the update's own as its node, which outlives it."""
        own = isinstance(value, Symbol) and (
            value.node in self.positions or value.node in {*self.nodes}
        )
        return value.node if own else value

    def began_as(self, like: Any) -> bool:
        """Whether these nodes have read all tensors that were outside before."""
        return not any(like[self.positions[node]][1] for node in self.given)

    def apply(self, tensors: list[Any]) -> tuple[Any, State]:
        """The update of another parameter: its new value, and the state's."""
        run, shape = mode.capture, tensors[0].shape
        build, overrides = run.builder, {"shape": shape}
        types: dict[Any, TensorType] = {}
        nodes = {n: run.lift(tensors[self.positions[n]]) for n in self.given}
        for node in self.nodes:
            if node.op is READ:
                nodes[node] = run.lift(tensors[self.positions[node]])
                continue
            kind = node.type
            if kind.shape:
                kind = types.get(kind.dtype)
                if kind is None:
                    kind = TensorType(shape, node.type.dtype)
                    types[kind.dtype] = kind
            params = overrides if node.op is expand_op else node.params
            inputs = tuple(map(nodes.get, node.inputs, node.inputs))
            nodes[node] = build.add_like(node, inputs, params, kind)

        def value(source: Any) -> Any:
            if type(source) is not Node:
                return source
            if source in self.positions:
                return tensors[self.positions[source]]
            made = run.symbol(nodes[source])
            made.quiet = True
            return made

        return value(self.new), {k: value(v) for k, v in self.local.items()}
