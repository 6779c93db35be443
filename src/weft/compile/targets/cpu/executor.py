"""Executors: an executable's memory, and its runs.

A run fills a table of addresses and lets one native loop go through the launches.
"""

from __future__ import annotations

import bisect
import itertools
import math
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.compile.targets.cpu.driver import FIELDS, driver
from weft.compile.targets.cpu.executable import (
    FILL,
    GANG,
    ITERATIONS,
    JOBS,
    NOWHERE,
    Called,
    Executable,
    Jobs,
    value_of,
)
from weft.compile.targets.cpu.packed_weights import Stamps, Weights
from weft.graph.control.bodies import natively
from weft.graph.interpret import failed
from weft.graph.ir import PICK, GraphError
from weft.runtime.cpu import arena, pool
from weft.runtime.cpu.address import address, aligned_memory
from weft.runtime.cpu.buffers import empties, empty

ndarray = np.ndarray


class Workspaces:
    """Memory that each thread of the pool has for itself, and the jobs that use it."""

    def __init__(self, jobs: Jobs, contexts: ndarray, data: ndarray) -> None:
        self.words = jobs.words.copy()
        self.places = jobs.pointers.copy()  # addresses, slots, bytes behind them
        self.places[:, 0] = address(self.words) + 8 * self.places[:, 0]
        self.at, self.each = jobs.workspaces, jobs.each
        if len(jobs.contexts):
            words, numbers = jobs.contexts.T
            self.words[words] = address(contexts) + 8 * contexts.shape[1] * numbers
            self.words[words - 1] = driver().epilogue
        if len(jobs.tables):
            words, offsets = jobs.tables.T
            self.words[words] = address(data) + offsets
        self.data = data
        self._allocate()

    def _allocate(self) -> None:
        self.threads = pool.get_num_threads()
        self.memory, start = aligned_memory(self.threads * self.each)
        self.words[self.at] = start
        self.words[self.at + 1] = self.each

    def check(self) -> None:
        """Allocate workspaces anew, if the number of threads has changed."""
        if pool.get_num_threads() != self.threads:
            self._allocate()


class Executor:
    """An executable with memory, ready to run.

    ``functions`` are the addresses of its functions; ``replay`` runs the program again,
    slowly, and raises the error that a kernel has found (or tells that it is none).
    """

    def __init__(
        self,
        executable: Executable,
        functions: Sequence[int],
        replay: Callable[[Sequence[Any], Sequence[Any]], Any],
    ) -> None:
        self.executable = executable
        self.replay = replay
        self.libraries: Any = None  # code that must live as long
        self.lock = threading.Lock()  # memory is for one run at a time
        self.runs = 0  # of which each finds its addresses
        self.arena = arena.Arena(executable.nbytes)
        self.addresses = np.zeros(executable.slots, np.int64)
        slots, offsets = executable.offsets.T
        self.addresses[slots] = self.arena.address + offsets
        self._link(np.array(functions, np.int64))
        self.weights = Weights(executable.jobs, functions)
        self.known: list[Any] = []  # what is there before the first step
        self.bound: list[Any] = []  # the variables of the last run
        held, written = executable.held, executable.state_buffers
        first = len(executable.inputs), len(held), len(written)
        self.first = tuple(itertools.accumulate(first))  # values of each kind
        self.has_state = bool(written) or any(one.state for one in held)
        self.state_buffers = [(r.slot, r.shape, r.dtype.np, r.name) for r in written]
        self.fresh = [(r.slot, r.shape, r.dtype.np) for r in executable.fresh]
        # Weak references to the state buffers of the last run.
        self.given: list[Any] = [_nothing] * len(written)
        self.elsewhere: list[tuple[str, int]] = []  # that were allocated here

    @property
    def results_bytes(self) -> int:
        """The bytes of the outputs that each run allocates."""
        return sum(math.prod(shape) * kind.itemsize for _, shape, kind in self.fresh)

    def _link(self, functions: ndarray) -> None:
        """Put addresses where the executable has numbers."""
        executable = self.executable
        self.table = np.zeros(len(executable.buffer_slots), np.int64)
        self.numbers, self.flags = executable.numbers.copy(), executable.flags.tolist()
        self.words = self.numbers.data  # read one by one
        table, numbers = address(self.table), address(self.numbers)
        self.contexts = executable.contexts.copy()
        if len(self.contexts):
            self.contexts[:, 0] = functions[self.contexts[:, 0]]
            self.contexts[:, 1] = table + 8 * self.contexts[:, 1]
            self.contexts[:, 2] = numbers + 8 * self.contexts[:, 2]
        self.jobs = Workspaces(executable.jobs, self.contexts, executable.data.copy())
        places = table + 8 * np.arange(len(executable.buffer_slots))
        mine = np.column_stack(
            [places, executable.buffer_slots, executable.buffer_offsets]
        )
        self.filled = np.concatenate([mine, self.jobs.places])
        self.rows, self.gangs = executable.rows.copy(), executable.gangs.copy()
        kinds = driver()
        self.native = kinds.run
        bodies = [kinds.iterations, kinds.jobs, kinds.gang, kinds.fill]
        starts = {
            ITERATIONS: (table, 8), JOBS: (address(self.jobs.words), 8),
            GANG: (address(self.rows), 8 * FIELDS), FILL: (address(self.filled), 0),
        }  # fmt: skip
        for rows in (self.rows, self.gangs):
            kind = rows[:, 6].copy()
            launch = (kind == ITERATIONS) | (kind == JOBS)
            if len(functions):
                rows[launch, 1] = functions[rows[launch, 1]]
            rows[kind == FILL, 1] = address(self.addresses)
            for one, (start, width) in starts.items():
                rows[kind == one, 2] = start + width * rows[kind == one, 2]
            mine = kind == ITERATIONS
            rows[mine, 3] = numbers + 8 * rows[mine, 3]
            rows[:, 6] = np.array(bodies, np.int64)[kind]
        self.gangs_at = address(self.gangs)

    def run(
        self,
        feeds: Sequence[ndarray],
        held: Sequence[ndarray],
        state_buffers: Sequence[ndarray | None] = (),
        write: Callable[[dict[str, ndarray]], None] | None = None,
        stamps: Stamps | None = None,
    ) -> Any:
        """Outputs, and new values of variables that were not written in place.

        These are given to ``write``, if that is there. Once state is being written,
        an interrupt waits until all of it is. ``stamps`` gives the stamp of a variable
        by its index: see ``packed_weights``.
        """
        with self.lock:
            self.runs += 1
            values = self._given(feeds, held, state_buffers)
            if self.weights.all:
                words, addresses = self.jobs.words, self.addresses
                self.weights.renew(stamps or _no_stamp, words, addresses)
            late = self._go(feeds, held, values)
            outputs, changed = self._outputs(values), self._changed(values)
            if write is not None:
                write(changed)
        if late is not None:
            raise late
        return outputs, changed

    def _go(self, feeds: Any, held: Any, values: list[Any]) -> Any:
        """Run all steps; an interrupt that came when state was being written."""
        native, rows, late = self.native, self.gangs_at, None
        plan, stop = self.executable.plan, self.executable.stop
        self.jobs.check()
        for at, step in enumerate(plan):
            if at == stop:
                self._check(feeds, held)
            if type(step) is tuple:
                try:
                    native(rows, *step)
                except KeyboardInterrupt as interrupt:  # it came before: all was run
                    if at < stop or not self.has_state:
                        raise
                    late = interrupt
            else:
                try:
                    self._call(step, values)
                except Exception:
                    self._check(feeds, held)  # the error that came first
                    raise
        if stop == len(plan):
            self._check(feeds, held)
        return late

    def go(self, args: Sequence[Any]) -> Any:
        """Run all steps with the addresses that are there, for these tensors."""
        return self._go([x._data for x in args], self.bound, [])

    def _outputs(self, values: list[Any]) -> list[ndarray]:
        """The outputs, each in memory that no other value and no later run uses."""
        outputs = []
        for ref, copied in self.executable.outputs:
            array = value_of(ref, values)
            outputs.append(array.copy() if copied else array)
        return outputs

    def _changed(self, values: list[Any]) -> dict[str, ndarray]:
        """The new values of variables that were not written in place."""
        changed = {}
        for name, ref, shared in self.given_back:
            value = value_of(ref, values)  # an argument's, a constant: not to be kept
            changed[name] = value.copy() if shared else value[...]
        for name, number in self.elsewhere:
            changed[name] = values[number]
        return changed

    def _give_back(self, written: set[str]) -> list[tuple[str, Any, bool]]:
        """The variables that get their new values later, and whether these are copied:
        those that are another variable's, which changes too."""
        done = written | {one.name for one in self.executable.state_buffers}
        later = [w for w in self.executable.writes if w.name not in done]
        changes = {w.name for w in later}
        return [(w.name, w.ref, w.source in changes - {w.name}) for w in later]

    def _check(self, feeds: Sequence[ndarray], held: Sequence[ndarray]) -> None:
        """Raise the error of an index that a kernel found to be out of range.

        Nothing was written back by then. The graph is run again by the interpreter,
        which knows the value, the axis and the line.
        """
        if not any(map(self.words.__getitem__, self.flags)):
            return
        self.numbers[self.flags] = 0
        if self.replay(feeds, held):
            return
        raise GraphError("a kernel reports an index that the interpreter accepts")

    def timed(
        self, steps: Sequence[Any], feeds: Sequence[ndarray], held: Sequence[ndarray]
    ) -> list[float]:
        """A run one step at a time: the seconds that each of the steps took.

        Of steps, those that are not ``Called`` are launches.
        """
        values = self._given(feeds, held, ())
        run, rows = driver().run, address(self.rows)
        seconds, k = [], 0
        fill = self.gangs[self.gangs[:, 6] == driver().fill][:1].copy()
        for step in steps:
            run(address(fill), 0, len(fill))
            start = time.perf_counter()
            if isinstance(step, Called):
                self._call(step, values)
            else:
                run(rows, k, k + 1)
                k += 1
            seconds.append(time.perf_counter() - start)
        return seconds

    # -- what is there before the first step

    def _given(
        self,
        feeds: Sequence[ndarray],
        held: Sequence[ndarray],
        state_buffers: Sequence[ndarray | None],
    ) -> list[Any]:
        """All values that no step computes, and memory for outputs."""
        if len(held) != len(self.bound) or not self.known:
            self._bind(held)
        for k, (array, before) in enumerate(zip(held, self.bound, strict=True)):
            if array is not before and not self._rebind(k, array):
                self._bind(held)
                break
        values, addresses = self.known.copy(), self.addresses
        _, first, number = self.first
        for slot, shape, kind in self.fresh:
            values[number] = output = empty(shape, kind)
            addresses[slot] = address(output)
            number += 1
        if self.state_buffers:
            self._bind_state_buffers(
                values, state_buffers or [None] * len(self.state_buffers), first
            )
        pairs = zip(self.executable.inputs, feeds, strict=True)
        for number, (slot, array) in enumerate(pairs):
            if array is not None:
                if self.starts:
                    array = self._apart(array)
                if slot != NOWHERE:
                    array = in_order(array)
                    addresses[slot] = address(array)
                values[number] = array
        return values

    def _bind_state_buffers(
        self, values: list[Any], state_buffers: Sequence[ndarray | None], first: int
    ) -> None:
        """Bind memory for state that is only written: the caller's, or new memory."""
        self.elsewhere = []
        lacking = [
            r[1:3]
            for a, r in zip(state_buffers, self.state_buffers, strict=True)
            if a is None
        ]
        fresh = iter(empties(lacking)) if lacking else iter(())
        for k, (array, (slot, _, _, name)) in enumerate(
            zip(state_buffers, self.state_buffers, strict=True)
        ):
            if array is None:
                array = next(fresh)
                self.elsewhere.append((name, first + k))
            if self.given[k]() is not array:
                self.addresses[slot] = address(array)
                self.given[k] = weakref.ref(array)
            values[first + k] = array

    def _bind(self, held: Sequence[ndarray]) -> None:
        """Take variables' arrays, for this run and for those that give the same."""
        for k, array in enumerate(held):
            self._fits(k, array)
        arrays, executable = list(held), self.executable
        spans = sorted(_span(a) for a in held)
        apart = all(x[1] <= y[0] for x, y in itertools.pairwise(spans))
        moved: set[str] = set()  # state that is computed elsewhere
        for k, array in enumerate(held):
            flags = array.flags
            whole = flags.c_contiguous and (flags.writeable or not self.has_state)
            if not whole or not (apart or not self.has_state):
                arrays[k] = array.copy(order="C")
                moved.add(executable.held[k].name)
        pairs = list(zip(executable.held, arrays, strict=True))
        self.spans = sorted(_span(array) for one, array in pairs if one.state)
        self.starts = [start for start, _ in self.spans]
        self.end = max((end for _, end in self.spans), default=0)
        self.known = self._constants()
        for k, array in enumerate(arrays):
            self._take(k, array)
        written = {one.name for one in executable.held if one.state} - moved
        self.given_back = self._give_back(written)
        self.bound = [None] * len(held) if moved else list(held)

    def _constants(self) -> list[Any]:
        """All values, of which those are there that are the same in every run."""
        known: list[Any] = [None] * self.executable.values
        for number, offset, shape, dtype in self.executable.kept:
            known[number] = self.arena.view(offset, shape, dtype.np)
        for slot, number, value in self.executable.constants:
            known[number] = value
            if slot != NOWHERE:
                known[number] = in_order(value)
                self.addresses[slot] = address(known[number])
        return known

    def _fits(self, k: int, array: ndarray) -> None:
        """Check that a variable's array has the shape and dtype of the code."""
        want = self.executable.held[k]
        if array.shape != want.shape or array.dtype != want.dtype.np:
            shape = ", ".join(map(str, want.shape))
            raise GraphError(
                f"{want.name}: expected {want.dtype.name}[{shape}], got {array.dtype} "
                f"of shape {array.shape}"
            )

    def _take(self, k: int, array: ndarray) -> None:
        """An array for a variable."""
        slot = self.executable.held[k].slot
        if slot != NOWHERE:
            self.addresses[slot] = address(array)
        self.known[self.first[0] + k] = array

    def _rebind(self, k: int, array: ndarray) -> bool:
        """Take another array for one variable, if that is all there is to do."""
        self._fits(k, array)
        if self.executable.held[k].state or not array.flags.c_contiguous:
            return False
        self._take(k, array)
        self.bound[k] = array
        return self._apart(array) is array

    def _apart(self, array: ndarray) -> ndarray:
        """An array that no state is in, which would change in the run."""
        first, last = _span(array)
        if first >= self.end:  # the usual case: what is given was made later
            return array
        at = bisect.bisect_left(self.starts, last) - 1
        return array.copy() if at >= 0 and self.spans[at][1] > first else array

    def _call(self, call: Called, values: list[Any]) -> None:
        node, params = call.node, call.params
        args = [value_of(ref, values) for ref in call.args]
        if node.op is PICK:
            result = args[0][node.params["index"]]
        else:
            try:
                with np.errstate(all="ignore"), natively():
                    result = node.op.kernel(*args, **params)
            except Exception as error:
                raise failed(node, args, params, error) from None
            if type(result) is tuple:
                values[call.value] = tuple(_own(np.asarray(f), args) for f in result)
                return
            result = _own(np.asarray(result), args)
        if call.slot != NOWHERE:
            result = in_order(result)
            self.addresses[call.slot] = address(result)
        values[call.value] = result


def in_order(array: ndarray) -> ndarray:
    """The array itself if it is row-major, else a copy that is (0-d stays 0-d)."""
    return array if array.flags.c_contiguous else array.copy(order="C")


def _no_stamp(place: int) -> None:
    """No stamp is known."""


def _nothing() -> None:
    """A reference to nothing."""


def _own(found: ndarray, args: list[Any]) -> ndarray:
    """A result that shares no memory with its arguments, which may be reused first."""
    shared = (isinstance(a, ndarray) and np.may_share_memory(found, a) for a in args)
    return found.copy() if any(shared) else found


def _span(array: ndarray) -> tuple[int, int]:
    """The first address of an array's memory, and the one behind it."""
    if array.flags.c_contiguous:
        start = address(array)
        return start, start + array.nbytes
    return np.lib.array_utils.byte_bounds(array)
