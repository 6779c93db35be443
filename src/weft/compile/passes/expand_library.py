"""Operators that a target's library lacks, written out as others that it has.

    %y = conv(%x, %w, …)      →      %y/im2col = im2col(%x, …)
                                     %y/matmul = matmul(%w, %y/im2col)

A target says that it wants this (``composes_library``); others call the operator's own
evaluation on the host.
"""

from __future__ import annotations

from typing import Any

from weft.compile import targets
from weft.core.lowering import Library
from weft.core.mode import set_recording
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

_KNOWN = {INPUT, CONSTANT, READ, ASSIGN, PICK, DETACH}


def expand_library(graph: Graph) -> Graph:
    """Write out what the target's library lacks."""
    target = targets.current()
    if not target.composes_library:
        return graph
    lacking = {n for n in graph.nodes if _composed(n) and not target.library_call(n)}
    other = any(n.op in STRUCTURAL.values() and n.op not in _KNOWN for n in graph.nodes)
    if not lacking or other or any(n.after for n in graph.nodes):
        return graph
    return _rebuilt(graph, lacking)


def _composed(node: Node) -> Any:
    rule = node.op.lower
    return rule.composed if isinstance(rule, Library) else None


def _rebuilt(graph: Graph, lacking: set[Node]) -> Graph:
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
                        env[node] = _composed(node)(*args, **node.params)
                elif node not in env:
                    env[node] = apply_node(node, env, build)
            outs = [build.lift(env[o]) for o in graph.outputs]
    finally:
        set_recording(before)
    return builder.finish(outs)
