"""The memory and the tables of a native graph for one set of sizes.

A run fills a table of addresses and lets one native loop go through the launches.
"""

from __future__ import annotations

import bisect
import itertools
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.compile.driver import FIELDS, driver
from weft.compile.followers import FIRST, WIDTH, Follower
from weft.compile.fuse import Operand, inlined
from weft.compile.jobs import Jobs, Routine
from weft.compile.joined import Piece
from weft.compile.launches import Launch, Order, Use
from weft.compile.places import kept_in_place, reads_of
from weft.core.size import evaluate
from weft.graph.interpret import Program, failed, resolve
from weft.graph.ir import CONSTANT, PICK, READ, GraphError, Node, Variable
from weft.ops.control.bodies import natively
from weft.runtime import arena
from weft.runtime.address import address
from weft.runtime.buffers import empty

if TYPE_CHECKING:
    from weft.compile.native import Native

ndarray = np.ndarray
GRAIN = 1 << 15  # operations that are worth handing to another thread


class Instance:
    """A native graph's steps with memory for one set of sizes."""

    def __init__(self, native: Native, sizes: Mapping[str, int]) -> None:
        self.native = native
        self.sizes = dict(sizes)
        self.lock = threading.Lock()  # memory is for one run at a time
        self.steps = self._regular()
        self.order = Order(self.steps, native.graph)
        self.launches = [s for s in self.steps if isinstance(s, Launch)]
        self.state = kept_in_place(native.places, native.graph, self.order)
        self.known: dict[Node, Any] = {}  # what is there before the first step
        self.rooms: dict[Variable, ndarray] = {}  # what was given last to be written
        self.bound: list[Any] = []  # the variables of the last run
        readers = reads_of(native.graph)
        self.readers = [readers[v] for v in native.reads]
        self.contexts: list[ndarray] = []  # of followers
        read = set(native.reads)
        self.unread = [  # state that is only written, into memory that a run is given
            (variable, node, resolve(node.shape, self.sizes))
            for variable, node in self.state.items()
            if variable not in read
        ]
        self._name_slots()
        self.arrays = self._allocate()
        self._describe()
        self._plan()

    # -- steps

    def _regular(self) -> list[Any]:
        """The steps, with calls for what native code does not do for these sizes."""
        steps: list[Any] = []
        for step in self.native.steps:
            steps += self._parts(step)
        routines = [s for s in steps if isinstance(s, Routine)]
        self.jobs = Jobs(routines, self.sizes, self.native.target)
        found: list[Any] = []
        for step in steps:
            if not isinstance(step, Routine) or step in self.jobs.works:
                found.append(step)
            else:
                found += [step.node, *step.picks]
                found += [step.follower] if step.follower else []
        return found

    def _parts(self, step: Any) -> list[Any]:
        if isinstance(step, Use):
            return [step] if self._runs(step) else step.group.nodes
        if not isinstance(step, Routine) or step.follower is None:
            return [step]
        together = self._runs(step.follower) and step.fits(
            self.sizes, self.native.target
        )
        return [step] if together else [step.alone, *self._parts(step.follower)]

    def _runs(self, use: Use) -> bool:
        """Whether sizes that must not be 0 for a kernel's loads are not."""
        return all(evaluate(n, self.sizes) > 0 for n in use.kernel.positive)

    # -- memory

    def _name_slots(self) -> None:
        """A number for each place that launches know the address of."""
        places, ends = self.native.places, set(self.native.graph.outputs)
        together = [set(step.made) for step in self.launches]
        joint = {
            node: places.joint[node]
            for made in together
            for node in made
            if places.joint.get(node) in made
        }
        new = {node: variable for variable, node in self.state.items()}
        self.slot_of: dict[Any, int] = {}  # of nodes and variables
        self.places: dict[Node, int] = {}
        for node in (n for step in self.launches for n in step.owners):
            at = node
            while at in joint:
                at = joint[at]
            key: Any = at.params["variable"] if at.op is READ else new.get(at, at)
            self.places[node] = self.slot_of.setdefault(key, len(self.slot_of))
        self.addresses = np.zeros(len(self.slot_of), np.int64)
        self.own = {  # values that lie in the arena
            n: at
            for n, at in self.places.items()
            if n not in ends and n not in joint and n not in new
        }
        self.joint = joint

    def _allocate(self) -> dict[Node, ndarray]:
        """One arena for all that launches make, by when it is needed."""
        order, over = self.order, self.native.places.over
        buffers: dict[Node, arena.Buffer] = {}
        shapes: dict[Node, Any] = {}
        spans = self._spans()
        self.fresh: dict[Node, Any] = {}  # outputs: memory of their own in each run
        for at, step in enumerate(self.steps):
            wave = order.waves[at]
            for node in step.made if isinstance(step, Launch) else ():
                shape = resolve(node.shape, self.sizes)
                if node in buffers or node in self.inside:
                    continue  # it has its place
                if node in self.own:
                    given = over.get(node)
                    old = buffers.get(given) if given is not None else None
                    size = math.prod(shape) * node.dtype.itemsize
                    takes = old and old.first < wave and old.nbytes == size
                    if not takes or not order.ends_with(given, at):  # type: ignore[arg-type]
                        given = None
                    first, last = spans.get(node, (wave, order.last(node, wave)))
                    buffers[node] = arena.Buffer(node, size, first, last, shares=given)
                    shapes[node] = shape
                elif node not in self.joint and node not in self.state.values():
                    self.fresh[node] = shape
        self.layout = arena.plan(list(buffers.values()))
        self.arena = arena.Arena(self.layout.nbytes)
        arrays = {
            node: self.arena.view(self.layout.offsets[node], shape, node.dtype.np)
            for node, shape in shapes.items()
        }
        for node, piece in self.inside.items():
            start = evaluate(piece.start, self.sizes) * node.dtype.itemsize
            shape = resolve(node.shape, self.sizes)
            at = self.layout.offsets[piece.whole] + start
            arrays[node] = self.arena.view(at, shape, node.dtype.np)
        for node in self.places:
            if node.op is CONSTANT:
                arrays[node] = _in_order(node.params["value"])
        for node, array in arrays.items():
            self.addresses[self.places[node]] = address(array)
        return arrays

    def _spans(self) -> dict[Node, tuple[int, int]]:
        """From when to when memory is needed that pieces are computed in."""
        found: dict[Node, list[int]] = {}
        made = {n for step in self.launches for n in step.made} & self.own.keys()
        self.inside = {
            node: piece
            for node, piece in self.native.places.inside.items()
            if node in made and piece.whole in made
        }
        for at, step in enumerate(self.steps):
            wave = self.order.waves[at]
            for node in step.made if isinstance(step, Launch) else ():
                if node in self.inside:
                    whole = self.inside[node].whole
                    ends = self.order.last(node, wave), self.order.last(whole, wave)
                    found.setdefault(whole, []).extend((wave, *ends))
        return {whole: (min(waves), max(waves)) for whole, waves in found.items()}

    # -- tables

    def _describe(self) -> None:
        """What the native loop reads of each launch: see ``driver``."""
        self.uses: list[Use] = []
        for step in self.launches:
            use = step.follower if isinstance(step, Routine) else step
            self.uses += [use] if use is not None else []
        nodes = [node for use in self.uses for node in use.owners]
        self.where = np.array([self.places[n] for n in nodes], np.int64)
        gaps = [gap for u in self.uses for gap in u.gaps or [0] * len(u.owners)]
        self.gaps = np.array(gaps, np.int64) if any(gaps) else None
        self.table = np.zeros(len(nodes), np.int64)
        self.jobs.link(self.places)
        self._give_sizes()
        rows = [
            self._row(step) if isinstance(step, Use) else self._job_row(step)
            for step in self.launches
        ]
        self.rows = np.array(rows, np.int64).reshape(-1, FIELDS)

    def _give_sizes(self) -> None:
        """The sizes that kernels need, and their errors' flags, in one array."""
        numbers: list[int] = []
        flags: list[int] = []
        starts: dict[Use, tuple[int, int]] = {}  # of each one's addresses and sizes
        at = 0
        names = {use.name: use.kernel for use in self.uses}  # equal ones have one name
        self.needed = {name: kernel.sizes for name, kernel in names.items()}
        for use in self.uses:
            starts[use] = at, len(numbers)
            known = self._known(use)
            numbers += [known[name] for name in self.needed[use.name]]
            if use.checks:
                flags.append(len(numbers))
                numbers.append(0)
            at += len(use.owners)
        self.numbers = np.array([*numbers, 0], np.int64)
        self.flags = np.array(flags, np.int64)
        table, sizes = address(self.table), address(self.numbers)
        self.found = {u: (table + 8 * a, sizes + 8 * s) for u, (a, s) in starts.items()}

    def _known(self, use: Use) -> dict[str, int]:
        given = {k: evaluate(n, self.sizes) for k, n in use.kernel.given}
        return {**self.sizes, **given}

    def _row(self, use: Use) -> list[int]:
        known = self._known(use)
        count = math.prod(evaluate(n, known) for _, n in use.kernel.parallel)
        if isinstance(use, Piece) and self.inside.get(use.piece) is use:
            count = 0  # it is there
        work = sum(self._count(n) for n in use.works)
        share = max(work // max(count, 1), 1) * max(len(use.group.nodes), 1)
        function, body = self._function(use), driver().iterations
        grain = max(GRAIN // share, 1)
        return [0, function, *self.found[use], count, grain, body, 0, 0]

    def _job_row(self, routine: Routine) -> list[int]:
        if routine.follower is not None:
            self._lead_on(routine, routine.follower)
        return [*self.jobs.row(routine, driver().jobs), 0]

    def _lead_on(self, routine: Routine, use: Follower) -> None:
        """Tell a routine's jobs what follows."""
        names = self.needed[use.name]
        first, width = (names.index(n) if n in names else -1 for n in (FIRST, WIDTH))
        each = evaluate(use.each, self.sizes)
        fields = self._function(use), *self.found[use], len(names)
        context = np.array([*fields, first, width, each], np.int64)
        self.contexts.append(context)
        self.jobs.lead_to(routine, address(context))

    def _function(self, use: Use) -> int:
        """The address of a use's code, for those values that do share a place here.

        A product may be a call for these sizes, or apart from what follows it.
        """
        names = [buffer.name for buffer in use.kernel.buffers]
        slots = {n: self.places[o] for n, o in zip(names, use.owners, strict=True)}
        return self.native.function(
            use.kernel,
            tuple(p for p in use.kernel.shared if self._is_one(*map(slots.get, p))),
        )

    def _is_one(self, a: Any, b: Any) -> bool:
        """Whether two slots are the same memory, in every run."""
        return a == b or 0 != self.addresses[a] == self.addresses[b]

    def _count(self, node: Node) -> int:
        return math.prod(resolve(node.shape, self.sizes))

    def _plan(self) -> None:
        """Waves of launches, run natively without a stop, and calls between them."""
        self.plan: list[Any] = []
        gangs: list[list[int]] = []
        k, at = 0, 0
        self.stop = -1  # the place in the plan before which errors are looked for
        while at < len(self.steps):
            if self.stop < 0 and at >= self.order.safe:
                self.stop = len(self.plan)
                fresh = True
            else:
                fresh = not self.plan or not isinstance(self.plan[-1], tuple)
            if not isinstance(self.steps[at], Launch):
                self.plan.append(self.steps[at])
                at += 1
                continue
            wave, first = self.order.waves[at], k
            while at < len(self.steps) and self.order.waves[at] == wave:
                at, k = at + 1, k + 1
            gangs.append(self._gang(first, k))
            if fresh:
                self.plan.append((len(gangs) - 1, len(gangs)))
            else:
                self.plan[-1] = (self.plan[-1][0], len(gangs))
        if self.stop < 0:
            self.stop = len(self.plan)
        self.gangs = np.array(gangs, np.int64).reshape(-1, FIELDS)
        self.rows_at = address(self.gangs)

    def _gang(self, first: int, last: int) -> list[int]:
        """The row of a wave's launches together."""
        rows = self.rows[first:last]
        if len(rows) == 1:
            return rows[0].tolist()
        grains = -(-rows[:, 4] // rows[:, 5])
        rows[:, 8] = np.cumsum(grains) - grains
        total = int(grains.sum())
        tiny = (rows[:, 6] == driver().iterations) & (rows[:, 4] <= rows[:, 5])
        work = sum(
            1.0 if not small else float(row[4]) / float(row[5])
            for row, small in zip(rows, tiny, strict=True)
        )
        grain = 1 if work >= 2 else total
        return [0, 0, address(rows), len(rows), total, grain, driver().gang, 0, 0]

    # -- running

    def run(
        self,
        feeds: Sequence[ndarray],
        held: Sequence[ndarray],
        room: Mapping[Variable, ndarray | None] | None = None,
        write: Callable[[dict[Variable, ndarray]], None] | None = None,
    ) -> Any:
        """Outputs, and new values of variables that were not written in place.

        These are given to ``write``, if that is there. Once state is being written,
        an interrupt waits until all of it is.
        """
        with self.lock:
            env = self._given(feeds, held, room or {})
            late = self._go(feeds, held, env)
            outputs, changed = self._outputs(env), self._changed(env)
            if write is not None:
                write(changed)
        if late is not None:
            raise late
        return outputs, changed

    def _go(self, feeds: Any, held: Any, env: dict[Node, Any]) -> Any:
        """Run all steps; an interrupt that came when state was being written."""
        native, rows, late, fresh = driver().run, self.rows_at, None, True
        for at, step in enumerate(self.plan):
            if at == self.stop:
                self._check(feeds, held)
            if isinstance(step, tuple):
                if fresh:
                    self._fill()
                    fresh = False
                try:
                    native(rows, *step)
                except KeyboardInterrupt as interrupt:  # it came before: all was run
                    if at < self.stop or not self.state:
                        raise
                    late = interrupt
            else:
                try:
                    self._call(step, env)
                except Exception:
                    self._check(feeds, held)  # the error that came first
                    raise
                fresh = True
        if self.stop == len(self.plan):
            self._check(feeds, held)
        return late

    def _outputs(self, env: dict[Node, Any]) -> list[ndarray]:
        """The outputs, each in memory that no other value and no later run uses."""
        found, given = [], set()
        for node in self.native.graph.outputs:
            array = self._value(node, env)
            own = node in self.fresh and node not in given
            found.append(array if own else array.copy())
            given.add(node)
        return found

    def _changed(self, env: dict[Node, Any]) -> dict[Variable, ndarray]:
        """The new values of variables that have them elsewhere than in their place."""
        changes = {variable for variable, _ in self.given_back}
        found = {}
        for variable, node in self.given_back:
            value = env[node] if node in env else self._value(node, env)
            base = Operand(node).base
            if base.op is READ and base.params["variable"] in changes - {variable}:
                value = value.copy()  # it is another variable's, which changes too
            found[variable] = value
        return found

    def _check(self, feeds: Sequence[ndarray], held: Sequence[ndarray]) -> None:
        """Raise the error of an index that a kernel found to be out of range.

        Nothing was written back by then. The graph is run again by the interpreter,
        which knows the value, the axis and the line.
        """
        if not self.flags.size or not self.numbers[self.flags].any():
            return
        self.numbers[self.flags] = 0
        graph = self.native.graph
        store = dict(zip(self.native.reads, held, strict=True))
        Program(graph, graph.outputs).run(feeds, store)
        raise GraphError("a kernel reports an index that the interpreter accepts")

    def timed(self, feeds: Sequence[ndarray], held: Sequence[ndarray]) -> list[float]:
        """A run one step at a time: the seconds that each of the steps took."""
        env = self._given(feeds, held, {})
        run, rows = driver().run, address(self.rows)
        found, k = [], 0
        for step in self.steps:
            self._fill()
            start = time.perf_counter()
            if isinstance(step, Launch):
                run(rows, k, k + 1)
                k += 1
            else:
                self._call(step, env)
            found.append(time.perf_counter() - start)
        return found

    def _fill(self) -> None:
        """Put the values' present addresses where launches find them."""
        np.take(self.addresses, self.where, out=self.table)
        if self.gaps is not None:
            self.table += self.gaps
        self.jobs.fill(self.addresses)

    # -- what is there before the first step

    def _given(
        self,
        feeds: Sequence[ndarray],
        held: Sequence[ndarray],
        room: Mapping[Variable, ndarray | None],
    ) -> dict[Node, Any]:
        """All values that no step makes, and places for outputs."""
        if len(held) != len(self.bound) or not self.known:
            self._bind(held)
        for k, (array, before) in enumerate(zip(held, self.bound, strict=True)):
            if array is not before and not self._rebind(k, array):
                self._bind(held)
                break
        env = self.known.copy()
        for node, shape in self.fresh.items():
            self._give(env, node, empty(shape, node.dtype.np))
        for variable, node, shape in self.unread:
            given = room.get(variable)
            if given is None:
                given = np.empty(shape, node.dtype.np)
            if given is not self.rooms.get(variable):
                self.addresses[self.places[node]] = address(given)
                self.rooms[variable] = given
            env[node] = given
        for node, array in zip(self.native.graph.inputs, feeds, strict=True):
            if array is not None:
                self._give(env, node, self._apart(array) if self.starts else array)
        return env

    def _bind(self, held: Sequence[ndarray]) -> None:
        """Take variables' arrays, for this run and for those that give the same."""
        arrays = dict(zip(self.native.reads, held, strict=True))
        for k, array in enumerate(held):
            self._fits(k, array)
        spans = sorted(_span(a) for a in held)
        apart = all(x[1] <= y[0] for x, y in itertools.pairwise(spans))
        moved: set[Variable] = set()  # state that is computed elsewhere
        for variable, array in arrays.items():
            flags = array.flags
            whole = flags.c_contiguous and (flags.writeable or not self.state)
            if not whole or not (apart or not self.state):
                arrays[variable] = array.copy(order="C")
                moved.add(variable)
        self.spans = sorted(_span(arrays[v]) for v in self.state if v in arrays)
        self.starts = [start for start, _ in self.spans]
        self.known = dict(self.arrays)
        for variable, nodes in zip(self.native.reads, self.readers, strict=True):
            self._take(variable, nodes, arrays[variable])
        for variable, node in self.state.items():
            if variable in arrays:
                self.known[node] = arrays[variable]
        written = {v for v in self.state if v in arrays and v not in moved}
        self.given_back = [
            (n.params["variable"], n.inputs[0])
            for n in self.native.writes
            if n.params["variable"] not in written
        ]
        self.bound = [None] * len(held) if moved else list(held)

    def _fits(self, k: int, array: ndarray) -> None:
        """Check that a variable's array is what the code was made for."""
        want = self.native.reads[k].type
        if (
            array.shape != resolve(want.shape, self.sizes)
            or array.dtype != want.dtype.np
        ):
            raise GraphError(
                f"{self.native.reads[k].name}: expected {want}, got {array.dtype} of "
                f"shape {array.shape}"
            )

    def _take(self, variable: Variable, nodes: list[Node], array: ndarray) -> None:
        """An array for a variable, and for the nodes that read it."""
        slot = self.slot_of.get(variable)
        if slot is not None:
            self.addresses[slot] = address(array)
        for node in nodes:
            self.known[node] = array

    def _rebind(self, k: int, array: ndarray) -> bool:
        """Take another array for one variable, if that is all there is to do."""
        self._fits(k, array)
        variable = self.native.reads[k]
        if variable in self.state or not array.flags.c_contiguous:
            return False
        self._take(variable, self.readers[k], array)
        self.bound[k] = array
        return self._apart(array) is array

    def _apart(self, array: ndarray) -> ndarray:
        """An array that no state is in, which would change in the run."""
        first, last = _span(array)
        at = bisect.bisect_left(self.starts, last) - 1
        return array.copy() if at >= 0 and self.spans[at][1] > first else array

    def _give(self, env: dict[Node, Any], node: Node, array: Any) -> None:
        """A value that launches find at its address."""
        slot = self.places.get(node)
        if slot is not None:
            array = _in_order(array)
            self.addresses[slot] = address(array)
        env[node] = array

    def _call(self, node: Node, env: dict[Node, Any]) -> None:
        args = [self._value(i, env) for i in node.inputs]
        if node.op is PICK:
            self._give(env, node, args[0][node.params["index"]])
            return
        params = resolve(node.params, self.sizes)
        try:
            with np.errstate(all="ignore"), natively():
                found = node.op.kernel(*args, **params)
        except Exception as error:
            raise failed(node, args, params, error) from None
        if type(found) is tuple:
            env[node] = tuple(_own(np.asarray(f), args) for f in found)
        else:
            self._give(env, node, _own(np.asarray(found), args))

    def _value(self, value: Any, env: dict[Node, Any]) -> Any:
        """A node's array, through the views it may be."""
        if type(value) is not Node:
            return evaluate(value, self.sizes)
        found = env.get(value)
        if found is None:
            if value.op is CONSTANT:
                return value.params["value"]
            operand = Operand(value)
            if inlined(value):
                args = [self._value(i, env) for i in value.inputs]
                params = resolve(value.params, self.sizes)
                return np.asarray(value.op.kernel(*args, **params))
            found = self._value(operand.base, env)
            for view in reversed(operand.views):
                found = view.op.kernel(found, **resolve(view.params, self.sizes))
        return found


def _own(found: ndarray, args: list[Any]) -> ndarray:
    """A result apart from its arguments, whose memory may be used again before it."""
    shared = (isinstance(a, ndarray) and np.may_share_memory(found, a) for a in args)
    return found.copy() if any(shared) else found


def _in_order(array: ndarray) -> ndarray:
    """The array itself if it is row-major, else a copy that is (0-d stays 0-d)."""
    return array if array.flags.c_contiguous else array.copy(order="C")


def _span(array: ndarray) -> tuple[int, int]:
    """The addresses between which an array lies."""
    if array.flags.c_contiguous:
        start = address(array)
        return start, start + array.nbytes
    return np.lib.array_utils.byte_bounds(array)
