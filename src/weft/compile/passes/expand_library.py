"""Operators that a target's library lacks, written out as others that it has.

    %y = conv(%x, %w, …)      →      %y/im2col = im2col(%x, …)
                                     %y/matmul = matmul(%w, %y/im2col)

A target says that it wants this (``composes_library``), or an operator's record does
(``expands``). For others, half types become
float32 around the operator; what their library lacks then, the host computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.compile import targets
from weft.compile.emit.scalar import HALF
from weft.core.lowering import Library
from weft.core.mode import set_recording
from weft.core.tensor import Tensor
from weft.graph.ir import (
    ASSIGN,
    CONSTANT,
    DETACH,
    INPUT,
    PICK,
    READ,
    STRUCTURAL,
    Builder,
    Graph,
    Node,
)
from weft.graph.symbol import Building
from weft.graph.transform import apply_node
from weft.ops.copies import cast

_KNOWN = {INPUT, CONSTANT, READ, ASSIGN, PICK, DETACH}


def expand_library(graph: Graph) -> Graph:
    """Write out what the target's library lacks."""
    target = targets.current()
    written_out = _composed if target.composes_library else _in_float32
    lacking = {
        node: make
        for node in graph.nodes
        if (make := _always(node) or written_out(node))
        and not target.library_call(node)
    }
    other = any(n.op in STRUCTURAL.values() and n.op not in _KNOWN for n in graph.nodes)
    if not lacking or other or any(n.after for n in graph.nodes):
        return graph
    return expand_library(_rebuilt(graph, lacking))  # they may be of others again


def _always(node: Node) -> Any:
    return _composed(node) if getattr(node.op.lower, "expands", False) else None


def _composed(node: Node) -> Any:
    rule = node.op.lower
    return rule.composed if isinstance(rule, Library) else None


def _in_float32(node: Node) -> Any:
    """A call of a node's operator with wider types; None if its own are wide enough."""
    if not _composed(node) or not any(
        type(i) is Node and i.dtype.name in HALF for i in node.inputs
    ):
        return None

    def call(*args: Any, **params: Any) -> Any:
        wide = [
            cast(x, x.dtype.to_total()) if isinstance(x, Tensor) else x for x in args
        ]
        made = node.op(*wide, **params)
        if type(node.type) is not tuple:
            return cast(made, node.type.dtype)
        pairs = zip(made, node.type, strict=True)
        return tuple(cast(one, kind.dtype) for one, kind in pairs)

    return call


def _rebuilt(graph: Graph, lacking: Mapping[Node, Any]) -> Graph:
    build = Building(Builder(graph.name, graph.sizes))
    builder = build.builder
    env: dict[Node, Any] = {}
    before = set_recording(False)
    try:
        with build, build.taking():
            for node in graph.inputs:
                env[node] = build.symbol(builder.input(node.type, node.name))
            for node in graph.nodes:
                if node in lacking:
                    args = [env[i] if type(i) is Node else i for i in node.inputs]
                    with builder.deriving(node), builder.within(node):
                        env[node] = lacking[node](*args, **node.params)
                elif node not in env:
                    env[node] = apply_node(node, env, build)
            outs = [build.lift(env[o]) for o in graph.outputs]
    finally:
        set_recording(before)
    return builder.finish(outs)
