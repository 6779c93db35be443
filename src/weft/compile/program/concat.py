"""Concatenations of many pieces: each is copied to its place by its own launch.

All launches share one kernel: pieces are matrices whose rows lie inside the rows of
the whole. A piece whose elements are neighbours there is computed in its place.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from weft.compile.fusion.groups import Group, Operand
from weft.compile.loop.ir import Buffer, For, Kernel, Load, Store
from weft.compile.loop.schedule import parallelise, tile
from weft.compile.passes.inplace_concat import is_joined
from weft.compile.program.steps import KernelLaunch, Launch, Step
from weft.compile.tuning.choices import Loops
from weft.core.size import Scope, elements, same, smaller
from weft.graph.ir import Node


class Inside(NamedTuple):
    """The place of a piece: in which value, behind how many elements."""

    whole: Node
    start: Any


@dataclass(frozen=True, eq=False)
class Piece(KernelLaunch):
    """The launch that copies one piece to its place."""

    piece: Node
    place: Inside

    def work(self, sizes: Mapping[str, int]) -> int:
        return elements(self.piece.shape, sizes)

    @property
    def together(self) -> bool:
        """Whether a piece's elements are neighbours in the whole."""
        _, rows = self.kernel.given[0]
        return same(rows, 1)


def _piece(node: Node, piece: Node, start: Any, scope: Scope) -> Piece:
    """The launch for the piece that begins at ``start`` of the joined axis."""
    base, dim = Operand(piece).base, node.params["dim"]
    rows, inner = math.prod(node.shape[:dim]), math.prod(node.shape[dim + 1 :])
    given = {
        "rows": rows, "start": start * inner, "width": piece.shape[dim] * inner,
        "whole": node.shape[dim] * inner,
    }  # fmt: skip
    group = Group(0, piece.shape, scope)
    group.nodes, group.home = [node], {node: ()}
    kernel = _copy(node.dtype)._replace(given=tuple(given.items()))
    place = Inside(node, start * math.prod(node.shape[1:]))
    return Piece(kernel, [base, node], (), False, group, base, place)


def inside(steps: Iterable[Step], kept: Collection[Node]) -> dict[Node, Inside]:
    """The pieces that can be computed where they belong, and need not be copied.

    Such are those that launches make, of a whole that is memory of the program's own.
    """
    found: dict[Node, Inside] = {}
    made = {n for s in steps if isinstance(s, Launch) for n in s.made}
    for step in steps:
        if not isinstance(step, Piece) or not step.together:
            continue
        if step.place.whole in kept or step.piece not in made:
            continue
        if not (step.piece in kept or is_joined(step.piece)):
            found.setdefault(step.piece, step.place)
    return found


def pieces_of(node: Node, scope: Scope) -> list[Piece]:
    """The launches that make a node of its pieces."""
    dim, start, found = node.params["dim"], 0, []
    for piece in node.inputs:
        if not any(same(n, 0) for n in piece.shape):
            found.append(_piece(node, piece, start, scope))
        start = start + piece.shape[dim]
    return found


@functools.cache
def _copy(dtype: Any) -> Kernel:
    """Rows of a piece, copied into rows of the whole."""
    scope = Scope()
    names = "rows", "start", "width", "whole", "i", "j"
    rows, start, width, whole, i, j = map(scope.symbol, names)
    piece = Buffer("b0", (rows, width), dtype)
    made = Buffer("b1", (rows, whole), dtype)
    store = Store(made, (i, start + j), Load(piece, (i, j)))
    inner = For("j", smaller(whole - start, width), [store])
    kernel = Kernel("kernel", (piece, made), (), (), [For("i", rows, [inner])], scope)
    kernel = tile(kernel, "j", Loops().chunk, names=("chunk", "j"))
    return parallelise(parallelise(kernel, "i"), "chunk")
