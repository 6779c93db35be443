"""The plan of a program for one set of sizes: an ``Executable``.

Rows are what the native loop reads of each launch, with numbers of functions, slots
and words where an executor puts addresses: see ``executable`` and ``driver``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from weft.compile.fusion.groups import Operand, inlined
from weft.compile.lower.epilogue import FIRST, WIDTH, Epilogue
from weft.compile.program.concat import Piece
from weft.compile.program.memory_layout import MemoryLayout
from weft.compile.program.steps import HostCall, KernelLaunch, Launch, LibraryCall
from weft.compile.targets.cpu.code import Code
from weft.compile.targets.cpu.driver import FIELDS
from weft.compile.targets.cpu.executable import (
    FILL,
    GANG,
    ITERATIONS,
    JOBS,
    NOWHERE,
    Called,
    Computed,
    Executable,
    Held,
    Kept,
    Literal,
    Output,
    OutputBuffer,
    Shown,
    Symbol,
    Write,
)
from weft.compile.targets.cpu.grain import grain_of
from weft.core.size import evaluate
from weft.graph.interpret import resolve
from weft.graph.ir import CONSTANT, READ, Node, Variable


class Plan(NamedTuple):
    """An executable, and the layout and steps that explain it."""

    executable: Executable
    layout: MemoryLayout
    timeline: list[Any]  # launches, and records of host calls


def plan(layout: MemoryLayout, code: Code) -> Plan:
    """Describe every step of a memory layout as data."""
    planner = _Planner(layout, code)
    planner.describe()
    planner.group_waves()
    return Plan(planner.executable(), planner.layout, planner.timeline)


class _Planner:
    """The tables that the native loop reads, while they are made."""

    def __init__(self, layout: MemoryLayout, code: Code) -> None:
        self.layout, self.code = layout, code
        self.lowered, self.sizes = layout.lowered, layout.sizes
        self.functions: dict[Symbol, int] = {}
        self.contexts: list[list[int]] = []  # of epilogues

    def describe(self) -> None:
        """Fill the tables that the native loop reads of each launch."""
        self.uses: list[KernelLaunch] = []
        for step in self.layout.launches:
            use = step.epilogue if isinstance(step, LibraryCall) else step
            self.uses += [use] if use is not None else []
        nodes = [node for use in self.uses for node in use.owners]
        self.buffer_slots = [self.layout.places[n] for n in nodes]
        self.buffer_offsets = [
            offset for u in self.uses for offset in u.offsets or [0] * len(u.owners)
        ]
        self._give_sizes()
        rows = [
            self._row(step) if isinstance(step, KernelLaunch) else self._job_row(step)
            for step in self.layout.launches
        ]
        self.rows = _table(rows, FIELDS)

    def _give_sizes(self) -> None:
        """Put the sizes that kernels read, and their error flags, in one array."""
        self.numbers: list[int] = []
        self.flags: list[int] = []
        self.found: dict[
            KernelLaunch, tuple[int, int]
        ] = {}  # where its buffers and sizes begin
        at = 0
        names = {use.name: use.kernel for use in self.uses}  # equal ones have one name
        self.needed = {name: kernel.sizes for name, kernel in names.items()}
        for use in self.uses:
            self.found[use] = at, len(self.numbers)
            known = self._known(use)
            self.numbers += [known[name] for name in self.needed[use.name]]
            if use.checks:
                self.flags.append(len(self.numbers))
                self.numbers.append(0)
            at += len(use.owners)
        self.job_flags = [
            len(self.numbers) + k for k in range(len(self.layout.jobs.flags))
        ]
        self.flags += self.job_flags
        self.numbers += [0] * len(self.job_flags)
        self.numbers.append(0)

    def _known(self, use: KernelLaunch) -> dict[str, int]:
        given = {k: evaluate(n, self.sizes) for k, n in use.kernel.given}
        return {**self.sizes, **given}

    def _row(self, use: KernelLaunch) -> list[int]:
        known = self._known(use)
        count = math.prod(evaluate(n, known) for _, n in use.kernel.parallel)
        if isinstance(use, Piece) and self.layout.inside.get(use.piece) == use.target:
            count = 0  # it is there
        function = self._function(use)
        _, cuts = self.lowered.table.cut(use.kernel)
        grain = grain_of(count, use.operations(self.sizes), cuts.grain)
        return [0, function, *self.found[use], count, grain, ITERATIONS, 0, 0]

    def _job_row(self, call: LibraryCall) -> list[int]:
        if call.epilogue is not None:
            self._lead_on(call, call.epilogue)
        function = self._number(self.layout.jobs.works[call].function)
        first, tasks, count, length = self.layout.jobs.row(call)
        return [0, function, first, tasks, count, 1, JOBS, length, 0]

    def _lead_on(self, call: LibraryCall, use: Epilogue) -> None:
        """Give a call's jobs the context of its epilogue."""
        names = self.needed[use.name]
        first, width = (names.index(n) if n in names else -1 for n in (FIRST, WIDTH))
        each = evaluate(use.each, self.sizes)
        fields = self._function(use), *self.found[use], len(names)
        self.layout.jobs.lead_to(call, len(self.contexts))
        self.contexts.append([*fields, first, width, each])

    def _function(self, use: KernelLaunch) -> int:
        """The number of a kernel's function, for those buffers that share memory here.

        Which do depends on the sizes: an epilogue may run apart from its product.
        """
        names = [buffer.name for buffer in use.kernel.buffers]
        owners = dict(zip(names, use.owners, strict=True))
        symbol = self.code.function(
            use.kernel,
            tuple(p for p in use.kernel.shared if self._is_one(*map(owners.get, p))),
        )
        return self._number(symbol)

    def _number(self, symbol: Symbol) -> int:
        return self.functions.setdefault(symbol, len(self.functions))

    def _is_one(self, a: Any, b: Any) -> bool:
        """Whether two values are the same memory, in every run."""
        if self.layout.places[a] == self.layout.places[b]:
            return True
        return a in self.layout.offsets and self.layout.offsets[
            a
        ] == self.layout.offsets.get(b)

    # -- what runs together

    def group_waves(self) -> None:
        """Waves of launches, run natively without a stop, and calls between them."""
        self.plan: list[Any] = []
        gangs: list[list[int]] = []
        k, at, moved = 0, 0, True
        count = len(self.buffer_slots) + len(self.layout.jobs.pointers)  # of addresses
        self.prologue = 1
        self.stop = -1  # the index in the plan before which errors are looked for
        while at < len(self.layout.steps):
            if self.stop < 0 and at >= self.layout.order.safe:
                self.stop = len(self.plan)
                fresh = True
            else:
                fresh = not self.plan or not isinstance(self.plan[-1], tuple)
            if not isinstance(self.layout.steps[at], Launch):
                self.plan.append(self.layout.steps[at])
                at, moved = at + 1, True
                continue
            wave, first, start = self.layout.order.waves[at], k, len(gangs)
            if at == self.layout.order.prologue:
                self.prologue = max(start, 1)
            if moved:  # values are elsewhere than before
                gangs.append([0, 0, 0, 0, count, count, FILL, 0, 0])
                moved = False
            while at < len(self.layout.steps) and self.layout.order.waves[at] == wave:
                at, k = at + 1, k + 1
            gangs.append(self._gang(first, k))
            if fresh:
                self.plan.append((start, len(gangs)))
            else:
                self.plan[-1] = (self.plan[-1][0], len(gangs))
        if self.stop < 0:
            self.stop = len(self.plan)
        self.gangs = _table(gangs, FIELDS)

    def _gang(self, first: int, last: int) -> list[int]:
        """The row of a wave's launches together."""
        rows = self.rows[first:last]
        if len(rows) == 1:
            return rows[0].tolist()
        grains = -(-rows[:, 4] // rows[:, 5])
        rows[:, 8] = np.cumsum(grains) - grains
        total = int(grains.sum())
        grain = 1 if sum(map(self._share, range(first, last))) >= 2 else total
        return [0, 0, first, len(rows), total, grain, GANG, 0, 0]

    def _share(self, number: int) -> float:
        """The number of threads that a launch is worth handing to."""
        launch, row = self.layout.launches[number], self.rows[number]
        if isinstance(launch, LibraryCall):
            share = self.layout.jobs.works[launch].share
            return share if share < 1 else float(row[4])
        return float(row[4]) / float(row[5])

    # -- values

    def executable(self) -> Executable:
        lowered, layout = self.lowered, self.layout
        held = [self._held(variable) for variable in lowered.reads]
        unread = [v for v in self.layout.state if v not in set(lowered.reads)]
        state_buffers = [
            self._output_buffer(self.layout.state[v], v.name) for v in unread
        ]
        fresh = [self._output_buffer(node) for node in self.layout.fresh]
        self._number_values(unread)
        calls = {s: self._called(s) for s in self.plan if isinstance(s, HostCall)}
        plan = [calls[s] if isinstance(s, HostCall) else s for s in self.plan]
        self.timeline = [
            calls[s] if isinstance(s, HostCall) else s for s in self.layout.steps
        ]
        outputs = list(self._outputs())
        writes = [self._write(node) for node in lowered.writes]
        kept = [
            Kept(self.value[n], at, resolve(n.shape, self.sizes), n.dtype)
            for n, at in self.layout.offsets.items()
            if n in self.seen
        ]
        places: dict[Any, int] = {**layout.places, **layout.scratch}
        offsets = [(places[n], at) for n, at in self.layout.offsets.items()]
        jobs = layout.jobs.data(places, lowered.reads, self._number, self.job_flags)
        for _, nested in layout.jobs.nested:
            self.code.libraries.update(nested.code.libraries)
        constants = [
            (self.layout.places.get(n, NOWHERE), self.value[n], n.params["value"])
            for n in self.value
            if type(n) is Node and n.op is CONSTANT
        ]
        return Executable(
            layout.layout.nbytes, len(layout.slot_of), _table(offsets, 2), constants,
            [layout.places.get(n, NOWHERE) for n in lowered.graph.inputs], held,
            state_buffers, fresh, kept, len(self.value), list(self.functions),
            _words(self.buffer_slots), _words(self.buffer_offsets),
            _words(self.numbers), _words(self.flags), self.rows, self.gangs,
            _table(self.contexts, 7), jobs,
            self.layout.jobs.tables.data, plan, self.stop, outputs, writes,
            (len(lowered.graph), len(lowered.kernels)),
            [nested.executable for _, nested in layout.jobs.nested], self.prologue,
        )  # fmt: skip

    def _held(self, variable: Variable) -> Held:
        shape = resolve(variable.type.shape, self.sizes)
        slot = self.layout.slot_of.get(variable, NOWHERE)
        kind, state = variable.type.dtype, variable in self.layout.state
        return Held(variable.name, shape, kind, slot, state)

    def _output_buffer(self, node: Node, name: str = "") -> OutputBuffer:
        shape = resolve(node.shape, self.sizes)
        return OutputBuffer(name, shape, node.dtype, self.layout.places[node])

    def _number_values(self, unread: list[Variable]) -> None:
        """Numbers for all values: those that are given first, in their order."""
        inputs, reads = self.lowered.graph.inputs, self.lowered.reads
        self.value: dict[Any, int] = {}
        self.seen: set[Node] = set()  # those that Python needs
        for key in (*inputs, *reads, *unread, *self.layout.fresh):
            self.value[key] = len(self.value)
        for node in self.lowered.graph.nodes:
            if node.op is READ:
                self.value[node] = self.value[node.params["variable"]]
        for variable, node in self.layout.state.items():
            self.value[node] = self.value[variable]
        for node in self.layout.places:
            if node.op is CONSTANT:
                self.value[node] = len(self.value)

    def _ref(self, value: Any) -> Any:
        """A reference to a value, through the views it may be."""
        if type(value) is not Node:
            return Literal(evaluate(value, self.sizes))
        if value in self.value or value in self.layout.offsets:
            self.seen.add(value)
            return self.value.setdefault(value, len(self.value))
        if value.op is CONSTANT:
            self.seen.add(value)
            return self.value.setdefault(value, len(self.value))
        operand = Operand(value)
        if inlined(value):
            args = [self._ref(i) for i in value.inputs]
            return Computed(value.op, args, resolve(value.params, self.sizes))
        views = [
            (view.op, resolve(view.params, self.sizes))
            for view in reversed(operand.views)
        ]
        return Shown(self._ref(operand.base), views)

    def _called(self, step: HostCall) -> Called:
        node = step.node
        args = [self._ref(i) for i in node.inputs]
        number = self.value.setdefault(node, len(self.value))
        slot = self.layout.places.get(node, NOWHERE)
        return Called(node, args, resolve(node.params, self.sizes), number, slot)

    def _outputs(self) -> Iterable[Output]:
        """The outputs, each in memory that no other value and no later run uses."""
        seen = set()
        for node in self.lowered.graph.outputs:
            yield Output(self._ref(node), node not in self.layout.fresh or node in seen)
            seen.add(node)

    def _write(self, node: Node) -> Write:
        (value,), base = node.inputs, Operand(node.inputs[0]).base
        source = base.params["variable"].name if base.op is READ else ""
        return Write(node.params["variable"].name, self._ref(value), source)


def _words(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, np.int64)


def _table(rows: Any, width: int) -> np.ndarray:
    return np.array(rows, np.int64).reshape(-1, width)
