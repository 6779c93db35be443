"""Programs: graphs that run natively, for any sizes.

A program whose sizes are all known, and which calls nothing but native code, is kept
on disk as its ``Executable``, beside its machine code: where it is found, there are
neither passes nor lowering. Steps and kernels are made when somebody looks at them.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from weft.compile import pipeline, targets
from weft.compile.passes.anomaly import raise_anomaly, with_checks
from weft.compile.passes.rename_sizes import both_spellings
from weft.compile.passes.user_rules import has_rules
from weft.compile.program.compiler_version import sources
from weft.compile.program.graph_digest import digest
from weft.compile.program.lowered import Lowered
from weft.compile.program.phases import phase
from weft.compile.program.steps import HostCall, LibraryCall, Loop, Step
from weft.compile.recompute.lean import lean
from weft.compile.targets import Executor, Plan, Replay, Target
from weft.compile.targets.cpu.packed_weights import Stamps
from weft.compile.tuning.choices import table
from weft.config import config
from weft.core.mode import mode
from weft.core.size import Size
from weft.errors import AllocationError, OutOfRangeError
from weft.graph import interpret
from weft.graph.ir import Graph, Variable
from weft.runtime import allocation
from weft.runtime.cpu import kernel_cache, pool

ndarray = np.ndarray
EXECUTORS = 8  # sets of sizes whose memory is kept


def compiled(
    graph: Graph,
    in_place: Collection[Variable] = (),
    *,
    pack_weights: bool = False,
    recompute: Any = None,
    passes: pipeline.Passes = pipeline.PASSES,
    target: Target | None = None,
    replay: Replay | None = None,
    kept: bool = False,
    loop: Loop | None = None,
) -> Program:
    """Compile a graph; with ``kept``, look for its program on disk first.

    New values of the variables ``in_place`` may be written over the old ones, in the
    arrays that a run is given. With ``pack_weights``, right operands of products that
    are variables without a new value are packed once (``packed_weights``), if each run
    says how new they are. ``recompute`` replaces the pass of that name; if its
    ``stamp``, which says how it changes a graph, is empty, the program is not kept on
    disk. ``replay`` runs the program as it was before the passes, when a kernel has
    reported an error. Programs that are kept are those of the user's functions: they
    check their results under ``detect_anomaly``. ``loop`` is for the body of a loop.

    >>> from weft.compile.program.program import compiled
    >>> graph = weft.graph.capture(lambda x: x + 1, weft.ones(2)).graph
    >>> compiled(graph).run([np.ones(2, np.float32)])[0]
    [array([2., 2.], dtype=float32)]
    """
    anomaly, source = mode.anomaly if kept else None, graph
    if anomaly is not None:
        graph = with_checks(graph, anomaly)
    program = Program(
        graph, in_place, pack_weights, target or targets.default(), replay
    )
    program.anomaly, program.unchecked = anomaly, source
    program.loop = loop
    program.passes = pipeline.with_recompute(passes, recompute)
    if kept:
        program.key = _key(program, "all" if recompute is None else recompute.stamp)
    if not program.key or not program.find():
        program.compile()
    return program


class Program:
    """A graph that runs natively, for any sizes; made by ``compiled``.

    A run gets the arrays of variables in the order of ``reads``, and memory for
    write-only ones in the order of ``unread``; those of ``state`` may be written in
    place.
    """

    passes: pipeline.Passes = ()
    anomaly: Any = None  # the kinds of numbers that its results must not have
    unchecked: Graph  # without those checks
    key = ""  # on disk
    loop: Loop | None = None
    reads: Sequence[Variable]
    unread: Sequence[Variable]
    state: Sequence[Variable]
    counts: tuple[int, int]  # nodes, kernels

    def __init__(
        self,
        graph: Graph,
        in_place: Collection[Variable],
        pack_weights: bool,
        target: Target,
        replay: Replay | None,
    ) -> None:
        self.graph = graph
        self.in_place, self.pack_weights = in_place, pack_weights
        self.target = target
        self.replay = replay or self._replay
        self.executors: dict[Any, Executor] = {}
        self.latest: Executor | None = None  # the one that ran last
        self._plan: Plan | None = None
        self._lowered: Lowered | None = None
        self._code: Any = None

    # -- compiling

    def compile(self) -> None:
        """Run the pipeline down to machine code."""
        with targets.compiling_for(self.target):
            self._compile()

    def _compile(self) -> None:
        start = functools.partial(self.target.start, pack_weights=self.pack_weights)
        start(self.graph)
        graph = pipeline.run(self.graph, self.passes, in_place=self.in_place)
        start(graph)  # passes may have changed its products
        lowered = pipeline.lower(
            graph,
            self.target,
            in_place=self.in_place,
            pack_weights=self.pack_weights,
            loop=self.loop,
        )
        self._lowered, self._code = lowered, pipeline.emit(lowered)
        self.counts = len(lowered.graph), len(lowered.kernels)
        self.reads, self.unread = lowered.reads, lowered.unread
        unread = set(lowered.unread)
        self.state = [v for v in lowered.aliasing.state if v not in unread]

    @property
    def lowered(self) -> Lowered:
        """The steps and kernels; the program runs from these from now on."""
        if self._lowered is None:
            self.compile()
            self.executors = {key: self.executor({}) for key in self.executors}
        assert self._lowered is not None
        return self._lowered

    @property
    def may_fail(self) -> bool:
        """Whether a kernel of its own or of a body checks an index or a value."""
        return any(_may_fail(step) for step in self.lowered.steps)

    @property
    def code(self) -> Any:
        """The machine code of the kernels."""
        if self._code is None:
            self._code = pipeline.emit(self.lowered)
        return self._code

    @property
    def plan(self) -> Plan | None:
        """The plan of the executor that was made last; None before there is one."""
        assert self.lowered is not None
        return self._plan

    # -- running

    def run(
        self,
        feeds: Sequence[ndarray],
        variables: Sequence[ndarray] = (),
        state_buffers: Sequence[ndarray | None] = (),
        write: Callable[[dict[str, ndarray]], None] | None = None,
        stamps: Stamps | None = None,
    ) -> tuple[list[ndarray], dict[str, ndarray]]:
        """The outputs, and new values by name of variables not written in place.

        ``state_buffers`` is memory for write-only variables; None is allocated.
        """
        key = tuple([(a.shape, a.dtype) for a in feeds])
        executor = self.executors.get(key)
        if executor is None:
            executor = self._new_executor(key, feeds, {})
        self.latest = executor
        if allocation.ledger is not None:  # there may be a limit
            allocation.allow(self.graph.name, executor.results_bytes)
        return executor.run(feeds, variables, state_buffers, write, stamps)

    def run_named(
        self,
        feeds: Sequence[ndarray],
        store: Mapping[Variable, ndarray],
        state_buffers: Mapping[Variable, ndarray | None] | None = None,
        write: Callable[[dict[Variable, ndarray]], None] | None = None,
        known: Mapping[str, int] | None = None,
    ) -> tuple[list[ndarray], dict[Variable, ndarray]]:
        """As ``run``, with the variables' arrays by variable.

        New values in arrays of their own may be kept; the others hold until the next
        run only. ``write`` gets the new values before anything can interrupt.
        ``known`` are sizes that the feeds may not determine.
        """
        executor = self.executor_for(feeds, known)
        variables = [store[v] for v in self.reads]
        buffers = [state_buffers.get(v) for v in self.unread] if state_buffers else ()
        names = {v.name: v for v in self.lowered.graph.variables.values()}
        changes: list[Any] = []

        def noted(changed: dict[str, ndarray]) -> None:
            changes.append({names[name]: array for name, array in changed.items()})
            if write is not None:
                write(changes[0])

        outputs, _ = executor.run(feeds, variables, buffers, noted)
        return outputs, changes[0]

    def executor_for(
        self, feeds: Sequence[ndarray], known: Mapping[str, int] | None = None
    ) -> Executor:
        """The executor for arguments of these sizes."""
        key: Any = [(a.shape, a.dtype) if a is not None else None for a in feeds]
        key = (*key, *known.items()) if known else tuple(key)
        found = self.executors.get(key)
        return self._new_executor(key, feeds, known or {}) if found is None else found

    def _new_executor(
        self, key: Any, feeds: Sequence[ndarray], known: Mapping[str, int]
    ) -> Executor:
        graph = self.lowered.graph
        sizes = both_spellings(known)
        sizes |= interpret.bind_sizes(graph.inputs, feeds)
        if graph.sizes.assumptions:
            graph.sizes.check(sizes)
        executor = self._in_memory(lambda: self.executor(sizes))
        if len(self.executors) >= EXECUTORS:
            self.executors.clear()
        self.executors[key] = executor
        if self.key:
            self.target.keep(self.key, executor)
        return executor

    def executor(self, sizes: Mapping[str, int]) -> Executor:
        """A new executor, with memory of its own."""
        self._plan = pipeline.plan(self.lowered, self.code, both_spellings(sizes))
        return self.target.executor(self._plan, self.code, self.replay)

    def timed(self, sizes: Mapping[str, int]) -> tuple[Executor, list[Any]]:
        """A new executor, and the steps to measure there one by one."""
        made = self.executor(sizes)
        assert self._plan is not None
        return made, self._plan.timeline

    def _in_memory(self, make: Callable[[], Any]) -> Any:
        """The executor; if memory is short, an error that says for what and advises."""
        try:
            return make()
        except AllocationError as error:
            from weft.compile.recompute.shortage import explained

            recompute = dict(self.passes).get("recompute", lean)
            raise explained(self.graph, self.in_place, recompute, error) from None

    def _replay(self, feeds: Sequence[ndarray], variables: Sequence[ndarray]) -> bool:
        if self.anomaly is not None:
            graph, anomaly = self.unchecked, self.anomaly
            return raise_anomaly(graph, anomaly, self.reads, feeds, variables)
        replay(self.graph, self.reads, feeds, variables)
        return False

    # -- on disk

    @phase("look up")
    def find(self) -> bool:
        """Whether the executable is kept on disk; if so, load it into an executor."""
        executor = self._in_memory(lambda: self.target.find(self.key, self.replay))
        if executor is None:
            return False
        types = [(i.type.shape, i.type.dtype.np) for i in self.graph.inputs]
        self.executors[tuple(types)] = executor
        executable = executor.executable
        self.counts = executable.counts
        known = self.graph.variables
        self.reads = [known[one.name] for one in executable.held]
        self.unread = [known[one.name] for one in executable.state_buffers]
        self.state = [known[one.name] for one in executable.held if one.state]
        return True


def _may_fail(step: Step) -> bool:
    if isinstance(step, LibraryCall):
        return any(body.may_fail for body in step.bodies)
    return isinstance(step, HostCall) or step.checks


def replay(
    graph: Graph,
    reads: Sequence[Variable],
    feeds: Sequence[Any],
    variables: Sequence[Any],
) -> None:
    """Interpret a graph, for the error that a kernel has reported.

    Calls that count are not made again: other processes would not take part.
    """
    if any(op.facts.effect for op in graph.ops):
        raise OutOfRangeError(
            "a kernel found an index out of range, a zero divisor or a value that a "
            "check refuses; the program has collectives, so it is not run again to say "
            "which. Call the function without weft.compile to see it"
        )
    names = [v.name for v in reads]
    known = dict(zip(names, variables, strict=True))
    store = {v: known[name] for name, v in graph.variables.items() if name in known}
    interpret.Program(graph, graph.outputs).run(feeds, store)


def _key(program: Program, memory: str) -> str:
    """The cache key of a program's executable; empty if it cannot be kept."""
    graph = program.graph
    if any(os.environ.get(name) for name in ("WEFT_PRINT", "WEFT_VERIFY")):
        return ""  # the passes are to be seen
    if not memory:
        return ""
    if has_rules() or any(isinstance(n, Size) for i in graph.inputs for n in i.shape):
        return ""
    graph_key = digest(graph)
    if graph_key is None:
        return ""
    in_place = ",".join(sorted(v.name for v in program.in_place))
    settings = f"{pool.get_num_threads()} threads, strict {config.strict_ieee}"
    settings += ", batch invariant" * config.batch_invariant
    settings += f", memory {memory}" + ", packed weights" * program.pack_weights
    lines = f"program {graph_key}", in_place, settings, sources(), table().stamp()
    return kernel_cache.key_of("\n".join(lines), program.target.key)
