"""Many pieces side by side: each is copied to its place by a launch of its own.

    %c: float32[64, 1024] = cat(%a, %b, …, dim=0)

As one kernel, each element would ask in which of the pieces it lies. All launches share
one kernel: pieces are matrices whose rows lie inside the rows of the whole.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from weft.compile.emit import scalar
from weft.compile.fusion.groups import COPY, Group, Operand, inlined
from weft.compile.loop.ir import Buffer, For, Kernel, Load, Store
from weft.compile.loop.schedule import parallelise, tile
from weft.compile.passes.walk import Call, Found, Walk
from weft.compile.program.steps import Launch, Lowered, Use
from weft.compile.targets.cpu.schedules import CHUNK
from weft.core.op import find_op
from weft.core.size import Scope, elements, same, smaller
from weft.graph.ir import Graph, Node

MANY = 5  # pieces: fewer are told apart by loops of their own

_CAT, _RESHAPE = find_op("cat"), find_op("reshape")


def is_joined(node: Node) -> bool:
    """Whether a node is made of so many pieces that these are copied one by one."""
    return (
        node.op is _CAT
        and len(node.inputs) >= MANY
        and scalar.has_dtype(node.dtype)
        and not any(same(n, 0) for n in node.shape)
    )


def inplace_concat(graph: Graph) -> Graph:
    """The graph with pieces that are rows of memory, or copied to be such.

    >>> from weft.compile.passes.inplace_concat import inplace_concat
    >>> def fn(x):
    ...     return weft.cat([x, x, x.T, x, x, x])
    >>> g = weft.graph.capture(fn, weft.ones(2, 2)).graph
    >>> [node.op.name for node in inplace_concat(g) if node.inputs]
    ['permute', 'copy', 'cat']
    """
    return _InMemory(graph).run()


class _InMemory(Walk):
    ops = frozenset([_CAT])

    def visit(self, node: Node) -> Found:
        if not is_joined(node) or not any(map(_elsewhere, node.inputs)):
            return None
        inputs = [Call(COPY, (i,)) if _elsewhere(i) else i for i in node.inputs]
        return Call(node.op, tuple(inputs), node.params)


def _elsewhere(piece: Node) -> bool:
    """Whether a piece does not lie in memory row by row."""
    operand = Operand(piece)
    return inlined(operand.base) or any(v.op is not _RESHAPE for v in operand.views)


class Piece(Use):
    """The launch that copies one piece to its place."""

    def __init__(self, node: Node, piece: Node, start: Any, scope: Scope) -> None:
        self.piece = Operand(piece).base
        self.whole, self.start = node, start * math.prod(node.shape[1:])
        dim = node.params["dim"]
        rows, inner = math.prod(node.shape[:dim]), math.prod(node.shape[dim + 1 :])
        given = {
            "rows": rows, "start": start * inner, "width": piece.shape[dim] * inner,
            "whole": node.shape[dim] * inner,
        }  # fmt: skip
        group = Group(0, piece.shape, scope)
        group.nodes, group.home = [node], {node: ()}
        kernel = _copy(node.dtype)._replace(given=tuple(given.items()))
        super().__init__(Lowered(kernel, [self.piece, node]), group)

    def work(self, sizes: Mapping[str, int]) -> int:
        return elements(self.piece.shape, sizes)

    @property
    def together(self) -> bool:
        """Whether a piece's elements are neighbours in the whole."""
        _, rows = self.kernel.given[0]
        return same(rows, 1)


def inside(steps: Iterable[Any], kept: Collection[Node]) -> dict[Node, Piece]:
    """The pieces that can be computed where they belong, and need not be copied.

    Those that launches make, of a whole that is memory of the program's own.
    """
    found: dict[Node, Piece] = {}
    made = {n for s in steps if isinstance(s, Launch) for n in s.made}
    for step in steps:
        if not isinstance(step, Piece) or not step.together or step.whole in kept:
            continue
        if step.piece in made and not (step.piece in kept or is_joined(step.piece)):
            found.setdefault(step.piece, step)
    return found


def pieces_of(node: Node, scope: Scope) -> list[Piece]:
    """The launches that make a node of its pieces."""
    dim, start, found = node.params["dim"], 0, []
    for piece in node.inputs:
        if not any(same(n, 0) for n in piece.shape):
            found.append(Piece(node, piece, start, scope))
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
    kernel = tile(kernel, "j", CHUNK, names=("chunk", "j"))
    return parallelise(parallelise(kernel, "i"), "chunk")
