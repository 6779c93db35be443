"""A graph as native code: kernels for its groups, calls for the rest.

Preparing a graph gives a ``Native``: machine code for every distinct kernel, and the
steps of a run as data. For each set of sizes an ``Instance`` holds the memory. A run
fills a table of addresses and lets one native loop go through the kernels.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from weft.compile.fuse import Call, Fusion, Group, Operand
from weft.compile.llvm import scalar
from weft.compile.llvm.emit import I64, POINTER, VOID, i64, loop
from weft.compile.llvm.kernel import SIGNATURE, emit_kernel
from weft.compile.llvm.target import (
    Library,
    Target,
    compile_module,
    host_target,
    new_module,
    prepare_function,
)
from weft.compile.loop.verify import verify_kernel
from weft.compile.lower import lower
from weft.core.lowering import Filled, Pointwise, Reduction, View
from weft.core.size import evaluate
from weft.errors import AllocationError
from weft.graph.interpret import bind_sizes, failed, resolve
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

ndarray = np.ndarray


def supported(node: Node) -> bool:
    """Whether a node can be part of a kernel."""
    rule = node.op.lower
    if isinstance(rule, View):
        return True
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


class Native:
    """A graph prepared for native execution."""

    def __init__(self, graph: Graph, target: Target | None = None) -> None:
        self.graph = graph
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
            if unit.node.op not in (ASSIGN, GROUP):
                self.steps.append(unit.node)
            return
        kernel, owners = lower(unit, "kernel")
        try:
            verify_kernel(kernel)
        except GraphError as error:  # not proven to stay in bounds: not generated
            self.refused[unit] = str(error)
            self.steps += unit.nodes
            return
        text = str(kernel)
        found = self.kernels.get(text)
        if found is None:
            found = kernel._replace(name=f"kernel{len(self.kernels)}")
            self.kernels[text] = found
        self.steps.append(Use(found.name, kernel, owners, unit))

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
        """The outputs, and the assigned variables' new values (valid until the next
        run: both lie in memory that is used again)."""
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


class Instance:
    """The memory and the tables of a native graph for one set of sizes."""

    def __init__(self, native: Native, sizes: Mapping[str, int]) -> None:
        self.native = native
        self.sizes = dict(sizes)
        self.arrays: dict[Node, ndarray] = {}
        uses = [s for s in native.steps if isinstance(s, Use)]
        nodes: list[Node] = []
        for use in uses:
            for node in use.made:
                self.arrays[node] = self._allocate(node)
            nodes += use.owners
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
        self._describe(uses)
        self._plan()

    def _allocate(self, node: Node) -> ndarray:
        shape = resolve(node.shape, self.sizes)
        try:
            return np.empty(shape, node.dtype.np)
        except MemoryError:
            raise AllocationError(
                f"{node.name}: {math.prod(shape) * node.dtype.itemsize:,} bytes for "
                f"{node.type} could not be had"
            ) from None

    def _describe(self, uses: list[Use]) -> None:
        """What the native loop reads: function, table, sizes, count of each use."""
        library: Any = self.native.library
        rows: list[Any] = []
        numbers: list[int] = []
        at = 0
        for use in uses:
            kernel = use.kernel
            known = dict(self.sizes)
            known.update((k, evaluate(n, self.sizes)) for k, n in kernel.given)
            count = math.prod(evaluate(n, known) for _, n in kernel.parallel)
            rows.append((library.address(use.name), at, len(numbers), count))
            numbers += [known[name] for name in kernel.sizes]
            at += len(use.owners)
        self.uses = np.array(rows, np.int64).reshape(-1, 4)
        self.numbers = np.array([*numbers, 0], np.int64)

    def _plan(self) -> None:
        """Runs of uses, and calls between them."""
        self.plan: list[Any] = []
        k = 0
        for step in self.native.steps:
            if not isinstance(step, Use):
                self.plan.append(step)
                continue
            if self.plan and isinstance(self.plan[-1], tuple):
                self.plan[-1] = (self.plan[-1][0], k + 1)
            else:
                self.plan.append((k, k + 1))
            k += 1

    # -- running

    def run(self, feeds: Sequence[ndarray], store: Mapping[Variable, ndarray]) -> Any:
        env = dict(self.arrays)
        graph = self.native.graph
        for node, array in zip(graph.inputs, feeds, strict=True):
            if array is not None:
                self._give(env, node, array)
        for node in graph.nodes:
            if node.op is READ:
                self._give(env, node, store[node.params["variable"]])
        driver = _driver()
        fresh = True
        with np.errstate(all="ignore"):
            for step in self.plan:
                if isinstance(step, tuple):
                    if fresh:
                        np.take(self.addresses, self.places, out=self.table)
                        fresh = False
                    driver(
                        self.uses.ctypes.data, self.table.ctypes.data,
                        self.numbers.ctypes.data, *step,
                    )  # fmt: skip
                else:
                    self._call(step, env)
                    fresh = True
        outs = [self._value(o, env) for o in graph.outputs]
        writes = {
            n.params["variable"]: self._value(n.inputs[0], env)
            for n in self.native.writes
        }
        return outs, writes

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
            env[node] = tuple(np.asarray(f) for f in found)
        else:
            self._give(env, node, np.asarray(found))

    def _value(self, value: Any, env: dict[Node, Any]) -> Any:
        """A node's array, through the views it may be."""
        if type(value) is not Node:
            return evaluate(value, self.sizes)
        found = env.get(value)
        if found is None:
            if value.op is CONSTANT:
                return value.params["value"]
            operand = Operand(value)
            found = self._value(operand.base, env)
            for view in reversed(operand.views):
                found = view.op.kernel(found, **resolve(view.params, self.sizes))
        return found


def _in_order(array: ndarray) -> ndarray:
    """The array itself if it is row-major, else a copy that is (0-d stays 0-d)."""
    return array if array.flags.c_contiguous else array.copy(order="C")


def _address(array: ndarray) -> int:
    return array.__array_interface__["data"][0]


@functools.cache
def _driver() -> Any:
    """``run(uses, table, sizes, first, last)``: kernels one after the other."""
    target = host_target()
    module = new_module("driver", target)
    kind = ir.FunctionType(
        VOID, [I64.as_pointer(), POINTER.as_pointer(), I64.as_pointer(), I64, I64]
    )
    made = ir.Function(module, kind, "run")
    prepare_function(made, target)
    b = ir.IRBuilder(made.append_basic_block("entry"))
    uses, table, sizes, first, last = made.args
    with loop(b, first, last) as k:
        at = b.mul(k, i64(4))
        row = [b.load(b.gep(uses, [b.add(at, i64(c))])) for c in range(4)]
        function = b.inttoptr(row[0], SIGNATURE.as_pointer())
        b.call(
            function,
            [b.gep(table, [row[1]]), b.gep(sizes, [row[2]]), i64(0), row[3]],
        )
    b.ret_void()
    library = compile_module(module, target)
    prototype = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
        ctypes.c_int64,
    )  # fmt: skip
    function = prototype(library.address("run"))
    function.library = library  # type: ignore[attr-defined]
    return function
