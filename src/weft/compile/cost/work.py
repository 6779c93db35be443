"""The work of nodes: floating-point operations, and bytes read and written.

Every element-wise function of floating numbers counts as one operation for each
element, be it a sum or an exponential; casts and choices count nothing. Bytes are
those that must be moved at least: what a node reads through a view counts once, and
no more of its base than the view shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from weft.compile.fusion.groups import Operand
from weft.core.lowering import Filled, Pointwise, Reduction, View
from weft.core.op import TensorType
from weft.core.size import elements
from weft.graph.ir import ASSIGN, CONSTANT, GROUP, INPUT, PICK, READ, Graph, Node

Sizes = Mapping[str, int]
NOTHING = (INPUT, CONSTANT, READ, ASSIGN, GROUP, PICK)  # nodes that compute nothing
_FREE = {"cast", "where", "conj", "copy"}
_MOVING = {"cat", "flip", "gather", "place", "put", "scatter", "take"}
_ADDING = {"add_at", "scatter_add", "cumsum", "cumprod"}
_LOOKUPS = {"take", "gather"}  # they read as many elements as they give


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
    rule = node.op.lower
    if not works(node) or isinstance(rule, Filled) or node.op.name in _MOVING:
        return 0
    if isinstance(rule, (Pointwise, Reduction)):
        return _element_wise(node, sizes)
    if node.op.name in _ADDING:
        tensors = [i for i in node.inputs if type(i) is Node]
        return max(elements(i.shape, sizes) for i in tensors[-1:])
    return _products(node, sizes)


def _element_wise(node: Node, sizes: Sizes) -> int:
    inputs = [i for i in node.inputs if type(i) is Node]
    if node.op.name in _FREE or not any(n.dtype.is_inexact for n in (node, *inputs)):
        return 0
    reduces = isinstance(node.op.lower, Reduction)
    return elements((inputs[0] if reduces else node).shape, sizes)


def _products(node: Node, sizes: Sizes) -> int | None:
    """Of the operators that are sums of products."""
    name, inputs = node.op.name, node.inputs
    if name in ("matmul", "wide_matmul"):
        return 2 * elements((*node.shape, inputs[0].shape[-1]), sizes)
    if name in ("conv", "conv_bias"):
        return 2 * elements((*node.shape, *inputs[1].shape[1:]), sizes)
    if name == "conv_input_grad":
        return 2 * elements((*inputs[0].shape, *inputs[1].shape[1:]), sizes)
    if name == "conv_weight_grad":
        return 2 * elements((*inputs[1].shape, *node.shape[1:]), sizes)
    if name in ("attention", "attention_backward"):  # of products: 2, or 5
        q, k, v = (i.shape for i in inputs[:3])
        of_keys, of_values = (1, 1) if name == "attention" else (3, 2)
        pairs = 2 * elements((*q[:-1], k[-2]), sizes)
        features = of_keys * elements(q[-1:], sizes)
        return pairs * (features + of_values * elements(v[-1:], sizes))
    return None


# -- bytes


def size_of(node: Node, sizes: Sizes) -> int:
    """The bytes of a node's value, or of all its values."""
    types = [node.type] if isinstance(node.type, TensorType) else node.type or ()
    return sum(elements(t.shape, sizes) * t.dtype.itemsize for t in types)


def bytes_read(nodes: Iterable[Node], sizes: Sizes) -> int:
    """What nodes that are computed together read of others' values."""
    here = list(nodes)
    inside = set(here)
    wanted = {i: node for node in here for i in node.inputs if type(i) is Node}
    found: dict[Node, int] = {}
    for value, reader in wanted.items():
        operand = Operand(value)
        base = operand.base
        if base in inside or not isinstance(base.type, TensorType):
            continue
        shapes = [base.shape, *[view.shape for view in operand.views]]
        if reader.op.name in _LOOKUPS and value is reader.inputs[0]:
            shapes.append(reader.shape)
        count = min(elements(shape, sizes) for shape in shapes)
        most = elements(base.shape, sizes)
        found[base] = min(found.get(base, 0) + count, most)
    return sum(count * base.dtype.itemsize for base, count in found.items())


def bytes_written(nodes: Iterable[Node], sizes: Sizes) -> int:
    return sum(size_of(node, sizes) for node in nodes)


def unfused(graph: Graph, sizes: Sizes) -> tuple[int, int, int]:
    """Kernels, bytes read and bytes written if every node were its own kernel."""
    nodes = [node for node in graph.nodes if works(node)]
    read = sum(bytes_read([node], sizes) for node in nodes)
    return len(nodes), read, bytes_written(nodes, sizes)
