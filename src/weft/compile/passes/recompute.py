"""Recomputation: what backward needs and is not kept is computed again, then.

    %h = matmul(%x, %w)                     %h = matmul(%x, %w)
    %y = tanh(%h)                           %y = tanh(%h)
    …                                   →   …
    %g = …  gradient                        %g = …  gradient
    %d = mul(%g, f(%y))  gradient of %y     %c = tanh(%h) after %g  recomputes %y
                                            %d = mul(%g, f(%c))  gradient of %y

Here ``h`` is kept and ``y`` is not: its memory is free after its last use in forward.
Each value is recomputed at most once, directly before the first gradient that reads it,
from values that are kept and from others that are recomputed. The edge ``after`` delays
it until the gradient is computed; fusion would otherwise compute it together with its
inputs.

A copy is the same operator on the same values, so it has the same bits: random numbers
are functions of a seed and a count. Nothing that changes state is copied. Sums and
other reductions are kept: they are small, and the order in which numbers are added may
depend on what else is computed in the loop. Integers are kept too: they are indices.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from weft import dtype as dtypes
from weft.compile import targets
from weft.compile.emit import scalar
from weft.compile.fusion.elements import lowering_of
from weft.compile.fusion.groups import Operand, inlined, origin
from weft.core.lowering import Element, Filled, Pointwise, View
from weft.core.op import TensorType
from weft.graph.ir import CONSTANT, INPUT, PICK, READ, Graph, Node
from weft.graph.passes import dead_code

Keep = Callable[[Node], bool]

_GIVEN = (INPUT, READ, CONSTANT)


def recompute(graph: Graph, keep: Keep) -> Graph:
    """Let gradients read recomputed copies of the values that are not kept.

    >>> from weft.compile.passes.recompute import recompute
    >>> def loss(x):
    ...     return x.exp().sin().sum()
    >>> g = weft.graph.gradients(weft.graph.capture(loss, weft.ones(2)).graph)
    >>> made = recompute(weft.compile.pipeline.run(g), keep=lambda node: False)
    >>> [node.name for node in made.nodes if node.role.recomputes == "exp"]
    ['exp/again']
    """
    changed = _Recompute(graph, keep).run()
    return graph if changed is None else dead_code(changed)


def copyable(node: Node) -> bool:
    """Whether a value may be recomputed: natively, to the same bits, without errors."""
    if node.after:
        return False
    if node.op is PICK or targets.current().library_call(node) is not None:
        return True
    rule = lowering_of(node)
    if isinstance(rule, View):
        return True
    if not isinstance(node.type, TensorType):
        return False
    if not scalar.has_dtype(node.dtype) or node.dtype.category == dtypes.INT:
        return False  # indices that have been checked must not be computed anew
    if isinstance(rule, Element):
        return not node.op.refuses
    return isinstance(rule, (Pointwise, Filled))


class BackwardRuns:
    """The backward run that each node belongs to; a program may have several.

    A backward run begins where gradients depend on the last value of a forward run.
    ``of[node]`` is the index of that value in the graph, for the nodes that depend on
    it; other gradients, such as the mask of a ``relu``, could be computed in forward.
    """

    def __init__(self, graph: Graph) -> None:
        self.of: dict[Node, int] = {}
        reach: dict[Node, int] = {}  # the index of the last forward value it needs
        run: list[Node] = []
        for at, node in enumerate(graph.nodes):
            if node.op in _GIVEN:
                reach[node] = -1
            elif node.role.is_gradient:
                reach[node] = max((reach[p] for p in node.parents), default=-1)
                run.append(node)
            else:
                reach[node] = at
                if not isinstance(lowering_of(node), View):
                    self._close(run, reach)
        self._close(run, reach)

    def _close(self, run: list[Node], reach: dict[Node, int]) -> None:
        """End a stretch of gradients."""
        top = max((reach[node] for node in run), default=-1)
        if top >= 0:
            self.of.update((node, top) for node in run if reach[node] == top)
        run.clear()


class _Recompute:
    def __init__(self, graph: Graph, keep: Keep) -> None:
        self.graph = graph
        self.runs = BackwardRuns(graph).of
        keep = functools.cache(keep)  # it is asked once for a value and its views
        self.kept = {n: self._is_kept(n, keep) for n in graph.nodes}
        self.nodes: list[Node] = []
        self.new: dict[Node, Node] = {}
        self.copies: dict[tuple[int, Node], Node] = {}
        self.last: dict[int, Node] = {}  # of each run: the gradient made last
        self.names = {node.name for node in graph.nodes}

    def _is_kept(self, node: Node, keep: Keep) -> bool:
        """Whether gradients read a value itself, not a copy."""
        base = Operand(node).base
        if base.op is PICK:
            base = base.inputs[0]
        if base.op in _GIVEN or base in self.runs or inlined(base):
            return True
        return not copyable(base) or keep(base)

    def run(self) -> Graph | None:
        """The new graph; None if nothing is recomputed."""
        graph = self.graph
        for node in graph.nodes:
            run = self.runs.get(node)
            if run is not None:
                for value in self._dropped(node):
                    self._copy(run, value)
            new = self._over(node, run)
            self.new[node] = new
            self.nodes.append(new)
            if run is not None and not isinstance(node.op.lower, View):
                self.last[run] = new
        if not self.copies:
            return None
        outputs = [self.new[out] for out in graph.outputs]
        inputs = [self.new[node] for node in graph.inputs]
        return Graph(graph.name, self.nodes, outputs, graph.sizes, inputs)

    def _dropped(self, node: Node) -> list[Node]:
        return [i for i in node.inputs if type(i) is Node and not self.kept[i]]

    def _value(self, run: int | None, value: Node) -> Node:
        """The value, or the copy that a node of a backward run reads instead."""
        if run is None or self.kept[value]:
            return self.new[value]
        return self.copies[run, value]

    def _inputs(self, node: Node, run: int | None) -> tuple[Any, ...]:
        return tuple(
            [self._value(run, i) if type(i) is Node else i for i in node.inputs]
        )

    def _copy(self, run: int, value: Node) -> None:
        """Add a copy of a value, after copies of the values that it needs."""
        waiting = [value]
        while waiting:
            node = waiting[-1]
            missing = [i for i in self._dropped(node) if (run, i) not in self.copies]
            if (run, node) in self.copies or not missing:
                waiting.pop()
            waiting += missing
            if not missing and (run, node) not in self.copies:
                self.copies[run, node] = self._copied(run, node)

    def _copied(self, run: int, node: Node) -> Node:
        delayed = run in self.last and not self._dropped(node)
        after = (self.last[run],) if delayed else ()
        copy = copy_of(node, self._inputs(node, run), after, self.names)
        self.nodes.append(copy)
        return copy

    def _over(self, node: Node, run: int | None) -> Node:
        """The node on values of the new graph; itself if they are the old ones."""
        after = tuple([self.new[i] for i in node.after])
        return on_inputs(node, self._inputs(node, run), after)


def on_inputs(node: Node, inputs: tuple[Any, ...], after: tuple[Node, ...]) -> Node:
    """A node with other inputs; itself if they are those that it has."""
    if _same(inputs, node.inputs) and _same(after, node.after):
        return node
    return Node(
        node.op, inputs, node.params, node.type, node.name, after,
        node.module, node.code, node.lasti, node.role,
    )  # fmt: skip


def copy_of(
    node: Node, inputs: tuple[Any, ...], after: tuple[Node, ...], names: set[str]
) -> Node:
    """A recomputed copy of a node, whose name is added to those that are taken."""
    name, k = f"{node.name}/again", 0
    while name in names:
        k += 1
        name = f"{node.name}/again_{k}"
    names.add(name)
    role = node.role._replace(recomputes=origin(node))
    return Node(
        node.op, inputs, node.params, node.type, name, after,
        node.module, node.code, node.lasti, role,
    )  # fmt: skip


def _same(a: Iterable[Any], b: Iterable[Any]) -> bool:
    return all(x is y for x, y in zip(a, b, strict=True))
