"""A native graph's launches for one set of sizes, as a script.

Rows are what the native loop reads of each launch, with numbers of functions, slots
and words where an instance puts addresses: see ``script`` and ``driver``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.compile.fusion.epilogue import FIRST, WIDTH, Follower
from weft.compile.fusion.groups import Operand, inlined
from weft.compile.passes.inplace_concat import Piece
from weft.compile.program.executable import (
    FILL,
    GANG,
    ITERATIONS,
    JOBS,
    NOWHERE,
    Called,
    Computed,
    Held,
    Kept,
    Literal,
    Output,
    Room,
    Script,
    Shown,
    Symbol,
    Write,
)
from weft.compile.program.memory_layout import Placed
from weft.compile.program.steps import Launch, Use
from weft.compile.targets.cpu.driver import FIELDS
from weft.compile.targets.cpu.jobs import Routine
from weft.compile.tuning.choices import Loops
from weft.core.size import evaluate
from weft.graph.interpret import resolve
from weft.graph.ir import CONSTANT, READ, Node, Variable

if TYPE_CHECKING:
    from weft.compile.program.program import Native

GRAIN = Loops().grain


class Tables(Placed):
    """A native graph's steps, and the script of them."""

    def __init__(self, native: Native, sizes: Mapping[str, int]) -> None:
        super().__init__(native, sizes)
        self.functions: dict[Symbol, int] = {}
        self.contexts: list[list[int]] = []  # of followers
        self._describe()
        self._plan()
        self.script = self._script()

    def _describe(self) -> None:
        """What the native loop reads of each launch."""
        self.uses: list[Use] = []
        for step in self.launches:
            use = step.follower if isinstance(step, Routine) else step
            self.uses += [use] if use is not None else []
        nodes = [node for use in self.uses for node in use.owners]
        self.where = [self.places[n] for n in nodes]
        self.gaps = [gap for u in self.uses for gap in u.gaps or [0] * len(u.owners)]
        self._give_sizes()
        rows = [
            self._row(step) if isinstance(step, Use) else self._job_row(step)
            for step in self.launches
        ]
        self.rows = _table(rows, FIELDS)

    def _give_sizes(self) -> None:
        """The sizes that kernels need, and their errors' flags, in one array."""
        self.numbers: list[int] = []
        self.flags: list[int] = []
        self.found: dict[Use, tuple[int, int]] = {}  # where its buffers and sizes begin
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
        self.numbers.append(0)

    def _known(self, use: Use) -> dict[str, int]:
        given = {k: evaluate(n, self.sizes) for k, n in use.kernel.given}
        return {**self.sizes, **given}

    def _row(self, use: Use) -> list[int]:
        known = self._known(use)
        count = math.prod(evaluate(n, known) for _, n in use.kernel.parallel)
        if isinstance(use, Piece) and self.inside.get(use.piece) is use:
            count = 0  # it is there
        function = self._function(use)
        _, cuts = self.native.alike.cut(use.kernel)
        worth = GRAIN if cuts.grain == Loops().grain else cuts.grain
        grain = use.grain(count, worth, self.sizes)
        return [0, function, *self.found[use], count, grain, ITERATIONS, 0, 0]

    def _job_row(self, routine: Routine) -> list[int]:
        if routine.follower is not None:
            self._lead_on(routine, routine.follower)
        function = self._number(self.jobs.works[routine].function)
        first, tasks, count, length = self.jobs.row(routine)
        return [0, function, first, tasks, count, 1, JOBS, length, 0]

    def _lead_on(self, routine: Routine, use: Follower) -> None:
        """Tell a routine's jobs what follows."""
        names = self.needed[use.name]
        first, width = (names.index(n) if n in names else -1 for n in (FIRST, WIDTH))
        each = evaluate(use.each, self.sizes)
        fields = self._function(use), *self.found[use], len(names)
        self.jobs.lead_to(routine, len(self.contexts))
        self.contexts.append([*fields, first, width, each])

    def _function(self, use: Use) -> int:
        """A use's code, for those values that do share a place here.

        A product may be a call for these sizes, or apart from what follows it.
        """
        names = [buffer.name for buffer in use.kernel.buffers]
        owners = dict(zip(names, use.owners, strict=True))
        symbol = self.native.function(
            use.kernel,
            tuple(p for p in use.kernel.shared if self._is_one(*map(owners.get, p))),
        )
        return self._number(symbol)

    def _number(self, symbol: Symbol) -> int:
        return self.functions.setdefault(symbol, len(self.functions))

    def _is_one(self, a: Any, b: Any) -> bool:
        """Whether two values are the same memory, in every run."""
        if self.places[a] == self.places[b]:
            return True
        return a in self.offsets and self.offsets[a] == self.offsets.get(b)

    # -- what runs together

    def _plan(self) -> None:
        """Waves of launches, run natively without a stop, and calls between them."""
        self.plan: list[Any] = []
        gangs: list[list[int]] = []
        k, at, moved = 0, 0, True
        count = len(self.where) + len(self.jobs.pointers)  # of addresses
        self.stop = -1  # the place in the plan before which errors are looked for
        while at < len(self.steps):
            if self.stop < 0 and at >= self.order.safe:
                self.stop = len(self.plan)
                fresh = True
            else:
                fresh = not self.plan or not isinstance(self.plan[-1], tuple)
            if not isinstance(self.steps[at], Launch):
                self.plan.append(self.steps[at])
                at, moved = at + 1, True
                continue
            wave, first, start = self.order.waves[at], k, len(gangs)
            if moved:  # values are elsewhere than before
                gangs.append([0, 0, 0, 0, count, count, FILL, 0, 0])
                moved = False
            while at < len(self.steps) and self.order.waves[at] == wave:
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
        """How many threads a launch is worth handing to."""
        launch, row = self.launches[number], self.rows[number]
        if isinstance(launch, Routine):
            share = self.jobs.works[launch].share
            return share if share < 1 else float(row[4])
        return float(row[4]) / float(row[5])

    # -- values

    def _script(self) -> Script:
        native = self.native
        held = [self._held(variable) for variable in native.reads]
        unread = [v for v in self.state if v not in set(native.reads)]
        rooms = [self._room(self.state[v], v.name) for v in unread]
        fresh = [self._room(node) for node in self.fresh]
        self._number_values(unread)
        calls = {s: self._called(s) for s in self.plan if type(s) is Node}
        plan = [calls[s] if type(s) is Node else s for s in self.plan]
        self.timeline = [calls[s] if type(s) is Node else s for s in self.steps]
        outputs = list(self._outputs())
        writes = [self._write(node) for node in native.writes]
        kept = [
            Kept(self.value[n], at, resolve(n.shape, self.sizes), n.dtype)
            for n, at in self.offsets.items()
            if n in self.seen
        ]
        offsets = [(self.places[n], at) for n, at in self.offsets.items()]
        jobs = self.jobs.data(self.places, native.reads, self._number)
        constants = [
            (self.places.get(n, NOWHERE), self.value[n], n.params["value"])
            for n in self.value
            if type(n) is Node and n.op is CONSTANT
        ]
        return Script(
            self.layout.nbytes, len(self.slot_of), _table(offsets, 2), constants,
            [self.places.get(n, NOWHERE) for n in native.graph.inputs], held, rooms,
            fresh, kept, len(self.value), list(self.functions), _words(self.where),
            _words(self.gaps), _words(self.numbers), _words(self.flags), self.rows,
            self.gangs, _table(self.contexts, 7), jobs,
            self.jobs.tables.data, plan, self.stop, outputs, writes,
            (len(native.graph), len(native.kernels)),
        )  # fmt: skip

    def _held(self, variable: Variable) -> Held:
        shape = resolve(variable.type.shape, self.sizes)
        slot = self.slot_of.get(variable, NOWHERE)
        kind, state = variable.type.dtype, variable in self.state
        return Held(variable.name, shape, kind, slot, state)

    def _room(self, node: Node, name: str = "") -> Room:
        shape = resolve(node.shape, self.sizes)
        return Room(name, shape, node.dtype, self.places[node])

    def _number_values(self, unread: list[Variable]) -> None:
        """Numbers for all values: those that are given first, in their order."""
        inputs, reads = self.native.graph.inputs, self.native.reads
        self.value: dict[Any, int] = {}
        self.seen: set[Node] = set()  # those that Python needs
        for key in (*inputs, *reads, *unread, *self.fresh):
            self.value[key] = len(self.value)
        for node in self.native.graph.nodes:
            if node.op is READ:
                self.value[node] = self.value[node.params["variable"]]
        for variable, node in self.state.items():
            self.value[node] = self.value[variable]
        for node in self.places:
            if node.op is CONSTANT:
                self.value[node] = len(self.value)

    def _ref(self, value: Any) -> Any:
        """How a value is found, through the views it may be."""
        if type(value) is not Node:
            return Literal(evaluate(value, self.sizes))
        if value in self.value or value in self.offsets:
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

    def _called(self, node: Node) -> Called:
        args = [self._ref(i) for i in node.inputs]
        number = self.value.setdefault(node, len(self.value))
        slot = self.places.get(node, NOWHERE)
        return Called(node, args, resolve(node.params, self.sizes), number, slot)

    def _outputs(self) -> Iterable[Output]:
        """The outputs, each in memory that no other value and no later run uses."""
        given = set()
        for node in self.native.graph.outputs:
            yield Output(self._ref(node), node not in self.fresh or node in given)
            given.add(node)

    def _write(self, node: Node) -> Write:
        (value,), base = node.inputs, Operand(node.inputs[0]).base
        source = base.params["variable"].name if base.op is READ else ""
        return Write(node.params["variable"].name, self._ref(value), source)


def _words(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, np.int64)


def _table(rows: Any, width: int) -> np.ndarray:
    return np.array(rows, np.int64).reshape(-1, width)
