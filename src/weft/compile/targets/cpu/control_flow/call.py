"""``cond``, ``scan`` and ``while_loop`` as calls of native functions.

The bodies are compiled with the program, their memory is a part of its arena, and no
Python runs between iterations. A node is called by way of Python instead if a body
calls NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from weft.compile import pipeline
from weft.compile.emit.isa import Isa
from weft.compile.passes.rename_sizes import both_spellings
from weft.compile.program.bodies import (
    is_control_flow,
    is_moved,
    programs_of,
)
from weft.compile.program.lowered import Lowered
from weft.compile.program.steps import KernelLaunch, LibraryCall
from weft.compile.program.strided_views import view_of
from weft.compile.targets.cpu.control_flow.native import BODY, COND, SCAN, WHILE
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.executable import Symbol
from weft.compile.targets.cpu.jobs import Job, Nested, Pointer, Work
from weft.graph.control.branch import cond_op
from weft.graph.control.repeat import scan_op
from weft.graph.interpret import resolve
from weft.graph.ir import Node
from weft.runtime.cpu.address import ALIGNMENT, round_up

_COST = COST.control_flow


class _Planned(NamedTuple):
    """A body with memory for some sizes: its executable, and slots of its values."""

    executable: Any
    code: Any
    inputs: list[int]  # slots
    outputs: list[int]


class ControlFlow(LibraryCall):
    """A branch or a loop; each output that is used is a value of its own."""

    computes = staticmethod(is_control_flow)
    copies = staticmethod(is_moved)
    solo = True  # its launches use all threads
    checks = True  # it may end early: for an error, an interrupt, or a limit

    @property
    def bodies(self) -> list[Any]:
        return programs_of(self.node)

    @staticmethod
    def row_axes(node: Node) -> int | None:
        return None  # there is no epilogue

    @cached_property
    def _picked(self) -> dict[int, Node]:
        return {pick.params["index"]: pick for pick in self.picks}

    def work(self, sizes: Mapping[str, int], isa: Isa) -> Work | None:
        if len(self._picked) != len(self.picks):
            return None  # an output is asked for twice
        known = {**sizes, **dict(resolve(self.node.params["sizes"], sizes))}
        bodies = [_planned(one, known) for one in self.bodies]
        if any(body is None for body in bodies):
            return None
        job = _Job(self, bodies, sizes)  # type: ignore[arg-type]
        if self.node.op is cond_op:
            job.cond()
        elif self.node.op is scan_op:
            job.scan()
        else:
            job.while_loop()
        return job.work()


def _planned(program: Any, sizes: Mapping[str, int]) -> _Planned | None:
    """A body's executable for some sizes; None if it calls NumPy for them."""
    lowered, code = program.lowered, program.code
    plan: Any = pipeline.plan(lowered, code, both_spellings(sizes))
    layout, executable = plan.layout, plan.executable
    graph = lowered.graph
    if any(type(step) is not tuple for step in executable.plan):
        return None
    if any(node not in layout.fresh for node in graph.outputs):
        return None
    outputs = [layout.places[node] for node in graph.outputs]
    return _Planned(executable, code, executable.inputs, outputs)


def _operations(lowered: Lowered, sizes: Mapping[str, int]) -> int:
    launches = [s for s in lowered.steps if isinstance(s, KernelLaunch)]
    return _COST.launch * len(lowered.steps) + sum(
        s.operations(sizes) for s in launches
    )


MOVING, HELD, STACKED = range(3)  # kinds of carries, in the order of their words


class _Carry(NamedTuple):
    """A carry: its kind and number, where it begins and ends, and the bytes of one."""

    kind: int
    number: int
    places: list[Any]
    nbytes: int


class _Job:
    """The record of one call, while it is made."""

    def __init__(
        self, call: ControlFlow, bodies: Sequence[_Planned], sizes: Mapping[str, int]
    ) -> None:
        self.call, self.bodies, self.sizes = call, bodies, sizes
        self.node, self.params = call.node, call.node.params
        self.fields: list[int] = []
        self.pointers: list[Pointer] = []
        self.tables: list[tuple[int, np.ndarray]] = []
        self.nested: list[Nested] = []
        self.scratch = 0  # bytes, of the bodies' arenas and of values nobody reads
        for body in bodies:
            self._reserve(body.executable.nbytes)

    # -- words

    def word(self, value: Any) -> None:
        self.fields.append(int(value))

    def at(self, place: tuple[Any, int]) -> None:
        """An address: an offset in bytes into a value, or into the scratch memory."""
        node, offset = place
        self.pointers.append(Pointer(len(self.fields), node, offset))
        self.word(0)

    def head(self, names: Sequence[str], values: Mapping[str, Any]) -> None:
        """The first words, of which one is the address of the job's error flag."""
        for name in names:
            value = values.get(name, 0)
            self.at(value) if isinstance(value, tuple) else self.word(value)

    def body(self, number: int) -> None:
        """The words of a body."""
        start, one = len(self.fields), self.bodies[number].executable
        values = {
            "count": len(one.gangs), "begin": one.prologue,
            "flag_count": len(one.flags),
        }  # fmt: skip
        for name in BODY:
            self.word(values.get(name, 0))
        self.tables.append((start + BODY.index("*flags"), one.flags.copy()))
        arenas = [round_up(b.executable.nbytes) for b in self.bodies[:number]]
        words = [start + BODY.index(name) for name in ("*slots", "*gangs", "*sizes")]
        self.nested.append(Nested(one, self.bodies[number].code, sum(arenas), *words))

    # -- memory

    def _reserve(self, nbytes: int) -> tuple[Any, int]:
        start, self.scratch = self.scratch, self.scratch + round_up(nbytes)
        return self.call, start

    def _operand(self, index: int) -> tuple[Any, int]:
        """The memory of an operand, which may be some rows of another value."""
        operand = self.call.operands[index]
        array, start = view_of(operand, self.sizes)
        return operand.base, array.ctypes.data - start.ctypes.data

    def _result(self, index: int, nbytes: int) -> tuple[Any, int]:
        """The memory of an output; one that nobody reads is scratch."""
        pick = self.call._picked.get(index)
        return self._reserve(nbytes) if pick is None else (pick, 0)

    def _nbytes(self, kind: Any) -> int:
        return math.prod(resolve(kind.shape, self.sizes)) * kind.dtype.itemsize

    # -- the three kinds

    def fixed(self, slots: Sequence[int], places: Sequence[Any]) -> None:
        for slot, place in zip(slots, places, strict=True):
            self.word(slot)
            self.at(place)

    def cond(self) -> None:
        kinds = self.node.type
        results = [self._result(k, self._nbytes(t)) for k, t in enumerate(kinds)]
        operands = [self._operand(k) for k in range(1, len(self.node.inputs))]
        sides = [[*body.inputs, *body.outputs] for body in self.bodies]
        names = {f"{name}_fixed": len(s) for name, s in
                 zip(("then", "other"), sides, strict=True)}  # fmt: skip
        self.head(COND, {"*predicate": self._operand(0), **names})
        self.body(0)
        self.body(1)
        for slots in sides:
            self.fixed(slots, [*operands, *results])

    def scan(self) -> None:
        (body,), p = self.bodies, self.params
        fixed, carried = p["fixed"], p["carried"]
        start = fixed + carried
        kinds = self.node.type
        rows = []
        for k in range(start, len(self.node.inputs)):
            stride = self._nbytes(self._row(self.node.inputs[k].type))
            rows.append((body.inputs[k], self._operand(k), stride))
        for k in range(carried, len(kinds)):
            stride = self._nbytes(self._row(kinds[k]))
            place = self._result(k, self._nbytes(kinds[k]))
            rows.append((body.outputs[k], place, stride))
        stacked = self.params.get("stacked", ())
        held = self._held(body, fixed, carried) - set(stacked)
        carries = self._carries(range(fixed, start), range(carried), held, stacked)
        moving = carried - len(held) - len(stacked)
        values = {
            "length": resolve(p["length"], self.sizes), "reverse": p["reverse"],
            "poll": self._poll(), "fixed": fixed, "rows": len(rows),
            "carries": moving, "held": len(held), "stacked": len(stacked),
        }  # fmt: skip
        self.head(SCAN, values)
        self.body(0)
        self.fixed(body.inputs[:fixed], [self._operand(k) for k in range(fixed)])
        for slot, place, stride in rows:
            self.word(slot)
            self.at(place)
            self.word(stride)
        self._carry_rows(carries, lambda k: (body.inputs[fixed + k],), body)

    @staticmethod
    def _row(kind: Any) -> Any:
        return kind._replace(shape=kind.shape[1:])

    def _poll(self) -> int:
        """The number of iterations after which an interrupt is looked for."""
        lowered = [program.lowered for program in self.call.bodies]
        work = sum(_operations(one, self.sizes) for one in lowered)
        return max(_COST.poll // max(work, 1), 1)

    @staticmethod
    def _held(body: _Planned, fixed: int, carried: int) -> set[int]:
        """The carries that an iteration changes where they are."""
        return {k for k in range(carried) if body.inputs[fixed + k] == body.outputs[k]}

    def _carries(
        self,
        inputs: range,
        outputs: range,
        held: Collection[int],
        stacked: Collection[int] = (),
    ) -> list[_Carry]:
        """Where each carry begins, ends and goes in between, and its bytes."""
        made = []
        for k, (i, out) in enumerate(zip(inputs, outputs, strict=True)):
            nbytes = self._nbytes(self.node.inputs[i].type)
            result = self._result(out, self._nbytes(self.node.type[out]))
            places = [self._operand(i), result]
            kind = STACKED if k in stacked else HELD if k in held else MOVING
            places += [self._reserve(nbytes)] if kind == MOVING else []
            made.append(_Carry(kind, k, places, nbytes))
        return made

    def _carry_rows(
        self,
        carries: Sequence[_Carry],
        slots: Callable[[int], Sequence[int]],
        body: _Planned,
    ) -> None:
        """The words of all carries, by their kind."""
        for one in sorted(carries, key=lambda one: one.kind):
            new = () if one.kind == HELD else (body.outputs[one.number],)
            for slot in (*slots(one.number), *new):
                self.word(slot)
            for place in one.places:
                self.at(place)
            self.word(one.nbytes)

    def while_loop(self) -> None:
        asks, body = self.bodies
        fixed = self.params["fixed"]
        carried = len(body.outputs)
        held = self._held(body, fixed, carried)
        inputs, outputs = range(fixed, fixed + carried), range(1, 1 + carried)
        carries = self._carries(inputs, outputs, held)
        steps, predicate = self._result(0, 8), self._reserve(1)
        operands = [self._operand(k) for k in range(fixed)]
        values = {
            "*predicate": predicate, "*steps": steps,
            "poll": self._poll(), "asks_fixed": fixed + 1, "fixed": fixed,
            "carries": carried - len(held), "held": len(held),
        }  # fmt: skip
        self.head(WHILE, values)
        self.body(0)
        self.body(1)
        self.fixed([*asks.inputs[:fixed], asks.outputs[0]], [*operands, predicate])
        self.fixed(body.inputs[:fixed], operands)
        slots = lambda k: (asks.inputs[fixed + k], body.inputs[fixed + k])  # noqa: E731
        self._carry_rows(carries, slots, body)

    def work(self) -> Work:
        fields = [*self.fields, 0, 0]  # there is no workspace
        job = Job(np.array(fields, np.int64), self.pointers, self.tables, flag=0,
                  nested=self.nested)  # fmt: skip
        function = Symbol("control", "", self.node.op.name)
        return Work(function, [job], 1, scratch=max(self.scratch, ALIGNMENT))
