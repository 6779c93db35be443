"""Gradients and other tensors limited to a norm."""

from __future__ import annotations

import builtins
from typing import Any

import weft
from weft.errors import ArgumentError
from weft.static.building import as_node, building, function, named, product_of
from weft.static.shapes import sizes_of


@function
def clip_by_norm(t: Any, clip_norm: Any, axes: Any = None) -> Any:
    """The tensor, shortened to a norm where it is longer.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.clip_by_norm([3.0, 4.0], 1.0))
    array([0.6, 0.8], dtype=float32)
    """
    x = as_node(t)
    dims = tuple(builtins.range(x.ndim)) if axes is None else sizes_of(axes)
    square = (x * x).sum(dims, keepdim=True)
    length = weft.where(square > 0, square, 1.0).sqrt()
    length = weft.where(square > 0, length, square)
    return x * clip_norm / weft.maximum(length, as_node(clip_norm, x.dtype))


@function
def clip_by_average_norm(t: Any, clip_norm: Any) -> Any:
    """The tensor, shortened so that its norm over its size is no larger.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.clip_by_average_norm([3.0, 4.0], 0.5))
    array([0.6, 0.8], dtype=float32)
    """
    x = as_node(t)
    average = (x * x).sum().sqrt() / product_of(x.shape)
    limit = as_node(clip_norm, x.dtype)
    return x * clip_norm / weft.maximum(average, limit)


@function
def global_norm(t_list: Any) -> Any:
    """The norm of all elements of all tensors (None is skipped).

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     float(session.run(weft.static.global_norm([[3.0], [4.0], None])))
    5.0
    """
    squares = [(as_node(t) ** 2).sum() for t in t_list if t is not None]
    if not squares:
        raise ArgumentError("global_norm: expected at least one tensor")
    total = squares[0]
    for one in squares[1:]:
        total = total + one
    return total.sqrt()


def clip_by_global_norm(
    t_list: Any, clip_norm: Any, use_norm: Any = None, name: str | None = None
) -> tuple[list[Any], Any]:
    """All tensors, shortened together to a norm; returns them and the norm before.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     (x,), norm = weft.static.clip_by_global_norm([[3.0, 4.0]], 1.0)
    ...     session.run([x, norm])
    [array([0.6, 0.8], dtype=float32), array(5., dtype=float32)]
    """
    with building():
        length = global_norm(t_list) if use_norm is None else as_node(use_norm)
        limit = as_node(clip_norm, length.dtype)
        rate = limit * weft.minimum(1 / length, 1 / limit)
        # a norm that is not finite makes everything NaN, as in TensorFlow
        rate = rate + (length - length)
        out = [None if t is None else as_node(t) * rate for t in t_list]
    return [o if o is None else named(o, name) for o in out], length
