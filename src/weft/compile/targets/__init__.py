"""The Target protocol: all that the compiler asks of a machine.

A target says which nodes its library computes as a whole, how the loops of a kernel
are scheduled, how Loop IR becomes code, and what runs it. Nothing outside of
``targets`` and ``runtime`` asks which target it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from weft.compile.fusion.groups import Group
    from weft.compile.loop.ir import Kernel
    from weft.compile.lower.deduplicate import KernelTable
    from weft.compile.program.memory_layout import MemoryLayout
    from weft.compile.program.steps import LibraryCall, Step
    from weft.compile.targets.cpu import cost_model
    from weft.compile.tuning.choices import Loops
    from weft.graph.ir import Graph, Node

Replay = Callable[[Sequence[Any], Sequence[Any]], Any]


class Executor(Protocol):
    """Memory for a program of one set of sizes, and the call."""

    @property
    def results_bytes(self) -> int:
        """The bytes of the outputs that each run allocates."""

    def run(
        self,
        feeds: Sequence[Any],
        held: Sequence[Any],
        state_buffers: Sequence[Any] = (),
        write: Callable[[dict[str, Any]], None] | None = None,
        stamps: Callable[[int], Any] | None = None,
    ) -> tuple[list[Any], dict[str, Any]]:
        """The outputs, and new values by name of variables not written in place.

        Arrays are buffers of the target's device, or of the host.
        """

    def timed(
        self, steps: Sequence[Any], feeds: Sequence[Any], held: Sequence[Any]
    ) -> list[float]:
        """The seconds that each step of a plan's timeline takes, in a run."""


class Plan(Protocol):
    """A program for one set of sizes: its memory layout, and the target's own data."""

    layout: MemoryLayout
    timeline: list[Any]


class CostModel(Protocol):
    """The thresholds that passes, fusion and lowering read of a target.

    A target's own modules may read more: see ``targets.cpu.cost_model``.
    """

    @property
    def loops(self) -> cost_model.Loops: ...

    @property
    def reductions(self) -> cost_model.Reductions: ...

    @property
    def fusion(self) -> cost_model.Fusion: ...

    @property
    def ordering(self) -> cost_model.Ordering: ...

    @property
    def recompute(self) -> cost_model.Recompute: ...

    @property
    def split_k(self) -> cost_model.SplitK: ...


class Target(Protocol):
    """A machine that programs are compiled for."""

    @property
    def name(self) -> str: ...

    in_place: bool  # whether executors write new state over the old
    composes_library: bool  # whether what its library lacks is made of other operators

    @property
    def cost(self) -> CostModel:
        """The thresholds that decide what is worth doing on this machine."""

    @property
    def key(self) -> str:
        """A text of all that code for this target depends on, for keys on disk."""

    # -- which nodes

    def supports(self, node: Node) -> bool:
        """Whether a node can be part of a kernel."""

    def channels_last(self, node: Node) -> bool:
        """Whether a convolution is faster where channels are the last axis."""

    def library_call(self, node: Node) -> type[LibraryCall] | None:
        """The library call that computes a node as a whole, if there is one."""

    def refine(
        self,
        graph: Graph,
        steps: Sequence[Step],
        *,
        pack_weights: bool,
        fixed: Collection[Node] = (),
    ) -> list[Step]:
        """The steps, with library calls adapted to the program around them.

        In the body of a loop, the inputs ``fixed`` are the same in every iteration.
        """

    def library_work(
        self, calls: Sequence[LibraryCall], sizes: Mapping[str, int]
    ) -> Any:
        """The work of library calls for some sizes.

        Its ``works`` has the calls that the library computes; others are host calls.
        ``workspace`` is the memory that they need beside the arena, in bytes.
        """

    def epilogue_fits(self, call: LibraryCall, sizes: Mapping[str, int]) -> bool:
        """Whether a library call's epilogue pays, for some sizes."""

    # -- loops

    def flat_schedule(self, kernel: Kernel, loops: Loops) -> Kernel:
        """The loops of a kernel that reduces nothing."""

    def row_schedule(self, group: Group, kernel: Kernel, loops: Loops) -> Kernel:
        """The loops of a kernel with reductions."""

    def grid_schedule(self, kernel: Kernel) -> Kernel:
        """The loops of a kernel whose parallel loops are given (``OwnLoops``)."""

    def refuses(self, kernel: Kernel) -> str:
        """The reason why a kernel cannot run here; empty if it can."""

    def vectorize(self, kernel: Kernel) -> Kernel:
        """The kernel with loops marked with how they run; see ``loop.ir.For``."""

    # -- code

    def start(self, graph: Graph, *, pack_weights: bool) -> None:
        """Compile the library's code in the background."""

    def emit(self, table: KernelTable, kernels: Iterable[Kernel]) -> Any:
        """The code of kernels."""

    def source(self, kernel: Kernel) -> str:
        """The source of a kernel for the target's compiler."""

    def assembly(self, kernel: Kernel) -> str:
        """The machine code of a kernel, as text."""

    # -- running

    def plan(self, layout: MemoryLayout, code: Any) -> Any:
        """The data that an executor runs: a program for one set of sizes."""

    def executor(self, plan: Any, code: Any, replay: Replay) -> Executor:
        """A new executor, with memory of its own."""

    def find(self, key: str, replay: Replay) -> Any:
        """An executor whose data is stored on disk under a key; None if none is."""

    def keep(self, key: str, executor: Any) -> None:
        """Store an executor's data on disk, if it is data alone."""


class _Now(threading.local):
    target: Target | None = None


_now = _Now()


def current() -> Target:
    """The target that this thread compiles for."""
    return _now.target or default()


@contextmanager
def compiling_for(target: Target) -> Iterator[None]:
    """Let ``current()`` be this target inside."""
    before, _now.target = _now.target, target
    try:
        yield
    finally:
        _now.target = before


def default() -> Target:
    """The target of programs over tensors in host memory: this CPU."""
    from weft.compile.targets.cpu.target import cpu_target

    return cpu_target()
