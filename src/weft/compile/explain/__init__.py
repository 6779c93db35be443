"""``explain()``: when and why a function was compiled, its kernels, its memory.

f.explain()                 a report to read
f.explain().kernels         what was fused; ``products``, ``calls``, ``breaks``,
                            ``passes``, ``stages``, ``memory`` and ``traffic`` are
                            other parts
f.explain(measure=True)     with the time that every kernel takes
f.explain().html(path)      all of it as a page
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from weft.compile.explain.memory import Memory
from weft.compile.explain.program import Program
from weft.compile.program.steps import LibraryCall
from weft.core.rows import Column, Rows, seconds
from weft.errors import ArgumentError, WeftError

if TYPE_CHECKING:
    from weft.compile.frontend.function import CompiledFunction, Specialization
    from weft.compile.program.phases import Compilation
    from weft.distributed.timeline import Timeline

__all__ = ["Explanation", "Memory", "Program", "Rows"]

PHASES = ("capture", "passes", "lowering", "LLVM")


class Explanation:
    """An explanation of what was compiled, why and how.

    ``programs`` are those of the specializations in use, the newest first, each
    followed by those of its gradients that have been computed. ``kernels``,
    ``products``, ``calls``, ``breaks``, ``passes``, ``stages``, ``memory`` and
    ``traffic`` are those of the first.

    >>> f = weft.compile(lambda x: ((x @ x).exp() * 2).sum(1))
    >>> _ = f(weft.ones(8, 8))
    >>> about = f.explain()
    >>> about.products[0].operators
    ['matmul', 'exp', 'mul', 'sum']
    >>> about.traffic[0].kernels, about.traffic[-1].kernels
    (4, 1)
    """

    def __init__(
        self,
        name: str,
        compiles: Iterable[Compilation],
        programs: list[Program],
        *,
        measure: bool = False,
    ) -> None:
        self.name = name
        self._compiles = list(compiles)
        self.programs = programs
        self.measured = measure
        for program in self.programs if measure else ():
            program.measure()

    @cached_property
    def compilations(self) -> Rows:
        """Every compilation: when and why, how long each phase took."""
        return Rows(
            self._compiles,
            Column("when", lambda c: time.strftime("%X", time.localtime(c.when))),
            Column("took", lambda c: seconds(c.seconds)),
            *[Column(p, lambda c, p=p: seconds(c.phases.get(p))) for p in PHASES],  # type: ignore[misc]
            Column("machine code", lambda c: c.cached, number=False),
            Column("nodes", lambda c: f"{c.nodes:,}"),
            Column("kernels", lambda c: f"{c.kernels:,}"),
            Column("why", lambda c: c.why, number=False),
        )

    @cached_property
    def choices(self) -> Rows:
        """The results of tuning (``weft.compile(..., tune=True)``), by kernel."""
        from weft.compile.tuning.search import text

        tuned = [c.tuned for c in self._compiles if c.tuned is not None]
        return Rows(
            [tried for one in tuned for tried in one.tried],
            Column("kernel", lambda t: t.name, number=False),
            Column("runs", lambda t: f"{t.runs:,}"),
            Column("default", lambda t: seconds(t.before)),
            Column("chosen", lambda t: seconds(t.after)),
            Column("tried", lambda t: f"{len(t.times):,}"),
            Column("how", lambda t: text(t.choice), number=False),
        )

    @property
    def program(self) -> Program:
        """The newest program."""
        if not self.programs:
            raise ArgumentError(
                f"explain: {self.name} has not been compiled yet; call it once"
            )
        return self.programs[0]

    @property
    def kernels(self) -> Rows:
        return self.program.kernels

    @property
    def products(self) -> Rows:
        return self.program.products

    @property
    def calls(self) -> Rows:
        return self.program.calls

    @property
    def breaks(self) -> Rows:
        return self.program.breaks

    @property
    def passes(self) -> Rows:
        return self.program.passes

    @property
    def stages(self) -> dict[str, str]:
        return self.program.stages

    @property
    def memory(self) -> Memory:
        return self.program.memory

    @property
    def traffic(self) -> Rows:
        return self.program.traffic

    def html(
        self, path: str | os.PathLike[str] | None = None, *, code: bool = True,
        timeline: Timeline | None = None,
    ) -> str:  # fmt: skip
        """The page as HTML, which is also written to ``path`` if there is one.

        ``code=False`` leaves out the LLVM IR and the assembly of each kernel, which
        take longest to make. A ``timeline`` of several processes gets a section: all of
        them have gathered it before.
        """
        from weft.compile.explain.page import to_page

        page = to_page(self, code=code, timeline=timeline)
        if path is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(page)
        return page

    def __str__(self) -> str:
        from weft.compile.explain.report import report

        return report(self)

    __repr__ = __str__


def explanation_of(function: CompiledFunction, *, measure: bool = False) -> Explanation:
    """The explanation of a compiled function."""
    name = getattr(function.fn, "__name__", type(function.fn).__name__)
    known = [s for some in function._specializations.values() for s in some]
    known.sort(key=lambda specialization: -specialization.number)
    programs = [p for one in known for p in programs_of(one)]
    return Explanation(name, function.compiles, programs, measure=measure)


def programs_of(specialization: Specialization) -> list[Program]:
    """A specialization's program, and those of its gradients that were computed.

    The programs of the bodies of loops and branches come after them.
    """
    number = f"compilation {specialization.number + 1}"
    if not specialization.differentiable:
        store = partial(_arrays, specialization)
        graph = specialization.captured.graph
        return _with_bodies(Program(number, graph, specialization.program, dict, store))
    first = len(specialization.graph.inputs) - len(specialization.variables)
    known = partial(_variables, specialization, first)
    programs = []
    waiting = [(number, specialization.function)]
    for title, function in waiting:
        program = Program(title, function.graph, function.program, known, dict)
        programs += _with_bodies(program)
        backs = function.pullbacks
        for given, back in backs.items():
            which = ", ".join(str(k) for k, there in enumerate(given) if there)
            of = f" of results {which}" if len(backs) > 1 else ""
            waiting.append((f"{title}, gradient{of}", back))
    return programs


def _with_bodies(program: Program) -> list[Program]:
    """A program, and those of its loops and branches: an iteration of each."""
    found = [program]
    for step in program.steps:
        if isinstance(step, LibraryCall):
            for body in step.bodies:
                title = f"{program.title}, {body.graph.name} of {step.node.name}"
                found += _with_bodies(Program(title, body.graph, body, dict, dict))
    return found


def _arrays(specialization: Specialization) -> Mapping[Any, Any]:
    """The arrays of variables that have a value."""
    arrays = {}
    for variable in specialization.program.reads:
        try:
            arrays[variable] = specialization.cells[variable.name].get()
        except WeftError:  # a gradient that does not exist now
            continue
    return arrays


def _variables(specialization: Specialization, first: int) -> dict[int, Any]:
    return {first + k: cell.get() for k, cell in enumerate(specialization.variables)}
