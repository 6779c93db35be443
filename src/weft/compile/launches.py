"""Steps of a native program: launches of kernels and routines, and calls.

A step is a ``Use`` of a kernel, a ``Routine``, or a ``Node`` that is called. Steps that
do not depend on one another form a wave, and run side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.compile.fuse import Group, Operand
from weft.compile.jobs import Routine
from weft.compile.loop.ir import Kernel
from weft.graph.ir import ASSIGN, PICK, Graph, Node

WIDEST = 64  # launches of a wave


class Use:
    """One launch of a kernel: which values its buffers are."""

    def __init__(self, kernel: Kernel, owners: list[Node], group: Group) -> None:
        self.kernel = kernel
        self.owners = owners
        self.group = group

    @property
    def name(self) -> str:
        """The native function's name."""
        return self.kernel.name

    @property
    def made(self) -> list[Node]:
        """The values it computes."""
        return [n for n in self.owners if n in self.group.home]


Launch = (Use, Routine)


def bases_of(step: Any) -> Iterable[Node]:
    """The values that a step reads, as they lie in memory."""
    if isinstance(step, Launch):
        made = set(step.made)
        return [n for n in step.owners if n not in made]
    nodes = [i for i in step.inputs if type(i) is Node]
    return [*nodes, *[Operand(i).base for i in nodes]]


def made_by(step: Any) -> list[Node]:
    """The values that a step computes."""
    return step.made if isinstance(step, Launch) else [step]


def may_fail(step: Any) -> bool:
    """Whether a step can raise an error, or report one."""
    if isinstance(step, Use):
        return step.kernel.checks
    return not isinstance(step, Routine) and step.op is not PICK


def ordered(steps: Sequence[Any], graph: Graph) -> list[Any]:
    """The steps, with those that only make new state behind all that can fail.

    So a run that fails has changed nothing.
    """
    failing = [k for k, step in enumerate(steps) if may_fail(step)]
    end = failing[-1] + 1 if failing else 0
    read = {base for step in steps for base in bases_of(step)}
    assigned = {n.inputs[0] for n in graph.nodes if n.op is ASSIGN}
    last: list[Any] = []
    first: list[Any] = []
    for step in steps[:end]:
        made = made_by(step) if isinstance(step, Launch) else ()
        only = any(n in assigned for n in made) and not any(n in read for n in made)
        (last if only and not may_fail(step) else first).append(step)
    return [*first, *last, *steps[end:]]


class Order:
    """When steps run, in waves, and when values are read."""

    def __init__(self, steps: Sequence[Any], graph: Graph) -> None:
        self.steps = steps
        self.waves = _waves(steps)
        self.end = self.waves[-1] + 1 if steps else 0
        self.readers: dict[Node, list[int]] = {}
        for at, step in enumerate(steps):
            for base in dict.fromkeys(bases_of(step)):
                self.readers.setdefault(base, []).append(at)
        writes = [n.inputs[0] for n in graph.nodes if n.op is ASSIGN]
        self.kept = {Operand(n).base for n in (*graph.outputs, *writes)}
        failing = [k for k, step in enumerate(steps) if may_fail(step)]
        self.safe = failing[-1] + 1 if failing else 0  # steps from here on never fail

    def last(self, node: Node, made: int) -> int:
        """The wave that reads a value last, for one made in a wave."""
        if node in self.kept:
            return self.end
        return max((self.waves[k] for k in self.readers.get(node, ())), default=made)

    def ends_with(self, node: Node, at: int) -> bool:
        """Whether nothing reads a value besides or after a step."""
        readers = self.readers.get(node, ())
        return all(k == at or self.waves[k] < self.waves[at] for k in readers)


def _waves(steps: Sequence[Any]) -> list[int]:
    """The number of each step's wave; a call is alone in its own."""
    found: list[int] = []
    made: set[Node] = set()
    size, number = WIDEST, -1
    for step in steps:
        launch = isinstance(step, Launch)
        if not launch or size == WIDEST or any(b in made for b in bases_of(step)):
            number, size, made = number + 1, 0, set()
        made.update(made_by(step))
        size = size + 1 if launch else WIDEST
        found.append(number)
    return found
