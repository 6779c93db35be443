"""C as a target: kernels as functions, which compilers of C make fast."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NoReturn

from weft.compile.emit.support import supported
from weft.compile.fusion.groups import Group
from weft.compile.loop.ir import For, Kernel, When
from weft.compile.loop.nest import fused, is_empty, nest_of
from weft.compile.loop.schedule import parallelise
from weft.compile.lower.deduplicate import KernelTable
from weft.compile.program.memory_layout import MemoryLayout
from weft.compile.program.steps import LibraryCall, Step
from weft.compile.targets import Replay
from weft.compile.targets.c.kernel import TOTALS, takes_totals, write_kernel
from weft.compile.targets.c.library import library_call_of
from weft.compile.targets.c.source import Source
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.tuning.choices import Loops
from weft.errors import ArgumentError
from weft.graph.ir import Graph, GraphError, Node

# Each block of rows of a scatter would read all updates, and products need no parts.
_COST = replace(
    COST,
    ordering=replace(COST.ordering, scatter_blocks=1),
    split_k=replace(COST.split_k, least_k=1 << 40),
)


class CTarget:
    """Programs that are written as C; ``weft.export`` makes files of them."""

    name = key = "c"
    composes_library = True
    in_place = True
    cost = _COST

    # -- which nodes

    def supports(self, node: Node) -> bool:
        return library_call_of(node) is None and supported(node)

    def channels_last(self, node: Node) -> bool:
        return False

    def library_call(self, node: Node) -> type[LibraryCall] | None:
        return library_call_of(node)

    def refine(
        self,
        graph: Graph,
        steps: Sequence[Step],
        *,
        pack_weights: bool,
        fixed: Collection[Node] = (),
    ) -> list[Step]:
        return list(steps)

    def library_work(
        self, calls: Sequence[LibraryCall], sizes: Mapping[str, int]
    ) -> Any:
        works = {call: call.work(sizes, self) for call in calls}
        known = {call: work for call, work in works.items() if work is not None}
        return SimpleNamespace(works=known, workspace=0)

    def epilogue_fits(self, call: LibraryCall, sizes: Mapping[str, int]) -> bool:
        return False

    # -- loops

    def flat_schedule(self, kernel: Kernel, loops: Loops) -> Kernel:
        """One loop where that can be, else the innermost one in parallel ones."""
        kernel = kernel if is_empty(kernel) else fused(kernel)
        nest = nest_of(kernel)
        return _parallel(kernel, len(nest) - 1 or 1)

    def row_schedule(self, group: Group, kernel: Kernel, loops: Loops) -> Kernel:
        return _parallel(kernel, len(group.outer))

    def grid_schedule(self, kernel: Kernel) -> Kernel:
        return kernel

    def refuses(self, kernel: Kernel) -> str:
        return ""

    def vectorize(self, kernel: Kernel) -> Kernel:
        """Sums get several totals: compilers may not change the order of one."""
        return kernel._replace(body=_with_totals(kernel.body))

    # -- code

    def start(self, graph: Graph, *, pack_weights: bool) -> None:
        pass

    def emit(self, table: KernelTable, kernels: Iterable[Kernel]) -> None:
        """Nothing: a file is written of a whole program."""

    def source(self, kernel: Kernel) -> str:
        source = Source()
        write_kernel(source, kernel, kernel.name)
        return str(source)

    assembly = source

    # -- running

    def plan(self, layout: MemoryLayout, code: Any) -> Any:
        return SimpleNamespace(layout=layout, timeline=layout.steps)

    def executor(self, plan: Any, code: Any, replay: Replay) -> NoReturn:
        raise ArgumentError(
            "programs in C do not run inside Python: weft.export(f, example, 'f.c') "
            "writes them to a file"
        )

    def find(self, key: str, replay: Replay) -> None:
        """Nothing: programs are written anew."""

    def keep(self, key: str, executor: Any) -> None:
        pass


def _parallel(kernel: Kernel, count: int) -> Kernel:
    """The outer loops in parallel, as far as that can be proven."""
    for loop in nest_of(kernel)[:count]:
        try:
            kernel = parallelise(kernel, loop.var)
        except GraphError:
            break
    return kernel


def _with_totals(body: list[Any]) -> list[Any]:
    made = []
    for stmt in body:
        if isinstance(stmt, For) and takes_totals(stmt) and not _short(stmt.extent):
            stmt = stmt._replace(totals=TOTALS)
        elif isinstance(stmt, (For, When)):
            stmt = stmt._replace(body=_with_totals(stmt.body))
        made.append(stmt)
    return made


def _short(extent: Any) -> bool:
    """Whether a loop has too few iterations for several totals."""
    return type(extent) is int and extent < 2 * TOTALS


C = CTarget()
