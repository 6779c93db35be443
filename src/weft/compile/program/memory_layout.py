"""The memory layout of a lowered graph's steps, for one set of sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from weft.compile.program.aliasing import kept_in_place
from weft.compile.program.steps import (
    HostCall,
    KernelLaunch,
    Launch,
    LibraryCall,
    Order,
    Step,
)
from weft.core.size import elements, evaluate, same
from weft.graph.interpret import resolve
from weft.graph.ir import READ, GraphError, Node
from weft.runtime.cpu import arena

if TYPE_CHECKING:
    from weft.compile.program.lowered import Lowered


def lay_out(lowered: Lowered, sizes: Mapping[str, int]) -> MemoryLayout:
    """Choose memory for each value of a lowered graph."""
    layout = MemoryLayout(lowered, sizes)
    layout.name_slots()
    layout.plan_arena()
    return layout


class MemoryLayout:
    """Memory for each value: an offset in one arena, or a slot that a run fills.

    Nothing is allocated.
    """

    def __init__(self, lowered: Lowered, sizes: Mapping[str, int]) -> None:
        self.lowered = lowered
        self.sizes = dict(sizes)
        self.steps = self._resolved_steps()
        self.order = Order(self.steps, lowered.graph, lowered.steady)
        self.launches = [s for s in self.steps if isinstance(s, Launch)]
        self.state = kept_in_place(lowered.aliasing, lowered.graph, self.order)

    # -- steps

    def _resolved_steps(self) -> list[Step]:
        """The steps, with host calls where native code cannot run for these sizes."""
        steps: list[Step] = []
        for step in self.lowered.steps:
            steps += self._split(step)
        calls = [s for s in steps if isinstance(s, LibraryCall)]
        self.jobs = self.lowered.target.library_work(calls, self.sizes)
        resolved: list[Step] = []
        for step in steps:
            if not isinstance(step, LibraryCall) or step in self.jobs.works:
                resolved.append(step)
            else:
                resolved += map(HostCall, [step.node, *step.picks])
                resolved += [step.epilogue] if step.epilogue else []
        return resolved

    def _split(self, step: Step) -> list[Step]:
        """The step, apart from its epilogue where that does not pay."""
        if isinstance(step, KernelLaunch):
            return [step] if self.runs(step) else list(map(HostCall, step.group.nodes))
        if not isinstance(step, LibraryCall) or step.epilogue is None:
            return [step]
        target = self.lowered.target
        together = self.runs(step.epilogue) and target.epilogue_fits(step, self.sizes)
        return [step] if together else [step.alone, *self._split(step.epilogue)]

    def runs(self, use: KernelLaunch) -> bool:
        """Whether all sizes that a kernel's loads require to be positive are."""
        return all(evaluate(n, self.sizes) > 0 for n in use.kernel.positive)

    # -- memory

    def shape_of(self, node: Node) -> tuple[Any, ...]:
        """The shape of a value for these sizes."""
        return resolve(node.shape, self.sizes)

    def scratch_of(self, step: Step) -> int:
        """The bytes of memory that a step needs while it runs, beside its values."""
        return self.jobs.works[step].scratch if isinstance(step, LibraryCall) else 0

    def name_slots(self) -> None:
        """Number the buffers whose addresses launches are given."""
        aliasing, ends = self.lowered.aliasing, set(self.lowered.graph.outputs)
        together = [set(step.made) for step in self.launches]
        joint = {
            node: aliasing.joint[node]
            for made in together
            for node in made
            if aliasing.joint.get(node) in made
        }
        new = {node: variable for variable, node in self.state.items()}
        self.slot_of: dict[Any, int] = {}  # of nodes and variables
        self.places: dict[Node, int] = {}  # the slot of each value of a launch
        for node in (n for step in self.launches for n in step.owners):
            at = aliasing.carried.get(node, node)
            while at in joint:
                at = joint[at]
            key: Any = at.params["variable"] if at.op is READ else new.get(at, at)
            self.places[node] = self.slot_of.setdefault(key, len(self.slot_of))
        self.scratch = {  # calls that need memory while they run
            step: self.slot_of.setdefault(step, len(self.slot_of))
            for step in self.launches
            if not same(self.scratch_of(step), 0)
        }
        self.own = {  # values in the arena
            n: at
            for n, at in self.places.items()
            if n not in ends and n not in joint and n not in new
        }
        self.joint = joint

    def plan_arena(self) -> None:
        """Pack the values that launches compute into one arena, by their lifetimes."""
        order, over = self.order, self.lowered.aliasing.over
        buffers: dict[Any, Any] = {}
        spans, state = self._spans(), set(self.state.values())
        self.fresh: dict[Node, Any] = {}  # outputs: memory of their own in each run
        for at, step in enumerate(self.steps):
            wave = order.waves[at]
            if step in self.scratch:
                buffers[step] = arena.Buffer(step, self.scratch_of(step), wave, wave)
            for node in step.made if isinstance(step, Launch) else ():
                shape = self.shape_of(node)
                if node in buffers or node in self.inside:
                    continue
                if node in self.own:
                    shared = over.get(node)
                    old = buffers.get(shared) if shared is not None else None
                    size = math.prod(shape) * node.dtype.itemsize
                    takes = old and old.first < wave and same(old.nbytes, size)
                    if not takes or not order.ends_with(shared, at):  # type: ignore[arg-type]
                        shared = None
                    first, last = spans.get(node, (wave, order.last(node, wave)))
                    buffers[node] = arena.Buffer(node, size, first, last, shares=shared)
                elif node not in self.joint and node not in state:
                    self.fresh[node] = shape
        self.place(list(buffers.values()))

    def place(self, buffers: list[arena.Buffer]) -> None:
        """Give each buffer an offset; ``inside`` has the pieces of some of them."""
        self.layout = arena.plan(buffers)
        self.offsets: dict[Any, int] = dict(self.layout.offsets)
        sizes = {buffer.id: buffer.nbytes for buffer in buffers}
        for node, piece in self.inside.items():
            start = evaluate(piece.start, self.sizes) * node.dtype.itemsize
            size = elements(node.shape, self.sizes) * node.dtype.itemsize
            if start + size > sizes[piece.whole]:
                raise GraphError(f"{node.name}: it is not inside {piece.whole.name}")
            self.offsets[node] = self.layout.offsets[piece.whole] + start

    def _spans(self) -> dict[Node, tuple[int, int]]:
        """The first and last waves that use each whole that pieces are computed in."""
        used: dict[Node, list[int]] = {}
        made = {n for step in self.launches for n in step.made} & self.own.keys()
        self.inside = {
            node: piece
            for node, piece in self.lowered.aliasing.inside.items()
            if node in made and piece.whole in made
        }
        for at, step in enumerate(self.steps):
            wave = self.order.waves[at]
            for node in step.made if isinstance(step, Launch) else ():
                if node in self.inside:
                    whole = self.inside[node].whole
                    ends = self.order.last(node, wave), self.order.last(whole, wave)
                    used.setdefault(whole, []).extend((wave, *ends))
        return {whole: (min(waves), max(waves)) for whole, waves in used.items()}
