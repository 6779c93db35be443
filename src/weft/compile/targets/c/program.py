"""Programs as C functions: the steps of a lowered graph, one after the other.

    static int predict(unsigned char *ws, void *const *io, const int64_t *n)

``ws`` is the workspace, ``io`` the memory of weights, inputs, outputs and variables in
this order, ``n`` the number of the iteration, which matters in bodies of loops, and
then the open sizes. The result is not 0 where a kernel has found a wrong index or
divisor; no variable has changed then.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft.compile.loop.ir import Kernel
from weft.compile.loop.rewrite import substitute
from weft.compile.lower.deduplicate import KernelTable
from weft.compile.passes.rename_sizes import spelling
from weft.compile.program.bodies import programs_of
from weft.compile.program.concat import Piece
from weft.compile.program.lowered import Lowered
from weft.compile.program.steps import HostCall, KernelLaunch, LibraryCall
from weft.compile.targets.c.kernel import parallel_extent, write_kernel
from weft.compile.targets.c.memory import CLayout, rounded
from weft.compile.targets.c.source import Indices, Source, array, comment
from weft.compile.targets.c.threads import run_function
from weft.core.size import Scope, Size, evaluate, same
from weft.dtype import DType
from weft.graph.ir import ASSIGN, CONSTANT, READ, Graph, Node, Variable

LEAST = 256  # bytes of a constant that is worth a place in the file of weights


class Names:
    """The functions and constants of a file, each once."""

    def __init__(self, source: Source, prefix: str, *, beside: bool = False) -> None:
        self.source, self.prefix = source, prefix
        self.beside = beside  # whether large constants are in a file of their own
        self.weights: dict[str, np.ndarray] = {}
        self.weight_bytes = 0
        self.places: dict[str, int] = {}  # of weights, in bytes
        self.kernels: dict[Any, str] = {}
        self.constants: dict[Any, str] = {}
        self.bodies = 0

    def kernel(self, kernel: Kernel, table: KernelTable) -> str:
        """The name of a kernel's function; kernels of one text are one."""
        key = table.text(kernel), kernel.shared
        name = self.kernels.setdefault(key, f"kernel{len(self.kernels)}")
        return write_kernel(self.source, kernel, name)

    def constant(self, value: np.ndarray, dtype: DType) -> tuple[str, int]:
        """The address of a constant, and bytes behind it."""
        value = np.ascontiguousarray(value)
        key = dtype.name, hashlib.sha256(value.tobytes()).digest()
        name = self.constants.setdefault(key, f"constant{len(self.constants)}")
        if self.beside and value.nbytes >= LEAST:
            if name not in self.places:
                self.weights[name], self.places[name] = value, self.weight_bytes
                self.weight_bytes += rounded(value.nbytes)
            return "(unsigned char *)io[0]", self.places[name]
        self.source.define(name, lambda: array(name, value, dtype))
        return f"(unsigned char *){name}", 0


def refused(lowered: Lowered) -> list[Node]:
    """The nodes that C cannot compute; those inside of loops and branches, too."""
    found: list[Node] = []
    for step in lowered.steps:
        if isinstance(step, HostCall):
            found += _inner_refused(step.node) or [step.node]
        elif isinstance(step, LibraryCall):
            for program in step.bodies:
                found += refused(program.lowered)
    return found


def refused_for(layout: CLayout) -> list[Node]:
    """The nodes that C cannot compute for a layout's sizes, though for others."""
    found: list[Node] = []
    for step in layout.steps:
        if isinstance(step, HostCall):
            found.append(step.node)
        elif isinstance(step, LibraryCall):
            bodies = layout.jobs.works[step].bodies
            found += [node for body in bodies for node in refused_for(body)]
    return found


def _inner_refused(node: Node) -> list[Node]:
    if not any(isinstance(p, Graph) for p in node.params.values()):
        return []
    return [n for program in programs_of(node) for n in refused(program.lowered)]


def variables_of(graph: Graph) -> list[Variable]:
    """The variables that a graph reads or changes, in the order in which it does."""
    ops = (READ, ASSIGN)
    return list(dict.fromkeys(n.params["variable"] for n in graph.nodes if n.op in ops))


def write_program(
    names: Names,
    lowered: Lowered,
    layout: CLayout,
    open_sizes: Sequence[str],
    name: str,
) -> str:
    """Define the function of a lowered graph; gives its name."""
    return names.source.define(
        name, lambda: _Function(names, lowered, layout, open_sizes, name).text()
    )


class _Function:
    """One program or body, while it is written."""

    def __init__(
        self, names: Names, lowered: Lowered, layout: CLayout,
        open_sizes: Sequence[str], name: str,
    ) -> None:  # fmt: skip
        self.names, self.source = names, names.source
        self.lowered, self.layout, self.name = lowered, layout, name
        self.graph = lowered.graph
        self.open_sizes = list(open_sizes)
        spelled = {spelling(n): f"n{k}" for k, n in enumerate(self.open_sizes, 1)}
        self.indices = Indices(self.source, spelled)
        held = [*self.graph.inputs, *self.graph.outputs, *variables_of(self.graph)]
        self.io: dict[Any, int] = {}
        for k, one in enumerate(held, 1):
            self.io.setdefault(one, k)
        self.lines: list[str] = []
        self.depth = 1

    def text(self) -> str:
        self.source.define("run", lambda: run_function(self.names.prefix))
        self._check_sizes()
        for at, step in enumerate(self.layout.steps):
            first = at < self.layout.order.prologue
            if first:
                with self.block("if (n[0] == 0)"):
                    self._step(step)
            else:
                self._step(step)
        self._assign()
        head = f"static int {self.name}(unsigned char *ws, void *const *io, " \
            "const int64_t *n) {"  # fmt: skip
        return "\n".join([head, *self._declared(), *self.lines, "  return 0;\n}\n"])

    def _check_sizes(self) -> None:
        """Refuse open sizes for which a kernel would read what is not there."""
        if not self.layout.open:
            return
        launches = [s for s in self.layout.steps if isinstance(s, KernelLaunch)]
        sizes = {self.text_of(_replaced(size, dict(one.kernel.given)))
                 for one in launches for size in one.kernel.positive}  # fmt: skip
        for size in sorted(sizes):
            self.line(f"if ({size} < 1) return 1;")

    def _declared(self) -> list[str]:
        """Sizes and places that the lines name."""
        text = "\n".join(self.lines)
        lines = [f"const int64_t n{k} = n[{k}];"
                 for k in range(1, len(self.open_sizes) + 1)]  # fmt: skip
        if self.layout.open:
            starts = self.layout.starts
            lines += [f"const int64_t o{k} = {self.text_of(at)};"
                      for k, at in enumerate(starts[:-1])]  # fmt: skip
        unused = ["ws", "io", "n", *[line.split()[2] for line in lines]]
        whole = " ".join([text, *[line.partition("=")[2] for line in lines]])
        lines += [f"(void){u};" for u in unused if not _mentions(whole, u)]
        return [f"  {line}" for line in lines]

    # -- lines

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head + " {")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    @contextmanager
    def loops(self, loops: Sequence[tuple[str, Any]]) -> Iterator[None]:
        """Loops around a call."""
        if not loops:
            yield
            return
        (name, extent), *rest = loops
        self.indices.names[name] = name
        head = f"for (int64_t {name} = 0; {name} < {self.text_of(extent)}; {name}++)"
        with self.block(head), self.loops(rest):
            yield

    # -- sizes and memory

    def text_of(self, size: Any) -> str:
        """A size or an index, as a number where it is known."""
        if isinstance(size, Size) and not self.layout.open:
            known = self.layout.sizes
            if size.symbols <= known.keys():
                size = evaluate(size, known)
            else:  # loop variables beside sizes
                size = _replaced(size, known)
        return self.indices.text(size)

    def place(self, node: Node) -> Node | Variable:
        """The value, or the variable, whose memory a value has."""
        layout, aliasing = self.layout, self.lowered.aliasing
        new = {value: variable for variable, value in layout.state.items()}
        at = aliasing.carried.get(node, node)
        while at in layout.joint:
            at = layout.joint[at]
        if at.op is READ:
            return at.params["variable"]
        return new.get(at, at)

    def pointer(self, node: Node, elements: Any = 0) -> str:
        """The address of a value, or of one of its elements."""
        at = self.place(node)
        if isinstance(at, Node) and at.op is CONSTANT:
            base, offset = self.names.constant(at.params["value"], at.dtype)
        elif at in self.io:
            base, offset = f"(unsigned char *)io[{self.io[at]}]", 0
        else:
            base, offset = self._in_workspace(at)
        return self._moved(base, offset + elements * node.dtype.itemsize)

    def array(self, values: np.ndarray, dtype: DType) -> str:
        """The address of numbers that the file holds."""
        return self._moved(*self.names.constant(values, dtype))

    def _in_workspace(self, key: Any) -> tuple[str, Any]:
        place = self.layout.places_of[key]
        base = "ws" if place.region is None else f"ws + o{place.region}"
        return base, place.offset

    def _moved(self, base: str, offset: Any) -> str:
        if same(offset, 0):
            return base
        return f"{base} + {self.text_of(offset)}"

    def scratch(self, step: Any, offset: Any) -> str:
        """The address of a part of a step's scratch memory."""
        if step not in self.layout.places_of:  # it needs no byte
            return "ws"
        base, start = self._in_workspace(step)
        return self._moved(base, start + offset)

    # -- steps

    def _step(self, step: Any) -> None:
        nodes = step.group.nodes if isinstance(step, KernelLaunch) else [step.node]
        self.line(comment(described(nodes)))
        if isinstance(step, LibraryCall):
            step.write(self)  # type: ignore[attr-defined]
        elif not self._is_there(step):
            self._launch(step)

    def _is_there(self, step: KernelLaunch) -> bool:
        """Whether a piece of a concatenation was computed in its place."""
        if not isinstance(step, Piece):
            return False
        return self.layout.inside.get(step.piece) == step.target

    def _launch(self, step: KernelLaunch) -> None:
        kernel = step.kernel
        offsets = step.offsets or [0] * len(step.owners)
        pointers = [
            self._moved(self.pointer(node), offset)
            for node, offset in zip(step.owners, offsets, strict=True)
        ]
        at: Any = 0
        for size in self.layout.scratch_sizes(step):
            pointers.append(self.scratch(step, at))
            at = at + size
        given = dict(kernel.given)
        scope = Scope()
        numbers = [given.get(name, scope.symbol(name)) for name in kernel.sizes]
        name = self.names.kernel(kernel, self.lowered.table)
        count = _replaced(parallel_extent(kernel), given)
        work = math.prod(step.group.shape) * len(step.group.nodes)
        self.call(
            name, pointers, numbers, count, work if not kernel.scratch else 0,
            checked=kernel.checks,
        )  # fmt: skip

    def call(
        self, name: str, pointers: Sequence[str], numbers: Sequence[Any], count: Any,
        work: Any, *, checked: bool = False,
    ) -> None:  # fmt: skip
        """A call of a kernel or of a library's function.

        Threads share it if it takes enough operations (``work``).
        """
        sizes = ", ".join(map(self.text_of, numbers))
        n = f"(int64_t[]){{{sizes}}}" if numbers else "NULL"
        inner = ", ".join(pointers)
        size = f"{self.text_of(count)}, {self.text_of(work)}"
        call = f"run({name}, (void *[]){{{inner}}}, {n}, {size})"
        self.line(f"if ({call}) return 1;" if checked else f"(void){call};")

    def body(self, lowered: Lowered, layout: CLayout, open_sizes: Sequence[str]) -> str:
        """The function of a loop's body or of a branch."""
        name = f"body{self.names.bodies}"
        self.names.bodies += 1
        return write_program(self.names, lowered, layout, open_sizes, name)

    # -- state

    def _assign(self) -> None:
        """Copy new values of variables that were not written in place."""
        done = set(self.layout.state)
        for node in self.lowered.writes:
            variable, value = node.params["variable"], node.inputs[0]
            if variable in done:
                continue
            nbytes = math.prod(value.shape) * value.dtype.itemsize
            to = f"io[{self.io[variable]}]"
            self.line(f"memcpy({to}, {self.pointer(value)}, {self.text_of(nbytes)});")


def described(nodes: Sequence[Node]) -> str:
    """The operators of some nodes, and the line that they come from."""
    ops = list(dict.fromkeys(node.op.name for node in nodes))
    text = ", ".join(ops[:6]) + (", …" if len(ops) > 6 else "")
    where = line_of(nodes[-1])
    return f"{text} at {where}" if where else text


def line_of(node: Node) -> str:
    """The file and the line in it that a node comes from; no folder is told."""
    return os.path.basename(node.line.partition("\n")[0])


def _replaced(size: Any, known: Mapping[str, Any]) -> Any:
    for name in known:
        size = substitute(size, name=name, by=known[name])
    return size


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w.]){name}(?!\w)", text) is not None
