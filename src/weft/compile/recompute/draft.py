"""A program's memory, known before there is any code for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from weft.compile import pipeline, targets
from weft.compile.explain.memory import Memory
from weft.compile.program.memory_layout import lay_out
from weft.compile.program.steps import Step
from weft.graph.ir import Graph, Variable


class Draft:
    """A graph's steps and their memory layout, for one set of sizes.

    >>> from weft.compile.recompute.draft import Draft
    >>> g = weft.graph.capture(lambda x: (x @ x).sum(), weft.ones(64, 64)).graph
    >>> Draft(g).arena
    16384
    """

    def __init__(
        self,
        graph: Graph,
        in_place: Collection[Variable] = (),
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        self.graph = pipeline.run(graph, pipeline.KERNEL_PASSES)
        self.lowered = pipeline.lower(self.graph, targets.current(), in_place=in_place)
        self.sizes = hints(graph) if sizes is None else dict(sizes)
        self.layout = lay_out(self.lowered, self.sizes)

    @property
    def steps(self) -> list[Step]:
        return self.layout.steps

    @property
    def arena(self) -> int:
        """The bytes of the memory that all launches share."""
        return self.layout.layout.nbytes

    @property
    def workspace(self) -> int:
        """The bytes that threads need for themselves."""
        return self.layout.jobs.workspace

    @property
    def memory(self) -> Memory:
        """The values that are live at each step."""
        return Memory(self.layout)

    @property
    def outside(self) -> int:
        """The most bytes that a run allocates itself: outputs, and calls' results."""
        return max(self.memory.outside, default=0)

    @property
    def needs(self) -> int:
        """The bytes that a run needs beside its arguments and the state."""
        return self.arena + self.workspace + self.outside


def hints(graph: Graph) -> dict[str, int]:
    """The sizes that a graph was captured with, by symbol."""
    known = graph.sizes.hints
    return {name: 1 if hint is None else hint for name, hint in known.items()}
