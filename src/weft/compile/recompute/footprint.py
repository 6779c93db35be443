"""All the memory of a step, by what it is for."""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.compile.cost.work import size_of
from weft.compile.recompute.draft import Draft, hints
from weft.core.rows import nbytes
from weft.graph.captured_program import Captured
from weft.graph.interpret import resolve
from weft.graph.ir import CONSTANT, Graph
from weft.graph.state_cells import Cell, GradCell, NumberCell, SlotCell, SumCell

STATE = ("parameters", "gradients", "optimizer", "buffers")


class Footprint(NamedTuple):
    """Bytes of a step, by kind.

    ``activations`` is the arena of all intermediate values, ``workspace`` the memory
    that threads need for themselves, and ``outputs`` are results, with those of
    operators that are called as a whole.
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
    """The footprint of a captured step that runs as a draft says."""
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
    """The bytes of a step that do not depend on what is kept for backward."""
    return footprint(captured, draft).total - draft.needs


def state_bytes(captured: Captured, sizes: Any = None) -> dict[str, int]:
    """The bytes of the variables' tensors, by kind; constants are buffers."""
    nbytes_of = dict.fromkeys(STATE, 0)
    known = hints(captured.graph) if sizes is None else sizes
    for cell in captured.cells.values():
        if not isinstance(cell, NumberCell):
            nbytes_of[kind_of(cell)] += _nbytes(cell, known)
    nbytes_of["buffers"] += _constants(captured.graph)
    return nbytes_of


def kind_of(cell: Cell) -> str:
    """The kind of state that a variable is."""
    if isinstance(cell, (GradCell, SumCell)):
        return "gradients"
    if isinstance(cell, SlotCell):
        return "optimizer"
    return "parameters" if cell.tensor._parameter else "buffers"


def replaced(captured: Captured, draft: Draft) -> int:
    """The bytes of gradients that are computed while the old ones still exist."""
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
    arrays = [n.params["value"] for n in graph.nodes if n.op is CONSTANT]
    return sum(array.nbytes for array in {id(a): a for a in arrays}.values())
