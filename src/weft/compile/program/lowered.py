"""Lowered graphs: steps and kernels for any sizes, before there is machine code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from weft.compile.fusion.groups import Fusion, Group
from weft.compile.loop.ir import Kernel
from weft.compile.lower.deduplicate import KernelTable
from weft.compile.program.aliasing import Aliasing
from weft.compile.program.steps import LibraryCall, Step, launch_of
from weft.compile.targets import Target
from weft.graph.ir import ASSIGN, READ, Graph, Node, Variable


@dataclass(frozen=True, eq=False)
class Lowered:
    """A graph as steps, for any sizes."""

    graph: Graph
    target: Target
    fusion: Fusion
    steps: list[Step]
    refused: dict[Group, str]  # groups without a kernel, and why
    aliasing: Aliasing
    kernels: dict[str, Kernel]
    table: KernelTable

    @property
    def reads(self) -> list[Variable]:
        """The variables that are read, in the order of their first read."""
        found = [n.params["variable"] for n in self.graph.nodes if n.op is READ]
        return list(dict.fromkeys(found))

    @property
    def writes(self) -> list[Node]:
        """The nodes that give variables new values."""
        return [n for n in self.graph.nodes if n.op is ASSIGN]

    @property
    def unread(self) -> list[Variable]:
        """The variables that are written in place and not read."""
        reads = set(self.reads)
        return [v for v in self.aliasing.state if v not in reads]


def name_kernels(
    steps: Sequence[Step], table: KernelTable
) -> tuple[list[Step], dict[str, Kernel]]:
    """The steps with one name for equal kernels, and the kernels by name."""
    names: dict[str, str] = {}
    kernels: dict[str, Kernel] = {}
    found: list[Step] = []
    for step in steps:
        launch = launch_of(step)
        if launch is not None:
            text = table.text(launch.kernel)
            name = names.setdefault(text, f"kernel{len(names)}")
            kernel = launch.kernel._replace(name=name)
            kernels.setdefault(name, kernel)
            launch = replace(launch, kernel=kernel)
        if isinstance(step, LibraryCall):
            found.append(replace(step, epilogue=launch))
        else:
            found.append(launch or step)
    return found, kernels
