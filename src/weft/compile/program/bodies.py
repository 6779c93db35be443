"""Bodies of loops and branches as programs of their own."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from weft.compile.fusion.groups import Operand, copied, inlined
from weft.compile.program.steps import Launch, Loop
from weft.compile.program.strided_views import is_contiguous
from weft.core.lowering import View
from weft.graph.control.bodies import cache_of
from weft.graph.control.branch import cond_op
from weft.graph.control.loop import while_op
from weft.graph.control.repeat import scan_op
from weft.graph.ir import ASSIGN, CONSTANT, INPUT, READ, Graph, Node

# Below these, interpreting a body costs less than a run of native code.
NODES, ELEMENTS = 16, 16384


def program_of(graph: Graph, loop: Loop | None = None) -> Any:
    """The program of a branch, or of a loop's body, compiled once for a target."""
    from weft.compile import targets
    from weft.compile.pipeline import KERNEL_PASSES, TENSOR_PASSES
    from weft.compile.program.program import compiled, replay

    cache = cache_of(graph)
    target = targets.current()
    key = target.name, loop
    if key not in cache.native:
        own = ("own_outputs", own_outputs)
        passes = (*TENSOR_PASSES, *KERNEL_PASSES, own)
        again = partial(replay, graph, ())
        cache.native[key] = compiled(
            graph, passes=passes, replay=again, loop=loop, target=target
        )
    return cache.native[key]


def is_control_flow(node: Node) -> bool:
    """Whether a node is a loop or a branch whose bodies are native code alone."""
    if node.op not in (cond_op, scan_op, while_op):
        return False
    if not all(type(i) is Node for i in node.inputs):
        return False
    return all(is_native(program) for program in programs_of(node))


def programs_of(node: Node) -> list[Any]:
    """The programs of a node's bodies; those of loops know what they are."""
    p = node.params
    if node.op is scan_op:
        return [program_of(p["body"], Loop(p["fixed"], p["carried"]))]
    if node.op is while_op:
        asks, loop = Loop(p["fixed"], 0), Loop(p["fixed"], len(p["body"].outputs))
        return [program_of(p["condition"], asks), program_of(p["body"], loop)]
    return [program_of(body) for body in bodies_of(node)]


def is_native(program: Any) -> bool:
    """Whether the steps of a program are launches, and make all its results."""
    lowered = program.lowered
    made = {n for step in lowered.steps for n in step.made}
    outputs = lowered.graph.outputs
    return (
        all(isinstance(step, Launch) for step in lowered.steps)
        and all(node in made for node in outputs)
        and len(set(outputs)) == len(outputs)
    )


def is_moved(node: Node) -> bool:
    """Whether an operand must be copied: it is no memory, or not row by row."""
    views = Operand(node).views
    return inlined(Operand(node).base) or not all(map(is_contiguous, views))


def native_of(graph: Graph, always: bool = False) -> Any:
    """The program of a body that Python calls; None if it is better interpreted.

    >>> small = weft.graph.capture(lambda x: x + 1, weft.ones(2)).graph
    >>> weft.compile.program.bodies.native_of(small)
    """
    return program_of(graph) if always or _is_heavy(graph) else None


def own_outputs(graph: Graph) -> Graph:
    """Copy outputs that no kernel makes: arguments, constants, views, and doubles.

    >>> from weft.compile.program.bodies import own_outputs
    >>> g = weft.graph.capture(lambda x: (x, x + 1), weft.ones(2)).graph
    >>> own_outputs(g).outputs
    (<copy 'x/copy' float32[2]>, <add 'add' float32[2]>)
    """
    outputs: list[Node] = []
    for node in graph.outputs:
        again = _kept(node) or node in outputs
        outputs.append(copied(node) if again else node)
    if outputs == list(graph.outputs):
        return graph
    known = set(graph.nodes)
    nodes = [*graph.nodes, *[n for n in outputs if n not in known]]
    return Graph(graph.name, nodes, outputs, graph.sizes, graph.inputs)


def own_state(graph: Graph) -> Graph:
    """Copy new values of variables that no kernel makes, as ``own_outputs`` does.

    Variables can then be written one after the other.
    """
    made: dict[Node, Node] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op is ASSIGN and _kept(node.inputs[0]):
            value = made.setdefault(node.inputs[0], copied(node.inputs[0]))
            nodes.append(value)
            node = Node(node.op, (value,), node.params, node.type, node.name,
                        node.after, node.module, node.code, node.lasti,
                        node.role)  # fmt: skip
        nodes.append(node)
    if not made:
        return graph
    nodes = list(dict.fromkeys(nodes))
    return Graph(graph.name, nodes, graph.outputs, graph.sizes, graph.inputs)


def _kept(node: Node) -> bool:
    """Whether a value is memory of something else, or none."""
    outside = node.op in (INPUT, CONSTANT, READ)
    return outside or isinstance(node.op.lower, View) or inlined(node)


def bodies_of(node: Any) -> list[Graph]:
    """The graphs among a node's parameters."""
    return [p for p in node.params.values() if isinstance(p, Graph)]


def _is_heavy(graph: Graph) -> bool:
    nodes = [n for n in graph.nodes if n.op not in (INPUT, CONSTANT)]
    if len(nodes) >= NODES:
        return True
    hints = {name: hint or 1 for name, hint in graph.sizes.hints.items()}
    return sum(_elements(n, hints) for n in nodes) >= ELEMENTS


def _elements(node: Any, hints: dict[str, int]) -> int:
    from weft.graph.interpret import resolve

    types = node.type if isinstance(node.type, tuple) else (node.type,)
    kinds = [t for t in types if hasattr(t, "shape")]
    return sum(math.prod(resolve(t.shape, hints)) for t in kinds)
