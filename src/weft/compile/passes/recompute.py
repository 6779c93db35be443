"""Recomputation: what backward needs and is not kept is computed again, then.

    %h = matmul(%x, %w)                     %h = matmul(%x, %w)
    %y = tanh(%h)                           %y = tanh(%h)
    …                                   →   …
    %g = …  gradient                        %g = …  gradient
    %d = mul(%g, f(%y))  gradient of %y     %c = tanh(%h) after %g  recomputes %y
                                            %d = mul(%g, f(%c))  gradient of %y

Here ``h`` is kept and ``y`` is not: its memory is free from the forward's last use of
it on. Each value is computed again at most once, directly before the first gradient
that reads it, from what is kept and from others that are computed again. The edge
``after`` holds it back until the gradient is there, or fusion would compute it where
its inputs are made.

A copy is the same operator on the same values, so it has the same bits: random numbers
are functions of a seed and a count. Nothing that changes state is copied. Sums and
other reductions are kept: they are small, and in which order numbers are added up may
depend on what else is computed in the loop. So are whole numbers, which are indices.
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
    """The graph in which gradients read copies of the values that are not kept.

    >>> from weft.compile.passes.recompute import recompute
    >>> def loss(x):
    ...     return x.exp().sin().sum()
    >>> g = weft.graph.gradients(weft.graph.capture(loss, weft.ones(2)).graph)
    >>> made = recompute(weft.compile.pipeline.run(g), keep=lambda node: False)
    >>> [node.name for node in made.nodes if node.role.recomputes == "exp"]
    ['exp/again']
    """
    made = _Recompute(graph, keep).run()
    return graph if made is None else dead_code(made)


def copyable(node: Node) -> bool:
    """Whether a value may be computed again: natively, to the same bits, and so that
    nothing can fail."""
    if node.after:
        return False
    if node.op is PICK or targets.default().library_call(node) is not None:
        return True
    rule = lowering_of(node)
    if isinstance(rule, View):
        return True
    if not isinstance(node.type, TensorType):
        return False
    if not scalar.has_dtype(node.dtype) or node.dtype.category == dtypes.INT:
        return False  # indices that have been checked are to be read where they are
    if isinstance(rule, Element):
        return not node.op.refuses
    return isinstance(rule, (Pointwise, Filled))


class Turns:
    """Which nodes wait for a gradient of the loss, and from which turn on.

    A backward run begins where gradients depend on the last values of a forward run.
    ``of[node]`` names the run by the place of that value, for the nodes that depend on
    it; others, such as the mask of a ``relu``, could be computed in forward.
    """

    def __init__(self, graph: Graph) -> None:
        self.of: dict[Node, int] = {}
        reach: dict[Node, int] = {}  # the place of the last forward value it needs
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
        """The end of a stretch of gradients."""
        top = max((reach[node] for node in run), default=-1)
        if top >= 0:
            self.of.update((node, top) for node in run if reach[node] == top)
        run.clear()


class _Recompute:
    def __init__(self, graph: Graph, keep: Keep) -> None:
        self.graph = graph
        self.turns = Turns(graph).of
        keep = functools.cache(keep)  # a value's views and parts follow it
        self.given = {n: self._stays(n, keep) for n in graph.nodes}
        self.nodes: list[Node] = []
        self.new: dict[Node, Node] = {}
        self.copies: dict[tuple[int, Node], Node] = {}
        self.last: dict[int, Node] = {}  # of each run: the gradient made last
        self.names = {node.name for node in graph.nodes}

    def _stays(self, node: Node, keep: Keep) -> bool:
        """Whether gradients read a value as it is."""
        base = Operand(node).base
        if base.op is PICK:
            base = base.inputs[0]
        if base.op in _GIVEN or base in self.turns or inlined(base):
            return True
        return not copyable(base) or keep(base)

    def run(self) -> Graph | None:
        """The new graph; None if nothing is computed again."""
        graph = self.graph
        for node in graph.nodes:
            turn = self.turns.get(node)
            if turn is not None:
                for value in self._dropped(node):
                    self._copy(turn, value)
            new = self._over(node, turn)
            self.new[node] = new
            self.nodes.append(new)
            if turn is not None and not isinstance(node.op.lower, View):
                self.last[turn] = new
        if not self.copies:
            return None
        outputs = [self.new[out] for out in graph.outputs]
        inputs = [self.new[node] for node in graph.inputs]
        return Graph(graph.name, self.nodes, outputs, graph.sizes, inputs)

    def _dropped(self, node: Node) -> list[Node]:
        return [i for i in node.inputs if type(i) is Node and not self.given[i]]

    def _value(self, turn: int | None, value: Node) -> Node:
        """What a node of a run (or of none) reads in place of a value."""
        if turn is None or self.given[value]:
            return self.new[value]
        return self.copies[turn, value]

    def _inputs(self, node: Node, turn: int | None) -> tuple[Any, ...]:
        return tuple(
            [self._value(turn, i) if type(i) is Node else i for i in node.inputs]
        )

    def _copy(self, turn: int, value: Node) -> None:
        """Compute a value again now, after others that it needs."""
        waiting = [value]
        while waiting:
            node = waiting[-1]
            missing = [i for i in self._dropped(node) if (turn, i) not in self.copies]
            if (turn, node) in self.copies or not missing:
                waiting.pop()
            waiting += missing
            if not missing and (turn, node) not in self.copies:
                self.copies[turn, node] = self._copied(turn, node)

    def _copied(self, turn: int, node: Node) -> Node:
        held = turn in self.last and not self._dropped(node)
        after = (self.last[turn],) if held else ()
        role = node.role._replace(recomputes=origin(node))
        copy = Node(
            node.op, self._inputs(node, turn), node.params, node.type,
            self._free(node.name), after, node.module, node.code, node.lasti, role,
        )  # fmt: skip
        self.nodes.append(copy)
        return copy

    def _over(self, node: Node, turn: int | None) -> Node:
        """A node over the new graph's values; itself where these are the old."""
        inputs = self._inputs(node, turn)
        after = tuple([self.new[i] for i in node.after])
        if _same(inputs, node.inputs) and _same(after, node.after):
            return node
        return Node(
            node.op, inputs, node.params, node.type, node.name, after,
            node.module, node.code, node.lasti, node.role,
        )  # fmt: skip

    def _free(self, name: str) -> str:
        found, k = f"{name}/again", 0
        while found in self.names:
            k += 1
            found = f"{name}/again_{k}"
        self.names.add(found)
        return found


def _same(a: Iterable[Any], b: Iterable[Any]) -> bool:
    return all(x is y for x, y in zip(a, b, strict=True))
