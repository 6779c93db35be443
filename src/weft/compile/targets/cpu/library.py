"""The routines there are: nodes that generated code computes as a whole."""

from __future__ import annotations

from weft.compile.targets.cpu.attention.call import Attention
from weft.compile.targets.cpu.convolution.call import Convolution
from weft.compile.targets.cpu.jobs import Routine
from weft.compile.targets.cpu.matmul.call import Product
from weft.graph.ir import Node

ROUTINES: tuple[type[Routine], ...] = (Product, Convolution, Attention)


def routine_of(node: Node) -> type[Routine] | None:
    """What computes a node, if it is one for a routine.

    >>> from weft.compile.targets.cpu.library import routine_of
    >>> graph = weft.graph.capture(lambda a: a @ a + 1, weft.ones(2, 2)).graph
    >>> [routine_of(node) for node in graph.nodes[1:]]
    [<class 'weft.compile.targets.cpu.matmul.call.Product'>, None]
    """
    return next((kind for kind in ROUTINES if kind.computes(node)), None)
