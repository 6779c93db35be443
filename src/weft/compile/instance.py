"""Runs of a native graph for one set of sizes.

A run fills a table of addresses and lets one native loop go through the launches.
"""

from __future__ import annotations

import bisect
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.compile.driver import driver
from weft.compile.fuse import Operand, inlined
from weft.compile.launches import Launch
from weft.compile.placed import in_order
from weft.compile.places import reads_of
from weft.compile.tables import Tables
from weft.core.size import evaluate
from weft.graph.interpret import Program, failed, resolve
from weft.graph.ir import CONSTANT, PICK, READ, GraphError, Node, Variable
from weft.ops.control.bodies import natively
from weft.runtime.address import address
from weft.runtime.buffers import empty

if TYPE_CHECKING:
    from weft.compile.native import Native

ndarray = np.ndarray


class Instance(Tables):
    """A native graph that runs, in memory for one set of sizes."""

    def __init__(self, native: Native, sizes: Mapping[str, int]) -> None:
        super().__init__(native, sizes)
        self.lock = threading.Lock()  # memory is for one run at a time
        self.known: dict[Node, Any] = {}  # what is there before the first step
        self.elsewhere: dict[Variable, Node] = {}
        # What was given last to be written. It is not held: who else does, is asked.
        self.bound: list[Any] = []  # the variables of the last run
        readers = reads_of(native.graph)
        self.readers = [readers[v] for v in native.reads]
        read = set(native.reads)
        self.unread = [  # state that is only written, into memory that a run is given
            (variable, node, resolve(node.shape, self.sizes))
            for variable, node in self.state.items()
            if variable not in read
        ]
        # What was given last to be written. It is not held: who else does, is asked.
        self.rooms: dict[Variable, Any] = {v: _nothing for v, _, _ in self.unread}

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
        found = {}
        for variable, node, shared in self.given_back:
            value = env[node] if node in env else self._value(node, env)
            found[variable] = value.copy() if shared else value
        for variable, node in self.elsewhere.items():
            found[variable] = env[node]
        return found

    def _give_back(self, written: set[Variable]) -> list[tuple[Variable, Node, bool]]:
        """The variables that get their new values later, and whether these are copied:
        those that are another variable's, which changes too."""
        unread = {variable for variable, _, _ in self.unread}
        writes = [(n.params["variable"], n.inputs[0]) for n in self.native.writes]
        later = [(v, n) for v, n in writes if v not in written and v not in unread]
        changes = {variable for variable, _ in later}
        bases = [(v, n, Operand(n).base) for v, n in later]
        return [
            (v, n, base.op is READ and base.params["variable"] in changes - {v})
            for v, n, base in bases
        ]

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
        self.elsewhere = {}  # state that is only written, and not into given memory
        for variable, node, shape in self.unread:
            given = room.get(variable)
            if given is None:
                given = np.empty(shape, node.dtype.np)
                self.elsewhere[variable] = node
            if self.rooms[variable]() is not given:
                self.addresses[self.places[node]] = address(given)
                self.rooms[variable] = weakref.ref(given)
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
        self.given_back = self._give_back(written)
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
            array = in_order(array)
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


def _nothing() -> None:
    """A reference to nothing."""


def _own(found: ndarray, args: list[Any]) -> ndarray:
    """A result apart from its arguments, whose memory may be used again before it."""
    shared = (isinstance(a, ndarray) and np.may_share_memory(found, a) for a in args)
    return found.copy() if any(shared) else found


def _span(array: ndarray) -> tuple[int, int]:
    """The addresses between which an array lies."""
    if array.flags.c_contiguous:
        start = address(array)
        return start, start + array.nbytes
    return np.lib.array_utils.byte_bounds(array)
