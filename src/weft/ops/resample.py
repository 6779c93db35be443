"""Resampling: each element along a dimension becomes a weighted sum of some.

    y[..., i, ...] = sum over the taps (i, j, w) of w * x[..., j, ...]

Average pooling, adaptive pooling and interpolation are this, a dimension at a
time, with different taps. The transpose has the same taps turned around, so one
linear record is its own derivative.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.elementwise import check_accepts
from weft.core.op import Op, Sample, TensorType, define
from weft.errors import ShapeError
from weft.ops.reduce import HALF


class Taps:
    """A sparse matrix of ``size`` (rows, columns), by rows, columns and weights.

    ``parts`` splits it so that no row and no column appears twice in a part:
    each is then one assignment, and (where evenly spaced) one over slices.
    """

    __slots__ = ("cols", "parts", "rows", "scale", "size", "turned", "weights")

    def __init__(self, size: tuple[int, int], rows: Any, cols: Any, w: Any) -> None:
        self.size = size
        self.rows, self.cols, self.weights = rows, cols, w
        even = bool(len(w)) and bool((w == w[0]).all())
        self.scale = float(w[0]) if even else None  # one weight for all
        self.parts = _parts(rows, cols, w)
        self.turned: Taps = self._turn()

    def _turn(self) -> Taps:
        twin = object.__new__(Taps)
        twin.size = (self.size[1], self.size[0])
        twin.rows, twin.cols, twin.weights = self.cols, self.rows, self.weights
        twin.scale = self.scale
        twin.parts = [(cols, rows, w) for rows, cols, w in self.parts]
        twin.turned = self
        return twin

    def __repr__(self) -> str:
        return f"Taps({self.size[0]} from {self.size[1]})"


def _parts(rows: Any, cols: Any, weights: Any) -> list[tuple[Any, Any, Any]]:
    if not len(rows):
        return []
    key = _repeat_number(rows) * (len(rows) + 1) + _repeat_number(cols)
    found = []
    for number in np.unique(key):
        at = np.flatnonzero(key == number)
        found.append((_as_slice(rows[at]), _as_slice(cols[at]), weights[at]))
    return found


def _repeat_number(values: Any) -> Any:
    """How often each value came before it in the list."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    counts = np.diff(np.r_[first, len(values)])
    out = np.empty(len(values), np.int64)
    out[order] = np.arange(len(values)) - np.repeat(first, counts)
    return out


def _as_slice(values: Any) -> Any:
    """A slice of the same elements, if they are evenly spaced."""
    a, step = int(values[0]), int(values[1] - values[0]) if len(values) > 1 else 1
    if step > 0 and (np.diff(values) == step).all():
        return slice(a, int(values[-1]) + 1, step)
    return values


def _resample_eval(x: Any, *, taps: Taps, dim: int) -> Any:
    wide = x.astype(np.float32) if x.dtype.char in HALF else x
    lead = (slice(None),) * dim
    shape = (*x.shape[:dim], taps.size[0], *x.shape[dim + 1 :])
    out: Any = None
    for rows, cols, w in taps.parts:
        value = wide[(*lead, cols)]
        if taps.scale is None:
            value = value * w.astype(wide.dtype).reshape(-1, *(1,) * (x.ndim - dim - 1))
        if out is None:
            whole = rows == slice(0, shape[dim], 1) if type(rows) is slice else False
            out = np.array(value) if whole else np.zeros(shape, wide.dtype)
            if whole:
                continue
        out[(*lead, rows)] += value
    if out is None:
        return np.zeros(shape, x.dtype)
    if taps.scale not in (None, 1.0):
        out *= wide.dtype.type(taps.scale)
    return out.astype(x.dtype, copy=False)


def _resample_type(x: TensorType, *, taps: Taps, dim: int) -> TensorType:
    check_accepts("resample", "real", x.dtype)
    if x.shape[dim] != taps.size[1]:
        raise ShapeError(
            f"resample: expected size {taps.size[1]} along dim {dim}, got {x.shape}"
        )
    return TensorType((*x.shape[:dim], taps.size[0], *x.shape[dim + 1 :]), x.dtype)


def _scattered(rows: int, cols: int, count: int) -> Taps:
    """Some taps, the same at each call."""
    where = np.random.default_rng(0).permutation(rows * cols)[:count]
    weights = np.linspace(-1, 1, count)
    return Taps((rows, cols), where // cols, where % cols, weights)


def _resample_samples(rng: np.random.Generator) -> Any:
    pairs = Taps((2, 4), np.arange(4) // 2, np.arange(4), np.full(4, 0.5))
    empty = Taps((2, 3), *(np.zeros(0, np.int64),) * 2, np.zeros(0))
    for shape, taps, dim in (
        ((2, 4, 3), pairs, 1),
        ((2, 5), _scattered(3, 5, 7), 1),
        ((4, 2), _scattered(6, 4, 9), 0),
        ((0, 4), pairs, 1),
        ((3,), empty, 0),
    ):
        yield Sample((rng.uniform(-2, 2, shape),), {"taps": taps, "dim": dim})


def _resample_reference(x: Any, *, taps: Taps, dim: int) -> Any:
    matrix = np.zeros(taps.size)
    for i, j, w in zip(taps.rows, taps.cols, taps.weights, strict=True):
        matrix[i, j] += w
    return np.moveaxis(np.tensordot(matrix, x, (1, dim)), 0, dim)


resample_op: Op = define(
    "resample",
    inputs="x",
    eval=_resample_eval,
    type=_resample_type,
    vjp={"x": lambda g, taps, dim: resample_op(g, taps=taps.turned, dim=dim)},
    linear=True,
    batch=lambda op, size, args, batched, params: op(
        args[0], taps=params["taps"], dim=params["dim"] + 1
    ),
    samples=_resample_samples,
    reference=_resample_reference,
)
