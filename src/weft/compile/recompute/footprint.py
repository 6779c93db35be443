"""All the memory of a step, by what it is for."""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.compile.cost.work import size_of
from weft.compile.recompute.draft import Draft, hints
from weft.core.rows import nbytes
from weft.graph.captured_program import Captured
from weft.graph.interpret import resolve
from weft.graph.ir import CONSTANT, Graph, Node
from weft.graph.state_cells import Cell, GradCell, NumberCell, SlotCell, SumCell

STATE = ("parameters", "gradients", "optimizer", "buffers")


class Footprint(NamedTuple):
    """Bytes of a step, by kind.

    ``activations`` are one arena for all values between, ``workspace`` is what threads
    need for themselves, and ``outputs`` are results, with those of operators that are
    called as a whole.
    """

    parameters: int
    gradients: int
    optimizer: int
    buffers: int
    arguments: int
    activations: int
    workspace: int
    outputs: int

    @property
    def total(self) -> int:
        return sum(self)

    def __str__(self) -> str:
        parts = [f"{kind} {nbytes(n)}" for kind, n in self._asdict().items() if n]
        return f"{nbytes(self.total)}" + (f" ({', '.join(parts)})" if parts else "")


def footprint(captured: Captured, draft: Draft) -> Footprint:
    """What a captured step needs, if it runs as a draft says."""
    state = state_bytes(captured, draft.sizes)
    arguments = sum(size_of(n, draft.sizes) for n in captured.graph.inputs)
    return Footprint(
        **state,
        arguments=arguments,
        activations=draft.arena,
        workspace=draft.workspace,
        outputs=draft.outside + replaced(captured, draft),
    )


def fixed_bytes(captured: Captured, draft: Draft) -> int:
    """What a step has in memory whatever is kept for backward."""
    found = footprint(captured, draft)
    return found.total - draft.needs


def state_bytes(captured: Captured, sizes: Any = None) -> dict[str, int]:
    """The bytes of the variables' tensors, by kind; constants are buffers."""
    found = dict.fromkeys(STATE, 0)
    known = hints(captured.graph) if sizes is None else sizes
    for cell in captured.cells.values():
        if not isinstance(cell, NumberCell):
            found[kind_of(cell)] += _nbytes(cell, known)
    found["buffers"] += _constants(captured.graph)
    return found


def kind_of(cell: Cell) -> str:
    """What a variable is for."""
    if isinstance(cell, (GradCell, SumCell)):
        return "gradients"
    if isinstance(cell, SlotCell):
        return "optimizer"
    return "parameters" if cell.tensor._parameter else "buffers"


def replaced(captured: Captured, draft: Draft) -> int:
    """The bytes of gradients that are made anew while the old ones are still there."""
    apart = [
        cell
        for cell in captured.cells.values()
        if isinstance(cell, GradCell) and cell.variable not in draft.layout.state
    ]
    return sum(_nbytes(cell, draft.sizes) for cell in apart)


def _nbytes(cell: Cell, sizes: Any) -> int:
    kind = cell.variable.type
    count = 1
    for n in resolve(kind.shape, sizes):
        count *= n
    return count * kind.dtype.itemsize


def _constants(graph: Graph) -> int:
    arrays = {id(n.params["value"]): n.params["value"] for n in _constant_nodes(graph)}
    return sum(array.nbytes for array in arrays.values())


def _constant_nodes(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op is CONSTANT]
