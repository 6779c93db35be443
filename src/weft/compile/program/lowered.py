"""Lowered graphs: steps and kernels for any sizes, before there is machine code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
    steady: frozenset[Node] = frozenset()  # computed before a loop's first iteration

    @property
    def reads(self) -> list[Variable]:
        """The variables that are read, in the order of their first read."""
        reads = [n.params["variable"] for n in self.graph.nodes if n.op is READ]
        return list(dict.fromkeys(reads))

    @property
    def writes(self) -> list[Node]:
        """The nodes that give variables new values."""
        return [n for n in self.graph.nodes if n.op is ASSIGN]

    @property
    def unread(self) -> list[Variable]:
        """The variables that are written in place and not read."""
        reads = set(self.reads)
        return [v for v in self.aliasing.state if v not in reads]


def vectorize(steps: Sequence[Step], table: KernelTable, target: Target) -> list[Step]:
    """The steps, with each kernel vectorized by the target, once for equal kernels."""
    known: dict[Any, Kernel] = {}

    def vectorized(kernel: Kernel) -> Kernel:
        key = id(kernel.body), kernel.shared
        if key not in known:
            known[key] = target.vectorize(kernel)
            table.succeed(kernel, known[key])
        return kernel._replace(body=known[key].body)

    return [_with_kernel(step, vectorized) for step in steps]


def _with_kernel(step: Step, change: Callable[[Kernel], Kernel]) -> Step:
    """The step with its kernel changed, if it launches one."""
    launch = launch_of(step)
    if launch is None:
        return step
    launch = replace(launch, kernel=change(launch.kernel))
    return replace(step, epilogue=launch) if isinstance(step, LibraryCall) else launch


def name_kernels(
    steps: Sequence[Step], table: KernelTable
) -> tuple[list[Step], dict[str, Kernel]]:
    """The steps with one name for equal kernels, and the kernels by name."""
    names: dict[str, str] = {}
    kernels: dict[str, Kernel] = {}

    def named(kernel: Kernel) -> Kernel:
        name = names.setdefault(table.text(kernel), f"kernel{len(names)}")
        kernel = kernel._replace(name=name)
        kernels.setdefault(name, kernel)
        return kernel

    return [_with_kernel(step, named) for step in steps], kernels
