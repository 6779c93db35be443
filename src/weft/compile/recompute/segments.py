"""A training step as a row of stretches, each of which is kept or computed again.

    forward     v0   v1   v2   v3   v4   v5        values, as they are made
                   ↑         ↑                     cuts: what crosses one is kept
    backward    g5  g4  g3   g2  g1   g0           one stretch after the other

``crossing[k]`` are the values made before place k that later ones are computed from.
If they are kept, all that comes after place k can be computed again without what comes
before. A stretch between two cuts is computed again when backward comes to it, while
only the values kept before it, its own and the present gradients are in memory.
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
from weft.compile.passes.recompute import Turns, copyable
from weft.compile.program.steps import bases_of
from weft.compile.recompute.draft import Draft
from weft.core.lowering import Reduction
from weft.graph.ir import CONSTANT, INPUT, READ, Node

MOST = 400  # places for cuts
LONGEST = 160  # places of a stretch that is computed again
SMALL = 0.05  # of the middle size: values that need no cut of their own


class Value(NamedTuple):
    """A value of forward in memory that gradients need, directly or not."""

    node: Node
    nbytes: int
    needs: frozenset[Node]  # the values that it is computed from
    nodes: list[Node]  # what is computed on the way, itself the last
    seconds: float
    first: int  # the steps of backward that read it, from here
    last: int  # to here; before all others where none does


class Stretch(NamedTuple):
    """What it means to keep the values of some places, or to compute them again."""

    begin: int
    end: int
    kept: frozenset[Node]  # beside those that cross its beginning
    nbytes: int  # of these
    transient: int  # bytes in backward, beside what is kept before it
    seconds: float  # more


class Run:
    """One forward and backward run of a program, as its draft computes it."""

    def __init__(self, draft: Draft, turn: int, turns: Turns, roof: Machine) -> None:
        self.draft, self.roof = draft, roof
        self.turn, self.turns = turn, turns.of
        self.order = {node: k for k, node in enumerate(draft.graph.nodes)}
        made = {n: k for k, s in enumerate(draft.steps) for n in s.made}
        self.made = {n: k for n, k in made.items() if n in self.order}
        self.values = self._closure(self._reads())
        self.chosen = set(self.values)  # and those of other runs, which choose too
        self.at = self._row()
        self.place = {v.node: k for k, some in enumerate(self.at) for v in some}

    def _row(self) -> list[list[Value]]:
        """The values in the order in which they are made, small ones with others."""
        values = sorted(
            self.values.values(), key=lambda v: (self.made[v.node], self.order[v.node])
        )
        sizes = sorted(v.nbytes for v in values)
        small = SMALL * sizes[len(sizes) // 2] if sizes else 0
        found: list[list[Value]] = []
        for value in values:
            if found and value.nbytes <= small:
                found[-1].append(value)
            else:
                found.append([value])
        return found

    # -- values

    def _reads(self) -> dict[Node, tuple[int, int]]:
        """The values of forward that steps of backward read, from when to when."""
        found: dict[Node, tuple[int, int]] = {}
        for k, step in enumerate(self.draft.steps):
            if not any(self.turns.get(n) == self.turn for n in step.made):
                continue
            for base in bases_of(step):
                if base not in self.turns and self.made.get(base, k) < k:
                    first, _ = found.get(base, (k, k))
                    found[base] = first, k
        return found

    def _closure(self, reads: dict[Node, tuple[int, int]]) -> dict[Node, Value]:
        """The values that can be computed again, of those that are read and needed."""
        found: dict[Node, Value] = {}
        waiting = list(reads)
        while waiting:
            node = waiting.pop()
            if node in found:
                continue
            made = self._way(node)
            if made is None:
                continue  # it must be kept
            nodes, needs = made
            took = seconds(nodes, self.draft.sizes, self.roof)
            first, last = reads.get(node, (-1, -1))
            found[node] = Value(
                node, size_of(node, self.draft.sizes), needs, nodes, took, first, last
            )  # fmt: skip
            waiting += needs
        known = frozenset(found)
        return {n: v._replace(needs=v.needs & known) for n, v in found.items()}

    def _way(self, value: Node) -> tuple[list[Node], frozenset[Node]] | None:
        """The nodes that lead to a value, and the values in memory they start from.

        None if one of them cannot be computed a second time.
        """
        nodes: dict[Node, None] = {}
        needs: set[Node] = set()
        waiting = [value]
        while waiting:
            node = waiting.pop()
            if node in nodes:
                continue
            if node in self.turns or not copyable(node):
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
        """What crosses each place: before the first value, between two, after all."""
        last = dict.fromkeys(self.values, -1)  # the place that needs each value last
        for value in self.values.values():
            for node in value.needs:
                last[node] = max(last[node], self.place[value.node])
        ends: list[list[Node]] = [[] for _ in range(len(self.at) + 1)]
        for node, at in last.items():
            ends[at + 1 if at >= 0 else 0].append(node)
        found, live = [frozenset[Node]()], set[Node]()
        for k, made in enumerate(self.at):
            live.update(v.node for v in made if last[v.node] > k)
            live.difference_update(ends[k + 1])
            found.append(frozenset(live))
        return found

    @cached_property
    def cuts(self) -> list[int]:
        """The places for cuts: all, or the narrowest of each part of a long run."""
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
        """Bytes at each step that are no values of runs'."""
        memory = self.draft.memory
        live = np.array([*memory.live, 0], np.int64)
        for value in memory.values:
            if value.node in self.chosen:
                live[value.first : value.last + 1] -= value.nbytes
        return live

    def keeping(self, k: int) -> Stretch:
        """The values of one place, all kept."""
        kept = {v.node for v in self.at[k] if v.first >= 0} | self.crossing[k + 1]
        new = frozenset(kept - self.crossing[k])
        first, last = self._window(self.at[k])
        live = self.rest.copy()
        for node in new:
            live[: self.values[node].last + 1] += self.values[node].nbytes
        most = int(live[first : last + 1].max(initial=0))
        return Stretch(k, k + 1, new, self.bytes_of(new), most, 0.0)

    def computing(self, end: int, most: int) -> Iterable[Stretch]:
        """Stretches up to a cut that are computed again, the shortest first.

        A value is computed when the first gradient needs it, or what is computed from
        it, and stays until the last has read it.
        """
        kept, cuts = self.crossing[end], set(self.cuts)
        needed: dict[Node, int] = {}  # by what is computed again, from when on
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
                yield Stretch(k, end, new, self.bytes_of(new), transient, took)

    def _window(self, values: Iterable[Value]) -> tuple[int, int]:
        """The steps of backward that read some values: from the first to the last."""
        read = [v for v in values if v.first >= 0]
        low = min((v.first for v in read), default=len(self.rest))
        return low, max((v.last for v in read), default=-1)


def runs_of(draft: Draft, roof: Machine) -> list[Run]:
    """The runs of a program, in order."""
    turns = Turns(draft.graph)
    keys = sorted(set(turns.of.values()))
    runs = [Run(draft, turn, turns, roof) for turn in keys]
    for run in runs:
        run.chosen = set().union(*[other.values for other in runs])
    return runs
