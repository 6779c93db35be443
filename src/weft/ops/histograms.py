"""Histograms with edges and weights, in one dimension and in several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.core.results import results
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, ShapeError
from weft.ops.elementwise import check_accepts
from weft.ops.operands import concrete
from weft.ops.public import public


@results("histogram")
class Histogram(NamedTuple):
    """The result of ``histogram``."""

    hist: Tensor
    bin_edges: Tensor


@results("histogramdd")
class HistogramDD(NamedTuple):
    """The result of ``histogramdd``."""

    hist: Tensor
    bin_edges: tuple[Tensor, ...]


@public(method=True)
def histogram(
    input: Tensor,
    bins: Any,
    *,
    range: Any = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Histogram:
    """Counts (or sums of weights) in bins: equal ones, or between given edges.

    >>> weft.histogram(weft.tensor([1.0, 2.0, 1.0]), 4, range=(0.0, 3.0)).hist
    tensor([0., 2., 1., 0.])
    """
    ranges = None if range is None else tuple(range)
    found = _counted("histogram", input.reshape(-1, 1), [bins], ranges, weight, density)
    return Histogram(found.hist, found.bin_edges[0])


@public()
def histogramdd(
    input: Tensor,
    bins: Any,
    range: Any = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> HistogramDD:
    """Counts of points (..., D) in boxes of D dimensions.

    >>> points = weft.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 0.0], [2.0, 2.0]])
    >>> weft.histogramdd(points, bins=[3, 3], weight=weft.tensor([1.0, 2, 4, 8])).hist
    tensor([[0., 1., 0.],
            [2., 0., 0.],
            [4., 0., 8.]])
    """
    if input.ndim < 2:
        raise ShapeError(
            f"histogramdd: expected points of shape (..., D), got shape {input.shape}"
        )
    points = input.reshape(-1, input.shape[-1])
    each = [bins] * points.shape[1] if isinstance(bins, int) else list(bins)
    if len(each) != points.shape[1]:
        raise ArgumentError(
            f"histogramdd: expected bins for {points.shape[1]} dimensions, got "
            f"{len(each)}"
        )
    ranges = None if range is None else tuple(range)
    return _counted("histogramdd", points, each, ranges, weight, density)


def _counted(
    name: str,
    points: Tensor,
    bins: Sequence[Any],
    range: Any,
    weight: Any,
    density: Any,
) -> HistogramDD:
    check_accepts(name, "floating", points.dtype)
    array = concrete(name, points)
    edges = [
        _edges(name, array[:, d], one, range[2 * d : 2 * d + 2] if range else None)
        for d, one in enumerate(bins)
    ]
    inside, where = np.ones(len(array), bool), []
    for d, e in enumerate(edges):
        column = array[:, d]
        inside &= (column >= e[0]) & (column <= e[-1])
        place = np.searchsorted(e, column, "right") - 1
        where.append(np.minimum(place, len(e) - 2))
    shape = tuple(len(e) - 1 for e in edges)
    hist = np.zeros(shape, array.dtype)
    mass = np.ones(len(array), array.dtype)
    if weight is not None:
        mass = concrete(name, weight).reshape(-1)
        if mass.shape != (len(array),):
            raise ShapeError(
                f"{name}: expected a weight for each of {len(array)} points, got "
                f"shape {weight.shape}"
            )
    np.add.at(hist, tuple(w[inside] for w in where), mass[inside])
    if density:
        size, axes = np.ones(shape, array.dtype), [d for d, _ in enumerate(edges)]
        for d, e in enumerate(edges):
            size *= np.expand_dims(np.diff(e), [k for k in axes if k != d])
        hist = hist / hist.sum() / size
    there = points.device
    made = tuple(Tensor(e.astype(array.dtype)).to(there) for e in edges)
    return HistogramDD(Tensor(hist.astype(array.dtype)).to(there), made)


def _edges(name: str, column: np.ndarray, bins: Any, limits: Any) -> np.ndarray:
    """The edges of the bins along one dimension."""
    if isinstance(bins, Tensor):
        edges = concrete(name, bins)
        if edges.ndim != 1 or edges.size < 2 or (np.diff(edges) < 0).any():
            raise ArgumentError(f"{name}: expected at least two edges in rising order")
        return edges
    if not isinstance(bins, int) or bins < 1:
        raise ArgumentError(f"{name}: expected a positive number of bins, got {bins!r}")
    low, high = limits or ((column.min(), column.max()) if column.size else (0, 1))
    if not np.isfinite([low, high]).all() or low > high:
        raise ArgumentError(f"{name}: expected a finite range, got {low} to {high}")
    if low == high:
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, bins + 1).astype(column.dtype)
