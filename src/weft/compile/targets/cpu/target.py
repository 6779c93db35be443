"""The CPU as a target."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from weft.compile.emit.isa import Isa, new_module
from weft.compile.emit.support import supported
from weft.compile.fusion.groups import Group
from weft.compile.loop.ir import Kernel
from weft.compile.lower.deduplicate import KernelTable
from weft.compile.program.memory_layout import MemoryLayout
from weft.compile.program.phases import count_module
from weft.compile.program.steps import LibraryCall, Step
from weft.compile.targets import Replay
from weft.compile.targets.cpu import executable as executables
from weft.compile.targets.cpu import library, schedules
from weft.compile.targets.cpu.code import Code
from weft.compile.targets.cpu.cost_model import COST, CpuCostModel
from weft.compile.targets.cpu.executor import Executor
from weft.compile.targets.cpu.jobs import Jobs
from weft.compile.targets.cpu.kernel import emit_kernel
from weft.compile.targets.cpu.matmul.call import with_few, with_panels, with_weights
from weft.compile.targets.cpu.object_code import assembly, host_isa, stored_library
from weft.compile.targets.cpu.plan import Plan, plan
from weft.compile.targets.cpu.vectorize import vectorize
from weft.compile.tuning.choices import Loops
from weft.graph.ir import Graph, Node
from weft.runtime.cpu import kernel_cache


@dataclass(frozen=True)
class CpuTarget:
    """CPUs with an instruction set."""

    isa: Isa
    cost: CpuCostModel = COST
    name = "cpu"
    composes_library = False
    in_place = True

    @property
    def key(self) -> str:
        return self.isa.key

    # -- which nodes

    def supports(self, node: Node) -> bool:
        return supported(node)

    def channels_last(self, node: Node) -> bool:
        return False

    def library_call(self, node: Node) -> type[LibraryCall] | None:
        return library.library_call_of(node)

    def refine(
        self,
        graph: Graph,
        steps: Sequence[Step],
        *,
        pack_weights: bool,
        fixed: Collection[Node] = (),
    ) -> list[Step]:
        steps = with_panels(steps, graph, self.isa, fixed)
        if pack_weights:  # by one function, so that programs can share them
            return with_weights(steps, graph)
        return with_few(steps, self.isa)

    def library_work(
        self, calls: Sequence[LibraryCall], sizes: Mapping[str, int]
    ) -> Jobs:
        return Jobs(calls, sizes, self.isa)

    def epilogue_fits(self, call: LibraryCall, sizes: Mapping[str, int]) -> bool:
        return call.fits(sizes, self.isa)

    # -- loops

    def flat_schedule(self, kernel: Kernel, loops: Loops) -> Kernel:
        return schedules.flat_schedule(kernel, loops=loops)

    def row_schedule(self, group: Group, kernel: Kernel, loops: Loops) -> Kernel:
        return schedules.row_schedule(group, kernel, loops=loops)

    def grid_schedule(self, kernel: Kernel) -> Kernel:
        return kernel  # threads share the iterations out

    def refuses(self, kernel: Kernel) -> str:
        return ""

    def vectorize(self, kernel: Kernel) -> Kernel:
        return vectorize(kernel, self.isa)

    # -- code

    def start(self, graph: Graph, *, pack_weights: bool) -> None:
        library.start_library(graph, self.isa, pack_weights=pack_weights)

    def emit(self, table: KernelTable, kernels: Iterable[Kernel]) -> Code:
        code = Code(table, self.isa)
        code.add(kernels)
        return code

    def _module(self, kernel: Kernel) -> ir.Module:
        module = new_module(kernel.name, self.isa)
        emit_kernel(module, kernel, self.isa)
        return module

    def source(self, kernel: Kernel) -> str:
        return str(self._module(kernel))

    def assembly(self, kernel: Kernel) -> str:
        return assembly(self.source(kernel), self.isa)

    # -- running

    def plan(self, layout: MemoryLayout, code: Code) -> Plan:
        return plan(layout, code)

    def executor(self, plan: Plan, code: Code, replay: Replay) -> Executor:
        return Executor(plan.executable, code.address, replay)

    def find(self, key: str, replay: Replay) -> Executor | None:
        data = kernel_cache.default().find(key)
        if data is None:
            return None
        executable = executables.from_bytes(data)
        libraries: dict[str, Any] = {}
        for name in executables.libraries_of(executable):
            stored = stored_library(name, self.isa)
            if stored is None:
                return None  # it was removed
            libraries[name] = stored
        address = functools.partial(
            library.address_of, libraries=libraries, isa=self.isa
        )
        executor = Executor(executable, address, replay)
        executor.libraries = libraries  # the code lives as long
        count_module(made=False)
        return executor

    def keep(self, key: str, executor: Executor) -> None:
        if executor.executable.can_be_stored:
            data = executables.to_bytes(executor.executable)
            if len(data) <= self.cost.stored_executable:
                kernel_cache.default().put(key, data)


@functools.cache
def cpu_target(limit: str | None = None) -> CpuTarget:
    """This CPU as a target, or a narrower one of its kind."""
    return CpuTarget(host_isa(limit))
