"""Sums of zero-padded pieces become concatenations.

    %p: float32[4] = place(%a, shape=(4,), index=(0:2,))
    %q: float32[4] = place(%b, shape=(4,), index=(2:4,))
    %c: float32[4] = add(%p, %q)                   →  cat(%a, %b, dim=0)

The gradient of a tensor that was split (queries, keys and values; the gates of an
LSTM) is such a sum. The pieces must fill the whole; then only the sign of a zero can
change.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.compile.passes.policy import Policy
from weft.compile.passes.simplify_views import whole_axis
from weft.compile.passes.walk import Call, Replacement, Walk
from weft.core.op import find_op
from weft.core.size import Size
from weft.graph.ir import Graph, Node

_ADD = find_op("add")
_CAT = find_op("cat")
_PLACE = find_op("place")


def concat_padded_sums(graph: Graph) -> Graph:
    """Replace sums of padded pieces that fill a tensor by concatenations.

    >>> x = weft.ones(4, requires_grad=True)
    >>> def fn(x):
    ...     a, b = x[:1], x[1:]
    ...     return a.sin().sum() * b.cos().sum()
    >>> g = weft.graph.gradients(weft.graph.capture(fn, weft.ones(4)).graph)
    >>> weft.compile.passes.concat_padded_sums(g).outputs[-1]
    <cat 'grad/slice/add' float32[4]>
    """
    return _Concat(graph).run()


class _Piece(NamedTuple):
    start: int
    stop: int
    axis: int
    value: Node


class _Concat(Walk):
    ops = frozenset([_ADD])
    needs = frozenset([_PLACE])

    def visit(self, node: Node) -> Replacement:
        if node.op is not _ADD or not Policy.ZEROS.allows(node.dtype):
            return None
        if not any(type(i) is Node and i.op is _PLACE for i in node.inputs):
            return None
        pieces = self.pieces(node)
        if pieces is None or not _fill(pieces, node.shape):
            return None
        values = tuple([piece.value for piece in pieces])
        return Call(_CAT, values, {"dim": pieces[0].axis})

    def pieces(self, root: Node) -> list[_Piece] | None:
        """The pieces that a sum consists of, in order; None if it has other terms."""
        pieces, stack = [], list(root.inputs)
        while stack:
            one = stack.pop()
            if type(one) is not Node:
                return None
            if one.op is _ADD and self.used_once(one):
                stack.extend(one.inputs)
                continue
            piece = _piece(one) if one.op is _PLACE else None
            if piece is None:
                return None
            pieces.append(piece)
        return sorted(pieces, key=lambda piece: piece.start)


def _piece(node: Node) -> _Piece | None:
    """The range that a ``place`` writes, if it is a range of one axis."""
    index, shape = node.params["index"], node.params["shape"]
    if any(type(item) is not slice for item in index):
        return None  # axes of the value are not those of the whole
    padded = [k for k, item in enumerate(index) if not whole_axis(item, shape[k])]
    if len(padded) != 1:
        return None
    axis = padded[0]
    item, size = index[axis], shape[axis]
    bounds = item.start, item.stop, item.step, size
    if type(item) is not slice or any(isinstance(n, Size) for n in bounds):
        return None
    start, stop, step = item.indices(size)
    return _Piece(start, stop, axis, node.inputs[0]) if step == 1 else None


def _fill(pieces: list[_Piece], shape: tuple[Any, ...]) -> bool:
    """Whether the pieces cover one axis from end to end."""
    axis, end = pieces[0].axis, 0
    for piece in pieces:
        if piece.axis != axis or piece.start != end or piece.stop <= piece.start:
            return False
        end = piece.stop
    return end == shape[axis]
