"""Concatenations of many pieces: each is copied to its place by its own launch.

All launches share one kernel: pieces are matrices, whose rows are parts of the rows of
the whole. A piece that is contiguous in the whole is computed there, without a copy.
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
    """The part of a value that is one piece of it."""

    whole: Node
    start: Any  # in elements


@dataclass(frozen=True, eq=False)
class Piece(KernelLaunch):
    """The launch that copies one piece into the whole."""

    piece: Node
    target: Inside

    def work(self, sizes: Mapping[str, int]) -> int:
        return elements(self.piece.shape, sizes)

    @property
    def contiguous(self) -> bool:
        """Whether a piece is contiguous in the whole, because it is one row."""
        _, rows = self.kernel.given[0]
        return same(rows, 1)


def _piece(node: Node, piece: Node, start: Any, scope: Scope) -> Piece:
    """The launch for the piece that begins at ``start`` of the concatenated axis."""
    base, dim = Operand(piece).base, node.params["dim"]
    rows, inner = math.prod(node.shape[:dim]), math.prod(node.shape[dim + 1 :])
    sizes = {
        "rows": rows, "start": start * inner, "width": piece.shape[dim] * inner,
        "whole": node.shape[dim] * inner,
    }  # fmt: skip
    group = Group(0, piece.shape, scope)
    group.nodes, group.home = [node], {node: ()}
    kernel = _copy(node.dtype)._replace(given=tuple(sizes.items()))
    target = Inside(node, start * inner)
    return Piece(kernel, [base, node], (), False, group, base, target)


def inside(steps: Iterable[Step], kept: Collection[Node]) -> dict[Node, Inside]:
    """The pieces that can be computed inside the whole and need not be copied.

    A launch computes such a piece, and the whole is in the program's own memory.
    """
    targets: dict[Node, Inside] = {}
    made = {n for s in steps if isinstance(s, Launch) for n in s.made}
    for step in steps:
        if not isinstance(step, Piece) or not step.contiguous:
            continue
        if step.target.whole in kept or step.piece not in made:
            continue
        if not (step.piece in kept or is_joined(step.piece)):
            targets.setdefault(step.piece, step.target)
    return targets


def pieces_of(node: Node, scope: Scope) -> list[Piece]:
    """The launches that copy a node's pieces."""
    dim, start, launches = node.params["dim"], 0, []
    for piece in node.inputs:
        if not any(same(n, 0) for n in piece.shape):
            launches.append(_piece(node, piece, start, scope))
        start = start + piece.shape[dim]
    return launches


@functools.cache
def _copy(dtype: Any) -> Kernel:
    """The kernel that copies rows of a piece into rows of the whole."""
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
