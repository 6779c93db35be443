"""The choice of steps: a launch, a library call or a host call for each unit.

A group whose indices cannot be proven to stay in bounds, or whose kernel the target
refuses, gets no kernel: NumPy computes its nodes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from weft.compile.fusion.epilogue import epilogues
from weft.compile.fusion.groups import Call, Fusion, Group, copied
from weft.compile.loop.proof_cache import Proofs
from weft.compile.loop.verify import verify_kernel
from weft.compile.lower.deduplicate import KernelTable
from weft.compile.lower.epilogue import lower_epilogue
from weft.compile.passes.inplace_concat import is_joined
from weft.compile.program.concat import pieces_of
from weft.compile.program.steps import HostCall, KernelLaunch, LibraryCall, Step
from weft.compile.targets import Target
from weft.graph.ir import ASSIGN, GROUP, PICK, Graph, GraphError, Node


@functools.cache
def proofs() -> Proofs:
    """The bounds proven so far, in this process and in earlier ones."""
    proven = Proofs()
    proven.load()
    return proven


class Selection(NamedTuple):
    """The steps of a graph, and why groups have no kernel."""

    steps: list[Step]
    refused: dict[Group, str]


def select(
    graph: Graph, fusion: Fusion, table: KernelTable, target: Target
) -> Selection:
    """Choose a step for each unit of a fused graph, in the order of the graph."""
    chosen = _Select(graph, fusion, table, target)
    chosen.run()
    return Selection(chosen.steps, chosen.refused)


class _Select:
    def __init__(
        self, graph: Graph, fusion: Fusion, table: KernelTable, target: Target
    ) -> None:
        self.graph, self.fusion, self.table = graph, fusion, table
        self.target = target
        self.steps: list[Step] = []
        self.refused: dict[Group, str] = {}
        self.done: set[Group] = set()
        self.proven: dict[str, str] = {}  # by kernel: the error, empty if proven
        self.picks: dict[Node, list[Node]] = {}  # of nodes with several outputs
        for node in graph.nodes:
            if node.op is PICK:
                self.picks.setdefault(node.inputs[0], []).append(node)

    def run(self) -> None:
        library_call = self.target.library_call
        epilogue_of = epilogues(self.fusion, library_call)
        for unit in self.fusion.units:
            if isinstance(unit, Group):
                self._add_once(unit)
            elif (kind := library_call(unit.node)) is not None:
                group, before = epilogue_of.get(unit, (None, ()))
                for one in before:
                    self._add_once(one)
                if self._add_library_call(kind, unit, group) and group is not None:
                    self.done.add(group)
            elif unit.node.op is PICK and library_call(unit.node.inputs[0]):
                pass  # the library call computes it
            elif is_joined(unit.node):
                self.steps += pieces_of(unit.node, self.graph.sizes)
            elif unit.node.op not in (ASSIGN, GROUP):
                self.steps.append(HostCall(unit.node))

    def _add_once(self, group: Group) -> None:
        if group not in self.done:
            self.done.add(group)
            self._add_group(group)

    def _add_group(self, group: Group) -> None:
        launch = KernelLaunch(*self.table.lowered(group), group)
        why = self.target.refuses(launch.kernel)
        if why:
            self.refused[group] = why
        if not why and self._prove(launch):
            self.steps.append(launch)
        else:
            self.steps += [HostCall(node) for node in group.nodes]

    def _prove(self, launch: KernelLaunch) -> bool:
        """Whether every index is in bounds; a kernel that is not proven is not used."""
        text = self.table.text(launch.kernel)
        if text not in self.proven:
            try:
                proofs().check(text, functools.partial(verify_kernel, launch.kernel))
                self.proven[text] = ""
            except GraphError as error:
                self.proven[text] = str(error)
        if self.proven[text]:
            self.refused[launch.group] = self.proven[text]
        return not self.proven[text]

    def _add_library_call(
        self, kind: type[LibraryCall], unit: Call, group: Group | None
    ) -> bool:
        """Add a library call; say whether the group became its epilogue."""
        inputs = self._operands(unit, kind.copies)
        epilogue = None
        if group is not None:
            epilogue = lower_epilogue(group, unit.node, kind, self.table)
            if not epilogue.fits or not self._prove(epilogue):
                self.refused.pop(group, None)
                epilogue = None
        picks = self.picks.get(unit.node, [])
        self.steps.append(kind(unit.node, inputs, epilogue, picks))
        return epilogue is not None

    def _operands(self, unit: Call, copy: Callable[[Node], bool]) -> list[Node]:
        """A call's operands; views that the library cannot read are copied first."""
        inputs = []
        for node in unit.node.inputs:
            if copy(node):
                group = Group(unit.order, node.shape, self.graph.sizes)
                made = copied(node)
                group.add(made, group.vars, row=False)
                group.outputs = [made]
                self._add_group(group)
                node = made
            inputs.append(node)
        return inputs
