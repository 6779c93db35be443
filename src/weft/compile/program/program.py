"""A graph as native code: kernels for its groups, routines for products, calls.

Preparing a graph gives a ``Native``: machine code for every distinct kernel, and the
steps of a run as data. For each set of sizes an ``Instance`` holds the memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from weft.compile.emit import scalar
from weft.compile.emit.isa import Isa, new_module
from weft.compile.fusion.elements import lowering_of
from weft.compile.fusion.epilogue import Follower, followers
from weft.compile.fusion.groups import Call, Fusion, Group, copied
from weft.compile.loop.ir import Kernel
from weft.compile.loop.proof_cache import Proofs
from weft.compile.loop.verify import verify_kernel
from weft.compile.lower.deduplicate import Alike
from weft.compile.passes.copy_view_outputs import copy_view_outputs
from weft.compile.passes.expand_composites import expand_composites
from weft.compile.passes.hoist_small_values import hoist_small_values
from weft.compile.passes.inplace_concat import inplace_concat, is_joined, pieces_of
from weft.compile.passes.rename_sizes import both_spellings, rename_sizes
from weft.compile.passes.split_k import split_k
from weft.compile.passes.split_reductions import split_reductions
from weft.compile.passes.widen_half_products import widen_half_products
from weft.compile.program.aliasing import assigned_once, share
from weft.compile.program.bodies import bodies_of, native_of
from weft.compile.program.executable import Symbol
from weft.compile.program.executor import Instance
from weft.compile.program.phases import phase
from weft.compile.program.plan import Tables
from weft.compile.program.steps import Order, Use, ordered
from weft.compile.targets.cpu.attention.arrays import compiled as attention_code
from weft.compile.targets.cpu.attention.call import is_attention, usual_function
from weft.compile.targets.cpu.convolution.arrays import compiled as convolution_code
from weft.compile.targets.cpu.convolution.call import is_convolution
from weft.compile.targets.cpu.driver import driver
from weft.compile.targets.cpu.jobs import Routine
from weft.compile.targets.cpu.kernel import emit_kernel
from weft.compile.targets.cpu.library import routine_of
from weft.compile.targets.cpu.matmul.arrays import compiled as product_code
from weft.compile.targets.cpu.matmul.call import (
    Panels,
    is_product,
    mark_few,
    mark_weights,
    need_few,
    packed,
    product_kind,
    read_often,
    usual_shape,
)
from weft.compile.targets.cpu.object_code import Library, compile_known, host_isa
from weft.compile.targets.cpu.symbols import address_of
from weft.config import config
from weft.core.lowering import (
    Element,
    Filled,
    Pointwise,
    Reduction,
    Scan,
    Scatter,
    View,
)
from weft.core.size import same
from weft.graph.interpret import Program, bind_sizes
from weft.graph.ir import (
    ASSIGN,
    GROUP,
    PICK,
    READ,
    Graph,
    GraphError,
    Node,
    Variable,
)

ndarray = np.ndarray
PREPARATIONS = (
    rename_sizes,
    widen_half_products,
    expand_composites,
    hoist_small_values,
    split_k,
    split_reductions,
    copy_view_outputs,
    inplace_concat,
)
Replay = Callable[[Sequence[Any], Sequence[Any]], Any]
INSTANCES = 8  # sets of sizes whose memory is kept


def supported(node: Node) -> bool:
    """Whether a node can be part of a kernel."""
    rule = lowering_of(node)
    if isinstance(rule, View):
        return True
    if is_joined(node):
        return False
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


def start_routines(graph: Graph, target: Isa, *, pack_weights: bool) -> None:
    """Have the code that is not the graph's own made while kernels are lowered."""
    driver.start()
    few = pack_weights or need_few(graph.nodes, target)
    for node in graph.nodes:
        if kind := product_kind(node):
            product_code(kind, target, usual_shape(node), few).start()
        elif is_convolution(node):
            convolution_code(node.dtype.name, target).start()
        elif is_attention(node):
            code = attention_code(node.inputs[0].dtype.name, target)
            code.start(usual_function(node))


@functools.cache
def _proofs() -> Proofs:
    """What is proven, in this process and in others before it."""
    proofs = Proofs()
    proofs.load()
    return proofs


class Native:
    """A graph prepared for native execution.

    A run may write new values of the variables ``in_place`` over the old ones, in the
    arrays it was given, where that is safe; those of others it only gives back.
    With ``pack_weights``, right operands of products that are variables without a new
    value are packed once (``packed``), if each run says how new they are.
    ``replay`` runs the program as it was before the passes, when a kernel has reported
    an error.
    """

    @phase("lowering")
    def __init__(
        self,
        graph: Graph,
        target: Isa | None = None,
        *,
        in_place: Collection[Variable] = (),
        pack_weights: bool = False,
        replay: Replay | None = None,
    ) -> None:
        self.replay = self._replay if replay is None else replay
        for prepare in PREPARATIONS:
            graph = prepare(graph)
        self.graph = graph
        self.target = target or host_isa()
        self._start(pack_weights)
        self.fusion = Fusion(graph, supported)
        self.steps: list[Any] = []  # launches, and nodes that are called
        self.refused: dict[Group, str] = {}
        self.alike = Alike()
        self._proven: dict[Any, str] = {}  # by kernel: an index that is not, or nothing
        self._add_all()
        self.steps = ordered(self.steps, graph)
        self.reads = list(
            dict.fromkeys(n.params["variable"] for n in graph.nodes if n.op is READ)
        )
        self.writes = [n for n in graph.nodes if n.op is ASSIGN]
        if pack_weights:  # by one function, so that programs can share them
            mark_weights(self.steps, self.writes)
        else:
            mark_few(self.steps, self.target)
        may = assigned_once(self.writes, in_place)
        self.places = share(graph, Order(self.steps, graph), may)
        self.unread = [v for v in self.places.state if v not in self.reads]
        self.kernels: dict[str, Kernel] = {}
        self._name_kernels()
        self.libraries: dict[str, Library] = {}  # machine code, by its key
        self._symbols: dict[Any, Symbol] = {}
        self._compile()
        self.instances: dict[Any, Instance] = {}
        self.tables: Tables | None = None  # of the instance that was made last

    def _start(self, pack_weights: bool) -> None:
        """Have the code that is not the graph's own made meanwhile."""
        start_routines(self.graph, self.target, pack_weights=pack_weights)

    def _add_all(self) -> None:
        follow = followers(self.fusion)
        done: set[Group] = set()
        self._often = read_often(self.graph.nodes)
        self._panels: dict[Node, Node] = {}
        self._picks: dict[Node, list[Node]] = {}  # of nodes with several outputs
        for node in self.graph.nodes:
            if node.op is PICK:
                self._picks.setdefault(node.inputs[0], []).append(node)
        for unit in self.fusion.units:
            if isinstance(unit, Group):
                self._add_once(unit, done)
            elif (kind := routine_of(unit.node)) is not None:
                group, before = follow.get(unit, (None, ()))
                for one in before:
                    self._add_once(one, done)
                if self._add_routine(kind, unit, group) and group is not None:
                    done.add(group)
            elif unit.node.op is PICK and routine_of(unit.node.inputs[0]) is not None:
                pass  # the routine makes it
            elif is_joined(unit.node):
                self.steps += pieces_of(unit.node, self.graph.sizes)
            elif unit.node.op not in (ASSIGN, GROUP):
                for body in bodies_of(unit.node):
                    native_of(body)
                self.steps.append(unit.node)

    def _add_once(self, group: Group, done: set[Group]) -> None:
        if group not in done:
            done.add(group)
            self._add_group(group)

    def _add_group(self, group: Group) -> None:
        use = Use(self.alike.lowered(group), group)
        if self._prove(use):
            self.steps.append(use)
        else:
            self.steps += group.nodes

    def _prove(self, use: Use) -> bool:
        """Whether every index is in bounds; if not, no code is made."""
        text = self.alike.text(use.kernel)
        if text not in self._proven:
            try:
                _proofs().check(text, functools.partial(verify_kernel, use.kernel))
                self._proven[text] = ""
            except GraphError as error:
                self._proven[text] = str(error)
        if self._proven[text]:
            self.refused[use.group] = self._proven[text]
        return not self._proven[text]

    def _packed(self, right: Node, operand: Node) -> Node:
        """A product's right operand as panels, which the first that needs it makes."""
        if right not in self._panels:
            self._panels[right] = packed(operand, self.target)
            self.steps.append(Panels(self._panels[right], [operand]))
        return self._panels[right]

    def _add_routine(
        self, kind: type[Routine], unit: Call, group: Group | None
    ) -> bool:
        """Add a routine; whether a group that may follow it does."""
        inputs = self._operands(unit, kind.copies)
        if is_product(unit.node) and unit.node.inputs[1] in self._often:
            inputs.append(self._packed(unit.node.inputs[1], inputs[1]))
        follower = None
        if group is not None:
            follower = Follower(group, unit.node, self.alike)
            if not follower.fits or not self._prove(follower):
                self.refused.pop(group, None)
                follower = None
        picks = self._picks.get(unit.node, [])
        self.steps.append(kind(unit.node, inputs, follower, picks))
        return follower is not None

    def _operands(self, unit: Call, copy: Callable[[Node], bool]) -> list[Node]:
        """A routine's operands, those that are to be copied as their copies."""
        inputs = []
        for node in unit.node.inputs:
            if copy(node):
                group = Group(unit.order, node.shape, self.graph.sizes)
                made = copied(node)
                group.add(made, group.vars, row=False)
                group.outputs = [made]
                self._add_group(group)
                node = made
            inputs.append(node)
        return inputs

    def _name_kernels(self) -> None:
        """One name for equal kernels."""
        found: dict[Any, str] = {}
        for use in self._uses():
            text = self.alike.text(use.kernel)
            name = found.setdefault(text, f"kernel{len(found)}")
            use.kernel = use.kernel._replace(name=name)
            self.kernels.setdefault(name, use.kernel)

    def _uses(self) -> list[Any]:
        """All that launch a kernel: uses, and routines' followers."""
        found = [s.follower if isinstance(s, Routine) else s for s in self.steps]
        return [one for one in found if isinstance(one, (Use, Follower))]

    def _compile(self) -> None:
        """Machine code of all kernels, for the places that are planned."""
        _proofs().save()
        if self.kernels:
            library = self._library(self.kernels.values())
            for name, kernel in self.kernels.items():
                symbol = Symbol("kernel", library.key, name)
                self._symbols[name, kernel.shared] = symbol

    def _library(self, kernels: Iterable[Kernel]) -> Library:
        texts = [f"{kernel.name}: {self.alike.text(kernel)}" for kernel in kernels]
        key = "\n".join([f"strict: {config.strict_ieee}", *texts])
        library = compile_known(key, lambda: self._module(kernels), self.target)
        self.libraries[library.key] = library
        return library

    def _module(self, kernels: Iterable[Kernel]) -> ir.Module:
        module = new_module("kernels", self.target)
        for kernel in kernels:
            emit_kernel(module, kernel, self.target)
        return module

    def function(self, kernel: Kernel, shared: tuple[tuple[str, str], ...]) -> Symbol:
        """A kernel's code for arguments of which these share places."""
        key = kernel.name, shared
        if key not in self._symbols:  # other places than planned
            library = self._library([kernel._replace(shared=shared)])
            self._symbols[key] = Symbol("kernel", library.key, kernel.name)
        return self._symbols[key]

    def address(self, symbol: Symbol) -> int:
        """Where a function begins."""
        return address_of(symbol, self.libraries, self.target)

    def run(
        self,
        feeds: Sequence[ndarray],
        store: Mapping[Variable, ndarray],
        room: Mapping[Variable, ndarray | None] | None = None,
        write: Callable[[dict[Variable, ndarray]], None] | None = None,
        known: Mapping[str, int] | None = None,
    ) -> tuple[list[ndarray], dict[Variable, ndarray]]:
        """The outputs, and new values of variables that were not written in place.

        Those that lie in an array of their own may be kept; the others hold until the
        next run only. ``room`` gives arrays for variables that are only written;
        ``write`` gets the new values before anything can interrupt. ``known`` are
        sizes that the feeds may not tell.
        """
        instance = self.instance_for(feeds, known)
        held = [store[v] for v in self.reads]
        rooms = [room.get(v) for v in self.unread] if room else ()
        names = {v.name: v for v in self.graph.variables.values()}
        found: list[Any] = []

        def noted(changed: dict[str, ndarray]) -> None:
            found.append({names[name]: array for name, array in changed.items()})
            if write is not None:
                write(found[0])

        outputs, _ = instance.run(feeds, held, rooms, noted)
        return outputs, found[0]

    def instance_for(
        self, feeds: Sequence[ndarray], known: Mapping[str, int] | None = None
    ) -> Instance:
        """The instance for arguments of these sizes."""
        key: Any = [(a.shape, a.dtype) if a is not None else None for a in feeds]
        key = (*key, *known.items()) if known else tuple(key)
        found = self.instances.get(key)
        if found is None:
            sizes = both_spellings(known or {})
            sizes |= bind_sizes(self.graph.inputs, feeds)
            if self.graph.sizes.assumptions:
                self.graph.sizes.check(sizes)
            if len(self.instances) >= INSTANCES:
                self.instances.clear()
            found = self.instances[key] = self.instance(sizes)
        return found

    def instance(self, sizes: Mapping[str, int]) -> Instance:
        """A new instance, with memory of its own."""
        self.tables = Tables(self, both_spellings(sizes))
        functions = [self.address(one) for one in self.tables.script.functions]
        return Instance(self.tables.script, functions, self.replay)

    def timed(self, sizes: Mapping[str, int]) -> tuple[Instance, list[Any]]:
        """A new instance, and the steps to measure there one by one."""
        made, kept = self.instance(sizes), self.tables
        assert kept is not None
        return made, kept.timeline

    def _replay(self, feeds: Sequence[ndarray], held: Sequence[ndarray]) -> None:
        replay(self.graph, self.reads, feeds, held)

    @property
    def latest(self) -> Instance | None:
        """The instance that was made last; None before the first run."""
        return next(reversed(self.instances.values()), None)


def replay(
    graph: Graph, reads: Sequence[Variable], feeds: Sequence[Any], held: Sequence[Any]
) -> None:
    """Run a graph by the interpreter, for the error that a kernel has reported."""
    names = [v.name for v in reads]
    known = dict(zip(names, held, strict=True))
    store = {v: known[name] for name, v in graph.variables.items() if name in known}
    Program(graph, graph.outputs).run(feeds, store)
