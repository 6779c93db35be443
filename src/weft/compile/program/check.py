"""Checks of lowered programs and plans (``WEFT_VERIFY=1``).

A wrong order of steps, a value that no step computes or two live values that overlap
give wrong results without a word: each is an error here.
"""

from __future__ import annotations

from weft.compile.fusion.groups import Operand, inlined
from weft.compile.program.concat import Piece
from weft.compile.program.lowered import Lowered
from weft.compile.program.memory_layout import MemoryLayout
from weft.compile.program.steps import Order, bases_of, launch_of
from weft.graph.ir import ASSIGN, CONSTANT, GROUP, INPUT, READ, GraphError, Node


def verify_lowered(lowered: Lowered) -> None:
    """Check that steps compute every value once, before it is read."""
    graph = lowered.graph
    there: set[Node] = {n for n in graph.nodes if n.op in (INPUT, CONSTANT, READ)}
    for step in lowered.steps:
        for base in bases_of(step):
            if base not in there and not _computed_anywhere(base):
                raise GraphError(
                    f"{graph.name}: a step reads {base.name!r} before it is made"
                )
        for node in step.made:
            of_pieces = isinstance(step, Piece) and node is step.target.whole
            if node in there and not of_pieces:
                raise GraphError(f"{graph.name}: two steps make {node.name!r}")
            there.add(node)
        launch = launch_of(step)
        if launch is not None and launch.kernel.name not in lowered.kernels:
            raise GraphError(f"{graph.name}: no kernel is named {launch.name!r}")
    writes = [n.inputs[0] for n in graph.nodes if n.op is ASSIGN]
    for node in (*graph.outputs, *writes):
        base = Operand(node).base
        if base not in there and not _computed_anywhere(base) and base.op is not GROUP:
            raise GraphError(f"{graph.name}: no step makes {node.name!r}")


def _computed_anywhere(node: Node) -> bool:
    """Whether a value is computed wherever it is needed, or is a view."""
    base = Operand(node).base
    return inlined(base) or base is not node


def verify_layout(layout: MemoryLayout) -> None:
    """Check that no two values that live at the same time overlap in the arena."""
    order = Order(layout.steps, layout.lowered.graph, layout.lowered.steady)
    if list(order.waves) != list(layout.order.waves):
        raise GraphError("the waves of a plan are not those of its steps")
    live = sorted(layout.layout.buffers, key=lambda b: layout.layout.offsets[b.id])
    for k, a in enumerate(live):
        end = layout.layout.offsets[a.id] + a.nbytes
        for b in live[k + 1 :]:
            if layout.layout.offsets[b.id] >= end:
                break
            together = a.first <= b.last and b.first <= a.last
            shared = a.shares == b.id or b.shares == a.id
            if a.nbytes and b.nbytes and together and not shared:
                raise GraphError(
                    f"{a.id!r} and {b.id!r} live at the same time in one place"
                )
    if any(layout.layout.offsets[b.id] + b.nbytes > layout.layout.nbytes for b in live):
        raise GraphError("a value reaches beyond the end of the arena")
