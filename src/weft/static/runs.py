"""Runs: some fetches of a static graph, as a program.

A run needs the nodes that its fetches depend on, no others. As a program, a run is a
pure function with variables as further arguments and results::

    %r1 = read(@w)                          %w = read(@w)
    %a = assign(%sum; @w)          →        assign(%sum; @w)
    %r2 = read(@w) after %a
    %y = mul(%r1, %r2)                      %y = mul(%w, %sum)

Each variable is read once, before all else, and gets its last value once. So the order
that control edges ask for, which is the order of building, is one of values alone, and
every pass of the compiler applies.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.config import config
from weft.core.mode import mode
from weft.core.op import TensorType
from weft.core.size import Size, evaluate
from weft.errors import ArgumentError
from weft.graph import interpret, ir
from weft.graph.interpret import bind_sizes, resolve, unread
from weft.graph.ir import ASSIGN, CONSTANT, GROUP, INPUT, READ, Node
from weft.runtime.cpu.buffers import owned
from weft.static.effects import call_op

if TYPE_CHECKING:
    from weft.compile.explain import Explanation
    from weft.compile.program.phases import Compilation
    from weft.compile.program.program import Program

ndarray = np.ndarray
Values = dict[ir.Variable, ndarray]
FEW = 1 << 22  # elements that an initializer computes sooner than it is compiled


class Run:
    """Fetches of a graph, prepared for one set of fed nodes.

    ``fetches`` are nodes with values, ``targets`` nodes that run for their effects.
    ``native`` runs are compiled: for the sizes of the first feeds, and for any sizes
    when others come. An initializer of few elements, which runs once, is interpreted,
    and so is a run that calls functions of Python for their effects.
    """

    def __init__(
        self,
        graph: ir.Graph,
        fetches: Iterable[Node],
        targets: Iterable[Node],
        fed: tuple[Node, ...],
        *,
        native: bool,
    ) -> None:
        self.fetches = list(dict.fromkeys(fetches))
        self.roots = list(dict.fromkeys([*self.fetches, *targets]))
        self.plan = interpret.Program(graph, self.roots, effects=False, fed=fed)
        self.fed = fed
        self._check_fed()
        sizes: Any = graph.sizes
        self.plan.sizes = sizes.for_nodes([*self.plan.nodes, *fed])
        calls = any(node.op is call_op for node in self.plan.nodes)
        self.native = native and not calls and not self._is_small_initializer()
        self._slots = [self.plan.fed.index(node) for node in fed]
        self._programs: dict[Any, Program] = {}  # by the shapes of feeds; None: any
        self._latest: Any = None, None  # settings and shapes, and their program
        self.compiles: list[Compilation] = []

    def _check_fed(self) -> None:
        for node in self.plan.fed:
            if node in self.plan.used and node not in self.fed:
                raise ArgumentError(
                    f"run: placeholder {node.name!r} ({node.type}) must be fed; pass "
                    f"it in feed_dict\n  made at {node.line}"
                )

        lacking = _symbols([(n.inputs, n.params) for n in self.plan.nodes])
        for name in sorted(lacking - _given_symbols(self.fed)):
            raise ArgumentError(
                f"run: the fetches need the size {name}, which nothing that was fed "
                "has; feed the placeholder that it belongs to"
            )

    def _is_small_initializer(self) -> bool:
        if self.fed or self.fetches:
            return False
        writes = [n for n in self.plan.nodes if n.op is ASSIGN]
        first = all(n.inputs[0] is n.params["variable"].initial for n in writes)
        return first and sum(math.prod(n.shape) for n in writes) <= FEW

    def __call__(self, feeds: Sequence[ndarray], values: Values) -> list[ndarray]:
        """The values of the fetches, the caller's own; ``values`` gets new state."""
        if not self._needs <= values.keys():
            raise self._unread(values)
        if self.native:
            return self._compute(feeds, values)
        return self._interpret(feeds, values)

    @cached_property
    def pure(self) -> ir.Graph:
        """The run as a pure function: see the head of this module."""
        return pure(self.plan, self.fetches, self.fed)

    @cached_property
    def _needs(self) -> set[ir.Variable]:
        """The variables that must have a value before the run."""
        return {n.params["variable"] for n in self.pure.nodes if n.op is READ}

    @cached_property
    def _names(self) -> dict[str, ir.Variable]:
        return self.pure.variables

    def _unread(self, values: Values) -> Exception:
        """The error of the first variable that is read without a value."""
        lacking = self._needs - values.keys()
        reads = [n for n in self.pure.nodes if n.op is READ]
        return unread(next(n for n in reads if n.params["variable"] in lacking))

    def _interpret(self, feeds: Sequence[ndarray], values: Values) -> list[ndarray]:
        arrays: list[Any] = [None] * len(self.plan.fed)
        for slot, array in zip(self._slots, feeds, strict=True):
            arrays[slot] = array
        results, changed = self.plan.run(arrays, values)
        values.update((v, np.array(a)) for v, a in changed.items())
        given = {id(a) for a in (*arrays, *changed.values(), *values.values())}
        return [
            a.copy() if n.op is CONSTANT or id(a) in given or not owned(a) else a
            for n, a in zip(self.fetches, results, strict=False)
        ]

    # -- compiled

    def _compute(self, feeds: Sequence[ndarray], values: Values) -> list[ndarray]:
        program, names = self.program(feeds), self._names
        variables = [values[v] for v in program.reads]
        buffers = [values.get(v) for v in program.unread]

        def write(changed: dict[str, ndarray]) -> None:
            for name, array in changed.items():
                _store(values, names[name], array)

        return program.run(feeds, variables, buffers, write)[0]

    def program(self, feeds: Sequence[ndarray]) -> Program:
        """The program for feeds of these sizes, compiled if there is none."""
        settings = config.strict_ieee, config.batch_invariant, mode.anomaly
        kind = [settings, *[a.shape for a in feeds]]
        if kind != self._latest[0]:
            shapes, programs = tuple(kind[1:]), self._programs
            found = programs.get((shapes, settings)) or programs.get((None, settings))
            self._latest = kind, found or self._compile(shapes, settings, feeds)
        return self._latest[1]

    def _compile(self, shapes: Any, settings: Any, feeds: Sequence[ndarray]) -> Program:
        from weft.compile.program.phases import Compilation, recording, uncollected
        from weft.compile.program.program import compiled

        start = time.perf_counter()
        sizes = bind_sizes(self.fed, feeds)
        graph = self.pure
        graph.sizes.check(sizes)
        if self._is_general():
            shapes = None
        else:
            graph = with_sizes(graph, feeds, sizes)
        with uncollected(), recording() as record:
            program = compiled(graph, set(self._names.values()), kept=True)
        why = "other sizes" if self._programs else "the first run"
        self._programs[shapes, settings] = program
        took = time.perf_counter() - start
        self.compiles.append(
            Compilation(
                why, took, *program.counts, time.time() - took, record.seconds,
                record.cached,
            )
        )  # fmt: skip
        return program

    def explanation(
        self, name: str, feeds: Sequence[ndarray], values: Values, *, measure: bool
    ) -> Explanation:
        """Explain the programs, of which that for these feeds is compiled first."""
        from weft.compile.explain import Explanation, Program

        if not self.native:
            raise ArgumentError(
                "explain: these fetches are interpreted (of a session with "
                "compiled=False, or a small initializer), so there is nothing to tell"
            )
        self.program(feeds).executor_for(feeds)
        programs = [
            Program(f"compilation {k + 1}", one.graph, one, dict, lambda: values)
            for k, one in enumerate(self._programs.values())
        ]
        return Explanation(name, self.compiles, programs[::-1], measure=measure)

    def optimized(self, feeds: Sequence[ndarray]) -> ir.Graph:
        """The graph that runs for these feeds: after the compiler's passes, if any."""
        if not self.native:
            return self.pure
        from weft.compile import pipeline

        return pipeline.run(self.program(feeds).graph)

    def _is_general(self) -> bool:
        """Whether the next program is for any sizes, rather than for known ones."""
        if not any(isinstance(n, Size) for node in self.fed for n in node.shape):
            return True
        if not self._programs and not self.pure.nested:
            return False
        types = [n.type for n in self.pure.nodes if isinstance(n.type, TensorType)]
        return _symbols(types) <= _given_symbols(self.fed)


def _store(values: Values, variable: ir.Variable, array: ndarray) -> None:
    """Give a variable a new value, in the memory it has where the value has none."""
    memory = values.get(variable)
    if owned(array):
        values[variable] = array
    elif memory is None:
        values[variable] = array.copy()
    else:
        memory[...] = array


def _symbols(value: Any) -> set[str]:
    """The names of the sizes in types, arguments and parameters."""
    if isinstance(value, Size):
        return value.symbols
    if isinstance(value, TensorType):
        return _symbols(value.shape)
    if isinstance(value, slice):
        return _symbols((value.start, value.stop, value.step))
    if isinstance(value, dict):
        return _symbols(tuple(value.values()))
    if isinstance(value, (tuple, list)):
        return set().union(*map(_symbols, value))
    return set()


def _given_symbols(fed: Iterable[Node]) -> set[str]:
    """The names of the sizes that the shapes of fed values tell."""
    sizes = [n for node in fed for n in node.shape if isinstance(n, Size)]
    found = set()
    for (atoms, _), *rest in (size.terms for size in sizes):
        if not rest and len(atoms) == 1 and atoms[0].a is None:
            found.add(atoms[0].kind)
    return found


def pure(
    plan: interpret.Program, fetches: Sequence[Node], fed: Sequence[Node]
) -> ir.Graph:
    """A run as a pure function of fed values and variables."""
    new: dict[Node, Node] = {node: _as_input(node) for node in fed}
    reads: dict[ir.Variable, Node] = {}
    now: dict[ir.Variable, Node] = {}
    last: dict[ir.Variable, Node] = {}
    nodes: list[Node] = []
    for node in plan.nodes:
        variable: Any = node.params.get("variable")
        if node.op is READ:
            if variable not in now:
                now[variable] = reads[variable] = _moved(node, ())
            new[node] = now[variable]
        elif node.op is ASSIGN:
            now[variable] = new[node] = new[node.inputs[0]]
            last[variable] = node
        elif node.op is not GROUP:
            inputs = [new[i] if type(i) is Node else i for i in node.inputs]
            new[node] = _moved(node, tuple(inputs))
            nodes.append(new[node])
    writes = [_moved(node, (now[v],)) for v, node in last.items()]
    inputs = [new[node] for node in fed]
    return ir.Graph(
        plan.graph.name, [*inputs, *reads.values(), *nodes, *writes],
        [new[node] for node in fetches], plan.sizes, inputs,
    )  # fmt: skip


def _as_input(node: Node) -> Node:
    """A fed node: a placeholder, or one whose value a run is given instead."""
    if node.op is INPUT:
        return node
    return Node(
        INPUT, (), {"type": node.type}, node.type, node.name, (), node.module,
        node.code, node.lasti,
    )  # fmt: skip


def _moved(
    node: Node, inputs: tuple[Any, ...], params: Any = None, type: Any = None
) -> Node:
    """The node with other inputs and without control edges."""
    return Node(
        node.op, inputs, node.params if params is None else params, type or node.type,
        node.name, (), node.module, node.code, node.lasti, node.role,
    )  # fmt: skip


def with_sizes(
    graph: ir.Graph, feeds: Sequence[ndarray], sizes: dict[str, int]
) -> ir.Graph:
    """The graph for feeds of known sizes: its types are inferred again."""
    new: dict[Node, Node] = {}
    for node, array in zip(graph.inputs, feeds, strict=True):
        kind = TensorType(array.shape, node.dtype)
        new[node] = _moved(node, (), {"type": kind}, kind)
    for node in graph.nodes:
        if node in new:
            continue
        inputs = tuple(
            [new[i] if type(i) is Node else evaluate(i, sizes) for i in node.inputs]
        )
        params = resolve(node.params, sizes)
        new[node] = _moved(node, inputs, params, ir.infer(node.op, inputs, params))
    ends = [[new[n] for n in some] for some in (graph.outputs, graph.inputs)]
    return ir.Graph(graph.name, new.values(), ends[0], None, ends[1])
