"""Bodies of loops and branches as programs of their own."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from weft.compile.fusion.groups import copied, inlined
from weft.compile.program.steps import Loop
from weft.core.lowering import View
from weft.graph.control.bodies import cache_of
from weft.graph.ir import CONSTANT, INPUT, Graph, Node

# Below these, interpreting a body costs less than a run of native code.
NODES, ELEMENTS = 16, 16384


def program_of(graph: Graph, loop: Loop | None = None) -> Any:
    """The program of a branch, or of the body of a loop, compiled once."""
    from weft.compile.pipeline import KERNEL_PASSES, TENSOR_PASSES
    from weft.compile.program.program import compiled, replay

    cache = cache_of(graph)
    if loop not in cache.native:
        own = ("own_outputs", own_outputs)
        passes = (*TENSOR_PASSES, *KERNEL_PASSES, own)
        again = partial(replay, graph, ())
        cache.native[loop] = compiled(graph, passes=passes, replay=again, loop=loop)
    return cache.native[loop]


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
        kept = node.op in (INPUT, CONSTANT) or isinstance(node.op.lower, View)
        again = kept or inlined(node) or node in outputs
        outputs.append(copied(node) if again else node)
    if outputs == list(graph.outputs):
        return graph
    known = set(graph.nodes)
    nodes = [*graph.nodes, *[n for n in outputs if n not in known]]
    return Graph(graph.name, nodes, outputs, graph.sizes, graph.inputs)


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
