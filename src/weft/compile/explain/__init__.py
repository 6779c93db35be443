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
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from weft.compile.explain.memory import Memory
from weft.compile.explain.program import Program
from weft.core.rows import Column, Rows, seconds
from weft.errors import ArgumentError, WeftError

if TYPE_CHECKING:
    from weft.compile.frontend.function import CompiledFunction, Specialization

__all__ = ["Explanation", "Memory", "Program", "Rows"]

PHASES = ("capture", "passes", "lowering", "LLVM")


class Explanation:
    """What was compiled, why and how.

    ``programs`` are the compiled forms that are in use, the newest first, each with
    the one of its gradient if that has been asked for. ``kernels``, ``products``,
    ``calls``, ``breaks``, ``passes``, ``stages``, ``memory`` and ``traffic`` are those
    of the first.

    >>> f = weft.compile(lambda x: ((x @ x).exp() * 2).sum(1))
    >>> _ = f(weft.ones(8, 8))
    >>> about = f.explain()
    >>> about.products[0].operators
    ['matmul', 'exp', 'mul', 'sum']
    >>> about.traffic[0].kernels, about.traffic[-1].kernels
    (4, 1)
    """

    def __init__(self, function: CompiledFunction, *, measure: bool = False) -> None:
        self.name = getattr(function.fn, "__name__", type(function.fn).__name__)
        self._compiles = list(function.compiles)
        entries = [e for some in function._entries.values() for e in some]
        entries.sort(key=lambda entry: -entry.number)
        self.programs = [p for entry in entries for p in programs_of(entry)]
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
        """What measuring has found (``weft.compile(..., tune=True)``), by kernel."""
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
        self, path: str | os.PathLike[str] | None = None, *, code: bool = True
    ) -> str:
        """The page; also written to ``path`` where one is given.

        ``code=False`` leaves LLVM's and the machine's code of each kernel out, which
        take longest to make.
        """
        from weft.compile.explain.page import to_page

        page = to_page(self, code=code)
        if path is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(page)
        return page

    def __str__(self) -> str:
        from weft.compile.explain.report import report

        return report(self)

    __repr__ = __str__


def programs_of(entry: Specialization) -> list[Program]:
    """A compiled form's program, and those of its gradients that were asked for."""
    number = f"compilation {entry.number + 1}"
    if not entry.differentiable:
        store = lambda: _held(entry)  # noqa: E731
        graph = entry.captured.graph
        return [Program(number, graph, entry.program, dict, store)]
    first = len(entry.graph.inputs) - len(entry.variables)
    known = lambda: _variables(entry, first)  # noqa: E731
    found = []
    waiting = [(number, entry.function)]
    for title, function in waiting:
        found.append(Program(title, function.graph, function.program, known, dict))
        backs = function.pullbacks.values()
        waiting.extend((f"{title}, gradient", back) for back in backs)
    return found


def _held(entry: Specialization) -> Mapping[Any, Any]:
    """The variables' values, for those that have one."""
    found = {}
    for variable in entry.program.reads:
        try:
            found[variable] = entry.cells[variable.name].get()
        except WeftError:  # a gradient that is not there now
            continue
    return found


def _variables(entry: Specialization, first: int) -> dict[int, Any]:
    return {first + k: cell.get() for k, cell in enumerate(entry.variables)}
