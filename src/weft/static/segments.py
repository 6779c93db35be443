"""Segments, histograms and counts under TensorFlow 1's names."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.dtype import as_dtype
from weft.errors import ArgumentError
from weft.static.arrays import one_hot
from weft.static.building import SHAPE_OF_VALUES, as_node, function, refused


def _scattered(rows: Any, ids: Any, count: Any, kind: str, start: Any) -> Any:
    """Rows put together by their ids; those with an id below zero count for none."""
    # a first row takes what counts for none, so that an id too large is an error
    place = weft.where(ids < 0, 0, ids + 1).to(weft.int64)
    place = place.reshape(-1, *[1] * (rows.ndim - 1))
    into = weft.full((count + 1, *rows.shape[1:]), start, dtype=rows.dtype)
    place = weft.broadcast_to(place, rows.shape)
    return weft.scatter_reduce(into, 0, place, rows, kind).narrow(0, 1, count)


def _segments(name: str, text: str, kind: str) -> Any:
    def call(data: Any, segment_ids: Any, num_segments: Any) -> Any:
        x, ids = as_node(data), as_node(segment_ids)
        rows, ids = x.reshape(-1, *x.shape[ids.ndim :]), ids.reshape(-1)
        if kind == "mean":
            total = _scattered(rows, ids, num_segments, "sum", 0)
            ones = _scattered(weft.ones_like(rows), ids, num_segments, "sum", 0)
            return total / weft.clamp(ones, 1)
        start = _starts(x.dtype)[kind]
        return _scattered(rows, ids, num_segments, kind, start)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""The {text} of the rows of each segment, which ``ids`` tell.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     data, ids = [1.0, 2.0, 4.0], [0, 1, 0]
    ...     session.run(weft.static.{name}(data, ids, 2))
    {_SEGMENT_EXAMPLES[text]}
    """
    return function(call)


def _starts(dtype: Any) -> dict[str, Any]:
    """The value of an empty segment."""
    info: Any = np.finfo(dtype.np) if dtype.is_inexact else np.iinfo(dtype.np)
    ends = [n.item() if isinstance(n, np.generic) else n for n in (info.min, info.max)]
    return {"sum": 0, "prod": 1, "amax": ends[0], "amin": ends[1]}


_SEGMENT_EXAMPLES = {
    "sum": "array([5., 2.], dtype=float32)",
    "product": "array([4., 2.], dtype=float32)",
    "maximum": "array([4., 2.], dtype=float32)",
    "minimum": "array([1., 2.], dtype=float32)",
    "mean": "array([2.5, 2. ], dtype=float32)",
}  # fmt: skip
unsorted_segment_sum = _segments("unsorted_segment_sum", "sum", "sum")
unsorted_segment_prod = _segments("unsorted_segment_prod", "product", "prod")
unsorted_segment_max = _segments("unsorted_segment_max", "maximum", "amax")
unsorted_segment_min = _segments("unsorted_segment_min", "minimum", "amin")
unsorted_segment_mean = _segments("unsorted_segment_mean", "mean", "mean")
segment_sum = refused(
    "segment_sum", SHAPE_OF_VALUES, "use unsorted_segment_sum with num_segments"
)
segment_mean = refused(
    "segment_mean", SHAPE_OF_VALUES, "use unsorted_segment_mean with num_segments"
)
segment_max = refused(
    "segment_max", SHAPE_OF_VALUES, "use unsorted_segment_max with num_segments"
)


@function
def histogram_fixed_width(
    values: Any, value_range: Any, nbins: int = 100, dtype: Any = weft.int32
) -> Any:
    """How many values fall into each of equal bins; those outside are in the end bins.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.histogram_fixed_width([0.1, 0.9, 2.0], [0, 1], 2))
    array([1, 2], dtype=int32)
    """
    x = as_node(values)
    low, high = as_node(value_range, x.dtype).unbind(0)
    bins = weft.floor((x - low) / (high - low) * nbins)
    bins = weft.clamp(bins, 0, nbins - 1).reshape(-1)
    ones = weft.ones_like(bins, dtype=as_dtype(dtype))
    return _scattered(ones, bins, nbins, "sum", 0)


@function
def bincount(
    arr: Any, weights: Any = None, minlength: Any = None, maxlength: Any = None,
    dtype: Any = weft.int32,
) -> Any:  # fmt: skip
    """How often each of the numbers below ``maxlength`` (== ``minlength``) is there.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.bincount([1, 1, 3], minlength=4, maxlength=4))
    array([0, 2, 0, 1], dtype=int32)
    """
    if minlength is None or minlength != maxlength:
        raise ArgumentError(
            "bincount: expected minlength and maxlength to be one number; the size of "
            "the result cannot depend on values"
        )
    ids = as_node(arr).reshape(-1)
    if weights is None:
        each = weft.ones_like(ids, dtype=as_dtype(dtype))
    else:
        each = as_node(weights).reshape(-1)
    return _scattered(each, weft.where(ids < maxlength, ids, -1), maxlength, "sum", 0)


@function
def confusion_matrix(
    labels: Any, predictions: Any, num_classes: int | None = None,
    dtype: Any = weft.int32, weights: Any = None,
) -> Any:  # fmt: skip
    """How often each class (a row) was taken for each class (a column).

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.confusion_matrix([0, 1, 1], [0, 0, 1], 2))
    array([[1, 0],
           [1, 1]], dtype=int32)
    """
    if num_classes is None:
        raise ArgumentError(
            "confusion_matrix: expected num_classes; the size of the result cannot "
            "depend on values"
        )
    rows, columns = [
        one_hot(as_node(ids).reshape(-1), num_classes, dtype=weft.float64)
        for ids in (labels, predictions)
    ]
    if weights is not None:
        rows = rows * as_node(weights, weft.float64).reshape(-1, 1)
    return (rows.transpose(0, 1) @ columns).to(as_dtype(dtype))


@function
def count_nonzero(
    input_tensor: Any, axis: Any = None, keepdims: bool = False,
    dtype: Any = weft.int64,
) -> Any:  # fmt: skip
    """How many elements are not zero.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     int(session.run(weft.static.count_nonzero([0, 3, 4])))
    2
    """
    hits = (as_node(input_tensor) != 0).to(as_dtype(dtype))
    return hits.sum(axis, keepdim=keepdims) if axis is not None else hits.sum()
