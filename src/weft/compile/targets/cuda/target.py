"""An NVIDIA GPU as a target."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from weft.compile.emit.isa import Isa
from weft.compile.emit.support import supported
from weft.compile.fusion.groups import Group
from weft.compile.loop.ir import Kernel
from weft.compile.lower.deduplicate import KernelTable
from weft.compile.program.memory_layout import MemoryLayout
from weft.compile.program.steps import LibraryCall, Step
from weft.compile.targets import Replay
from weft.compile.targets.cuda import executor as executors
from weft.compile.targets.cuda import library, schedules
from weft.compile.targets.cuda.code import Code, SharedCode
from weft.compile.targets.cuda.cost_model import COST, CudaCostModel
from weft.compile.targets.cuda.kernel import emit_kernel
from weft.compile.targets.cuda.ptx import new_module, ptx
from weft.compile.targets.cuda.tensor_cores import NAMES
from weft.compile.tuning.choices import Loops
from weft.graph.ir import Graph, Node
from weft.runtime.device_memory import Pool


class CudaTarget:
    """GPUs with an instruction set, and the memory of one of them."""

    name = "cuda"
    composes_library = True
    in_place = True
    cost: CudaCostModel = COST

    def __init__(self, isa: Isa, pool: Pool, warpgroups: Isa | None = None) -> None:
        self.isa, self.pool = isa, pool
        self.shared = SharedCode(pool, isa, warpgroups)

    @property
    def key(self) -> str:
        return self.isa.key

    # -- which nodes

    def supports(self, node: Node) -> bool:
        return supported(node)

    def channels_last(self, node: Node) -> bool:
        return node.dtype.name in NAMES and self.shared.cudnn is not None

    def library_call(self, node: Node) -> type[LibraryCall] | None:
        return library.library_call_of(node, self.shared)

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
    ) -> library.Works:
        return library.Works(calls, sizes, self.shared)

    def epilogue_fits(self, call: LibraryCall, sizes: Mapping[str, int]) -> bool:
        return False

    # -- loops

    def flat_schedule(self, kernel: Kernel, loops: Loops) -> Kernel:
        return schedules.flat_schedule(kernel)

    def row_schedule(self, group: Group, kernel: Kernel, loops: Loops) -> Kernel:
        return schedules.row_schedule(group, kernel)

    def grid_schedule(self, kernel: Kernel) -> Kernel:
        return schedules.grid_schedule(kernel)

    def refuses(self, kernel: Kernel) -> str:
        return schedules.refuses(kernel)

    def vectorize(self, kernel: Kernel) -> Kernel:
        return schedules.spread(kernel)

    # -- code

    def start(self, graph: Graph, *, pack_weights: bool) -> None:
        pass

    def emit(self, table: KernelTable, kernels: Iterable[Kernel]) -> Code:
        code = Code(table, self.shared)
        code.add(kernels)
        return code

    def source(self, kernel: Kernel) -> str:
        module = new_module(kernel.name, self.isa)
        emit_kernel(module, kernel, self.isa)
        return str(module)

    def assembly(self, kernel: Kernel) -> str:
        return ptx(self.source(kernel), self.isa)

    # -- running

    def plan(self, layout: MemoryLayout, code: Code) -> executors.Plan:
        return executors.plan(layout, code)

    def executor(
        self, plan: executors.Plan, code: Code, replay: Replay
    ) -> executors.Executor:
        return executors.Executor(plan, code, replay, self.pool)

    def find(self, key: str, replay: Replay) -> None:
        """Nothing: programs are planned anew, and find their kernels' PTX on disk."""

    def keep(self, key: str, executor: Any) -> None:
        pass
