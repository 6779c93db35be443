"""Checkpointed functions inside a compiled step: each obeys its own policy.

    y = checkpoint(block, x)          the role of block's nodes says: region 0

A region's arguments and results are kept; its policy decides which of the values inside
are. A value in nested regions is kept only if all their policies keep it.
"""

from __future__ import annotations

from collections.abc import Collection

from weft.autograd.segment import Named
from weft.compile.fusion.groups import Operand
from weft.compile.passes.recompute import BackwardRuns, recompute
from weft.compile.recompute.draft import Draft
from weft.compile.recompute.policies import result_of
from weft.graph.captured_program import Captured
from weft.graph.ir import Graph, Node, Variable


class Regions:
    """The pass that applies the policies of the checkpoints in a captured step."""

    def __init__(self, captured: Captured) -> None:
        self.policies = captured.regions

    @property
    def stamp(self) -> str:
        """The operators whose results regions keep; empty if functions decide."""
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
        """The values that forward reads outside of the regions that compute them."""
        runs = BackwardRuns(graph).of
        leaving = {Operand(out).base for out in graph.outputs}
        for node in graph.nodes:
            if node in runs:
                continue
            here = node.role.region
            bases = [Operand(i).base for i in node.inputs if type(i) is Node]
            leaving |= {b for b in bases if not _within(here, b.role.region)}
        return leaving


def _within(here: tuple[int, ...], region: tuple[int, ...]) -> bool:
    """Whether a node's region is another one, or inside it."""
    return here[: len(region)] == region
