"""Aliasing: results over values that are read for the last time.

    y = x * 2          x is not needed any more: y lies where x did
    w' = w - lr * g    nothing reads w any more: its new value is written over it
    y = gelu(x @ w)    what follows a product replaces it part by part

Only where a kernel's loops allow it (``loop.alias``). New state is written in place
only by steps after which nothing can fail, so a run that fails leaves all as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from weft.compile.loop.alias import Uses
from weft.compile.loop.ir import Kernel
from weft.compile.program.concat import Inside, Piece, inside
from weft.compile.program.steps import (
    KernelLaunch,
    Launch,
    LibraryCall,
    Order,
    Step,
    launch_of,
)
from weft.graph.ir import ASSIGN, CONSTANT, INPUT, READ, Graph, Node, Variable


class Aliasing(NamedTuple):
    """The buffer that each value shares, if it has none of its own."""

    over: dict[Node, Node]  # that of a value which is read for the last time
    joint: dict[Node, Node]  # that of what the same step makes of it
    state: dict[Variable, Node]  # of variables: their new values
    inside: dict[Node, Inside]  # that inside of another value, of which it is a piece


def alias(
    graph: Graph, steps: Sequence[Step], in_place: Collection[Variable]
) -> tuple[Aliasing, list[Step]]:
    """Choose buffers; the steps have kernels that know which of theirs are one.

    New values of variables ``in_place`` may be written over the old ones.
    """
    order = Order(steps, graph)
    writes = [n for n in graph.nodes if n.op is ASSIGN]
    aliasing = Aliasing({}, {}, {}, inside(steps, order.kept))
    sharing = _Sharing(graph, order, assigned_once(writes, in_place), aliasing)
    found: list[Step] = []
    for at, step in enumerate(steps):
        launch = launch_of(step)
        if launch is not None and not isinstance(launch, Piece):
            launch = replace(launch, kernel=sharing.settle(at, step, launch))
        if isinstance(step, LibraryCall):
            found.append(replace(step, epilogue=launch))
            if step.node not in aliasing.joint:
                sharing.keep(at, step, step.node)
        else:
            found.append(launch or step)
    return aliasing, found


def assigned_once(
    writes: list[Node], allowed: Collection[Variable]
) -> dict[Node, Variable]:
    """The values that become state: of one variable, which gets no other."""
    values = Counter(n.inputs[0] for n in writes)
    variables = Counter(n.params["variable"] for n in writes)
    return {
        n.inputs[0]: n.params["variable"]
        for n in writes
        if values[n.inputs[0]] == 1
        and variables[n.params["variable"]] == 1
        and n.params["variable"] in allowed
    }


def kept_in_place(
    aliasing: Aliasing, graph: Graph, order: Order
) -> dict[Variable, Node]:
    """The state that may be written in place in this order of steps."""
    steps = {n: at for at, s in enumerate(order.steps) for n in made_in(s)}
    reads = reads_of(graph)
    return {
        variable: node
        for variable, node in aliasing.state.items()
        if node in steps and in_time(order, steps[node], reads.get(variable, ()))
    }


def in_time(order: Order, at: int, reads: Iterable[Node]) -> bool:
    """Whether a step comes after all that can fail, and after all others that read.

    What is read may also be given back, or become other state.
    """
    return at >= order.safe and all(
        r not in order.kept and order.ends_with(r, at) for r in reads
    )


def reads_of(graph: Graph) -> dict[Variable, list[Node]]:
    """The nodes that read each variable."""
    found: dict[Variable, list[Node]] = {}
    for node in graph.nodes:
        if node.op is READ:
            found.setdefault(node.params["variable"], []).append(node)
    return found


def made_in(step: Step) -> list[Node]:
    """The values that launches compute in memory of the program."""
    return step.made if isinstance(step, Launch) else []


class _Sharing:
    """Goes through the launches of kernels in order."""

    def __init__(
        self,
        graph: Graph,
        order: Order,
        assigned: dict[Node, Variable],
        aliasing: Aliasing,
    ) -> None:
        self.graph, self.order, self.aliasing = graph, order, aliasing
        self.assigned = assigned
        self.launched = {n for step in order.steps for n in made_in(step)}
        self.outputs = set(graph.outputs)
        self.reads = reads_of(graph)
        self.wholes = {piece.whole for piece in aliasing.inside.values()}
        self.moved: list[Node] = []  # what the present launch sees a part of
        self.known: dict[tuple[int, str, str], bool] = {}
        self.uses: dict[int, Uses] = {}

    def settle(self, at: int, step: Step, launch: KernelLaunch) -> Kernel:
        """Buffers for all that one launch makes; its kernel knows them."""
        names = dict(zip(launch.owners, launch.kernel.buffers, strict=True))
        kernel, pairs = launch.kernel, []
        self.moved = launch.moved
        for node in launch.owners:
            if node not in launch.group.home:
                continue
            given = self._state(at, step, names, node, kernel)
            if given is None and node not in self.aliasing.state.values():
                given = self._choose(at, step, names, node, kernel)
            if given is not None:
                pairs.append((names[given].name, names[node].name))
                names.pop(given)
        return kernel._replace(shared=tuple(pairs))

    def keep(self, at: int, step: Step, node: Node) -> list[Node] | None:
        """The reads of what new state takes the place of; None if it does not."""
        variable = self.assigned.get(node)
        if variable is None or node in self.outputs:
            return None
        reads = self.reads.get(variable, [])
        if any(r in _operands(step) for r in reads):
            return None
        if not in_time(self.order, at, reads):
            return None
        self.aliasing.state[variable] = node
        return reads

    def _state(
        self, at: int, step: Step, names: Any, node: Node, kernel: Any
    ) -> Node | None:
        """Put new state over the old, if it may; the old, if the kernel reads it."""
        mine = [r for r in self.keep(at, step, node) or () if r in names]
        if not mine:
            return None
        if len(mine) == 1 and self._may_share(kernel, names, mine[0], node):
            return mine[0]
        del self.aliasing.state[self.assigned[node]]
        return None

    def _choose(
        self, at: int, step: Step, names: Any, node: Node, kernel: Any
    ) -> Node | None:
        """A value whose place a result takes."""
        made = made_in(step)
        for given in names:
            if not may_share_nodes(given, node) or not self._free(at, given, step):
                continue
            if given not in made and node in self.outputs:
                continue
            if given in made and given in self.aliasing.over:
                continue  # it lies where another one was, and cannot lie here too
            if self._may_share(kernel, names, given, node):
                if given in made:
                    self.aliasing.joint[given] = node
                elif node in self.aliasing.inside:
                    continue
                else:
                    self.aliasing.over[node] = given
                return given
        return None

    def _may_share(self, kernel: Any, names: Any, given: Node, made: Node) -> bool:
        """Whether a kernel's loops allow it; found out once for equal kernels."""
        if given in self.moved:
            return False  # it sees a part of it
        key = id(kernel.body), names[given].name, names[made].name
        if key not in self.known:
            uses = self.uses.get(key[0])
            if uses is None:
                uses = self.uses[key[0]] = Uses(kernel)
            self.known[key] = uses.may_share(*key[1:])
        return self.known[key]

    def _free(self, at: int, given: Node, step: Step) -> bool:
        """Whether a step is the last to need a value that a launch made."""
        if given.op in (INPUT, READ, CONSTANT) or given not in self.launched:
            return False
        if given in self.order.kept or given in _operands(step):
            return False
        if given in self.aliasing.inside or given in self.wholes:
            return False
        return self.order.ends_with(given, at)


def may_share_nodes(given: Node, node: Node) -> bool:
    """Whether two values could lie in one place, by their types."""
    return given is not node and given.dtype.itemsize == node.dtype.itemsize


def _operands(step: Step) -> list[Node]:
    """What a routine reads in any order."""
    return [o.base for o in step.operands] if isinstance(step, LibraryCall) else []
