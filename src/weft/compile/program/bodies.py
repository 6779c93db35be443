"""Bodies of loops and branches as machine code of their own."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from weft.graph.control.bodies import cache_of
from weft.graph.ir import CONSTANT, INPUT, Graph

# Below these, interpreting a body costs less than a run of native code.
NODES, ELEMENTS = 16, 16384


def native_of(graph: Graph) -> Any:
    """The program of a body, compiled once; None if the body is better interpreted.

    >>> small = weft.graph.capture(lambda x: x + 1, weft.ones(2)).graph
    >>> weft.compile.program.bodies.native_of(small)
    """
    from weft.compile.pipeline import KERNEL_PASSES, TENSOR_PASSES
    from weft.compile.program.program import compiled, replay

    cache = cache_of(graph)
    if cache.native is ...:
        program = None
        if _is_heavy(graph):
            passes = (*TENSOR_PASSES, *KERNEL_PASSES)
            program = compiled(graph, passes=passes, replay=partial(replay, graph, ()))
        cache.native = program
    return cache.native


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
