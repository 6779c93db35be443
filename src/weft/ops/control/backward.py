"""One step of a scan, forwards with tangents or backwards with cotangents.

A step back needs values of the step that it undoes. They are *kept*: the way there
gives them as further outputs, each stacked over the steps. What depends on no step
(a transposed weight) and what is a mere view is computed again instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from weft.graph import transform
from weft.graph.ir import Graph, Node
from weft.graph.passes import dead_code
from weft.ops.control.bodies import (
    derived,
    floating,
    graph_of,
    parts,
    pullback,
    pushforward,
    some,
    spread,
    types_of,
)
from weft.ops.creation import zeros


class StepBack(NamedTuple):
    """How to undo a step of a body.

    ``back`` takes fixed… | g of the carry…, sums for fixed… | kept…, x…, gy… and
    gives g of the carry before…, sums… | gx…. Of ``x`` it takes those in ``rows``.
    """

    back: Graph
    kept: tuple[Node, ...]
    rows: tuple[bool, ...]
    extra: tuple[Node, ...]  # of the kept nodes and before them, not in the body


@derived
def step_back(
    body: Graph, fixed: int, carried: int, wanted: tuple[bool, ...],
    has_gy: tuple[bool, ...],
) -> StepBack:  # fmt: skip
    """The step back for the wanted inputs, given cotangents of some ``y``."""
    first, carry, rows = parts(body.inputs, fixed, carried)
    want_first, _, want_rows = parts(wanted, fixed, carried)
    moving = floating(carry)
    whole = pullback(body, (*want_first, *moving, *want_rows))
    gs = whole.inputs[len(body.inputs) :]
    cut = _Cut(whole, first, rows, [*carry, *rows], gs)
    n_g, n_sums = sum(moving), sum(want_first)
    g_ys = types_of(gs[n_g:])
    types = [
        *types_of(first), *types_of(carry, moving), *types_of(first, want_first),
        *types_of(cut.kept), *types_of(rows, cut.rows), *some(g_ys, has_gy),
    ]  # fmt: skip

    def fn(build: Any, args: list[Any]) -> Sequence[Any]:
        firsts, g, sums, kept, xs, gy = parts(
            args, fixed, n_g, n_sums, len(cut.kept), sum(cut.rows)
        )
        filled = [
            zeros(kind.shape, dtype=kind.dtype) if one is None else one
            for one, kind in zip(spread(gy, has_gy), g_ys, strict=True)
        ]
        found = transform.apply(cut.graph, [*firsts, *kept, *xs, *g, *filled], build)
        at_first, at_carry, at_rows = parts(found, n_sums, n_g)
        added = [s + a for s, a in zip(sums, at_first, strict=True)]
        return [*at_carry, *added, *at_rows]

    back = graph_of(f"{body.name}_back", body, types, fn)
    extra = [n for n in cut.before if n not in set(body.nodes)]
    return StepBack(back, tuple(cut.kept), cut.rows, tuple(extra))


class _Cut:
    """A body's pullback, cut where cotangents begin to flow.

    ``graph`` is the part with cotangents in it; its inputs are fixed…, kept…, the x
    that it needs, and the cotangents.
    """

    def __init__(
        self,
        whole: Graph,
        first: list[Node],
        rows: list[Node],
        varying: list[Node],
        gs: Sequence[Node],
    ) -> None:
        self.flowing = _behind(whole, gs)
        self.varying = _behind(whole, varying)
        given = {*first, *rows, *gs}
        needed, kept = self._walk(whole.outputs, given)
        self.kept = [n for n in whole.nodes if n in kept]
        self.rows = tuple(row in needed for row in rows)
        self.before = [n for n in whole.nodes if n not in self.flowing]
        inputs = (*first, *self.kept, *some(rows, self.rows), *gs)
        nodes = [n for n in whole.nodes if n in needed or n in gs]
        self.graph = Graph("cut", nodes, whole.outputs, whole.sizes, inputs)

    def _walk(
        self, outputs: Iterable[Node], given: set[Node]
    ) -> tuple[set[Node], set[Node]]:
        """The nodes that are needed, and among them those to keep."""
        needed: set[Node] = set()
        kept: set[Node] = set()
        stack = list(outputs)
        while stack:
            node = stack.pop()
            if node in needed:
                continue
            needed.add(node)
            if node in given:
                continue
            if self._is_kept(node):
                kept.add(node)
            else:
                stack.extend(node.parents)
        return needed, kept

    def _is_kept(self, node: Node) -> bool:
        again = bool(node.op.view)  # computed from what it views
        return node in self.varying and node not in self.flowing and not again


def _behind(graph: Graph, roots: Iterable[Node]) -> set[Node]:
    """The nodes whose values depend on ``roots``, which are among them."""
    found = set(roots)
    for node in graph.nodes:
        if any(parent in found for parent in node.parents):
            found.add(node)
    return found


def keeping(body: Graph, step: StepBack, outputs: Sequence[Node]) -> Graph:
    """The body with these outputs, then what a step back needs."""
    nodes = (*body.nodes, *step.extra)
    outs = (*outputs, *step.kept)
    whole = Graph(f"{body.name}_kept", nodes, outs, body.sizes, body.inputs)
    return dead_code(whole)


@derived
def step_forward(
    body: Graph, fixed: int, carried: int, first_moves: tuple[bool, ...],
    rows_move: tuple[bool, ...],
) -> Graph:  # fmt: skip
    """One step with tangents.

    fixed…, d fixed… | carry…, d carry… | x…, dx…  gives  carry…, d carry… | dy…
    """
    first, carry, rows = parts(body.inputs, fixed, carried)
    moving = floating(carry)
    push = pushforward(body, (*first_moves, *moving, *rows_move))
    types = [
        *types_of(first), *types_of(first, first_moves), *types_of(carry),
        *types_of(carry, moving), *types_of(rows), *types_of(rows, rows_move),
    ]  # fmt: skip

    def fn(build: Any, args: list[Any]) -> Sequence[Any]:
        a, da, c, dc, x, dx = parts(
            args, fixed, sum(first_moves), carried, sum(moving), len(rows)
        )
        found = transform.apply(push, [*a, *c, *x, *da, *dc, *dx], build)
        return [*found[:carried], *found[len(body.outputs) :]]

    return graph_of(f"{body.name}_forward", body, types, fn)
