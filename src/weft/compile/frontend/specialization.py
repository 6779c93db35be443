"""Specializations: a captured program, its machine code and its guards."""

from __future__ import annotations

from collections.abc import Sequence
from operator import call
from typing import Any

import numpy as np

from weft.compile import targets
from weft.compile.frontend.graph_function import GraphFunction, closed
from weft.compile.frontend.guards import Guards, Reads, TensorGuards
from weft.compile.program.lowered import Lowered
from weft.compile.program.phases import phase
from weft.compile.program.program import compiled
from weft.compile.targets.cpu.driver import start_if_missing
from weft.core.device import cpu
from weft.core.mode import mode
from weft.core.pytree import tree_flatten, tree_unflatten
from weft.core.size import Size
from weft.core.tape import caller, note_changes
from weft.core.tensor import Tensor
from weft.errors import ShapeError, WeftError
from weft.graph.capture import capture_call, complete, layout_of
from weft.graph.captured_program import Captured, check_apart, rewrite
from weft.graph.effects import Kept, containers, make, nodes_of
from weft.graph.interpret import bind_sizes
from weft.graph.ir import ASSIGN, Graph, Node
from weft.graph.labels import labels_of
from weft.graph.state_cells import Cell, GradCell, commit


class Specialization:
    """A function compiled for one kind of arguments, and its guards."""

    number = 0  # of its compilation

    def __init__(
        self,
        captured: Captured,
        reads: Guards | None = None,
        *,
        pack_weights: bool = False,
        memory: Any = None,
    ) -> None:
        self.captured = captured
        self.pack_weights = pack_weights
        self.reads = reads
        self.guarded = [guard.read for guard in captured.guards]
        self.values = [guard.value for guard in captured.guards]
        seen = {} if reads is None else reads.seen
        self.tensors = TensorGuards(captured.cells, seen)
        into = [one.recorded for one in self.captured.rewritten]
        self.wanting, graph = _results(captured)
        self.outputs = graph.outputs
        self.differentiable = any((*self.wanting, *into))
        self.plain = captured.returned is None and not captured.effects
        self.kept = [one for one in captured.effects if type(one) is Kept]
        self.cells = self.captured.cells
        self.device = captured.device
        recompute = adapting(captured, memory)
        if self.differentiable:
            self.graph, variables = closed(graph)
            self.variables = [self.cells[v.name] for v in variables]
            written = {n.params.get("variable") for n in self.graph if n.op is ASSIGN}
            self.written = [v in written for v in variables]
            self.function = GraphFunction(
                self.graph, self._write, recompute, self.device
            )
            self.program = self.function.program
        else:
            own = {c.variable for c in self.cells.values() if c.has_memory}
            target = self.device.target or targets.default()
            own = own if target.in_place else set()
            self.program = compiled(
                graph, own, pack_weights=pack_weights, recompute=recompute, kept=True,
                target=self.device.target,
            )  # fmt: skip
        self.read_cells = [self.cells[v.name] for v in self.program.reads]
        self.write_only_cells = [self.cells[v.name] for v in self.program.unread]
        state = [(v.name, self.cells[v.name]) for v in self.program.state]
        # a gradient that is replaced has been seen by nobody
        self.in_place = [pair for pair in state if type(pair[1]) is not GradCell]
        sizes = self.captured.graph.sizes
        inputs = self.captured.graph.inputs
        self.shapes: Any = None  # of all arguments, if no size is symbolic
        if not any(isinstance(n, Size) for i in inputs for n in i.shape):
            self.shapes = [i.shape for i in inputs] if not sizes.assumptions else None

    @property
    def lowered(self) -> Lowered:
        """The program's steps and kernels."""
        return self.program.lowered

    def fits(self, arrays: list[Any]) -> bool:
        """Whether this specialization is for arguments of these shapes.

        Their dtypes and numbers of axes are known to be those of its key.
        """
        if self.moved(arrays) or not all(arrays[k] for k in self.captured.nonzero):
            return False
        if self.shapes is not None:
            return [a.shape for a in arrays] == self.shapes
        try:
            sizes = bind_sizes(self.captured.graph.inputs, arrays)
        except ShapeError:
            return False
        assumptions = self.captured.graph.sizes.assumptions.values()
        return all(assumption.holds(sizes) for assumption in assumptions)

    def moved(self, arrays: list[Any]) -> str:
        """Name an argument whose memory layout is not the captured one, in words."""
        for index, layout in self.captured.layouts:
            if layout_of(arrays[index]) != layout:
                name = self.captured.graph.inputs[index].name
                return f"other arguments: {name} lies in memory in another way"
        return ""

    def holds(self, leaves: Sequence[Any]) -> bool:
        """Whether all guards hold: Python's values are those that were captured."""
        if self.captured.needed and not all(
            one.holds(leaves) for one in self.captured.needed
        ):
            return False
        if self.reads is not None and not self.reads.holds():
            return False
        if not self.tensors.holds():
            return False
        return list(map(call, self.guarded)) == self.values

    def stale(self, leaves: Sequence[Any]) -> str | None:
        """Name a Python value that has changed since the capture, in words."""
        for one in self.captured.needed:
            if not one.holds(leaves):
                return f"{one.name}.grad is another one"
        change = self.reads.changed() if self.reads is not None else None
        change = change or self.tensors.changed()
        if change is not None:
            return change
        for guard in self.captured.guards:
            now = guard.read()
            if now != guard.value:
                return f"{guard.what} changed from {guard.value!r} to {now!r}"
        return None

    def fixed(self) -> dict[str, str]:
        """The plain Python values that the program was captured with, as text."""
        return {} if self.reads is None else self.reads.plain()

    def run(self, leaves: list[Any], arrays: list[Any], arguments: Any) -> Any:
        """Run the program for arguments: ``(args, kwargs)``, leaves and arrays."""
        if self.captured.rewritten:
            known = {k: cell.get() for k, cell in self.cells.items() if _has(cell)}
            check_apart(self.captured, arrays, known)
        if self.differentiable and mode.recording:
            return self._recorded(leaves, arrays, arguments)
        if self.device is not cpu:
            return self._run_on_device(leaves, arrays, arguments)
        if self.differentiable:
            variables = [cell.get() for cell in self.variables]
            outputs, _ = self.program.run([*arrays, *variables], write=self._write)
        else:
            variables = [cell.get() for cell in self.read_cells]
            buffers = [cell.reusable_memory() for cell in self.write_only_cells]
            stamps = self._stamp if self.pack_weights else None
            outputs, _ = self.program.run(
                arrays, variables, buffers, self._write, stamps
            )
        results = [Tensor(array) for array in outputs]
        return self.finish(results, leaves, arrays, arguments)

    def _run_on_device(
        self, leaves: list[Any], arrays: list[Any], arguments: Any
    ) -> Any:
        """Run the program on another device; numbers may be arrays of the host."""
        device = self.device
        cells = self.variables if self.differentiable else self.read_cells
        variables = [cell.get() for cell in cells]
        if self.differentiable:
            outputs, _ = self.program.run([*arrays, *variables], write=self._write)
        else:
            buffers = [cell.reusable_memory() for cell in self.write_only_cells]
            outputs, _ = self.program.run(arrays, variables, buffers, self._write)
        results = [Tensor.on_device(buffer, device) for buffer in outputs]
        return self.finish(results, leaves, arrays, arguments)

    def _stamp(self, number: int) -> Any:
        """The stamp of the variable of this number: another one after each change."""
        return self.read_cells[number].stamp()

    def _write(self, changed: dict[str, Any]) -> None:
        """Store new values; the other variables were written in place."""
        commit(self.pairs(changed))
        touched = [c for name, c in self.in_place if name not in changed]
        storages = [cell.tensor.storage_record for cell in touched]
        note_changes(storages, "a captured program", caller())
        self.captured.empty()

    def pairs(self, changed: dict[str, Any]) -> list[tuple[Cell, Any]]:
        """Cells and their new values; those of numbers are brought to the host."""
        pairs = [(self.cells[name], array) for name, array in changed.items()]
        if self.device is cpu:
            return pairs
        there = self.device.to_host
        return [
            (c, a if c.has_memory or type(a) is np.ndarray else there(a))
            for c, a in pairs
        ]

    def _recorded(self, leaves: list[Any], arrays: Any, arguments: Any) -> Any:
        tensors = [x for x in leaves if isinstance(x, (Tensor, np.ndarray))]
        inputs = [Tensor(x) if isinstance(x, np.ndarray) else x for x in tensors]
        for k, _ in self.captured.rewritten:
            inputs[k] = inputs[k].clone()  # a derivative may need the old value
        variables = [_as_tensor(cell) for cell in self.variables]
        for k, written in enumerate(self.written):
            if written:
                variables[k] = variables[k].clone()
        results = self.function([*inputs, *variables])
        for out, wants in zip(results, self.wanting, strict=False):
            if not wants:  # it is detached
                out._node = None
        return self.finish(results, leaves, arrays, arguments)

    def finish(self, results: Any, leaves: Any, arrays: Any, arguments: Any) -> Any:
        """Apply the function's effects on Python, and return its result."""
        rewrite(self.captured, leaves, results)
        if self.plain:
            return self.tree(results)
        captured = self.captured
        run = captured.run_of(leaves, arguments, arrays, results, self.outputs)
        captured.happen(run)
        if captured.returned is None:
            return self.tree(results)
        return make(captured.returned, run)

    @property
    def is_leaf(self) -> bool:
        """Whether the function returns a single tensor, in no container."""
        return self.captured.outs == tree_flatten(0)[1]

    def tree(self, results: Any) -> Any:
        """The function's return value, with these tensors as its leaves."""
        tensors = iter(results)
        values = self.captured.values
        out = [next(tensors) if type(v) is Node else v for v in values]
        return tree_unflatten(out, self.captured.outs)


def _results(captured: Captured) -> tuple[list[bool], Graph]:
    """Whether each result requires grad, and the graph that computes only these."""
    graph, own = captured.graph, [v for v in captured.values if type(v) is Node]
    pairs = zip(captured.values, captured.wanting, strict=True)
    wanted = {v: w for v, w in pairs if type(v) is Node} | captured.wants
    if captured.returned is not None:
        own = list(dict.fromkeys(nodes_of(captured.returned)))
    more = [node for effect in captured.effects for node in nodes_of(effect)]
    known = set(own)
    own += dict.fromkeys(node for node in more if node not in known)
    changed = graph.outputs[len(graph.outputs) - len(captured.rewritten) :]
    less = Graph(graph.name, graph.nodes, [*own, *changed], graph.sizes, graph.inputs)
    return [wanted.get(node, False) for node in own], less


def adapting(captured: Captured, memory: Any) -> Any:
    """The pass that makes a graph keep less for backward, if there is one."""
    if memory is not None:
        return memory.adapting(captured)
    if captured.regions:
        from weft.compile.recompute.regions import Regions

        return Regions(captured)
    return None


def specialize(
    fn: Any,
    args: Any,
    kwargs: Any,
    dynamic: Any,
    *,
    pack_weights: bool = False,
    memory: Any = None,
    numbers: Any = (),
) -> Specialization:
    """Capture a function for some arguments, guard what it reads, and compile it.

    ``numbers`` are the indices of floats that are inputs. ``memory`` decides which
    values are kept for backward (see ``recompute.policies``).
    """
    leaves, _ = tree_flatten((args, kwargs))
    names = labels_of(fn, args, kwargs)
    known = dict(zip(names, leaves, strict=True))
    start_if_missing()  # every program needs it, and Python leaves a processor idle

    def attempt() -> tuple[Captured, Reads]:
        reads = Reads(
            fn, known, containers((args, kwargs)), bool(numbers), bool(dynamic)
        )
        with phase("capture"), reads.watching():
            captured = capture_call(
                fn, args, kwargs, dynamic, None, reads.knows, numbers, anywhere=True
            )
        reads.refuse_reading(captured.effects)
        return captured, reads

    captured, reads = complete(attempt)
    guards = reads.guards(captured.arrays)
    return Specialization(captured, guards, pack_weights=pack_weights, memory=memory)


def _as_tensor(cell: Any) -> Tensor:
    shown = cell.show()
    return shown if isinstance(shown, Tensor) else Tensor(cell.get())


def _has(cell: Any) -> bool:
    try:
        cell.get()
    except WeftError:
        return False
    return True
