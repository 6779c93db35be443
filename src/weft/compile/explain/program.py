"""A native program, looked at: its kernels and calls, what they cost, and why.

program.kernels    the distinct kernels, each with its launches
program.products   matrix products, convolutions and what follows them, by types
program.again      what is computed a second time, to keep less for backward
program.calls      what runs as a whole, by operator and types
program.breaks     nodes that began another kernel, and why
program.passes     what each pass did to the graph
program.stages     the text of each stage after the passes: groups, aliases, steps
program.memory     the arena over time
program.traffic    kernels and bytes before and after fusion
"""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from weft.compile.cost import work
from weft.compile.cost.machine import Machine, machine
from weft.compile.explain.memory import Memory, short_line
from weft.compile.explain.passes import passes_of
from weft.compile.program import program as programs
from weft.compile.program.memory_layout import lay_out
from weft.compile.program.steps import HostCall, KernelLaunch, LibraryCall
from weft.compile.program.text import aliasing_text, groups_text, layout_text
from weft.compile.targets import Target
from weft.compile.targets.cpu.matmul.call import is_product
from weft.core.lowering import Library
from weft.core.rows import Column, Rows, flop, nbytes, percent, seconds
from weft.graph.interpret import resolve
from weft.graph.ir import READ, Graph, Node, type_text

ENOUGH = 0.3  # seconds to measure a program for
ROUNDS = 3, 30  # at least, and at most


class Launch(NamedTuple):
    """One step of a program: a kernel's launch, or a call."""

    step: int
    name: str  # the kernel's, or the operator's
    nodes: list[Node]
    flops: int | None
    read: int
    written: int
    itemsize: int  # of its widest floating numbers
    seconds: float | None = None

    @property
    def moved(self) -> int:
        return self.read + self.written

    def least_seconds(self, roof: Machine) -> float:
        return roof.least_seconds(self.moved, self.flops or 0, self.itemsize)


class Work:
    """Launches of the same code; costs are those of all of them."""

    def __init__(self, launches: list[Launch]) -> None:
        self.launches = launches
        self.name = launches[0].name

    @property
    def operators(self) -> list[str]:
        """The operators that it computes, in order."""
        return [node.op.name for node in self.launches[0].nodes]

    @property
    def flops(self) -> int | None:
        known = [launch.flops for launch in self.launches]
        return None if None in known else sum(n for n in known if n is not None)

    @property
    def read(self) -> int:
        return sum(launch.read for launch in self.launches)

    @property
    def written(self) -> int:
        return sum(launch.written for launch in self.launches)

    @property
    def moved(self) -> int:
        return self.read + self.written

    @property
    def seconds(self) -> float | None:
        """Measured; None where it was not."""
        known = [x.seconds for x in self.launches if x.seconds is not None]
        return sum(known) if known else None

    @property
    def share(self) -> float | None:
        """The least time that the machine allows, as a share of that measured."""
        if not self.seconds:
            return None
        roof = machine()
        return sum(x.least_seconds(roof) for x in self.launches) / self.seconds

    @property
    def places(self) -> list[str]:
        """The modules and lines that its first launch comes from."""
        found = [
            "  ".join(filter(None, (node.module, short_line(node))))
            for node in self.launches[0].nodes
        ]
        return list(dict.fromkeys(filter(None, found)))


class Kernel(Work):
    """A kernel: loops that LLVM made machine code of."""

    def __init__(
        self,
        launches: list[Launch],
        use: KernelLaunch,
        why: Mapping[Node, str],
        target: Target,
    ) -> None:
        super().__init__(launches)
        self.kernel = use.kernel
        self.target = target
        self.why = next((why[n] for n in use.group.nodes[:1] if n in why), "")

    @property
    def loops(self) -> str:
        """The loop nest."""
        return str(self.kernel)

    @cached_property
    def llvm(self) -> str:
        """The text that LLVM is given."""
        return self.target.source(self.kernel)

    @cached_property
    def assembly(self) -> str:
        """The machine code, without the assembler's bookkeeping."""
        lines = self.target.assembly(self.kernel).splitlines()
        return "\n".join(x for x in lines if not x.startswith(_BOOKKEEPING))

    def __str__(self) -> str:
        return f"{_figures(self)}\n{self.loops}"

    __repr__ = __str__


_BOOKKEEPING = tuple(
    f"\t.{word}"
    for word in ("cfi", "file", "globl", "ident", "p2align", "size", "text", "type")
)


class Whole(Work):
    """One operator on the same types, computed as a whole: products, and calls."""

    def __init__(self, launches: list[Launch], why: str) -> None:
        super().__init__(launches)
        self.why = why  # it is no kernel of loops

    @property
    def types(self) -> str:
        node = self.launches[0].nodes[0]
        given = [i.type for i in node.inputs if type(i) is Node]
        return _arrow(given, node.type)

    def __str__(self) -> str:
        return f"{_figures(self)}\n{self.types}\n{self.why}".rstrip()

    __repr__ = __str__


def _figures(work: Work) -> str:
    text = (
        f"{work.name}: {len(work.launches)} × {', '.join(work.operators)}; "
        f"{flop(work.flops)}, reads {nbytes(work.read)}, writes {nbytes(work.written)}"
    )
    if work.seconds is not None:
        text += f"; {seconds(work.seconds)}, {percent(work.share)} of the roof"
    return text


class Break(NamedTuple):
    """A node that could not join the kernel that made its inputs."""

    node: Node
    why: str


class Again(NamedTuple):
    """Values of one operator that are computed a second time."""

    operator: str
    nodes: list[Node]
    sizes: Mapping[str, int]

    @property
    def flops(self) -> int:
        return sum(work.flops(node, self.sizes) or 0 for node in self.nodes)

    @property
    def nbytes(self) -> int:
        return sum(work.size_of(node, self.sizes) for node in self.nodes)


class Traffic(NamedTuple):
    """How many kernels run, and what they move."""

    what: str
    kernels: int
    read: int
    written: int

    @property
    def moved(self) -> int:
        return self.read + self.written


class Program:
    """One native graph at the sizes it ran with last.

    ``known`` gives arrays for some of its inputs, ``store`` for its variables; what
    else a measured run needs is made up: zeros as integers, random floats.
    """

    def __init__(
        self,
        title: str,
        source: Graph,
        program: programs.Program,
        known: Callable[[], Mapping[int, Any]],
        store: Callable[[], Mapping[Any, Any]],
    ) -> None:
        self.title = title
        self.source = source  # before the passes
        self.program = program
        self.lowered = program.lowered
        self.known, self.store = known, store
        planned = program.plan
        hints = _hints(self.lowered.graph)
        self.layout = planned.layout if planned else lay_out(self.lowered, hints)
        self.sizes, self.steps = self.layout.sizes, self.layout.steps
        self.launches = [self._launch(k, s) for k, s in enumerate(self.steps)]
        self.problem = ""  # why it could not be measured

    @property
    def graph(self) -> Graph:
        return self.lowered.graph

    # -- steps

    def _launch(self, number: int, step: Any) -> Launch:
        nodes = _nodes(step)
        made = step.made
        known = [work.flops(node, self.sizes) for node in nodes]
        return Launch(
            number,
            step.name if isinstance(step, KernelLaunch) else nodes[0].op.name,
            nodes,
            None if None in known else sum(n for n in known if n is not None),
            work.bytes_read(nodes, self.sizes) if _moves(nodes) else 0,
            work.bytes_written(made, self.sizes) if _moves(nodes) else 0,
            _itemsize(nodes),
        )

    @property
    def runs(self) -> list[Launch]:
        """The launches that do something."""
        return [launch for launch in self.launches if _moves(launch.nodes)]

    @property
    def kernels(self) -> Rows:
        """The distinct kernels; with times, those that take longest come first."""
        uses: dict[str, KernelLaunch] = {}
        found: dict[str, list[Launch]] = defaultdict(list)
        for launch, step in zip(self.launches, self.steps, strict=True):
            if isinstance(step, KernelLaunch):
                uses.setdefault(step.name, step)
                found[step.name].append(launch)
        why = self.lowered.fusion.why
        target = self.lowered.target
        kernels = [Kernel(found[k], use, why, target) for k, use in uses.items()]
        return _works(
            kernels, Column("operators", lambda k: _repeated(k.operators), number=False)
        )

    @property
    def products(self) -> Rows:
        """Products of matrices, convolutions and attention, by types."""
        then = Column("then", lambda w: _repeated(w.operators[1:]), number=False)
        return _works(self._wholes(LibraryCall), _TYPES, then)

    @property
    def calls(self) -> Rows:
        """What NumPy runs as a whole, by operator and types."""
        why = Column("why no kernel", lambda c: c.why, number=False)
        return _works(self._wholes(HostCall), _TYPES, why)

    def _wholes(self, kind: type) -> list[Whole]:
        found: dict[Any, list[Launch]] = defaultdict(list)
        for launch, step in zip(self.launches, self.steps, strict=True):
            (node, *_) = launch.nodes
            if isinstance(step, kind) and work.works(node):
                types = [type_text(i.type) for i in node.inputs if type(i) is Node]
                then = [one.op.name for one in launch.nodes[1:]]
                found[node.op.name, *types, type_text(node.type), *then].append(launch)
        return [Whole(x, self._why_whole(x[0].nodes[0])) for x in found.values()]

    def _why_whole(self, node: Node) -> str:
        if is_product(node):
            called = any(s.node is node for s in self.steps if isinstance(s, HostCall))
            return "its operands do not lie regularly in memory" if called else ""
        for group, why in self.lowered.refused.items():
            if node in group.nodes:
                return why
        uses = [step for step in self.lowered.steps if isinstance(step, KernelLaunch)]
        if any(node in use.group.nodes for use in uses):
            return "a size is 0, for which its kernel is not made"
        if node.op.lower is None or isinstance(node.op.lower, Library):
            return "its record has no lowering to loops"
        inputs = [i for i in node.inputs if type(i) is Node]
        kinds = ", ".join(dict.fromkeys(n.dtype.name for n in (*inputs, node)))
        return f"there is no scalar function for {kinds}"

    @property
    def breaks(self) -> Rows:
        """Nodes that began another kernel than the one that made their inputs."""
        return Rows(
            [Break(node, why) for node, why in self.lowered.fusion.why.items()],
            Column("node", lambda b: b.node.name, number=False),
            Column("operator", lambda b: b.node.op.name, number=False),
            Column("why it joined no kernel before it", lambda b: b.why, number=False),
            Column("module", lambda b: b.node.module, number=False),
            Column("line", lambda b: short_line(b.node), number=False),
        )

    @property
    def again(self) -> Rows:
        """What is computed a second time for backward, by operator."""
        found: dict[str, list[Node]] = defaultdict(list)
        for node in self.graph.nodes:
            if node.role.is_copy and work.works(node):
                found[node.op.name].append(node)
        copies = [Again(name, nodes, self.sizes) for name, nodes in found.items()]
        return Rows(
            sorted(copies, key=lambda a: (-a.flops, -a.nbytes)),
            Column("operator", lambda a: a.operator, number=False),
            Column("values", lambda a: f"{len(a.nodes):,}"),
            Column("FLOP", lambda a: flop(a.flops)),
            Column("bytes not kept", lambda a: nbytes(a.nbytes)),
        )

    # -- the whole

    @cached_property
    def passes(self) -> Rows:
        return passes_of(self.program)

    @property
    def stages(self) -> dict[str, str]:
        """The program after the passes, as text by stage (``program/text.py``)."""
        return {
            "fuse": groups_text(self.lowered.fusion),
            "alias": aliasing_text(self.lowered.aliasing),
            "plan": layout_text(self.layout),
        }

    @cached_property
    def memory(self) -> Memory:
        return Memory(self.layout)

    @property
    def traffic(self) -> Rows:
        """Kernels and bytes moved: one kernel a node, and as it is."""
        fused = sum(x.read for x in self.runs), sum(x.written for x in self.runs)
        return Rows(
            [
                Traffic("as captured, a kernel a node", *self._unfused(self.source)),
                Traffic("after passes, a kernel a node", *self._unfused(self.graph)),
                Traffic("fused", len(self.runs), *fused),
            ],
            Column("", lambda t: t.what, number=False),
            Column("kernels", lambda t: f"{t.kernels:,}"),
            Column("read", lambda t: nbytes(t.read)),
            Column("written", lambda t: nbytes(t.written)),
            Column("moved", lambda t: nbytes(t.moved)),
        )

    def _unfused(self, graph: Graph) -> tuple[int, int, int]:
        return work.unfused(graph, self.sizes)

    @property
    def flops(self) -> int:
        """Operations of a run, as far as they are known."""
        return sum(launch.flops or 0 for launch in self.launches)

    @property
    def seconds(self) -> float | None:
        """Measured time of all steps."""
        known = [x.seconds for x in self.launches if x.seconds is not None]
        return sum(known) if known else None

    # -- measuring

    def measure(self) -> None:
        """Time every step, in memory of its own: nothing of the user's changes."""
        instance, steps = self.program.timed(self.sizes)
        try:
            feeds, held = self._feeds(), self._held()
            rounds = list(_rounds(lambda: instance.timed(steps, feeds, held)))
        except Exception as error:  # made-up arguments may not suit the program
            self.problem = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            return
        times = map(statistics.median, zip(*rounds, strict=True))
        pairs = zip(self.launches, times, strict=True)
        self.launches = [x._replace(seconds=t) for x, t in pairs]

    def _feeds(self) -> list[Any]:
        known = self.known()
        inputs = enumerate(self.graph.inputs)
        return [known[k] if k in known else self._sample(n) for k, n in inputs]

    def _held(self) -> list[Any]:
        """Arrays for the variables: copies, since runs may write to them."""
        known = self.store()
        reads = {n.params["variable"]: n for n in self.graph.nodes if n.op is READ}
        return [
            known[v].copy() if v in known else self._sample(reads[v])
            for v in self.lowered.reads
        ]

    def _sample(self, node: Node) -> Any:
        shape = resolve(node.shape, self.sizes)
        if not node.dtype.is_inexact:
            return np.zeros(shape, node.dtype.np)
        return np.random.default_rng(0).standard_normal(shape).astype(node.dtype.np)


def _rounds(run: Callable[[], list[float]]) -> Iterable[list[float]]:
    run()  # pages and caches
    least, most = ROUNDS
    start = time.perf_counter()
    for k in range(most):
        if k >= least and time.perf_counter() - start > ENOUGH:
            return
        yield run()


def _hints(graph: Graph) -> dict[str, int]:
    hints = graph.sizes.hints
    return {name: 1 if hint is None else hint for name, hint in hints.items()}


def _nodes(step: Any) -> list[Node]:
    """The nodes that a step computes."""
    if isinstance(step, KernelLaunch):
        return list(step.group.nodes)
    if isinstance(step, LibraryCall):
        return [step.node, *(step.epilogue.group.nodes if step.epilogue else ())]
    return [step.node]


def _moves(nodes: list[Node]) -> bool:
    return any(map(work.works, nodes))


def _itemsize(nodes: list[Node]) -> int:
    """Of the widest floating numbers among the values, for the peak they can reach."""
    kinds = [getattr(node.type, "dtype", None) for node in nodes]
    return max((k.itemsize for k in kinds if k is not None and k.is_inexact), default=4)


_TYPES = Column("types", lambda w: w.types, number=False)


def _works(works: list[Any], *columns: Column) -> Rows:
    """A table, with what takes longest, or else moves most, first."""
    measured = any(work.seconds is not None for work in works)
    timed = [
        Column("time", lambda w: seconds(w.seconds)),
        Column("of roof", lambda w: percent(w.share)),
    ]
    return Rows(
        sorted(works, key=lambda w: (-(w.seconds or 0.0), -w.moved)),
        Column("name", lambda w: w.name, number=False),
        Column("runs", lambda w: f"{len(w.launches):,}"),
        Column("FLOP", lambda w: flop(w.flops)),
        Column("read", lambda w: nbytes(w.read)),
        Column("written", lambda w: nbytes(w.written)),
        *(timed if measured else ()),
        *columns,
    )


def _arrow(given: list[Any], made: Any) -> str:
    """``float32 [8, 4], [4, 2] → [8, 2]``: the dtype once, if it is one."""
    kinds: set[Any] = {getattr(t, "dtype", None) for t in (*given, made)}
    few = given if len(given) <= 4 else given[:3]
    if len(kinds) == 1 and None not in kinds:
        (kind,) = kinds
        lead, texts = f"{kind.name} ", [str(list(t.shape)) for t in (*few, made)]
    else:
        lead, texts = "", [type_text(t) for t in (*few, made)]
    *left, right = texts
    more = f", … {len(given)} in all" if len(few) < len(given) else ""
    return f"{lead}{', '.join(left)}{more} → {right}"


def _repeated(words: list[str]) -> str:
    """``mul add mul`` as ``mul ×2, add``."""
    counts = Counter(words)
    return ", ".join(w if n == 1 else f"{w} ×{n}" for w, n in counts.items())
