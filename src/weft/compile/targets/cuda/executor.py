"""Executors: a program's memory on a device, and its runs.

A run puts the addresses of its values into the launches' arguments and hands these to
the runtime. Launches that follow one another are recorded when they come back with the
same addresses, and repeated as a whole from then on.
"""

from __future__ import annotations

import functools
import math
import operator
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from weft.compile.fusion.groups import Operand, inlined
from weft.compile.loop.ir import block_size
from weft.compile.program.concat import Piece
from weft.compile.program.memory_layout import MemoryLayout
from weft.compile.program.steps import HostCall, KernelLaunch, LibraryCall
from weft.compile.program.strided_views import seen
from weft.compile.targets import Replay
from weft.compile.targets.cuda.cost_model import COST
from weft.compile.targets.cuda.host_numbers import HostNumbers
from weft.config import config
from weft.core.size import evaluate
from weft.graph.interpret import failed, resolve
from weft.graph.ir import CONSTANT, PICK, READ, GraphError, Node
from weft.runtime import argument_words
from weft.runtime.device_memory import Block, DeviceArray, HostWord, Pool, whole

ALIGNMENT = COST.blocks.vector
MISSES = 32  # after which small arguments and outputs are copied to places of their own
SMALL = 1 << 20  # bytes of such ones
RECORDINGS = 16  # of one stretch of launches, for as many sets of addresses


class Launch(NamedTuple):
    """A launch of a kernel: where its buffers are, and its other arguments."""

    function: Any
    slots: list[int]
    offsets: list[int]
    arguments: np.ndarray
    blocks: int
    threads: int


@dataclass(eq=False)
class Stretch:
    """Launches that follow one another, and the recordings of them."""

    launches: list[Any] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)  # of what it reads and writes
    moving: list[int] = field(default_factory=list)  # those of other addresses each run
    recordings: dict[Any, Any] = field(default_factory=dict)


class Plan(NamedTuple):
    """The steps of a program for one set of sizes, in stretches and host calls."""

    layout: MemoryLayout
    timeline: list[Any]
    parts: list[Any]  # stretches, host calls, and None where errors are looked for
    may_fail: bool


def plan(layout: MemoryLayout, code: Any) -> Plan:
    """Describe the launches of a memory layout, without their addresses."""
    parts: list[Any] = []
    may_fail = any(isinstance(s, KernelLaunch) and s.checks for s in layout.steps)
    stop = layout.order.safe if may_fail else -1
    for at, step in enumerate(layout.steps):
        if at == stop:
            parts.append(None)
        if isinstance(step, HostCall):
            parts.append(step)
            continue
        if not parts or not isinstance(parts[-1], Stretch):
            parts.append(Stretch())
        if isinstance(step, LibraryCall):
            parts[-1].launches.append(layout.jobs.works[step])
        else:
            launch = _launch(step, layout, code)
            parts[-1].launches += [launch] if launch.blocks else []
    if stop == len(layout.steps):
        parts.append(None)
    for part in parts:
        if isinstance(part, Stretch):
            used = [layout.places[n] for s in part.launches for n in _nodes(s)]
            used += [slot for s in part.launches if isinstance(s, Launch)
                     for slot in s.slots]  # fmt: skip
            part.slots = sorted(set(used))
    return Plan(layout, layout.steps, parts, may_fail)


def _nodes(launch: Any) -> Sequence[Node]:
    return () if isinstance(launch, Launch) else launch.nodes


def _launch(step: KernelLaunch, layout: MemoryLayout, code: Any) -> Launch:
    kernel, sizes = step.kernel, dict(layout.sizes)
    sizes |= {name: evaluate(n, layout.sizes) for name, n in kernel.given}
    count = math.prod(evaluate(n, sizes) for _, n in kernel.parallel)
    if isinstance(step, Piece) and layout.inside.get(step.piece) == step.target:
        count = 0  # it is there
    threads = block_size(kernel)
    blocks = count
    if threads == 1:
        threads = COST.blocks.threads
        blocks = -(-count // threads)
    words = [0] * len(step.owners)
    words += [sizes[name] for name in kernel.sizes]
    words += [count, *([0] if kernel.checks else [])]
    names = [buffer.name for buffer in kernel.buffers]
    owners = dict(zip(names, step.owners, strict=True))
    shared = tuple(
        pair for pair in kernel.shared
        if _is_one(layout, owners[pair[0]], owners[pair[1]])
    )  # fmt: skip
    offsets = list(step.offsets) or [0] * len(step.owners)
    starts = [layout.offsets.get(node, 0) for node in step.owners]
    aligned = not any(n % ALIGNMENT for n in (*offsets, *starts))
    function = code.function(kernel, shared, aligned)
    slots = [layout.places[node] for node in step.owners]
    return Launch(function, slots, offsets, argument_words(words), blocks, threads)


def _is_one(layout: MemoryLayout, a: Node, b: Node) -> bool:
    """Whether two values are the same memory, in every run."""
    if layout.places[a] == layout.places[b]:
        return True
    return a in layout.offsets and layout.offsets[a] == layout.offsets.get(b)


class Executor:
    """A plan with memory, ready to run."""

    def __init__(self, plan: Plan, code: Any, replay: Replay, pool: Pool) -> None:
        self.plan, self.layout, self.replay = plan, plan.layout, replay
        self.pool, self.runtime = pool, pool.runtime
        self.code = code  # it lives as long
        self.lock = threading.Lock()
        layout = plan.layout
        self.graph, self.sizes = layout.lowered.graph, layout.sizes
        self.arena = pool.empty((max(layout.layout.nbytes, 1),), np.uint8)
        self.flag = HostWord(pool) if plan.may_fail else None
        self.constants: dict[Node, DeviceArray] = {}
        self.addresses = [0] * len(layout.slot_of)
        self.places: dict[Any, int] = {**layout.places, **layout.scratch}
        for node, offset in layout.offsets.items():
            self.addresses[self.places[node]] = self.arena.address + offset
        for node, slot in layout.places.items():
            if node.op is CONSTANT:
                self.addresses[slot] = self._constant(node).address
        self._flag_launches()
        self.bound: list[Any] = []
        self.staged: dict[int, Any] = {}  # copies of the host's arrays, and their bits
        self.input_slots = [layout.places.get(n, -1) for n in self.graph.inputs]
        self.fresh = [
            (n, layout.places[n], whole(resolve(n.shape, self.sizes), n.dtype.np))
            for n in layout.fresh
        ]
        self.host: list[int] = []  # the variables that are the host's
        self.numbers = HostNumbers(layout.lowered, self.host, self.sizes)
        self.recordings: dict[tuple[int, ...], list[Any]] = {}
        self.misses = 0  # stretches that ran at addresses without a recording
        self.settled: dict[int, DeviceArray] = {}  # places of arguments and outputs
        self.on_device = not any(isinstance(part, HostCall) for part in plan.parts)
        if not layout.lowered.reads:
            self._bind([])

    def _flag_launches(self) -> None:
        """Give launches that check something the address of the error flag."""
        if self.flag is None:
            return
        for part in self.plan.parts:
            for launch in part.launches if isinstance(part, Stretch) else ():
                if isinstance(launch, Launch) and launch.function.checks:
                    last = len(launch.arguments) // 2 - 1
                    launch.arguments[last] = self.flag.address

    @property
    def results_bytes(self) -> int:
        """The bytes of the outputs that each run allocates."""
        fresh = self.layout.fresh.items()
        return sum(math.prod(shape) * n.dtype.itemsize for n, shape in fresh)

    def alone(self, numbers: Sequence[bool], device: Any, like: Any) -> Any:
        """The launches as a function of arrays; None if there is more to a run.

        Arguments that are ``numbers`` are made by ``device``, in the dtype ``like``.
        The function returns None for arrays that begin at other addresses than
        kernels need.
        """
        parts = self.plan.parts
        if len(parts) != 1 or not isinstance(parts[0], Stretch) or len(self.fresh) != 1:
            return None
        node, out, kind = self.fresh[0]
        if list(self.graph.outputs) != [node] or self.flag is not None:
            return None
        moving = {**{slot: k for k, slot in enumerate(self.input_slots)}, out: -1}
        launches: list[Callable[[], None]] = []
        order: list[tuple[Any, int, int, int]] = []  # where each address goes
        for one in parts[0].launches:
            put, where, launch = self._prepared(one)
            launches.append(launch)
            for k, slot, offset in where:
                if slot in moving:
                    order.append((put, k, moving[slot], offset))
                else:
                    put[k] = self.addresses[slot] + offset
        number, make, some = device.number, self.pool.made, any(numbers)

        def run(args: Sequence[Any]) -> Any:
            if some:
                pairs = zip(args, numbers, strict=True)
                args = [number(a, like) if n else a for a, n in pairs]
            made = make(kind)
            with self.lock:
                for put, k, at, offset in order:
                    place = made.address if at < 0 else args[at].address
                    if place % ALIGNMENT:
                        return None
                    put[k] = place + offset
                for launch in launches:
                    launch()
            return made

        return run

    def _prepared(self, one: Any) -> tuple[Any, list[tuple[int, int, int]], Any]:
        """A list of addresses, which slot and offset is where, and the launch of it."""
        if not isinstance(one, Launch):
            slots = dict.fromkeys(self.places[node] for node in one.nodes)
            run = functools.partial(one.run, self.runtime, self.places, self.addresses)
            return self.addresses, [(slot, slot, 0) for slot in slots], run
        where = list(zip(range(len(one.slots)), one.slots, one.offsets, strict=True))
        launch = self.runtime.prepared(
            one.function.handle, one.blocks, one.threads, one.arguments
        )
        words: Any = one.arguments
        return memoryview(words), where, launch

    def run(
        self,
        feeds: Sequence[Any],
        held: Sequence[Any],
        state_buffers: Sequence[Any] = (),
        write: Callable[[dict[str, Any]], None] | None = None,
        stamps: Any = None,
    ) -> tuple[list[Any], dict[str, Any]]:
        """The outputs, and new values by name of variables not written in place."""
        with self.lock:  # memory is for one run at a time
            return self._run(feeds, held, state_buffers, write)

    def _run(
        self,
        feeds: Sequence[Any],
        held: Sequence[Any],
        state_buffers: Sequence[Any],
        write: Callable[[dict[str, Any]], None] | None,
    ) -> tuple[list[Any], dict[str, Any]]:
        values, changed = self._given(feeds, held, state_buffers)
        if self.flag is not None:
            self.flag.value[0] = 0
        for part in self.plan.parts:
            if part is None:
                self._check(feeds, held)
            elif isinstance(part, Stretch):
                self._launch(part)
            else:
                self._call(part.node, values)
        for node, slot, _ in self.fresh:
            if slot in self.settled:
                array, place = values[node], self.settled[slot]
                self.runtime.copy(array.address, place.address, array.nbytes)
        outputs = self._outputs(values)
        changed |= self.numbers.after(held)
        for name, node in self.copied:
            changed[name] = self._own(self._value(node, values))
        if write is not None:
            write(changed)
        return outputs, changed

    # -- values

    def _given(
        self, feeds: Sequence[Any], held: Sequence[Any], state_buffers: Sequence[Any]
    ) -> tuple[dict[Node, Any], dict[str, Any]]:
        """Values that no step computes, by node; and memory for outputs."""
        self._hold(held)
        values, changed = dict(self.known), dict(self.moved)
        for k, name, node, slot, kind in self.written_only:
            array = state_buffers[k] if state_buffers else None
            if array is None or array.kind != kind.kind or not _fits(array):
                array = self.pool.made(kind)
            values[node] = changed[name] = array
            self.addresses[slot] = array.address
        for k, (node, slot, array) in enumerate(
            zip(self.graph.inputs, self.input_slots, feeds, strict=True)
        ):
            if type(array) is not DeviceArray:
                array = self._staged(~k, array)
            if not _fits(array) or (self.spans and self._is_state(array)):
                array = self._own(array)
            values[node] = array
            if slot >= 0:
                place = self._place_of(slot, array)
                self.addresses[slot] = place.address
                if place is not array:
                    self.runtime.copy(place.address, array.address, array.nbytes)
        for node, slot, kind in self.fresh:
            values[node] = array = self.pool.made(kind)
            self.addresses[slot] = self._place_of(slot, array).address
        return values, changed

    def _place_of(self, slot: int, array: DeviceArray) -> DeviceArray:
        """The memory that launches have for an argument or an output.

        It is the array itself, as long as these come back at addresses that were there
        before. Else small ones have places of their own, so that recordings serve.
        """
        if self.misses < MISSES or not self.on_device:
            return array
        if not 0 < array.nbytes <= SMALL:
            return array
        if slot not in self.settled:
            self.settled[slot] = self.pool.empty(array.shape, array.dtype)
        return self.settled[slot]

    def _hold(self, held: Sequence[Any]) -> None:
        """Take variables' arrays; only numbers where they are those of before."""
        if len(held) == len(self.bound) and all(map(operator.is_, held, self.bound)):
            for k in self.host:
                self._staged(k, held[k])
            return
        host = [k for k, array in enumerate(held) if type(array) is not DeviceArray]
        if host != self.host:
            self.host = host
            self.numbers = HostNumbers(self.layout.lowered, host, self.sizes)
        arrays = list(held)
        for k in host:
            arrays[k] = self._staged(k, held[k])
        self.bound = list(held) if self._bind(arrays) else []

    def _bind(self, held: Sequence[Any]) -> bool:
        """Take variables' arrays; return whether all are used where they are."""
        layout, lowered = self.layout, self.layout.lowered
        self.known: dict[Node, Any] = {}
        self.moved: dict[str, Any] = {}  # state that is computed elsewhere
        self.spans: list[tuple[int, int]] = []
        self.written: set[Any] = set()
        memory: dict[Any, Any] = {}
        for variable, array in zip(lowered.reads, held, strict=True):
            state = variable in layout.state
            if not _fits(array) or (state and _overlaps(array, self.spans)):
                array = self._own(array)
                if state:
                    self.moved[variable.name] = array
            elif state:
                self.written.add(variable)
                self.spans.append((array.address, array.address + array.nbytes))
            memory[variable] = array
        for node in self.graph.nodes:
            if node.op is READ:
                self.known[node] = memory[node.params["variable"]]
        self.written_only = []  # state that is not read
        for variable, node in layout.state.items():
            if variable in memory:
                self.known[node] = memory[variable]
            else:
                slot, name = layout.slot_of[variable], variable.name
                kind = whole(resolve(node.shape, self.sizes), node.dtype.np)
                at = lowered.unread.index(variable)
                self.written_only.append((at, name, node, slot, kind))
        for variable, array in memory.items():
            if variable in layout.slot_of:
                self.addresses[layout.slot_of[variable]] = array.address
        known = {*self.moved, *[v.name for v in self.written]}
        known |= {*self.numbers.names, *[name for _, name, *_ in self.written_only]}
        writes = [(n.params["variable"].name, n.inputs[0]) for n in lowered.writes]
        self.copied = [(name, node) for name, node in writes if name not in known]
        self.owners = {array.owner for array in memory.values()}
        self._find_recordings(tuple(array.address for array in memory.values()))
        return all(map(operator.is_, memory.values(), held))

    def _find_recordings(self, addresses: tuple[int, ...]) -> None:
        """Choose the recordings for these addresses of variables.

        They differ by the addresses that are other ones in each run.
        """
        moving = set(self.input_slots) | {slot for _, slot, _ in self.fresh}
        moving |= {slot for *_, slot, _ in self.written_only}
        stretches = [part for part in self.plan.parts if isinstance(part, Stretch)]
        if len(self.recordings) >= RECORDINGS:
            self.recordings.clear()
        kept = self.recordings.setdefault(addresses, [{} for _ in stretches])
        for stretch, recordings in zip(stretches, kept, strict=True):
            stretch.recordings = recordings
            stretch.moving = [
                n for n in stretch.slots if n in moving or not self.on_device
            ]

    def _is_state(self, array: DeviceArray) -> bool:
        """Whether an array shares memory with state that is written in place."""
        if type(array.owner) is Block and array.owner not in self.owners:
            return False
        return _overlaps(array, self.spans)

    def _staged(self, key: int, array: np.ndarray) -> DeviceArray:
        """A copy of the host's array, where it was before.

        Numbers are the host's, such as a learning rate. They are copied if they have
        changed.
        """
        bits = array.tobytes()
        before, place = self.staged.get(key, (None, None))
        if place is None or place.shape != array.shape or place.dtype != array.dtype:
            before, place = None, self.pool.empty(array.shape, array.dtype)
        if bits != before:
            if array.size:
                self.runtime.upload(place.address, np.ascontiguousarray(array))
            self.staged[key] = bits, place
        return place

    def _own(self, array: DeviceArray) -> DeviceArray:
        """A contiguous copy."""
        return self.code.copied(array)

    def _constant(self, node: Node) -> DeviceArray:
        if node not in self.constants:
            self.constants[node] = self.pool.from_host(node.params["value"])
        return self.constants[node]

    def _value(self, node: Node, values: dict[Node, Any]) -> Any:
        """A value on the device; what is computed where it is needed, is."""
        if node in values:
            return values[node]
        if node in self.layout.offsets:
            start = self.layout.offsets[node]
            shape = resolve(node.shape, self.sizes)
            nbytes = math.prod(shape) * node.dtype.itemsize
            part = self.arena.outline[start : start + nbytes]
            return self.arena.seen(np.ndarray(shape, node.dtype.np, part))
        if node.op is CONSTANT:
            return self._constant(node)
        if inlined(node):
            self._call(node, values)
            return values[node]
        operand = Operand(node)
        if operand.base is node:
            raise GraphError(f"{node.name}: no step computes it")
        array = self._value(operand.base, values)
        for view in reversed(operand.views):
            params = resolve(view.params, self.sizes)
            outline = seen(array.outline, view.op, params)
            if outline is None:
                outline = seen(self._own(array).outline, view.op, params)
            array = array.seen(outline)
        return array

    def _outputs(self, values: dict[Node, Any]) -> list[DeviceArray]:
        """The outputs, each in memory that no other value and no later run uses."""
        outputs, own = [], set()
        for node in self.graph.outputs:
            array = self._value(node, values)
            if node not in self.layout.fresh or node in own:
                array = self._own(array)
            own.add(node)
            outputs.append(array)
        return outputs

    # -- steps

    def _launch(self, stretch: Stretch) -> None:
        """Put launches into the queue: one by one, or as they were recorded."""
        if len(stretch.launches) == 1:
            self._each(stretch)
            return
        addresses = [self.addresses[slot] for slot in stretch.moving]
        key = (config.matmul_precision, *addresses)
        found = stretch.recordings.get(key)
        if found is not None and found is not False:
            found()
            return
        if found is None:  # these addresses are new
            self.misses += 1
            if len(stretch.recordings) >= RECORDINGS:
                stretch.recordings.pop(next(iter(stretch.recordings)))
            stretch.recordings[key] = False
            self._each(stretch)
            return
        made = self.runtime.recorded(lambda: self._each(stretch))
        if made is None:
            self._each(stretch)
        else:
            stretch.recordings[key] = made
            made()

    def _each(self, stretch: Stretch) -> None:
        for launch in stretch.launches:
            self._one(launch)

    def _one(self, launch: Any) -> None:
        addresses = self.addresses
        if not isinstance(launch, Launch):
            launch.run(self.runtime, self.places, addresses)
            return
        arguments = launch.arguments
        for k, (slot, offset) in enumerate(
            zip(launch.slots, launch.offsets, strict=True)
        ):
            arguments[k] = addresses[slot] + offset
        self.runtime.launch(
            launch.function.handle, launch.blocks, launch.threads, arguments
        )

    def _call(self, node: Node, values: dict[Node, Any]) -> None:
        """Compute a node on the host."""
        args = [
            self._on_host(i, values) if type(i) is Node else evaluate(i, self.sizes)
            for i in node.inputs
        ]
        params = resolve(node.params, self.sizes)
        if node.op is PICK:
            result = args[0][node.params["index"]]
        else:
            try:
                with np.errstate(all="ignore"):
                    result = node.op.kernel(*args, **params)
            except Exception as error:
                raise failed(node, args, params, error) from None
        if isinstance(result, tuple):
            values[node] = result
            return
        values[node] = self.pool.from_host(result)
        if node in self.layout.places:
            self.addresses[self.layout.places[node]] = values[node].address

    def _on_host(self, node: Node, values: dict[Node, Any]) -> Any:
        value = self._value(node, values)
        return value if isinstance(value, tuple) else self._to_host(value)

    def _to_host(self, array: Any) -> np.ndarray:
        if not isinstance(array, DeviceArray):
            return array
        return self.pool.to_host(array if array.contiguous else self._own(array))

    def _check(self, feeds: Sequence[Any], held: Sequence[Any]) -> None:
        """Raise the error of an index that a kernel found to be out of range.

        Nothing was written back by then. The graph is run again by the interpreter,
        which knows the value, the axis and the line.
        """
        self.runtime.wait()
        if self.flag is None or not self.flag.value[0]:
            return
        arrays, variables = (
            [self._to_host(a) for a in given] for given in (feeds, held)
        )
        if not self.replay(arrays, variables):
            raise GraphError("a kernel reports an index that the interpreter accepts")

    def timed(
        self, steps: Sequence[Any], feeds: Sequence[Any], held: Sequence[Any]
    ) -> list[float]:
        """The seconds that each step takes, in a run of one step after the other."""
        values, _ = self._given(feeds, held, ())
        queue = [
            one
            for part in self.plan.parts
            if part is not None
            for one in (part.launches if isinstance(part, Stretch) else [part])
        ]
        seconds = []
        for step in queue:
            if isinstance(step, HostCall):
                self.runtime.wait()
                start = time.perf_counter()
                self._call(step.node, values)
                self.runtime.wait()
                seconds.append(time.perf_counter() - start)
            else:
                run = functools.partial(self._one, step)
                seconds.append(self.runtime.seconds(run))
        return seconds


def _fits(array: DeviceArray) -> bool:
    """Whether kernels may read an array as it is."""
    return array.contiguous and array.address % ALIGNMENT == 0


def _overlaps(array: DeviceArray, spans: Sequence[tuple[int, int]]) -> bool:
    first = array.address
    last = first + array.nbytes
    return any(start < last and first < end for start, end in spans)
