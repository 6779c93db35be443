"""From graphs to object code: the passes, the plans of all sizes, and one module.

Kernels are made once for any sizes. What a call does with them is planned for each set
of sizes that open dimensions may have, as ``weft.compile`` plans it when it sees them.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from weft import dtype as dtypes
from weft.compile import pipeline, targets
from weft.compile.passes.rename_sizes import both_spellings
from weft.compile.program.lowered import Lowered
from weft.compile.program.steps import HostCall, launch_of
from weft.compile.targets.c.compiled import PASSES, refuse
from weft.compile.targets.c.file import Pack
from weft.compile.targets.c.interface import Interface, Signature, open_sizes
from weft.compile.targets.c.program import refused, variables_of
from weft.compile.targets.c.weights import contents_of
from weft.compile.targets.cpu.executable import NOWHERE, Symbol
from weft.compile.targets.object.glue import (
    LINKED,
    SET,
    Glue,
    Part,
    Weights,
    constants_module,
    glue_module,
)
from weft.compile.targets.object.image import Constants, Image
from weft.compile.targets.object.machines import Machine
from weft.compile.targets.object.modules import (
    Functions,
    Unit,
    bitcode,
    joined,
    layout_of,
)
from weft.compile.targets.object.pool import pool_module
from weft.compile.targets.object.target import ObjectTarget
from weft.core.size import Size
from weft.errors import ArgumentError, ShapeError
from weft.graph.interpret import resolve
from weft.runtime.cpu.address import round_up
from weft.runtime.cpu.threads import thread_limit

MOST_SETS = 4096  # of open sizes: each has a plan of its own in the file
_AXES = 64  # a dimension's number is 64 times its argument's, and its axis


class ObjectFile(NamedTuple):
    """A header, object code, the file of weights beside, and the functions' names."""

    header: str
    code: bytes
    weights: bytes
    public: list[str]
    interface: Interface
    most: int  # bytes of memory that are enough for all sizes


def object_file(
    name: str, programs: Sequence[Any], state: Mapping[str, np.ndarray],
    machine: Machine, *, threads: int = 1, pack: Pack | None = None, made_of: str = "",
) -> ObjectFile:  # fmt: skip
    """The object code of some programs (see ``weft.export``), with their state.

    Operators that machine code lacks are an error that names all of them.
    """
    held = {k: (dtypes.of_array(v), v) for k, v in state.items()}
    return _File(name, programs, held, machine, threads, pack, made_of).made()


@dataclass(frozen=True, eq=False)
class _Entry:
    """A program for one level of the machine's CPUs."""

    program: Any
    target: ObjectTarget

    @cached_property
    def lowered(self) -> Lowered:
        graph, state = self.program.graph, variables_of(self.program.graph)
        with targets.compiling_for(self.target):
            graph = pipeline.run(graph, PASSES, in_place=state)
            return pipeline.lower(graph, self.target, in_place=state)

    @cached_property
    def code(self) -> Any:
        return pipeline.emit(self.lowered)

    def plan(self, sizes: Mapping[str, int]) -> Any:
        with targets.compiling_for(self.target):
            return pipeline.plan(self.lowered, self.code, both_spellings(sizes))


class _Set(NamedTuple):
    """A plan as words, and what a call of its sizes needs."""

    image: Image
    shapes: list[int]
    slots: list[int]  # words for the addresses of arguments, or -1
    gangs: int
    split: int
    end: int
    flags: list[int]
    copies: list[tuple[int, int, int]]
    nbytes: int  # of values


class _File:
    """One file, while it is made."""

    def __init__(
        self, name: str, programs: Sequence[Any], state: Mapping[str, Any],
        machine: Machine, threads: int, pack: Pack | None, made_of: str,
    ) -> None:  # fmt: skip
        self.machine, self.threads, self.pack = machine, threads, pack
        self.constants = Constants(beside=pack is not None)
        self.functions = Functions(machine.isas[0])
        entries = [
            [_Entry(program, ObjectTarget.of(isa)) for program in programs]
            for isa in machine.isas
        ]
        refuse([n for some in entries for one in some for n in refused(one.lowered)],
               "machine code")  # fmt: skip
        signatures = [
            Signature(one.name, entry.lowered.graph, open_sizes(one.graph), one.ranges,
                      one.outputs, one.state)
            for one, entry in zip(programs, entries[0], strict=True)
        ]  # fmt: skip
        self.interface = Interface(name, signatures, state, made_of)
        self.interface.threads = threads if threads > 1 else 0
        self.sets = [
            [self._sets(one, signature) for one, signature in
             zip(some, signatures, strict=True)]
            for some in entries
        ]  # fmt: skip

    # -- plans

    def _sets(self, entry: _Entry, signature: Signature) -> list[_Set | None]:
        """The plans of all sets of sizes; None for those that shapes cannot have."""
        found: list[_Set | None] = []
        for sizes in each_set(signature):
            try:
                entry.program.graph.sizes.check(sizes)
            except ShapeError:
                found.append(None)
                continue
            found.append(self._set(entry, signature, sizes))
        if all(one is None for one in found):
            raise ArgumentError(
                f"export: {signature.name!r} can run for none of the sizes that "
                "dynamic_shapes allows"
            )
        return found

    def _set(
        self, entry: _Entry, signature: Signature, sizes: Mapping[str, int]
    ) -> _Set | None:
        known = both_spellings(sizes)
        shapes = [resolve(a.node.shape, known) for a in both_of(signature)]
        if any(n < 0 for shape in shapes for n in shape):
            return None
        plan = entry.plan(sizes)
        layout, executable = plan.layout, plan.executable
        if sizes and _reads_nothing(entry.lowered, layout):
            return None
        refuse([step.node for step in layout.steps if isinstance(step, HostCall)],
               "machine code")  # fmt: skip
        places = {
            v.name: self.interface.places[signature.state[v.name]]
            for v in variables_of(entry.lowered.graph)
        }
        image = Image(
            self.constants,
            lambda symbol: self.functions.number(
                symbol, entry.target.isa, entry.code.libraries
            ),
            places,
        )
        image.put(np.zeros(LINKED, np.int64))
        placed = image.place(executable)
        slot = lambda node: placed.addresses + layout.places[node]  # noqa: E731
        slots = [s if s == NOWHERE else placed.addresses + s for s in executable.inputs]
        for node in entry.lowered.graph.outputs:
            if node not in layout.fresh:
                raise AssertionError(f"{node.name} has no memory of its own")
            slots.append(slot(node))
        copies = [
            (places[w.params["variable"].name], slot(w.inputs[0]),
             math.prod(resolve(w.inputs[0].shape, known)) * w.inputs[0].dtype.itemsize)
            for w in entry.lowered.writes if w.params["variable"] not in layout.state
        ]  # fmt: skip
        steps = [*executable.plan, (len(executable.gangs), len(executable.gangs))]
        return _Set(
            image, [n for shape in shapes for n in shape], slots, placed.gangs,
            steps[executable.stop][0], len(executable.gangs),
            [placed.numbers + flag for flag in executable.flags.tolist()], copies,
            executable.nbytes,
        )  # fmt: skip

    # -- words among the constants

    def made(self) -> ObjectFile:
        interface = self.interface
        interface.weight_bytes = self.constants.weight_bytes
        tables, at = [], 0  # where the images of entries are in the workspace
        for number in range(len(interface.functions)):
            tables.append(at)
            sizes = [s.image.size for level in self.sets for s in level[number] if s]
            at += round_up(8 * max(sizes))
        self.images = at
        entries = {
            one.name: [
                self._entry_words(one, level[number], tables[number])
                for level in self.sets
            ]
            for number, one in enumerate(interface.functions)
        }
        parts = {
            key: Part(
                interface.places[key], value.nbytes,
                self.constants.add(value) if value.any() else -1,
            )
            for key, (_, value) in interface.state.items()
        }  # fmt: skip
        packed, weights = b"", None
        if self.pack is not None and self.constants.weights:
            packed = self.pack(self.constants.weights)
            length, hash, rows = contents_of(packed, self.constants.places)
            weights = Weights(length, hash, self._words(rows), len(rows))
        glue = Glue(
            interface, entries, parts, list(self.functions.names), self._least(),
            tables, weights, self.machine.pointer_bits,
            [isa.cpu for isa in self.machine.isas], self.threads,
        )  # fmt: skip
        public = sorted(self._public())
        code = self._code(glue, public)
        needs = [
            self._need(s) for level in self.sets for some in level for s in some if s
        ]
        return ObjectFile(
            interface.header(self._least()), code, packed, public, interface,
            max(self._least(), *needs),
        )  # fmt: skip

    def _public(self) -> Iterator[str]:
        name, interface = self.interface.name, self.interface
        yield from (f"{name}_init", f"{name}_message")
        if interface.state:
            yield f"{name}_state"
        if interface.threads:
            yield f"{name}_threads"
        for one in interface.functions:
            yield f"{name}_{one.name}"
            if one.open_sizes:
                yield f"{name}_{one.name}_memory"

    def _need(self, one: _Set) -> int:
        """The bytes of memory that a call of a set needs."""
        return self.interface.base + self._arena(one) + one.nbytes

    def _arena(self, one: _Set) -> int:
        """Where values begin in the workspace: behind images and threads' memory."""
        return self.images + self.threads * one.image.each

    def _least(self) -> int:
        closed = [
            self._need(one)
            for level in self.sets
            for some, signature in zip(level, self.interface.functions, strict=True)
            for one in some
            if one is not None and not signature.open_sizes
        ]
        return max(closed, default=self.interface.base + self.images)

    def _words(self, words: Any) -> int:
        return self.constants.add(np.array(words, np.int64))

    def _entry_words(
        self, one: Signature, sets: Sequence[_Set | None], tables: int
    ) -> int:
        arguments = both_of(one)
        span, sizes = 1, list[tuple[int, int, int, int]]()
        for name in reversed(one.open_sizes):
            low, high = range_of(one, name)
            sizes.insert(0, (dimension_of(one, name), low, high - low + 1, span))
            span *= high - low + 1
        rows = np.array([self._set_words(s) for s in sets], np.int64)
        ranks = [a.rank for a in arguments]
        return self._words([
            len(sizes), self._words(sizes), len(arguments), self._words(ranks),
            self._words(rows), tables,
        ])  # fmt: skip

    def _set_words(self, one: _Set | None) -> list[int]:
        """The row of a set, as ``glue.SET`` names its words."""
        if one is None:
            return [0] * len(SET)
        image, words = one.image, self._words
        counts = [len(some) for some in image.relocations]
        marks = [word for some in image.relocations for word in some]
        return [
            1, words(one.shapes), self._need(one), words(image.words()), image.size,
            words([*counts, *marks]), words(image.calls), len(image.calls),
            words(one.slots), self.images, self._arena(one), one.gangs, one.split,
            one.end, words(one.flags), len(one.flags), words(one.copies),
            len(one.copies),
        ]  # fmt: skip

    # -- code

    def _code(self, glue: Glue, public: Sequence[str]) -> bytes:
        """The object code, with the constants in it."""
        isa = self.machine.isas[0]
        data = b"".join(self.constants.parts) or bytes(64)
        mark = hashlib.sha256(b"constants" + data[:4096]).digest()
        self.functions.number(Symbol("driver", "", "run"), isa, {})
        made = [
            Unit("", isa, lambda: glue_module(glue, isa), 2),
            Unit("", isa, lambda: pool_module(self.machine, self.threads), 2),
            *self.functions.units.values(),
        ]
        wanted = [
            public, ["weft_pool", "weft_parallel_chunks", "weft_pool_hold",
                     "weft_pool_release"],
            *[self.functions.wanted[unit.name] for unit in made[2:]],
        ]  # fmt: skip
        parts: list[bytes | str]
        with ThreadPoolExecutor(thread_limit().threads) as workers:
            parts = list(workers.map(bitcode, made, wanted))
        parts.append(constants_module(isa, layout_of(isa), mark, len(data)))
        code = joined(parts, public, isa)
        at = code.find(mark)
        if at < 0 or code.find(mark, at + 1) >= 0:
            raise AssertionError("the constants have no place in the object code")
        return code[:at] + data + code[at + len(data) :]


def _reads_nothing(lowered: Lowered, layout: Any) -> bool:
    """Whether a kernel would read what is not there, for the sizes of a layout."""
    launches = [launch_of(step) for step in lowered.steps]
    return not all(layout.runs(one) for one in launches if one is not None)


# -- open sizes


def both_of(one: Signature) -> list[Any]:
    """The inputs and outputs of a function."""
    given, made = one.arguments
    return [*given, *made]


def range_of(one: Signature, name: str) -> tuple[int, int]:
    """The least and the largest value of an open size; all are 1 at least."""
    low, high = one.ranges.get(name, (1, 2**63 - 1))
    return max(low, 1), high


def dimension_of(one: Signature, name: str) -> int:
    """The number of the first dimension that is an open size by itself."""
    spelled = both_spellings({name: 0}).keys()
    for number, argument in enumerate(one.arguments[0]):
        for axis, n in enumerate(argument.node.shape):
            if isinstance(n, Size) and n.symbol_name in spelled:
                return _AXES * number + axis
    raise ArgumentError(
        f"export: no input has the size {name!r} by itself as a dimension, so that "
        "machine code cannot know it"
    )


def each_set(one: Signature) -> Iterator[dict[str, int]]:
    """All sets of open sizes, the last size changing first."""
    ranges = [range_of(one, name) for name in one.open_sizes]
    count = math.prod(high - low + 1 for low, high in ranges)
    if count > MOST_SETS:
        text = ", ".join(
            f"{name} from {low} to {'any' if high >= 2**63 - 1 else high}"
            for name, (low, high) in zip(one.open_sizes, ranges, strict=True)
        )
        raise ArgumentError(
            f"export: machine code has a plan for each set of open sizes, {MOST_SETS} "
            f"at most, and {one.name!r} has {text}; give Dim a smaller max (or a "
            "larger min), or export C, whose sizes have no bounds"
        )
    values = [range(low, high + 1) for low, high in ranges]
    for some in itertools.product(*values):
        yield dict(zip(one.open_sizes, some, strict=True))
