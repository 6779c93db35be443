"""Resampling: each element along a dimension becomes a weighted sum of some.

    y[..., i, ...] = sum over the taps (i, j, w) of w * x[..., j, ...]

Average pooling, adaptive pooling and interpolation are this, a dimension at a
time, with different taps. The transpose has the same taps with rows and columns
exchanged, so one linear record is its own derivative.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from weft.core.eager_kernels import SLOW
from weft.core.lowering import Element, Fold, Varied, cast_element
from weft.core.op import Op, Sample, TensorType, define
from weft.dtype import DType
from weft.errors import ShapeError
from weft.ops.copies import HALF
from weft.ops.elementwise import check_accepts


class Taps:
    """A sparse matrix of ``size`` (rows, columns), by rows, columns and weights.

    ``parts`` splits it so that no row and no column appears twice in a part:
    each is then one assignment, and (where evenly spaced) one over slices.
    """

    __slots__ = (
        "cols", "lists", "parts", "rows", "scale", "size", "transposed", "weights",
    )  # fmt: skip

    def __init__(self, size: tuple[int, int], rows: Any, cols: Any, w: Any) -> None:
        self.size = size
        self.rows, self.cols, self.weights = rows, cols, w
        even = bool(len(w)) and bool((w == w[0]).all())
        self.scale = float(w[0]) if even else None  # one weight for all
        self.parts = _parts(rows, cols, w)
        self.lists: Lists | None = None
        self.transposed: Taps = self._transpose()

    def _transpose(self) -> Taps:
        twin = object.__new__(Taps)
        twin.size = (self.size[1], self.size[0])
        twin.rows, twin.cols, twin.weights = self.cols, self.rows, self.weights
        twin.scale = self.scale
        twin.parts = [(cols, rows, w) for rows, cols, w in self.parts]
        twin.transposed = self
        twin.lists = None
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
    """The number of earlier occurrences of each value in the list."""
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


# -- as loops


class Lists:
    """Taps row by row, as arrays whose columns are the rows, padded to ``most``.

    ``windows`` is (stride, width, padding) where the row ``i`` has just the columns
    from ``i * stride - padding`` on, as far as there are any.
    """

    def __init__(self, taps: Taps) -> None:
        rows, size = taps.size
        order = np.argsort(taps.rows, kind="stable")  # added up in the order given
        at, cols = taps.rows[order], taps.cols[order]
        self.counts = np.bincount(at, minlength=rows).astype(np.int64)
        self.most = int(self.counts.max(initial=0))
        self.fewest = int(self.counts.min(initial=self.most))
        number = _repeat_number(at)
        self.cols = np.zeros((self.most, rows), np.int64)
        self.weights = np.zeros((self.most, rows))
        self.cols[number, at] = cols
        self.weights[number, at] = taps.weights[order]
        self.windows = self._windows(size) if self.most else None

    def _windows(self, size: int) -> tuple[int, int, int] | None:
        full = np.flatnonzero(self.counts == self.most)
        a, b = full[0], full[-1]
        start = self.cols[0]
        stride = int(start[b] - start[a]) // int(b - a) if b > a else size
        padding = int(a * stride - start[a])
        rows = np.arange(len(start)) * stride - padding
        first, end = np.maximum(rows, 0), np.minimum(rows + self.most, size)
        want = first + np.arange(self.most)[:, None]
        there = np.arange(self.most)[:, None] < self.counts
        fits = (end - first == self.counts).all() and stride > 0
        same = (np.where(there, self.cols, want) == want).all()
        if not fits or not same:
            return None
        tap, row = np.nonzero(there)
        moved = np.zeros_like(self.weights)  # by the position in the window
        moved[tap + (first - rows)[row], row] = self.weights[tap, row]
        self.weights = moved
        return stride, self.most, padding


def lists_of(taps: Taps) -> Lists:
    if taps.lists is None:
        taps.lists = Lists(taps)
    return taps.lists


WRITTEN = 16  # taps of a row that are written out one by one


def _resample_loops(x_shape: Any, *, taps: Taps, dim: int) -> Any:
    lists = lists_of(taps)
    if lists.most > WRITTEN:
        return Fold(
            domain=lambda x, **params: (lists.most,),
            start=lambda k, out, x, **params: (k.number(0, x.dtype.to_total()),),
            step=_tap_added,
            end=lambda k, out, states, x, **params: cast_element(k, states[0], x.dtype),
        )
    return Element(_taps_in_windows if lists.windows else _taps_from_lists)


def _read(k: Any, x: Any, out: Any, dim: int, position: Any) -> Any:
    value = x[*out[:dim], position, *out[dim + 1 :]]
    return cast_element(k, value, x.dtype.to_total())


def _weighted(k: Any, lists: Lists, value: Any, tap: Any, row: Any) -> Any:
    table = k.table(_cast(lists, value.dtype))
    return k.call("mul", value, table[tap, row])


@functools.lru_cache(maxsize=64)
def _cast(lists: Lists, dtype: DType) -> Any:
    return lists.weights.astype(dtype.np)


def _tap_added(
    k: Any, out: Any, at: Any, states: Any, x: Any, *, taps: Taps, dim: int
) -> Any:
    (total,), (tap,), row, lists = states, at, out[dim], lists_of(taps)
    position = k.listed(lists.cols, (tap, row), taps.size[1])
    term = _weighted(k, lists, _read(k, x, out, dim, position), tap, row)
    more = k.call("add", total, term)
    there = k.call("lt", k.at(tap), k.table(lists.counts)[(row,)])
    return (k.call("where", there, more, total),)


def _taps_from_lists(k: Any, out: Any, x: Any, *, taps: Taps, dim: int) -> Any:
    row, lists = out[dim], lists_of(taps)
    zero = total = k.number(0, x.dtype.to_total())
    for tap in range(lists.most):
        position = k.listed(lists.cols, (tap, row), taps.size[1])
        term = _read(k, x, out, dim, position)
        if taps.scale is None:
            term = _weighted(k, lists, term, tap, row)
        if tap >= lists.fewest:
            there = k.call("lt", k.at(tap), k.table(lists.counts)[(row,)])
            term = k.call("where", there, term, zero)
        total = term if tap == 0 else k.call("add", total, term)
    return cast_element(k, _scaled(k, total, taps), x.dtype)


def _scaled(k: Any, total: Any, taps: Taps) -> Any:
    if taps.scale in (None, 1.0):
        return total
    scale = total.dtype.np.type(taps.scale).item()
    return k.call("mul", total, k.number(scale, total.dtype))


def _taps_in_windows(k: Any, out: Any, x: Any, *, taps: Taps, dim: int) -> Any:
    row, lists, size = out[dim], lists_of(taps), taps.size[1]
    stride, width, padding = lists.windows or (1, 0, 0)
    zero = total = k.number(0, x.dtype.to_total())
    for tap in range(width):
        position = row * stride + (tap - padding)
        term = _read(k, x, out, dim, position)
        if taps.scale is None:
            term = _weighted(k, lists, term, tap, row)
        term = k.choice(position, 0, zero, k.choice(position, size, term, zero))
        total = term if tap == 0 else k.call("add", total, term)
    return cast_element(k, _scaled(k, total, taps), x.dtype)


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
    bulk=SLOW,
    inputs="x",
    lower=Varied(_resample_loops),
    eval=_resample_eval,
    type=_resample_type,
    vjp={"x": lambda g, taps, dim: resample_op(g, taps=taps.transposed, dim=dim)},
    linear=True,
    batch=lambda op, size, args, batched, params: op(
        args[0], taps=params["taps"], dim=params["dim"] + 1
    ),
    samples=_resample_samples,
    reference=_resample_reference,
)
