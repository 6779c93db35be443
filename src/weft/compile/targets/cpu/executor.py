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

from weft.compile.targets.cpu.driver import driver
from weft.compile.targets.cpu.executable import (
    NOWHERE,
    Called,
    Executable,
    Symbol,
    value_of,
)
from weft.compile.targets.cpu.interrupts import raise_pending
from weft.compile.targets.cpu.packed_weights import Stamps, Weights
from weft.compile.targets.cpu.tables import Tables, in_order
from weft.graph.control.bodies import natively
from weft.graph.interpret import failed
from weft.graph.ir import PICK, GraphError
from weft.runtime.cpu import arena
from weft.runtime.cpu.address import address
from weft.runtime.cpu.buffers import empties, empty

ndarray = np.ndarray


class Executor(Tables):
    """An executable with memory, ready to run.

    ``address_of`` gives the addresses of its functions; ``replay`` runs the program
    again, slowly, and raises the error that a kernel has found (or tells that it is
    none).
    """

    def __init__(
        self,
        executable: Executable,
        address_of: Callable[[Symbol], int],
        replay: Callable[[Sequence[Any], Sequence[Any]], Any],
    ) -> None:
        self.arena = arena.Arena(executable.nbytes)
        super().__init__(executable, address_of, self.arena.address)
        self.replay = replay
        self.libraries: Any = None  # code that must live as long
        self.lock = threading.Lock()  # memory is for one run at a time
        self.runs = 0  # of which each finds its addresses
        self.weights = Weights(executable.jobs, self.functions.tolist())
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
        raise_pending()
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
        for (_, number, _), value in zip(
            self.executable.constants, self.constants, strict=True
        ):
            known[number] = value
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
