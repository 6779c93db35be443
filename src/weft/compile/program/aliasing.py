"""Aliasing: results over values that are read for the last time.

    y = x * 2          x is not needed any more: y is written to its buffer
    w' = w - lr * g    nothing reads w any more: its new value is written over it
    y = gelu(x @ w)    the epilogue overwrites the product tile by tile

Values share a buffer only where a kernel's loops allow it (``loop.alias``). New state
is written in place only by steps after which nothing can fail, so that a run which
fails leaves all state as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from weft.compile.loop.alias import Uses, without_copy
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

    over: dict[Node, Node]  # an operand that is read for the last time
    joint: dict[Node, Node]  # another result of the same step
    state: dict[Variable, Node]  # the new value that is written over each variable
    inside: dict[Node, Inside]  # the concatenation of which the value is a piece
    carried: dict[Node, Node] = {}  # the carry of a loop that the new one is written in


def alias(
    graph: Graph,
    steps: Sequence[Step],
    in_place: Collection[Variable],
    steady: frozenset[Node] = frozenset(),
    carries: Mapping[Node, Node] | None = None,
) -> tuple[Aliasing, list[Step]]:
    """Choose shared buffers; the kernels of the returned steps say which they share.

    New values of variables ``in_place`` may be written over the old ones. ``steady``
    values are read in later iterations of a loop too. ``carries`` are the carries of a
    loop, by their new values: one of which an iteration changes some elements alone is
    changed where it is.
    """
    order = Order(steps, graph, steady)
    writes = [n for n in graph.nodes if n.op is ASSIGN]
    aliasing = Aliasing({}, {}, {}, inside(steps, order.kept), {})
    sharing = _Sharing(graph, order, assigned_once(writes, in_place), aliasing)
    aliased: list[Step] = []
    for at, step in enumerate(steps):
        launch = launch_of(step)
        updated = carries and _updated(order, at, step, carries)
        if updated:
            new, old, launch = updated
            aliasing.carried[new] = old
        elif launch is not None and not isinstance(launch, Piece):
            launch = replace(launch, kernel=sharing.settle(at, step, launch))
        if isinstance(step, LibraryCall):
            aliased.append(replace(step, epilogue=launch))
            if step.node not in aliasing.joint:
                sharing.keep(at, step, step.node)
        else:
            aliased.append(launch or step)
    return aliasing, aliased


def _updated(
    order: Order, at: int, step: Step, carries: Mapping[Node, Node]
) -> tuple[Node, Node, KernelLaunch] | None:
    """A carry that a launch changes in places, the old one, and the shorter launch."""
    if not isinstance(step, KernelLaunch) or step.windowed:
        return None
    names = dict(zip(step.owners, step.kernel.buffers, strict=True))
    for new in step.made:
        old = carries.get(new)
        if old is None or old not in names or old in order.kept:
            continue
        pair = names[old].name, names[new].name
        body = without_copy(step.kernel, *pair)
        if body is not None and order.ends_with(old, at) and len(step.made) == 1:
            kernel = step.kernel._replace(body=body, shared=(pair,))
            return new, old, replace(step, kernel=kernel)
    return None


def assigned_once(
    writes: list[Node], allowed: Collection[Variable]
) -> dict[Node, Variable]:
    """The variable of each value that is assigned to it alone, and it to no other."""
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
    """The variables that may be written in place, and their new values."""
    steps = {n: at for at, s in enumerate(order.steps) for n in made_in(s)}
    reads = reads_of(graph)
    return {
        variable: node
        for variable, node in aliasing.state.items()
        if node in steps and in_time(order, steps[node], reads.get(variable, ()))
    }


def in_time(order: Order, at: int, reads: Iterable[Node]) -> bool:
    """Whether a step runs after all that can fail, and after all other readers.

    A read that is also an output, or the new value of another variable, is never done.
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
    """The values that a step computes in memory of the program; none for host calls."""
    return step.made if isinstance(step, Launch) else []


class _Sharing:
    """Chooses the shared buffers of one launch after another."""

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
        self.windowed: list[Node] = []  # of the present launch
        self.known: dict[tuple[int, str, str], bool] = {}
        self.uses: dict[int, Uses] = {}

    def settle(self, at: int, step: Step, launch: KernelLaunch) -> Kernel:
        """The launch's kernel, which says which of its buffers are the same."""
        names = dict(zip(launch.owners, launch.kernel.buffers, strict=True))
        kernel, pairs = launch.kernel, []
        self.windowed = launch.windowed
        for node in launch.owners:
            if node not in launch.group.home or node not in names:
                continue  # not made here, or another result has taken its buffer over
            taken = self._state(at, step, names, node, kernel)
            if taken is None and node not in self.aliasing.state.values():
                taken = self._choose(at, step, names, node, kernel)
            if taken is not None:
                pair = names.pop(taken).name, names[node].name
                pairs.append(pair)
                rest = without_copy(kernel, *pair)
                if rest is not None:  # what is not changed stays as it is
                    kernel = kernel._replace(body=rest)
        return kernel._replace(shared=tuple(pairs))

    def keep(self, at: int, step: Step, node: Node) -> list[Node] | None:
        """Write new state over the old if allowed: the reads of the old, else None."""
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
        """Write new state over the old if allowed: the old, if this kernel reads it."""
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
        """A value whose buffer a result takes over."""
        made = made_in(step)
        for other in names:
            if not may_share_nodes(other, node) or not self._free(at, other, step):
                continue
            if other not in made and node in self.outputs:
                continue
            if other in made and other in self.aliasing.over:
                continue  # it has taken over another buffer already
            if self._may_share(kernel, names, other, node):
                if other in made:
                    self.aliasing.joint[other] = node
                elif node in self.aliasing.inside:
                    continue
                else:
                    self.aliasing.over[node] = other
                return other
        return None

    def _may_share(self, kernel: Any, names: Any, old: Node, new: Node) -> bool:
        """Whether a kernel's loops allow it; analysed once for equal kernels."""
        if old in self.windowed:
            return False
        key = id(kernel.body), names[old].name, names[new].name
        if key not in self.known:
            uses = self.uses.get(key[0])
            if uses is None:
                uses = self.uses[key[0]] = Uses(kernel)
            may = uses.may_share(*key[1:]) or without_copy(kernel, *key[1:]) is not None
            self.known[key] = may
        return self.known[key]

    def _free(self, at: int, node: Node, step: Step) -> bool:
        """Whether a launch computed a value and this step is its last reader."""
        if node.op in (INPUT, READ, CONSTANT) or node not in self.launched:
            return False
        if node in self.order.kept or node in _operands(step):
            return False
        if node in self.aliasing.inside or node in self.wholes:
            return False
        return self.order.ends_with(node, at)


def may_share_nodes(old: Node, new: Node) -> bool:
    """Whether two values could share a buffer, by their types."""
    return old is not new and old.dtype.itemsize == new.dtype.itemsize


def _operands(step: Step) -> list[Node]:
    """The operands of a library call, which reads them in any order."""
    return [o.base for o in step.operands] if isinstance(step, LibraryCall) else []
