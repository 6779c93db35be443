"""A graph as native code: kernels for its groups, calls for the rest.

Preparing a graph gives a ``Native``: machine code for every distinct kernel, and the
steps of a run as data. For each set of sizes an ``Instance`` holds the memory. A run
fills a table of addresses and lets one native loop go through the kernels.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.compile.compose import composed
from weft.compile.driver import FIELDS, driver
from weft.compile.elements import lowering_of
from weft.compile.fuse import Call, Fusion, Group, Operand, inlined
from weft.compile.jobs import Jobs, Routine
from weft.compile.llvm import scalar
from weft.compile.llvm.kernel import emit_kernel
from weft.compile.llvm.target import (
    Library,
    Target,
    compile_module,
    host_target,
    new_module,
)
from weft.compile.loop.verify import verify_kernel
from weft.compile.lower import lower
from weft.compile.phases import phase
from weft.compile.products import Product, copied, is_product, needs_copy
from weft.core.lowering import (
    Element,
    Filled,
    Pointwise,
    Reduction,
    Scan,
    Scatter,
    View,
)
from weft.core.size import evaluate, same
from weft.graph.interpret import Program, bind_sizes, failed, resolve
from weft.graph.ir import (
    ASSIGN,
    CONSTANT,
    GROUP,
    PICK,
    READ,
    Graph,
    GraphError,
    Node,
    Variable,
)
from weft.runtime import arena

ndarray = np.ndarray
GRAIN = 1 << 15  # operations that are worth handing to another thread


def supported(node: Node) -> bool:
    """Whether a node can be part of a kernel."""
    rule = lowering_of(node)
    if isinstance(rule, View):
        return True
    if isinstance(rule, (Element, Scatter, Scan)):
        inputs = [i for i in node.inputs if type(i) is Node]
        if any(
            same(n, 0) for n in node.shape
        ):  # a call checks its indices all the same
            return False
        return all(scalar.has_dtype(n.dtype) for n in (node, *inputs))
    if not isinstance(rule, (Pointwise, Reduction, Filled)):
        return False
    if isinstance(rule, Filled):
        return scalar.has_dtype(node.dtype)
    if isinstance(rule, Reduction):
        return scalar.has_function(rule.combine, [node.dtype] * 2, node.dtype)
    tensors = [i.dtype for i in node.inputs if type(i) is Node]
    if not tensors:
        return False
    like = tensors[-1]
    kinds = [i.dtype if type(i) is Node else like for i in node.inputs]
    return scalar.has_function(rule.scalar, kinds, node.dtype)


class Use:
    """One launch of a kernel: which values its buffers are."""

    def __init__(
        self, name: str, kernel: Any, owners: list[Node], group: Group
    ) -> None:
        self.name = name
        self.kernel = kernel
        self.owners = owners
        self.group = group

    @property
    def made(self) -> list[Node]:
        """The values it computes."""
        return [n for n in self.owners if n in self.group.home]


LAUNCHES = (Use, Routine)


class Native:
    """A graph prepared for native execution."""

    @phase("lowering")
    def __init__(self, graph: Graph, target: Target | None = None) -> None:
        self.graph = graph = composed(graph)
        self.target = target or host_target()
        self.fusion = Fusion(graph, supported)
        self.steps: list[Any] = []  # uses, and nodes that are called
        self.kernels: dict[str, Any] = {}
        self.refused: dict[Group, str] = {}
        for unit in self.fusion.units:
            self._add(unit)
        self.library = self._compile()
        self.reads = list(
            dict.fromkeys(n.params["variable"] for n in graph.nodes if n.op is READ)
        )
        self.writes = [n for n in graph.nodes if n.op is ASSIGN]
        self._instances: dict[Any, Instance] = {}

    def _add(self, unit: Call | Group) -> None:
        if isinstance(unit, Call):
            if is_product(unit.node):
                self._add_product(unit)
            elif unit.node.op not in (ASSIGN, GROUP):
                self.steps.append(unit.node)
            return
        kernel, owners = lower(unit, "kernel")
        text = f"{kernel} {kernel.positive}"
        found = self.kernels.get(text)
        if found is None:
            try:
                verify_kernel(kernel)
            except GraphError as error:  # not proven to stay in bounds: not generated
                self.refused[unit] = str(error)
                self.steps += unit.nodes
                return
            found = kernel._replace(name=f"kernel{len(self.kernels)}")
            self.kernels[text] = found
        self.steps.append(Use(found.name, kernel, owners, unit))

    def _add_product(self, unit: Call) -> None:
        inputs = []
        for node in unit.node.inputs:
            if needs_copy(node):
                group = Group(unit.order, node.shape, self.graph.sizes)
                made = copied(node)
                group.add(made, group.vars, row=False)
                group.outputs = [made]
                self._add(group)
                node = made
            inputs.append(node)
        self.steps.append(Product(unit.node, inputs))

    def _compile(self) -> Library | None:
        if not self.kernels:
            return None
        module = new_module(self.graph.name, self.target)
        for kernel in self.kernels.values():
            emit_kernel(module, kernel, self.target)
        return compile_module(module, self.target)

    def run(
        self, feeds: Sequence[ndarray], store: Mapping[Variable, ndarray]
    ) -> tuple[list[ndarray], dict[Variable, ndarray]]:
        """The outputs, and the assigned variables' new values (these only until the
        next run: they lie in memory that is used again)."""
        sizes = bind_sizes(self.graph.inputs, feeds)
        if self.graph.sizes.assumptions:
            self.graph.sizes.check(sizes)
        key = tuple(sorted(sizes.items()))
        instance = self._instances.get(key)
        if instance is None:
            if len(self._instances) >= 8:
                self._instances.clear()
            instance = self._instances[key] = Instance(self, sizes)
        return instance.run(feeds, store)

    @property
    def latest(self) -> Instance | None:
        """The instance that was made last; None before the first run."""
        return next(reversed(self._instances.values()), None)


class Instance:
    """The memory and the tables of a native graph for one set of sizes."""

    def __init__(self, native: Native, sizes: Mapping[str, int]) -> None:
        self.native = native
        self.sizes = dict(sizes)
        routines = [s for s in native.steps if isinstance(s, Routine)]
        self.jobs = Jobs(routines, self.sizes, native.target)
        self.steps = self._regular()
        self.uses = [s for s in self.steps if isinstance(s, LAUNCHES)]
        self.arrays = self._allocate()
        nodes = [node for use in self.uses for node in use.owners]
        self.slots = {node: k for k, node in enumerate(dict.fromkeys(nodes))}
        self.addresses = np.zeros(len(self.slots), np.int64)
        for node, slot in self.slots.items():
            if node in self.arrays:
                self.addresses[slot] = _address(self.arrays[node])
            elif node.op is CONSTANT:
                self.arrays[node] = _in_order(node.params["value"])
                self.addresses[slot] = _address(self.arrays[node])
        self.places = np.array([self.slots[n] for n in nodes], np.int64)
        self.table = np.zeros(len(nodes), np.int64)
        self.jobs.link(self.slots)
        self._describe()
        self._plan()

    def _regular(self) -> list[Any]:
        """The steps, with calls for what kernels do not do for these sizes."""
        steps: list[Any] = []
        for step in self.native.steps:
            if isinstance(step, Routine) and step not in self.jobs.works:
                steps.append(step.node)
            elif isinstance(step, Use) and not self._runs(step):
                steps += step.group.nodes
            else:
                steps.append(step)
        return steps

    def _runs(self, use: Use) -> bool:
        """Whether sizes that must not be 0 for a kernel's loads are not."""
        return all(evaluate(n, self.sizes) > 0 for n in use.kernel.positive)

    # -- memory

    def _allocate(self) -> dict[Node, ndarray]:
        """One arena for all that kernels make, by when it is needed."""
        last = self._last_uses()
        buffers, shapes = [], {}
        ends = set(self.native.graph.outputs)
        self.fresh: dict[Node, Any] = {}  # outputs: memory of their own in each run
        for at, step in enumerate(self.steps):
            for node in step.made if isinstance(step, LAUNCHES) else ():
                shape = resolve(node.shape, self.sizes)
                if node in ends:
                    self.fresh[node] = shape
                    continue
                shapes[node] = shape
                nbytes = math.prod(shapes[node]) * node.dtype.itemsize
                buffers.append(arena.Buffer(node, nbytes, at, last.get(node, at)))
        self.layout = arena.plan(buffers)
        self.arena = arena.Arena(self.layout.nbytes)
        return {
            node: self.arena.view(self.layout.offsets[node], shape, node.dtype.np)
            for node, shape in shapes.items()
        }

    def _last_uses(self) -> dict[Node, int]:
        """The last step that reads each value; outputs are read after all steps."""
        steps, found = self.steps, {}
        for at, step in enumerate(steps):
            nodes = step.owners if isinstance(step, LAUNCHES) else step.inputs
            for node in nodes:
                if type(node) is Node:
                    found[Operand(node).base] = at
                    found[node] = at
        ends = [*self.native.graph.outputs, *[w.inputs[0] for w in self.native.writes]]
        for node in ends:
            found[Operand(node).base] = len(steps)
        return found

    # -- tables

    def _describe(self) -> None:
        """What the native loop reads of each use: see ``driver``."""
        library: Any = self.native.library
        rows: list[Any] = []
        numbers: list[int] = []
        flags: list[int] = []  # places among them where kernels report bad indices
        at = 0
        code = driver()
        for use in self.uses:
            if isinstance(use, Routine):
                rows.append(self.jobs.row(use, code.jobs))
                at += len(use.owners)
                continue
            kernel = use.kernel
            known = dict(self.sizes)
            known.update((k, evaluate(n, self.sizes)) for k, n in kernel.given)
            count = math.prod(evaluate(n, known) for _, n in kernel.parallel)
            work = sum(self._count(n) for n in use.made)
            share = max(work // max(count, 1), 1) * max(len(use.group.nodes), 1)
            grain = max(GRAIN // share, 1)
            function = library.address(use.name)
            table = _address(self.table) + 8 * at
            rows.append(
                [0, function, table, len(numbers), count, grain, code.iterations, 0]
            )
            numbers += [known[name] for name in kernel.sizes]
            if kernel.checks:
                flags.append(len(numbers))
                numbers.append(0)
            at += len(use.owners)
        self.numbers = np.array([*numbers, 0], np.int64)
        self.flags = np.array(flags, np.int64)
        for row in rows:
            if row[6] == code.iterations:
                row[3] = _address(self.numbers) + 8 * row[3]
        self.rows = np.array(rows, np.int64).reshape(-1, FIELDS)

    def _count(self, node: Node) -> int:
        return math.prod(resolve(node.shape, self.sizes))

    def _plan(self) -> None:
        """Runs of uses, and calls between them."""
        self.plan: list[Any] = []
        k = 0
        for step in self.steps:
            if not isinstance(step, LAUNCHES):
                self.plan.append(step)
                continue
            if self.plan and isinstance(self.plan[-1], tuple):
                self.plan[-1] = (self.plan[-1][0], k + 1)
            else:
                self.plan.append((k, k + 1))
            k += 1

    # -- running

    def run(self, feeds: Sequence[ndarray], store: Mapping[Variable, ndarray]) -> Any:
        env = self._given(feeds, store)
        run, rows = driver().run, _address(self.rows)
        fresh = True
        with np.errstate(all="ignore"):
            for step in self.plan:
                if isinstance(step, tuple):
                    if fresh:
                        self._fill()
                        fresh = False
                    run(rows, *step)
                else:
                    try:
                        self._call(step, env)
                    except Exception:
                        self._check(feeds, store)  # the error that came first
                        raise
                    fresh = True
        self._check(feeds, store)
        outs = self._outputs(env)
        writes = {
            n.params["variable"]: self._value(n.inputs[0], env)
            for n in self.native.writes
        }
        return outs, writes

    def _outputs(self, env: dict[Node, Any]) -> list[ndarray]:
        """The outputs, each in memory that no other value and no later run uses."""
        found, given = [], set()
        for node in self.native.graph.outputs:
            array = self._value(node, env)
            own = node in self.fresh and node not in given
            found.append(array if own else array.copy())
            given.add(node)
        return found

    def _check(
        self, feeds: Sequence[ndarray], store: Mapping[Variable, ndarray]
    ) -> None:
        """Raise the error of an index that a kernel found to be out of range.

        Nothing was written back by then. The graph is run again by the interpreter,
        which knows the value, the axis and the line.
        """
        if not self.flags.size or not self.numbers[self.flags].any():
            return
        self.numbers[self.flags] = 0
        graph = self.native.graph
        Program(graph, graph.outputs).run(feeds, store)
        raise GraphError("a kernel reports an index that the interpreter accepts")

    def timed(
        self, feeds: Sequence[ndarray], store: Mapping[Variable, ndarray]
    ) -> list[float]:
        """A run one step at a time: the seconds that each of the steps took."""
        env = self._given(feeds, store)
        run, rows = driver().run, _address(self.rows)
        found, k = [], 0
        with np.errstate(all="ignore"):
            for step in self.steps:
                self._fill()
                start = time.perf_counter()
                if isinstance(step, LAUNCHES):
                    run(rows, k, k + 1)
                    k += 1
                else:
                    self._call(step, env)
                found.append(time.perf_counter() - start)
        return found

    def _fill(self) -> None:
        """Put the values' present addresses where launches find them."""
        np.take(self.addresses, self.places, out=self.table)
        self.jobs.fill(self.addresses)

    def _given(
        self, feeds: Sequence[ndarray], store: Mapping[Variable, ndarray]
    ) -> dict[Node, Any]:
        """The values that are there before the first step."""
        env: dict[Node, Any] = dict(self.arrays)
        for node, shape in self.fresh.items():
            self._give(env, node, np.empty(shape, node.dtype.np))
        graph = self.native.graph
        for node, array in zip(graph.inputs, feeds, strict=True):
            if array is not None:
                self._give(env, node, array)
        for node in graph.nodes:
            if node.op is READ:
                self._give(env, node, store[node.params["variable"]])
        return env

    def _give(self, env: dict[Node, Any], node: Node, array: Any) -> None:
        """A value that kernels find at its address."""
        slot = self.slots.get(node)
        if slot is not None:
            array = _in_order(array)
            self.addresses[slot] = _address(array)
        env[node] = array

    def _call(self, node: Node, env: dict[Node, Any]) -> None:
        args = [self._value(i, env) for i in node.inputs]
        if node.op is PICK:
            self._give(env, node, args[0][node.params["index"]])
            return
        params = resolve(node.params, self.sizes)
        try:
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


def _address(array: ndarray) -> int:
    return array.__array_interface__["data"][0]
