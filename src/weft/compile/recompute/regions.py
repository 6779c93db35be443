"""Checkpointed functions inside a compiled step: each obeys its own policy.

    y = checkpoint(block, x)          the role of block's nodes says: region 0

A region's arguments and results are kept, and of what is inside as much as its policy
says. Where one is inside another, both must keep a value.
"""

from __future__ import annotations

from collections.abc import Collection

from weft.autograd.segment import Named
from weft.compile.fusion.groups import Operand
from weft.compile.passes.recompute import Turns, recompute
from weft.compile.recompute.draft import Draft
from weft.compile.recompute.policies import result_of
from weft.graph.captured_program import Captured
from weft.graph.ir import Graph, Node, Variable


class Regions:
    """Changes a graph after the passes, as the checkpoints of a captured step ask."""

    def __init__(self, captured: Captured) -> None:
        self.policies = captured.regions

    @property
    def stamp(self) -> str:
        """The operators whose results regions keep; nothing if functions decide."""
        kept = self.policies
        if not all(keep is None or isinstance(keep, Named) for keep in kept):
            return ""
        return f"regions {[sorted(keep.names) if keep else [] for keep in kept]}"

    def __call__(self, graph: Graph, in_place: Collection[Variable]) -> Graph:
        draft = Draft(graph, in_place)
        leaving = self._leaving(draft.graph)

        def keep(node: Node) -> bool:
            if node in leaving:
                return True
            policies = [self.policies[number] for number in node.role.region]
            result = result_of(node, draft.sizes)
            return all(says is not None and says(result) for says in policies)

        return recompute(draft.graph, keep)

    def _leaving(self, graph: Graph) -> set[Node]:
        """The values that forward reads outside of the regions they are made in."""
        turns = Turns(graph).of
        found = {Operand(out).base for out in graph.outputs}
        for node in graph.nodes:
            if node in turns:
                continue
            here = node.role.region
            bases = [Operand(i).base for i in node.inputs if type(i) is Node]
            found |= {b for b in bases if not _within(here, b.role.region)}
        return found


def _within(here: tuple[int, ...], region: tuple[int, ...]) -> bool:
    """Whether a place is in a region, or in one inside of it."""
    return here[: len(region)] == region
