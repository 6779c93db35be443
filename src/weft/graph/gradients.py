"""Differentiation of a graph: the backward program, appended to the forward one.

    y = op(x, …)        gives the nodes  grad/y/…  from op's own vjp rule, whose
                        role is to be a gradient of y: the same operators, with
                        edges to x, y, …

The rules are the tape's, so both give the same numbers; the result is an
ordinary part of the graph, which can be printed and differentiated again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.autograd.modes import no_grad
from weft.core import tape
from weft.core.op import TensorType
from weft.errors import AutogradError, ShapeError
from weft.graph.ir import PICK, READ, Graph, GraphError, Node, type_text
from weft.graph.symbol import Building, Symbol


def add_gradients(
    build: Building,
    ys: Sequence[Node],
    xs: Sequence[Node],
    grad_ys: Sequence[Node | None] | None = None,
) -> list[Node | None]:
    """Append the nodes that compute the gradients of ``ys`` by ``xs``.

    The result has None for an ``x`` that no ``y`` depends on. Without ``grad_ys``
    each ``y`` counts with ones, as if all their elements were added up.

    >>> g = weft.graph.capture(lambda x: x.sin(), weft.ones(2)).graph
    >>> build = weft.graph.Building(g.builder())
    >>> weft.graph.add_gradients(build, g.outputs, g.inputs)
    [<absorb 'grad/sin/absorb' float32[2]>]
    """
    for y in ys:
        if not (isinstance(y.type, TensorType) and y.type.dtype.is_inexact):
            raise AutogradError(
                f"gradients: {y.name!r} is {type_text(y.type)}, which is not "
                f"differentiable\n  made at {y.line}"
            )
    run = _Backward(build, _depending(build.builder.nodes, xs))
    with no_grad(), build.taking():
        for y, g in zip(ys, grad_ys or [None] * len(ys), strict=True):
            run.send(y, run.seed(y, g))
        run.run(_ancestors(ys))
        return [run.found(x) for x in xs]


def _depending(nodes: Iterable[Node], xs: Sequence[Node]) -> set[Node]:
    """The nodes whose value depends on ``xs``."""
    found = set(xs)
    for node in nodes:
        if any(i in found for i in node.inputs if type(i) is Node):
            found.add(node)
    return found


def _ancestors(ys: Iterable[Node]) -> set[Node]:
    seen: set[Node] = set()
    stack = list(ys)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(i for i in node.inputs if type(i) is Node)
    return seen


def _is_continuous(node: Node) -> bool:
    kinds = node.type if type(node.type) is tuple else (node.type,)
    return any(kind.dtype.is_inexact for kind in kinds)


class _Backward:
    """One reverse sweep over a graph's nodes."""

    def __init__(self, build: Building, active: set[Node]) -> None:
        self.build = build
        self.active = active
        self.pending: dict[Node, Any] = {}

    def seed(self, y: Node, g: Node | None) -> Symbol:
        from weft.ops.creation import ones

        if g is None:
            with self.build.builder.gradient_of(y):
                return ones(y.shape, dtype=y.dtype)  # type: ignore[return-value]
        if g.type != y.type:
            raise ShapeError(
                f"gradients: grad_ys of {y.name!r} must be {type_text(y.type)}, got "
                f"{type_text(g.type)}"
            )
        return self.build.symbol(g)

    def send(self, node: Node, g: Any) -> None:
        before = self.pending.get(node)
        self.pending[node] = g if before is None else before + g

    def found(self, x: Node) -> Node | None:
        g = self.pending.get(x)
        return None if g is None else self.build.lift(g)

    def run(self, needed: set[Node]) -> None:
        builder = self.build.builder
        for node in reversed([n for n in builder.nodes if n in needed]):
            g = self.pending.get(node)
            if g is None or node not in self.active or not self._goes_on(node):
                continue
            with builder.deriving(node), builder.gradient_of(node):
                self._pull(node, g)

    def _goes_on(self, node: Node) -> bool:
        """Whether a derivative flows on, which it does not through whole numbers."""
        return any(
            i in self.active and _is_continuous(i)
            for i in node.inputs
            if type(i) is Node
        )

    def _pull(self, node: Node, g: Any) -> None:
        if node.op is PICK:
            self._gather(node, g)
            return
        if type(g) is list:
            g = self._fill(node, g)
        symbols = [self.build.symbol(i) if type(i) is Node else i for i in node.inputs]
        need = tuple([type(i) is Node and i in self.active for i in node.inputs])
        if node.op.vjp is None:
            raise AutogradError(
                f"gradients: {node.op.name!r} (node {node.name!r}) has no derivative "
                f"rule\n  made at {node.line}"
            )
        plan = node.op.plan(need)
        outs = self._outputs(node)
        record = tape.Node.of(plan, (), (*symbols, outs), node.params)
        for i, back in record.pull_back(g):
            if back is not None:
                self.send(node.inputs[i], back)

    def _outputs(self, node: Node) -> tuple[Any, ...]:
        found = self.build.wrap(node)
        return found if type(found) is tuple else (found,)

    def _gather(self, pick: Node, g: Any) -> None:
        """Collect the cotangents of an operator's several outputs."""
        parent: Node = pick.inputs[0]
        slots = self.pending.setdefault(parent, [None] * len(parent.type))
        k = pick.params["index"]
        slots[k] = g if slots[k] is None else slots[k] + g

    def _fill(self, node: Node, slots: list[Any]) -> tuple[Any, ...]:
        from weft.ops.creation import zeros

        if node.op.many:
            return tuple(slots)  # the rule of such an operator does without them
        return tuple(
            zeros(kind.shape, dtype=kind.dtype)
            if g is None and kind.dtype.is_inexact
            else g
            for g, kind in zip(slots, node.type, strict=True)
        )


def gradients(
    graph: Graph,
    ys: Sequence[Node | str] | None = None,
    xs: Sequence[Node | str] | None = None,
) -> Graph:
    """The graph with the gradients of ``ys`` by ``xs`` appended and as its outputs.

    ``ys`` are the graph's outputs unless given, ``xs`` its floating-point inputs
    and trainable variables. The outputs become the old ones, then a gradient each;
    one that nothing depends on is zeros.

    >>> g = weft.graph.capture(lambda x: (x * x).sum(), weft.ones(3)).graph
    >>> [node.name for node in weft.graph.gradients(g).nodes][-3:]
    ['grad/mul/absorb', 'grad/mul/absorb_1', 'grad/mul/add']
    """
    roots = [_node(graph, y) for y in (graph.outputs if ys is None else ys)]
    wanted = _default_xs(graph) if xs is None else [_node(graph, x) for x in xs]
    build = Building(graph.builder())
    found = add_gradients(build, roots, wanted)
    filled = [or_zeros(build, x, g) for x, g in zip(wanted, found, strict=True)]
    return Graph(
        graph.name,
        build.builder.nodes,
        (*graph.outputs, *filled),
        graph.sizes,
        graph.inputs,
    )


def _node(graph: Graph, value: Any) -> Node:
    if isinstance(value, Symbol):
        value = value.node
    if isinstance(value, str):
        return graph[value]
    if value not in graph:
        raise GraphError(
            f"gradients: {value.name!r} is not a node of graph {graph.name!r}\n"
            f"  made at {value.line}"
        )
    return value


def _default_xs(graph: Graph) -> list[Node]:
    trainable = [
        n for n in graph.nodes if n.op is READ and n.params["variable"].trainable
    ]
    return [n for n in graph.inputs if n.dtype.is_inexact] + trainable


def or_zeros(build: Building, x: Node, g: Node | None) -> Node:
    """A gradient by ``x``; zeros where nothing depends on it."""
    from weft.ops.creation import zeros

    if g is not None:
        return g
    with build.taking(), build.builder.gradient_of(x):
        return build.lift(zeros(x.shape, dtype=x.dtype))
