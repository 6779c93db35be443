"""The work of nodes: floating-point operations, and bytes read and written.

Every element-wise function of floating-point numbers counts as one operation for each
element, be it a sum or an exponential; casts, choices and moves count nothing. Other
operators' records have a rule (``flops``). Bytes are the least that must be moved: a
value that a node reads through a view counts once, and no more of its base than the
view shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from weft.compile.fusion.groups import Operand
from weft.core.lowering import Element, Filled, Pointwise, Reduction, View
from weft.core.op import TensorType
from weft.core.size import elements
from weft.graph.ir import ASSIGN, CONSTANT, GROUP, INPUT, PICK, READ, Graph, Node

Sizes = Mapping[str, int]
NOTHING = (INPUT, CONSTANT, READ, ASSIGN, GROUP, PICK)  # nodes that compute nothing


def works(node: Node) -> bool:
    """Whether a node would be a kernel of its own if nothing were fused."""
    return node.op not in NOTHING and not isinstance(node.op.lower, View)


# -- operations


def flops(node: Node, sizes: Sizes) -> int | None:
    """Floating-point operations; None where they are not known.

    >>> from weft.compile.cost.work import flops
    >>> g = weft.graph.capture(lambda x: (x @ x).exp().sum(), weft.ones(4, 4)).graph
    >>> [flops(node, {}) for node in g.nodes]
    [0, 128, 16, 16]
    """
    rule, facts = node.op.lower, node.op.facts
    if not works(node) or isinstance(rule, Filled) or facts.cost == 0:
        return 0
    if isinstance(rule, (Pointwise, Reduction)):
        return _element_wise(node, sizes)
    if facts.flops is None:
        return None
    out = node.shape if isinstance(node.type, TensorType) else ()
    return elements(facts.flops(out, *(i.shape for i in node.inputs)), sizes)


def _element_wise(node: Node, sizes: Sizes) -> int:
    inputs = [i for i in node.inputs if type(i) is Node]
    if not any(n.dtype.is_inexact for n in (node, *inputs)):
        return 0
    reduces = isinstance(node.op.lower, Reduction)
    return elements((inputs[0] if reduces else node).shape, sizes)


# -- bytes


def size_of(node: Node, sizes: Sizes) -> int:
    """The bytes of a node's value, or of all its values."""
    types = [node.type] if isinstance(node.type, TensorType) else node.type or ()
    return sum(elements(t.shape, sizes) * t.dtype.itemsize for t in types)


def bytes_read(nodes: Iterable[Node], sizes: Sizes) -> int:
    """The bytes of other values that nodes read if they are computed together."""
    here = list(nodes)
    inside = set(here)
    wanted = {i: node for node in here for i in node.inputs if type(i) is Node}
    read: dict[Node, int] = {}
    for value, reader in wanted.items():
        operand = Operand(value)
        base = operand.base
        if base in inside or not isinstance(base.type, TensorType):
            continue
        shapes = [base.shape, *[view.shape for view in operand.views]]
        if isinstance(reader.op.lower, Element) and reader.op.facts.cost == 0:
            shapes.append(reader.shape)  # one element is read for each of the result
        count = min(elements(shape, sizes) for shape in shapes)
        most = elements(base.shape, sizes)
        read[base] = min(read.get(base, 0) + count, most)
    return sum(count * base.dtype.itemsize for base, count in read.items())


def bytes_written(nodes: Iterable[Node], sizes: Sizes) -> int:
    return sum(size_of(node, sizes) for node in nodes)


def unfused(graph: Graph, sizes: Sizes) -> tuple[int, int, int]:
    """Kernels, bytes read and bytes written if every node were its own kernel."""
    nodes = [node for node in graph.nodes if works(node)]
    read = sum(bytes_read([node], sizes) for node in nodes)
    return len(nodes), read, bytes_written(nodes, sizes)
