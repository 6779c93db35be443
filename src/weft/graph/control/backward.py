"""One step of a scan, forwards with tangents or backwards with cotangents.

A step back needs values of the step that it undoes. They are *kept*: the way there
gives them as further outputs, each stacked over the steps. Values that depend on no
step (a transposed weight), mere views, and cheap functions of others that are kept
are recomputed instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, NamedTuple

from weft import dtype as dtypes
from weft.core.lowering import Pointwise
from weft.core.op import TensorType
from weft.graph import transform
from weft.graph.control.bodies import (
    apply_op,
    derived,
    floating,
    graph_of,
    pullback,
    pushforward,
    some,
    split,
    spread,
    types_of,
)
from weft.graph.control.branch import cond_op
from weft.graph.ir import Graph, Node
from weft.graph.passes import dead_code
from weft.ops.creation import zeros


class StepBack(NamedTuple):
    """The graph that undoes a step of a body, and the values that it needs.

    ``back`` takes fixed… | g of the carry…, sums for fixed… | kept…, x…, gy… and
    gives g of the carry before…, sums… | gx…. Of ``x`` it takes those in ``rows``, of
    the floating carries those in ``carries``. Where ``counts`` holds, its last input
    is the number of steps behind this one: near the end some carries have no cotangent
    yet, and a cotangent of zeros gives NaN where it meets an infinity.
    """

    back: Graph
    kept: tuple[Node, ...]
    rows: tuple[bool, ...]
    carries: tuple[bool, ...]
    counts: bool
    extra: tuple[Node, ...]  # of the kept nodes and before them, not in the body


@derived
def step_back(
    body: Graph, fixed: int, carried: int, wanted: tuple[bool, ...],
    has_g: tuple[bool, ...], has_gy: tuple[bool, ...],
) -> StepBack:  # fmt: skip
    """The step back for the wanted inputs.

    There are cotangents of some final carries (``has_g``) and of some ``y``. A step
    further back has one of each carry that it reaches.
    """
    first, carry, rows = split(body.inputs, fixed, carried)
    want_first, _, want_rows = split(wanted, fixed, carried)
    moving = floating(carry)
    whole = pullback(body, (*want_first, *moving, *want_rows))
    gs = whole.inputs[len(body.inputs) :]
    cut = _Cut(whole, first, rows, [*carry, *rows], gs)
    n_g, n_sums = sum(moving), sum(want_first)
    early, final = cut.masks(n_sums, has_g, has_gy)
    carries = tuple(map(any, zip(*early, final, strict=True)))
    some_g = types_of(some(gs[:n_g], carries))
    types = [
        *types_of(first), *some_g, *types_of(first, want_first), *types_of(cut.kept),
        *types_of(rows, cut.rows), *types_of(some(gs[n_g:], has_gy)),
    ]  # fmt: skip

    def step(flowing: tuple[bool, ...]) -> Graph:
        """The graph of a step whose carries have these cotangents."""

        def fn(build: Any, args: list[Any]) -> Sequence[Any]:
            firsts, g, sums, kept, xs, gy = split(
                args, fixed, len(some_g), n_sums, len(cut.kept), sum(cut.rows)
            )
            pairs = zip(spread(g, carries), flowing, strict=True)
            own = [one if flows else None for one, flows in pairs]
            found = cut.apply([*firsts, *kept, *xs], [*own, *spread(gy, has_gy)], build)
            at_first, at_carry, at_rows = split(found, n_sums, n_g)
            pairs = zip(sums, at_first, strict=True)
            added = [s if a is None else s + a for s, a in pairs]
            ends = zip(some(at_carry, carries), some_g, strict=True)
            starts = zip(at_rows, types_of(rows, want_rows), strict=True)
            return [
                *[_or_zeros(a, kind) for a, kind in ends],
                *added,
                *[_or_zeros(a, kind) for a, kind in starts],
            ]

        return graph_of(f"{body.name}_back", body, types, fn)

    back = step(final)
    if early:
        back = _by_count([step(mask) for mask in early], back)
    extra = [n for n in cut.before if n not in set(body.nodes)]
    kept = tuple(cut.kept)
    return StepBack(back, kept, cut.rows, carries, bool(early), tuple(extra))


def _or_zeros(value: Any, kind: Any) -> Any:
    return zeros(kind.shape, dtype=kind.dtype) if value is None else value


def _by_count(early: list[Graph], final: Graph) -> Graph:
    """The graph that a last input picks: of the first steps, or else the final one."""
    types = [*types_of(final.inputs), TensorType((), dtypes.int64)]

    def uncounted(graph: Graph) -> Graph:
        return graph_of(
            graph.name, graph, types,
            lambda build, args: transform.apply(graph, args[:-1], build),
        )  # fmt: skip

    def counted(other: Graph, graph: Graph) -> Graph:
        def fn(build: Any, args: list[Any]) -> Sequence[Any]:
            *xs, count = args
            given = (count == 0, *xs, count - 1)
            return apply_op(cond_op, given, then=uncounted(graph), other=other)

        return graph_of(graph.name, graph, types, fn)

    return reduce(counted, reversed(early), uncounted(final))


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
        self.again: set[Node] = set()
        self.again = self._cheap(whole, given)
        needed, kept = self._walk(whole.outputs, given)
        self.kept = [n for n in whole.nodes if n in kept]
        self.rows = tuple(row in needed for row in rows)
        self.before = [n for n in whole.nodes if n not in self.flowing]
        inputs = (*first, *self.kept, *some(rows, self.rows), *gs)
        nodes = [n for n in whole.nodes if n in needed or n in gs]
        self.graph = Graph("cut", nodes, whole.outputs, whole.sizes, inputs)
        self.gs = list(gs)

    def masks(
        self, sums: int, has_g: tuple[bool, ...], has_gy: tuple[bool, ...]
    ) -> tuple[list[tuple[bool, ...]], tuple[bool, ...]]:
        """The carries with a cotangent in the first steps back, and in all others."""
        early: list[tuple[bool, ...]] = []
        before = self.graph.outputs[sums : sums + len(has_g)]
        for _ in range(len(has_g) + 1):
            behind = _behind(self.graph, some(self.gs, (*has_g, *has_gy)))
            after = tuple(node in behind for node in before)
            if after == has_g:
                return early, has_g
            if not early and self._take_zeros(has_g, after, has_gy):
                return [], after
            early.append(has_g)
            has_g = after
        # Cotangents that wander from carry to carry: zeros where there is none.
        return early, tuple(map(any, zip(*early, has_g, strict=True)))

    def _take_zeros(
        self, has_g: tuple[bool, ...], after: tuple[bool, ...], has_gy: tuple[bool, ...]
    ) -> bool:
        """Whether zeros are as good as no cotangents, where only a first step lacks
        some: each is added to another one before anything else is done with it."""
        behind = _behind(self.graph, some(self.gs, (*after, *has_gy)))
        if tuple(a or b for a, b in zip(has_g, after, strict=True)) != after:
            return False
        lost = {
            g
            for g, now, then in zip(self.gs, has_g, after, strict=False)
            if then and not now
        }
        reached = _behind(self.graph, some(self.gs, (*has_g, *has_gy)))
        for node in self.graph.nodes:
            if lost.isdisjoint(node.parents):
                continue
            there = [p for p in node.parents if p in reached and p not in lost]
            if node.op.name != "add" or not there or node not in behind:
                return False
        return lost.isdisjoint(self.graph.outputs)

    def apply(self, args: list[Any], gs: list[Any], build: Any) -> list[Any]:
        """The outputs for these cotangents; None is one that is not there.

        The graph is linear in its cotangents, so that a node has none where none of
        its flowing inputs has one.
        """
        env: dict[Node, Any] = dict(zip(self.graph.inputs, [*args, *gs], strict=True))
        for node in self.graph.nodes:
            if node in env:
                continue
            lost = [p for p in node.parents if env[p] is None]
            there = [p for p in node.parents if p in self.flowing and p not in lost]
            if lost and not there and _is_floating(node):
                env[node] = None
            elif lost and node.op.name == "add" and there[0].type == node.type:
                env[node] = env[there[0]]
            else:
                full = {p: _or_zeros(env[p], p.type) for p in lost}
                env[node] = transform.apply_node(node, {**env, **full}, build)
        return [env[o] for o in self.graph.outputs]

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

    def _cheap(self, whole: Graph, given: set[Node]) -> set[Node]:
        """Values that a few operations on kept or given ones make again."""
        _, kept = self._walk(whole.outputs, given)
        there = given | {n for n in kept if not _is_cheap(n)}
        again: set[Node] = set()
        for node in whole.nodes:
            if node in there or node in self.flowing:
                continue
            if (_is_cheap(node) or node.op.view) and there.issuperset(node.parents):
                again.add(node)
                there.add(node)
        return again

    def _is_kept(self, node: Node) -> bool:
        again = bool(node.op.view) or node in self.again
        return node in self.varying and node not in self.flowing and not again


def _is_cheap(node: Node) -> bool:
    """Whether a node is a sum, a product or the like of few elements each."""
    return isinstance(node.op.lower, Pointwise) and node.op.facts.cost <= 1


def _is_floating(node: Node) -> bool:
    types = (node.type,) if isinstance(node.type, TensorType) else node.type
    return all(kind.dtype.is_inexact for kind in types)


def _behind(graph: Graph, roots: Iterable[Node]) -> set[Node]:
    """The nodes whose values depend on ``roots``, which are among them."""
    found = set(roots)
    for node in graph.nodes:
        if any(parent in found for parent in node.parents):
            found.add(node)
    return found


def keeping(body: Graph, step: StepBack, outputs: Sequence[Node]) -> Graph:
    """The body with these outputs, then the values that a step back needs."""
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
    first, carry, rows = split(body.inputs, fixed, carried)
    moving = floating(carry)
    push = pushforward(body, (*first_moves, *moving, *rows_move))
    types = [
        *types_of(first), *types_of(first, first_moves), *types_of(carry),
        *types_of(carry, moving), *types_of(rows), *types_of(rows, rows_move),
    ]  # fmt: skip

    def fn(build: Any, args: list[Any]) -> Sequence[Any]:
        a, da, c, dc, x, dx = split(
            args, fixed, sum(first_moves), carried, sum(moving), len(rows)
        )
        found = transform.apply(push, [*a, *c, *x, *da, *dc, *dx], build)
        return [*found[:carried], *found[len(body.outputs) :]]

    return graph_of(f"{body.name}_forward", body, types, fn)
