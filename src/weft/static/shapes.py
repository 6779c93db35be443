"""Shapes given by nodes: ``zeros([shape(x)[0], 4])``.

The sizes of a result must be known when the graph is built, as numbers or as open sizes
of a placeholder. A node that is computed from such sizes alone, as ``shape(x)[0] * 2``
is, stands for a size; one that depends on fed values does not.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.graph.ir import Node
from weft.static.graph import StaticTensor


def _known(value: Any) -> np.ndarray:
    """The sizes that a node computes, as an array of objects."""
    if not isinstance(value, Node):
        return np.asarray(value, object)
    rule = _RULES.get(value.op.name)
    if rule is None:
        raise LookupError(value.name)
    return np.asarray(rule(value, *map(_known, value.inputs)), object)


def _filled(node: Node) -> np.ndarray:
    out = np.empty(node.params["shape"], object)
    out[...] = node.params["value"]
    return out


_RULES: dict[str, Any] = {
    "constant": lambda node: node.params["value"].astype(object),
    "full": _filled,
    "cast": lambda node, x: x,
    "alias": lambda node, x: x,
    "reshape": lambda node, x: x.reshape(node.params["shape"]),
    "cat": lambda node, *xs: np.concatenate(xs, node.params["dim"]),
    "slice": lambda node, x: x[node.params["index"]],
    "prod": lambda node, x: np.prod(x),
    "add": lambda node, x, y: operator.add(x, y),
    "sub": lambda node, x, y: operator.sub(x, y),
    "mul": lambda node, x, y: operator.mul(x, y),
    "floor_divide": lambda node, x, y: operator.floordiv(x, y),
}


def _sizes(node: StaticTensor) -> list[Any]:
    try:
        return [_plain(n) for n in _known(node.node).ravel()]
    except (LookupError, TypeError, ValueError):
        raise ArgumentError(
            f"expected sizes, got {node!r}, whose value is known only when the graph "
            "runs; the sizes of a result are numbers or come from another tensor's "
            f"shape\n  made at {node.node.line}"
        ) from None


def _plain(size: Any) -> Any:
    return int(size) if isinstance(size, (int, np.integer)) else size


def sizes_of(shape: Any) -> tuple[Any, ...]:
    """A shape argument as a tuple of sizes: a number, a list, a node, a list of nodes.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 3], name="x")
    ...     sizes_of([weft.static.shape(x)[0], 4])
    (x_0, 4)
    """
    if isinstance(shape, StaticTensor):
        return tuple(_sizes(shape))
    try:
        given = list(shape)
    except TypeError:
        given = [shape]
    return tuple(
        _sizes(n)[0] if isinstance(n, StaticTensor) else _number(n) for n in given
    )


def _number(size: Any) -> Any:
    if isinstance(size, Tensor):
        return int(size)
    return int(size) if isinstance(size, np.integer) else size
