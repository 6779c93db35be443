"""The seconds that values take to compute, by the roofline of this machine.

A function that is computed by a series costs what its record says. A recomputed
element-wise value is mostly part of another kernel, which then reads the inputs of the
value instead of the value.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.compile import targets
from weft.compile.cost import work
from weft.compile.cost.machine import Machine
from weft.compile.cost.work import Sizes
from weft.core.size import elements
from weft.graph.ir import Node

_LAUNCH = 1e-6  # seconds that any launch takes


def operations(node: Node, sizes: Sizes) -> int:
    """Floating-point operations of a node, those of series included.

    >>> from weft.compile.cost.roofline import operations
    >>> g = weft.graph.capture(lambda x: x.exp() + 1, weft.ones(10)).graph
    >>> [operations(node, {}) for node in g.nodes]
    [0, 120, 10]
    """
    each = node.op.facts.cost
    if each > 1:
        return each * elements(node.shape, sizes)
    return work.flops(node, sizes) or 0


def seconds(nodes: Iterable[Node], sizes: Sizes, roof: Machine) -> float:
    """The time that nodes take if they are computed together."""
    here = [node for node in nodes if work.works(node)]
    if not here:
        return 0.0
    moved = work.bytes_read(here, sizes)
    if any(targets.current().library_call(node) is not None for node in here):
        moved += work.size_of(here[-1], sizes)
    flops = sum(operations(node, sizes) for node in here)
    return _LAUNCH + roof.least_seconds(moved, flops)
