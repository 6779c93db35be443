"""Graphs made ready to run, in this process or in one before it.

A program whose sizes are all known, and which calls nothing but native code, is kept
on disk as its script, beside its machine code: where it is found, there are neither
passes nor lowering. What only people look at is made when they ask.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from weft.compile.passes.anomaly import raise_anomaly, with_checks
from weft.compile.passes.user_rules import has_rules
from weft.compile.pipeline import run as run_passes
from weft.compile.program import executable as scripts
from weft.compile.program.compiler_version import sources
from weft.compile.program.executable import Script
from weft.compile.program.executor import Instance
from weft.compile.program.graph_digest import digest
from weft.compile.program.phases import count_module, phase
from weft.compile.program.program import Native, replay, start_routines
from weft.compile.recompute.lean import lean
from weft.compile.targets.cpu.object_code import host_isa, stored_library
from weft.compile.targets.cpu.packed_weights import Stamps
from weft.compile.targets.cpu.symbols import address_of
from weft.compile.tuning.choices import table
from weft.config import config
from weft.core import allocation
from weft.core.mode import mode
from weft.core.size import Size
from weft.errors import AllocationError
from weft.graph.ir import Graph, Variable
from weft.runtime.cpu import kernel_cache, pool

ndarray = np.ndarray
LARGEST = 64 << 20  # bytes of a script that is kept


class Prepared:
    """A graph that runs natively; see ``Native`` for what it computes.

    Variables are given in the order of ``reads`` and ``unread``; those of ``state``
    may be written in place. ``adapt`` changes the graph after the passes (``lean`` by
    default), and its ``stamp`` says how; without one, the program is not kept on disk.
    """

    def __init__(
        self,
        graph: Graph,
        in_place: Collection[Variable] = (),
        *,
        pack_weights: bool = False,
        adapt: Any = None,
    ) -> None:
        self.anomaly = mode.anomaly
        self._source = graph  # without checks
        if self.anomaly is not None:
            graph = with_checks(graph, self.anomaly)
        self.graph = graph
        self.in_place = in_place
        self.pack_weights = pack_weights
        self.adapt = adapt
        self._native: Native | None = None
        self._instances: dict[Any, Instance] = {}
        self.latest: Instance | None = None  # what ran last
        self._key = _key(graph, in_place, self._stamp)
        self._types = [(i.type.shape, i.type.dtype.np) for i in graph.inputs]
        script = self._stored() if self._key else None
        if script is None:
            self._take_over(self._made())
        else:
            self.counts = script.counts
            known = graph.variables
            self.reads = [known[one.name] for one in script.held]
            self.unread = [known[one.name] for one in script.rooms]
            self.state = [known[one.name] for one in script.held if one.state]

    def _made(self) -> Native:
        graph = run_passes(self.graph)
        adapt = lean if self.adapt is None else self.adapt
        graph = adapt(graph, self.in_place)
        return Native(
            graph, in_place=self.in_place, pack_weights=self.pack_weights,
            replay=self._replay,
        )  # fmt: skip

    @property
    def _stamp(self) -> str:
        """What else decides about the program; nothing if that cannot be said."""
        memory = "all" if self.adapt is None else self.adapt.stamp
        return memory and f"memory {memory}" + ", packed weights" * self.pack_weights

    def _take_over(self, native: Native) -> None:
        self._native = native
        self.counts = len(native.graph), len(native.kernels)
        self.reads, self.unread = native.reads, native.unread
        self.state = [v for v in native.places.state if v not in set(native.unread)]

    @property
    def native(self) -> Native:
        """The program with its graph and kernels, from which it runs from now on."""
        if self._native is None:
            native = self._made()
            self._take_over(native)
            native.instances = {key: native.instance({}) for key in self._instances}
            self._instances = dict(native.instances)
        assert self._native is not None
        return self._native

    def run(
        self,
        feeds: Sequence[ndarray],
        held: Sequence[ndarray] = (),
        rooms: Sequence[ndarray | None] = (),
        write: Callable[[dict[str, ndarray]], None] | None = None,
        stamps: Stamps | None = None,
    ) -> tuple[list[ndarray], dict[str, ndarray]]:
        """The outputs, and new values by name of variables not written in place."""
        key = tuple([(a.shape, a.dtype) for a in feeds])
        instance = self._instances.get(key)
        if instance is None:
            instance = self._instance(key, feeds)
        self.latest = instance
        if allocation.ledger is not None:  # there may be a limit
            allocation.allow(self.graph.name, instance.results_bytes)
        return instance.run(feeds, held, rooms, write, stamps)

    def _instance(self, key: Any, feeds: Sequence[ndarray]) -> Instance:
        native = self.native
        made = self._in_memory(lambda: native.instance_for(feeds))
        self._instances = {**self.native.instances, key: made}
        if self._key and made.script.can_be_stored:
            _store(self._key, made.script)
        return made

    def _in_memory(self, make: Callable[[], Instance]) -> Instance:
        """An instance; if there is no memory, the error says for what, and advises."""
        try:
            return make()
        except AllocationError as error:
            from weft.compile.recompute.shortage import explained

            raise explained(self.graph, self.in_place, self.adapt, error) from None

    # -- on disk

    @phase("look up")
    def _stored(self) -> Script | None:
        """The script that is kept, now with an instance; None if it is not there."""
        found = _find(self._key)
        if found is None:
            start_routines(self.graph, host_isa(), pack_weights=self.pack_weights)
            return None
        script, libraries = found
        target = host_isa()
        functions = [address_of(one, libraries, target) for one in script.functions]
        made = self._in_memory(lambda: Instance(script, functions, self._replay))
        made.libraries = libraries  # the code lives as long
        self._instances[tuple(self._types)] = made
        count_module(made=False)
        return script

    def _replay(self, feeds: Sequence[ndarray], held: Sequence[ndarray]) -> bool:
        if self.anomaly is not None:
            return raise_anomaly(self._source, self.anomaly, self.reads, feeds, held)
        replay(self.graph, self.reads, feeds, held)
        return False


def _key(graph: Graph, in_place: Collection[Variable], stamp: str) -> str:
    """What the script of a graph depends on; nothing if it cannot be kept."""
    if any(os.environ.get(name) for name in ("WEFT_PRINT", "WEFT_VERIFY")):
        return ""  # the passes are to be seen
    if not stamp:
        return ""
    if has_rules() or any(isinstance(n, Size) for i in graph.inputs for n in i.shape):
        return ""
    found = digest(graph)
    if found is None:
        return ""
    places = ",".join(sorted(v.name for v in in_place))
    settings = f"{pool.get_num_threads()} threads, strict {config.strict_ieee}"
    settings += ", batch invariant" * config.batch_invariant
    settings = f"{settings}, {stamp}"
    text = f"program {found}\n{places}\n{settings}\n{sources()}\n{table().stamp()}"
    return kernel_cache.key_of(text, host_isa().key)


def _find(key: str) -> Any:
    """A script and the code of its kernels, if both are there."""
    data = kernel_cache.default().find(key)
    if data is None:
        return None
    script = scripts.from_bytes(data)
    libraries = {}
    for name in {one.of for one in script.functions if one.kind == "kernel"}:
        library = stored_library(name, host_isa())
        if library is None:
            return None  # it was removed
        libraries[name] = library
    return script, libraries


def _store(key: str, script: Script) -> None:
    data = scripts.to_bytes(script)
    if len(data) <= LARGEST:
        kernel_cache.default().put(key, data)
