"""A training step as a row of stretches, each of which is kept or computed again.

    forward     v0   v1   v2   v3   v4   v5        values, in the order of computation
                   ↑         ↑                     cuts: values that cross one are kept
    backward    g5  g4  g3   g2  g1   g0           one segment after the other

``crossing[k]`` are the values computed before position k that later ones depend on. If
they are kept, all values after position k can be recomputed without the ones before. A
segment between two cuts is recomputed when backward comes to it, while only the values
kept before it, its own and the present gradients are in memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from weft.compile.cost.machine import Machine
from weft.compile.cost.roofline import seconds
from weft.compile.cost.work import size_of
from weft.compile.fusion.elements import lowering_of
from weft.compile.fusion.groups import Operand, inlined
from weft.compile.passes.recompute import BackwardRuns, copyable
from weft.compile.program.steps import bases_of
from weft.compile.recompute.draft import Draft
from weft.core.lowering import Reduction
from weft.graph.ir import CONSTANT, INPUT, READ, Node

MOST = 400  # positions for cuts
LONGEST = 160  # positions of a segment that is recomputed
SMALL = 0.05  # of the median size: values that need no position of their own


class Value(NamedTuple):
    """A value of forward that gradients need, directly or not."""

    node: Node
    nbytes: int
    needs: frozenset[Node]  # the values that it is computed from
    nodes: list[Node]  # the nodes that compute it from these, itself the last
    seconds: float
    first: int  # the first step of backward that reads it; -1 if none does
    last: int  # the last one


class Segment(NamedTuple):
    """The consequences of keeping the values of some positions, or recomputing them."""

    begin: int
    end: int
    kept: frozenset[Node]  # beside those that cross its beginning
    nbytes: int  # of these
    transient: int  # bytes in backward, beside the values kept before it
    seconds: float  # of recomputation


class Run:
    """One forward and backward run of a program, as its draft computes it."""

    def __init__(
        self, draft: Draft, number: int, runs: BackwardRuns, roof: Machine
    ) -> None:
        self.draft, self.roof = draft, roof
        self.number, self.run_of = number, runs.of
        self.order = {node: k for k, node in enumerate(draft.graph.nodes)}
        made = {n: k for k, s in enumerate(draft.steps) for n in s.made}
        self.made = {n: k for n, k in made.items() if n in self.order}
        self.values = self._closure(self._reads())
        self.chosen = set(self.values)  # values that are chosen in any run
        self.at = self._by_position()
        self.position = {v.node: k for k, some in enumerate(self.at) for v in some}

    def _by_position(self) -> list[list[Value]]:
        """The values in the order of computation, small ones with those before."""
        values = sorted(
            self.values.values(), key=lambda v: (self.made[v.node], self.order[v.node])
        )
        sizes = sorted(v.nbytes for v in values)
        small = SMALL * sizes[len(sizes) // 2] if sizes else 0
        positions: list[list[Value]] = []
        for value in values:
            if positions and value.nbytes <= small:
                positions[-1].append(value)
            else:
                positions.append([value])
        return positions

    # -- values

    def _reads(self) -> dict[Node, tuple[int, int]]:
        """The first and last step of backward that reads each value of forward."""
        reads: dict[Node, tuple[int, int]] = {}
        for k, step in enumerate(self.draft.steps):
            if not any(self.run_of.get(n) == self.number for n in step.made):
                continue
            for base in bases_of(step):
                if base not in self.run_of and self.made.get(base, k) < k:
                    first, _ = reads.get(base, (k, k))
                    reads[base] = first, k
        return reads

    def _closure(self, reads: dict[Node, tuple[int, int]]) -> dict[Node, Value]:
        """The values that can be recomputed: those that are read, and their inputs."""
        values: dict[Node, Value] = {}
        waiting = list(reads)
        while waiting:
            node = waiting.pop()
            if node in values:
                continue
            path = self._path(node)
            if path is None:
                continue  # it must be kept
            nodes, needs = path
            took = seconds(nodes, self.draft.sizes, self.roof)
            first, last = reads.get(node, (-1, -1))
            values[node] = Value(
                node, size_of(node, self.draft.sizes), needs, nodes, took, first, last
            )  # fmt: skip
            waiting += needs
        known = frozenset(values)
        return {n: v._replace(needs=v.needs & known) for n, v in values.items()}

    def _path(self, value: Node) -> tuple[list[Node], frozenset[Node]] | None:
        """The nodes that lead to a value, and the values in memory they start from.

        None if one of them cannot be recomputed.
        """
        nodes: dict[Node, None] = {}
        needs: set[Node] = set()
        waiting = [value]
        while waiting:
            node = waiting.pop()
            if node in nodes:
                continue
            if node in self.run_of or not copyable(node):
                return None
            nodes[node] = None
            for one in node.inputs:
                if type(one) is not Node:
                    continue
                base = Operand(one).base
                if base.op in (INPUT, READ, CONSTANT) or inlined(base):
                    continue
                if base in self.made:
                    needs.add(base)
                elif not isinstance(lowering_of(base), Reduction):  # kept, and small
                    waiting.append(base)
        return [*nodes][::-1], frozenset(needs)

    def bytes_of(self, nodes: Iterable[Node]) -> int:
        return sum(self.values[n].nbytes for n in nodes)

    # -- cuts

    @cached_property
    def crossing(self) -> list[frozenset[Node]]:
        """The values that cross each position: before the first, …, after the last."""
        last = dict.fromkeys(self.values, -1)  # the last position that needs each value
        for value in self.values.values():
            for node in value.needs:
                last[node] = max(last[node], self.position[value.node])
        ends: list[list[Node]] = [[] for _ in range(len(self.at) + 1)]
        for node, at in last.items():
            ends[at + 1 if at >= 0 else 0].append(node)
        crossing, live = [frozenset[Node]()], set[Node]()
        for k, made in enumerate(self.at):
            live.update(v.node for v in made if last[v.node] > k)
            live.difference_update(ends[k + 1])
            crossing.append(frozenset(live))
        return crossing

    @cached_property
    def cuts(self) -> list[int]:
        """The positions for cuts: all, or the narrowest ones of a long run."""
        count = len(self.at)
        if count <= MOST:
            return list(range(count + 1))
        widths = [self.bytes_of(c) for c in self.crossing]
        edges = [k * count // MOST for k in range(MOST + 1)]
        inner = [
            min(range(a, b), key=lambda k: widths[k])
            for a, b in itertools.pairwise(edges[1:])
        ]
        return sorted({0, count, *inner})

    @cached_property
    def rest(self) -> np.ndarray:
        """The bytes at each step beside the values that are kept or recomputed."""
        memory = self.draft.memory
        live = np.array([*memory.live, 0], np.int64)
        for value in memory.values:
            if value.node in self.chosen:
                live[value.first : value.last + 1] -= value.nbytes
        return live

    def keeping(self, k: int) -> Segment:
        """The segment of one position whose values are all kept."""
        kept = {v.node for v in self.at[k] if v.first >= 0} | self.crossing[k + 1]
        new = frozenset(kept - self.crossing[k])
        first, last = self._window(self.at[k])
        live = self.rest.copy()
        for node in new:
            live[: self.values[node].last + 1] += self.values[node].nbytes
        most = int(live[first : last + 1].max(initial=0))
        return Segment(k, k + 1, new, self.bytes_of(new), most, 0.0)

    def computing(self, end: int, most: int) -> Iterable[Segment]:
        """The segments up to a cut that are recomputed, the shortest first.

        A value is recomputed when the first gradient needs it, or a value that depends
        on it, and stays until the last has read it.
        """
        kept, cuts = self.crossing[end], set(self.cuts)
        needed: dict[Node, int] = {}  # the first step whose recomputed values need it
        live = self.rest.copy()
        took, low, high = 0.0, len(live), 0
        for k in range(end - 1, max(end - LONGEST, 0) - 1, -1):
            for value in reversed(self.at[k]):
                begin = min(value.first, needed.get(value.node, value.first))
                if value.first < 0:
                    begin = needed.get(value.node, -1)
                if value.node in kept:
                    live[: value.last + 1] += value.nbytes
                    continue
                if begin < 0:
                    continue
                for other in value.needs:
                    needed[other] = min(begin, needed.get(other, begin))
                until = max(begin, value.last)
                live[begin : until + 1] += value.nbytes
                took += value.seconds
                low, high = min(low, begin), max(high, until)
            transient = int(live[low : high + 1].max(initial=0))
            if transient > most:
                return
            if k in cuts:
                new = kept - self.crossing[k]
                yield Segment(k, end, new, self.bytes_of(new), transient, took)

    def _window(self, values: Iterable[Value]) -> tuple[int, int]:
        """The first and last step of backward that reads some values."""
        read = [v for v in values if v.first >= 0]
        low = min((v.first for v in read), default=len(self.rest))
        return low, max((v.last for v in read), default=-1)


def runs_of(draft: Draft, roof: Machine) -> list[Run]:
    """The runs of a program, in order."""
    backward = BackwardRuns(draft.graph)
    numbers = sorted(set(backward.of.values()))
    runs = [Run(draft, number, backward, roof) for number in numbers]
    for run in runs:
        run.chosen = set().union(*[other.values for other in runs])
    return runs
