"""Steps of a program: kernel launches, library calls and host calls.

    KernelLaunch   a kernel of the program's own, on the values that its buffers are
    LibraryCall    a node that code of the target's library computes as a whole, and
                   the kernel that follows as its epilogue
    HostCall       a node that NumPy computes

Steps that do not depend on one another form a wave, and run side by side.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from weft.compile.fusion.groups import Group, Operand
from weft.compile.loop.depend import symbols_of
from weft.compile.loop.ir import (
    Call,
    For,
    Kernel,
    Let,
    Load,
    Position,
    divides,
    statements,
    subvalues,
    values_of,
)
from weft.compile.loop.ranges import coefficient, inside
from weft.core.lowering import OwnLoops, reshaped
from weft.core.size import Scope, elements, same, same_shape, smaller
from weft.graph.ir import ASSIGN, CONSTANT, PICK, READ, Graph, Node

WIDEST = 64  # launches of a wave


class GroupKernel(NamedTuple):
    """A group's kernel, and the values that its buffers belong to."""

    kernel: Kernel
    owners: list[Node]
    offsets: Sequence[int] = ()  # bytes of each buffer in its value; empty: all are 0
    checks: bool = False  # whether it may report an error


@dataclass(frozen=True, eq=False)
class KernelLaunch:
    """A launch of a kernel: the value and the offset of each of its buffers."""

    kernel: Kernel
    owners: list[Node]
    offsets: Sequence[int]
    checks: bool
    group: Group
    solo = False

    @property
    def windowed(self) -> list[Node]:
        """The values of which the kernel sees a window only."""
        return [n for n, at in zip(self.owners, self.offsets, strict=False) if at]

    @property
    def name(self) -> str:
        """The native function's name."""
        return self.kernel.name

    @property
    def made(self) -> list[Node]:
        """The values it computes."""
        return [n for n in self.owners if n in self.group.home]

    def work(self, sizes: Mapping[str, int]) -> int:
        """The number of elements that it computes or reduces."""
        made = sum(elements(n.shape, sizes) for n in self.made)
        if isinstance(self.group.nodes[0].op.lower, OwnLoops):
            made = max(made, *[elements(n.shape, sizes) for n in self.owners])
        return max(elements(self.group.shape, sizes), made)

    def operations(self, sizes: Mapping[str, int]) -> int:
        """About how many operations it takes."""
        return self.work(sizes) * max(len(self.group.nodes), 1)

    def arrays(self, memory: Mapping[Node, np.ndarray]) -> list[np.ndarray]:
        """The memory of its buffers, in order: values, or windows of them."""
        offsets = self.offsets or [0] * len(self.owners)
        arrays = []
        for node, offset in zip(self.owners, offsets, strict=True):
            array = memory[node]
            if offset:
                array = array.reshape(-1)[offset // array.itemsize :]
            arrays.append(array)
        return arrays


@dataclass(frozen=True, eq=False)
class LibraryCall:
    """A node that the target's library computes as a whole, and its epilogue.

    The epilogue sees a result as a matrix: its first axes number rows, the others
    columns. ``picks`` are the used outputs of a node with several.
    """

    node: Node
    inputs: Sequence[Node]
    epilogue: Any = None
    picks: Sequence[Node] = ()
    solo = False  # whether nothing may run beside it
    checks = False  # whether it may report an error

    @property
    def bodies(self) -> Sequence[Any]:
        """The programs of a loop's or a branch's bodies."""
        return ()

    @staticmethod
    def computes(node: Node) -> bool:
        """Whether the library computes a node."""
        raise NotImplementedError

    @staticmethod
    def copies(node: Node) -> bool:
        """Whether an operand is a view that the library cannot read."""
        raise NotImplementedError

    @staticmethod
    def row_axes(node: Node) -> int | None:
        """The number of axes that number a result's rows; None: it has no epilogue."""
        raise NotImplementedError

    @cached_property
    def operands(self) -> list[Operand]:
        return [Operand(i) for i in self.inputs]

    @property
    def _own(self) -> list[Node]:
        """What it computes itself; of several outputs, those that are used."""
        return list(self.picks) if type(self.node.type) is tuple else [self.node]

    @cached_property
    def made(self) -> list[Node]:
        """The values it computes."""
        own = self._own
        return own if self.epilogue is None else [*own, *self.epilogue.made]

    @cached_property
    def owners(self) -> list[Node]:
        """The values it reads and computes."""
        own = [*[o.base for o in self.operands], *self._own]
        return own if self.epilogue is None else [*own, *self.epilogue.owners]

    @property
    def alone(self) -> LibraryCall:
        """The same call without an epilogue."""
        return type(self)(self.node, self.inputs)

    def fits(self, sizes: Mapping[str, int], target: Any) -> bool:
        """Whether the epilogue pays for these sizes."""
        return True

    def work(self, sizes: Mapping[str, int], target: Any) -> Any:
        """The target's description of the work; None if it takes a host call."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class HostCall:
    """A node that NumPy computes."""

    node: Node

    @property
    def made(self) -> list[Node]:
        return [self.node]


Step: TypeAlias = KernelLaunch | LibraryCall | HostCall
Launch = (KernelLaunch, LibraryCall)  # the steps that native code runs


def launch_of(step: Step) -> KernelLaunch | None:
    """The kernel launch that a step is or ends with."""
    if isinstance(step, LibraryCall):
        return step.epilogue
    return step if isinstance(step, KernelLaunch) else None


def bases_of(step: Step) -> Iterable[Node]:
    """The values that a step reads, and the ones that these are views of."""
    if not isinstance(step, HostCall):
        made = set(step.made)
        return [n for n in step.owners if n not in made]
    nodes = [i for i in step.node.inputs if type(i) is Node]
    return [*nodes, *[Operand(i).base for i in nodes]]


def ordered(steps: Sequence[Step], graph: Graph) -> list[Step]:
    """Move steps that only compute new state behind all that read the old.

    The new state can then be written over the old.
    """
    assigned = _overwritten(graph)
    read: dict[Node, int] = {}
    for at, step in enumerate(steps):
        read.update(dict.fromkeys(bases_of(step), at))
    after: dict[int, list[Step]] = {}
    for at, step in enumerate(steps):
        made = step.made
        late = [read.get(r, -1) for n in made for r in assigned.get(n, ())]
        position = at
        if isinstance(step, Launch) and not any(n in read for n in made):
            position = max([at, *late])
        after.setdefault(position, []).append(step)
    # A step comes before those that were moved behind it.
    return [
        step
        for at, own in enumerate(steps)
        for step in sorted(after.get(at, ()), key=lambda s: s is not own)
    ]


def hoisted(
    steps: Sequence[Step], graph: Graph, fixed: Collection[Node]
) -> tuple[list[Step], frozenset[Node]]:
    """Move steps that depend on fixed inputs alone to the front, and give their values.

    These are computed before the first iteration of a loop, and kept for all others.
    """
    steady: set[Node] = set()
    if not fixed:
        return list(steps), frozenset()
    given = {*fixed, *[n for n in graph.nodes if n.op is CONSTANT]}
    first: list[Step] = []
    rest: list[Step] = []
    for step in steps:
        again = (
            isinstance(step, Launch)
            and not step.solo
            and (given | steady).issuperset(bases_of(step))
            and set(step.made).isdisjoint(graph.outputs)
        )
        (first if again else rest).append(step)
        steady.update(step.made if again else ())
    return [*first, *rest], frozenset(steady)


def _overwritten(graph: Graph) -> dict[Node, list[Node]]:
    """The reads of the variable that each new value is assigned to."""
    reads: dict[Any, list[Node]] = {}
    for node in graph.nodes:
        if node.op is READ:
            reads.setdefault(node.params["variable"], []).append(node)
    return {
        n.inputs[0]: reads.get(n.params["variable"], [])
        for n in graph.nodes
        if n.op is ASSIGN
    }


def _failing(steps: Sequence[Step]) -> list[int]:
    """The steps that can raise an error, or be the first to report one."""
    failing: list[int] = []
    seen: set[Any] = set()
    for at, step in enumerate(steps):
        if isinstance(step, KernelLaunch):
            checks = _checks(step)
            if any(key not in seen for key, _ in checks):
                failing.append(at)
            seen.update(key for key, all_ in checks if all_)
        elif isinstance(step, LibraryCall):
            failing += [at] * step.checks
        elif step.node.op is not PICK:
            failing.append(at)
    return failing


def _checks(use: KernelLaunch) -> list[tuple[Any, bool]]:
    """A key for each index or divisor that a kernel checks, and whether it checks all.

    Checks of the same indices in the same way have equal keys.
    """
    if not use.checks:
        return []
    owners = {b.name: n for b, n in zip(use.kernel.buffers, use.owners, strict=True)}
    loops, windowed = dict(use.kernel.parallel), use.windowed
    checks: list[tuple[Any, bool]] = []
    for stmt in statements(use.kernel.body):
        if isinstance(stmt, For):
            loops[stmt.var] = stmt.extent
        if any(map(divides, subvalues(values_of(stmt)))):
            checks.append((object(), False))
        if isinstance(stmt, Let) and not _counted(stmt, loops):
            load = stmt.value
            if isinstance(load, Call) and load.name == "cast":
                (load,) = load.args
            scratch = not isinstance(load, Load) or load.buffer.scratch
            if scratch or owners[load.buffer.name] in windowed:
                checks.append((object(), False))
                continue
            key = owners[load.buffer.name], str(stmt.limit), stmt.wrap
            checks.append((key, _reads_all(load, loops, use.kernel.scope)))
    return checks


def _reads_all(load: Load, loops: dict[str, Any], scope: Scope) -> bool:
    """Whether loops visit all elements of a buffer, in order."""
    shape = load.buffer.shape
    mentioned = {name for i in load.at for name in symbols_of(i)}
    names = [name for name in loops if name in mentioned]
    extents = tuple(loops[name] for name in names)
    if len(names) == 2 and len(shape) == 1 and _in_chunks(load, names, extents, scope):
        return True
    if not names or not same(math.prod(extents), math.prod(shape)):
        return False
    out = tuple(scope.symbol(name) for name in names)
    return same_shape(reshaped(out, shape, shape=extents), load.at)


def _in_chunks(load: Load, names: Any, extents: Any, scope: Scope) -> bool:
    """Whether an outer loop over chunks and one over the elements of each visit all."""
    (at,), (count,) = load.at, load.buffer.shape
    chunk, place = (scope.symbol(name) for name in names)
    size = coefficient(at, names[0])
    return (
        isinstance(size, int)
        and same(at, chunk * size + place)
        and same(extents[0], (count + (size - 1)) // size)
        and same(extents[1], smaller(count - chunk * size, size))
    )


def _counted(let: Let, loops: dict[str, Any]) -> bool:
    """Whether an index depends on loop variables alone and is surely in range."""
    at = let.value.at if isinstance(let.value, Position) else None
    return at is not None and inside(at, let.limit, loops)


class Loop(NamedTuple):
    """The inputs of a loop's body: first those that are fixed, then the carries.

    Its first outputs are the new values of the carries.
    """

    fixed: int
    carried: int

    def carries(self, graph: Graph) -> dict[Node, Node]:
        """The carries of a body, by their new values."""
        inputs = graph.inputs[self.fixed : self.fixed + self.carried]
        return dict(zip(graph.outputs, inputs, strict=False))


class Order:
    """The wave of each step, and the steps that read each value."""

    def __init__(
        self, steps: Sequence[Step], graph: Graph, steady: frozenset[Node] = frozenset()
    ) -> None:
        self.steps = steps
        failing = _failing(steps)
        self.safe = failing[-1] + 1 if failing else 0  # steps from here on never fail
        # the steps before the first iteration of a loop
        self.prologue = sum(not steady.isdisjoint(step.made) for step in steps)
        starts = {self.safe, self.prologue}
        self.waves = _waves(steps, _overwritten(graph), starts)
        self.end = self.waves[-1] + 1 if steps else 0
        self.readers: dict[Node, list[int]] = {}
        for at, step in enumerate(steps):
            for base in dict.fromkeys(bases_of(step)):
                self.readers.setdefault(base, []).append(at)
        writes = [n.inputs[0] for n in graph.nodes if n.op is ASSIGN]
        self.kept = {Operand(n).base for n in (*graph.outputs, *writes)} | steady

    def last(self, node: Node, made: int) -> int:
        """The wave that reads a value last; ``made``, its own wave, if none does."""
        if node in self.kept:
            return self.end
        return max((self.waves[k] for k in self.readers.get(node, ())), default=made)

    def ends_with(self, node: Node, at: int) -> bool:
        """Whether no other step reads a value in this step's wave or later."""
        readers = self.readers.get(node, ())
        return all(k == at or self.waves[k] < self.waves[at] for k in readers)


def _waves(
    steps: Sequence[Step], over: dict[Node, list[Node]], starts: Collection[int]
) -> list[int]:
    """The number of each step's wave; host calls and loops have one of their own.

    A step that computes new state is in a later wave than others that read the old. A
    step of ``starts`` begins a wave: errors are looked for before it, or iterations
    after the first begin there.
    """
    waves: list[int] = []
    made: set[Node] = set()
    read: set[Node] = set()
    size, number = WIDEST, -1
    for at, step in enumerate(steps):
        mine, bases = step.made, bases_of(step)
        launch = isinstance(step, Launch) and not step.solo
        late = at in starts or any(r in read for n in mine for r in over.get(n, ()))
        if not launch or size == WIDEST or late or any(b in made for b in bases):
            number, size, made, read = number + 1, 0, set(), set()
        made.update(mine)
        read.update(bases)
        size = size + 1 if launch else WIDEST
        waves.append(number)
    return waves
