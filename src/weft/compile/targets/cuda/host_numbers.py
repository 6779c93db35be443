"""Numbers that the host keeps, such as a count of steps, and their new values.

Where such a value follows from such numbers alone, the host computes it: then nobody
waits for the device to know it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.compile.program.lowered import Lowered
from weft.graph.interpret import Program
from weft.graph.ir import CONSTANT, READ, Graph, Node, unrunnable

MOST = 16  # nodes that a number may take


class HostNumbers:
    """The variables of a program whose new values the host computes.

    ``host`` are the indices of the host's numbers among the variables that are read.
    """

    def __init__(
        self, lowered: Lowered, host: Sequence[int], sizes: Mapping[str, int]
    ) -> None:
        graph, read = lowered.graph, lowered.reads
        here = {read[k]: k for k in host}
        reads = [
            n for n in graph.nodes if n.op is READ and n.params["variable"] in here
        ]
        writes = [
            n for n in lowered.writes
            if n.params["variable"] in here and _follows(graph, n.inputs[0], reads)
        ]  # fmt: skip
        self.names = [n.params["variable"].name for n in writes]
        self._given = [here[n.params["variable"]] for n in reads]
        self._unread = [None] * len(graph.inputs)
        fetches = [n.inputs[0] for n in writes]
        program = Program(graph, fetches, effects=False, fed=reads)
        self._run = program.function(sizes)

    def after(self, held: Sequence[Any]) -> dict[str, np.ndarray]:
        """The new values by name, from the arrays that a run is given."""
        if not self.names:
            return {}
        with np.errstate(all="ignore"):
            values = self._run([*self._unread, *[held[k] for k in self._given]])
        return dict(zip(self.names, values, strict=True))


def _follows(graph: Graph, node: Node, reads: Sequence[Node]) -> bool:
    """Whether a number takes a few operators on these numbers and nothing else."""
    program = Program(graph, [node], effects=False, fed=reads)
    return (
        program.used <= set(reads)
        and len(program.nodes) <= MOST
        and all(map(_is_plain, program.nodes))
    )


def _is_plain(node: Node) -> bool:
    """Whether a node is a number that NumPy computes."""
    facts = node.op.facts
    if node.shape != () or facts.random or facts.effect:
        return False
    return node.op is CONSTANT or node.op.kernel is not unrunnable
