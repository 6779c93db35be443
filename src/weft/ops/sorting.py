"""Sorting, selecting and counting.

Sorted values are gathered by a differentiable index, so only ``argsort``,
``topk_index`` and the indices of running extremes are primitives.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from weft import dtype as dtypes
from weft.core.dims import as_int, normalize_dim
from weft.core.dispatch import bind
from weft.core.eager_kernels import SLOW
from weft.core.lowering import Composed, Rowwise, Running, Varied, key_dtype
from weft.core.op import Op, Sample, TensorType, define
from weft.core.results import TYPES, results
from weft.core.tensor import Tensor
from weft.dtype import sortable
from weft.errors import ArgumentError, DTypeError, RankError, ShapeError
from weft.ops import dividing
from weft.ops.copies import cast
from weft.ops.creation import zeros
from weft.ops.elementwise import check_accepts
from weft.ops.extremes import Extreme, amax, amin
from weft.ops.gathering import gather
from weft.ops.operands import as_tensorlike, concrete
from weft.ops.public import public
from weft.ops.require import require
from weft.ops.rounding import ceil, floor
from weft.ops.select import where
from weft.ops.shaping import movedim, reshape
from weft.ops.slicing import along

sorted_list = sorted


def _argsort_eval(x: Any, *, dim: int, descending: bool) -> Any:
    x = sortable(x)
    if not descending:
        return np.argsort(x, dim, kind="stable")
    # Stable in reverse: sort the flipped array, then turn indices and order.
    flipped = np.flip(x, dim)
    order = np.argsort(flipped, dim, kind="stable")
    return np.flip(x.shape[dim] - 1 - order, dim)


def _argsort_type(x: TensorType, *, dim: int, descending: bool) -> TensorType:
    check_accepts("argsort", "ordered", x.dtype)
    return TensorType(x.shape, dtypes.int64)


def _argsort_reference(x: Any, *, dim: int, descending: bool) -> Any:
    """Each element's rank by counting, then the ranks inverted."""
    rows = np.moveaxis(x, dim, -1)
    out = np.empty(rows.shape, np.int64)
    for position in np.ndindex(rows.shape[:-1]):
        row = rows[position]
        out[position] = sorted(
            range(len(row)), key=lambda i: row[i], reverse=descending
        )
    return np.moveaxis(out, -1, dim)


argsort_op: Op = define(
    "argsort",
    divides=dividing.along,
    bulk=SLOW,
    inputs="x",
    lower=Rowwise("sort"),
    eval=_argsort_eval,
    type=_argsort_type,
    batch=lambda op, size, args, batched, params: bind(
        op, tuple(args), dict(params, dim=params["dim"] + 1)
    ),
    samples=lambda rng: [
        Sample((rng.uniform(-2, 2, s),), {"dim": d, "descending": down})
        for s, d, down in (
            ((3, 4), 1, False),
            ((4, 2), 0, True),
            ((0, 2), 1, False),
        )
    ],
    reference=_argsort_reference,
)


@public(method=True)
def argsort(
    input: Tensor,
    dim: int = -1,
    descending: bool = False,
    stable: bool = True,
    *,
    axis: Any = None,
) -> Tensor:
    """The indices that sort along a dimension (always a stable order).

    >>> weft.tensor([3, 1, 2]).argsort()
    tensor([1, 2, 0])
    """
    if axis is not None:
        dim = axis
    check_accepts("argsort", "ordered", input.dtype)
    d = normalize_dim("argsort", dim, input.ndim)
    if input.ndim == 0:
        return zeros((), dtype=dtypes.int64, device=input.device)
    return bind(argsort_op, (input,), {"dim": d, "descending": bool(descending)})


@results("sort", "topk")
class Sorted(NamedTuple):
    """The result of ``sort`` and ``topk``."""

    values: Tensor
    indices: Tensor


@public(method=True)
def sort(
    input: Tensor,
    dim: int = -1,
    descending: bool = False,
    stable: bool = True,
    *,
    axis: Any = None,
) -> Sorted:
    """The elements in order along a dimension, and where they came from.

    >>> weft.tensor([3.0, 1.0, 2.0]).sort().values
    tensor([1., 2., 3.])
    """
    if axis is not None:
        dim = axis
    indices = argsort(input, dim, descending)
    if input.ndim == 0:
        return TYPES["sort"](input, indices)
    return TYPES["sort"](gather(input, dim, indices), indices)


@public(method=True)
def msort(input: Tensor) -> Tensor:
    """The elements in order along the first dimension.

    >>> weft.msort(weft.tensor([2, 1]))
    tensor([1, 2])
    """
    return sort(input, 0).values


def _topk_eval(x: Any, *, k: int, dim: int, largest: bool) -> Any:
    order = _argsort_eval(x, dim=dim, descending=largest)
    return order[(*(slice(None),) * dim, slice(0, k))]


def _topk_type(x: TensorType, *, k: int, dim: int, largest: bool) -> TensorType:
    check_accepts("topk", "ordered", x.dtype)
    return TensorType((*x.shape[:dim], k, *x.shape[dim + 1 :]), dtypes.int64)


FEW = 32  # elements that are kept in order while all others pass


def _topk_loops(x: Any, *, k: int, dim: int, largest: bool) -> Any:
    if isinstance(k, int) and 0 < k <= FEW:
        return Rowwise("top")

    def calls(call: Any, x: Any, *, k: int, dim: int, largest: bool) -> Any:
        order = call("argsort", x, dim=dim, descending=largest)
        window = [slice(0, n) for n in x.shape]
        window[dim] = slice(0, k)
        return call("slice", order, index=tuple(window))

    return Composed(calls)


def _topk_samples(rng: np.random.Generator) -> Any:
    for shape, dim, k, largest in (
        ((3, 4), 1, 2, True),
        ((5, 2), 0, 3, False),
        ((6,), 0, 6, True),
        ((2, 40), 1, 33, True),
        ((2, 3), 1, 0, True),
        ((0, 3), 1, 2, True),
    ):
        params = {"k": k, "dim": dim, "largest": largest}
        yield Sample((rng.uniform(-2, 2, shape),), params)


topk_index_op: Op = define(
    "topk_index",
    bulk=SLOW,
    inputs="x",
    lower=Varied(_topk_loops),
    eval=_topk_eval,
    type=_topk_type,
    batch=lambda op, size, args, batched, params: bind(
        op, tuple(args), dict(params, dim=params["dim"] + 1)
    ),
    samples=_topk_samples,
    reference=lambda x, *, k, dim, largest: np.take(
        _argsort_reference(x, dim=dim, descending=largest), range(k), dim
    ),
)


@public(method=True)
def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Sorted:
    """The k largest (or smallest) elements along a dimension.

    >>> weft.tensor([1.0, 9.0, 4.0]).topk(2).values
    tensor([9., 4.])
    """
    d = normalize_dim("topk", dim, input.ndim)
    size = input.shape[d] if input.ndim else 1
    if not 0 <= k <= size:
        raise ShapeError(f"topk: k is {k}, but dim {d} has size {size}")
    if input.ndim == 0:
        return TYPES["topk"](input, zeros((), dtype=dtypes.int64, device=input.device))
    check_accepts("topk", "ordered", input.dtype)
    params = {"k": k, "dim": d, "largest": bool(largest)}
    indices = bind(topk_index_op, (input,), params)
    return TYPES["topk"](gather(input, d, indices), indices)


@public(method=True)
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Extreme:
    """The k-th smallest element along a dimension (k starts at 1).

    >>> weft.tensor([3.0, 1.0, 2.0]).kthvalue(2).values
    tensor(2.)
    """
    d = normalize_dim("kthvalue", dim, input.ndim)
    if input.ndim == 0 and k == 1:
        return TYPES["kthvalue"](
            input, zeros((), dtype=dtypes.int64, device=input.device)
        )
    size = input.shape[d] if input.ndim else 1
    if not 1 <= k <= size:
        raise ShapeError(f"kthvalue: k is {k}, but dim {d} has size {size}")
    indices = along(argsort(input, d), d, slice(k - 1, k))
    values = gather(input, d, indices)
    if not keepdim:
        values, indices = values.squeeze(d), indices.squeeze(d)
    return TYPES["kthvalue"](values, indices)


@public(method=True)
def median(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    axis: Any = None,
    keepdims: Any = None,
) -> Any:
    """The middle element (the lower one of two); along a dimension, with indices.

    A NaN wins, as in ``max``.

    >>> weft.tensor([3.0, 1.0, 2.0, 9.0]).median()
    tensor(2.)
    """
    if axis is not None:
        dim = axis
    if keepdims is not None:
        keepdim = keepdims
    return _median("median", input, dim, keepdim, skip_nan=False)


@public(method=True)
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The middle one of the elements that are not NaN.

    >>> weft.tensor([3.0, float("nan"), 2.0]).nanmedian()
    tensor(2.)
    """
    return _median("nanmedian", input, dim, keepdim, skip_nan=True)


def _median(name: str, x: Tensor, dim: Any, keepdim: bool, *, skip_nan: bool) -> Any:
    check_accepts(name, "ordered", x.dtype)
    if dim is None:
        if x.numel() == 0:
            if x.dtype.is_floating_point:
                return x.sum() * math.nan
            raise RankError(f"{name}: expected at least one element, got none")
        flat = reshape(x, (x.numel(),))
        found = _median(name, flat, 0, False, skip_nan=skip_nan).values
        return _shared_gradient(flat, found) if x.requires_grad else found
    d = normalize_dim(name, dim, x.ndim)
    if x.ndim == 0:
        return TYPES[name](x, zeros((), dtype=dtypes.int64, device=x.device))
    if x.shape[d] == 0:
        raise RankError(f"{name}: dim {d} of shape {x.shape} is empty")
    valid = (x == x).sum(d, keepdim=True)
    middle = (valid - 1).clamp(min=0) // 2
    if not skip_nan:  # NaN is sorted last, so the last element says if there is one
        middle = where(valid < x.shape[d], x.shape[d] - 1, middle)
    indices = gather(argsort(x, d), d, middle)
    values = gather(x, d, indices)
    if not keepdim:
        values, indices = values.squeeze(d), indices.squeeze(d)
    return TYPES[name](values, indices)


def _shared_gradient(x: Tensor, found: Tensor) -> Tensor:
    """The found element, whose gradient is shared out to all that are equal to it."""
    equal = (x == found) | ((x != x) & (found != found))
    lowest = amin(where(equal, x, math.inf), 0)
    return where(found < 0, lowest, amax(where(equal, x, -math.inf), 0))


_BETWEEN: dict[str, Any] = {
    "linear": lambda low, high, part: low + (high - low) * part,
    "lower": lambda low, high, part: low,
    "higher": lambda low, high, part: high,
    "nearest": lambda low, high, part: where(part <= 0.5, low, high),
    "midpoint": lambda low, high, part: where(part == 0, low, (low + high) / 2),
}


@public(method=True)
def quantile(
    input: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """The q-quantile (or several, in a first dimension); a NaN wins.

    ``interpolation`` is ``linear``, ``lower``, ``higher``, ``nearest`` or
    ``midpoint``.

    >>> weft.tensor([1.0, 2.0, 3.0, 4.0]).quantile(0.5)
    tensor(2.5000)
    """
    return _quantile("quantile", input, q, dim, keepdim, interpolation)


@public(method=True)
def nanquantile(
    input: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """The q-quantile of the elements that are not NaN.

    >>> weft.tensor([1.0, float("nan"), 3.0]).nanquantile(0.5)
    tensor(2.)
    """
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation)


def _quantile(
    name: str, x: Tensor, q: Any, dim: Any, keepdim: bool, interpolation: str
) -> Tensor:
    check_accepts(name, "floating", x.dtype)
    if interpolation not in _BETWEEN:
        raise ArgumentError(
            f"{name}: interpolation must be one of {sorted_list(_BETWEEN)}, got "
            f"{interpolation!r}"
        )
    positions = _quantiles(name, q).to(x.device)
    d = 0 if dim is None else normalize_dim(name, dim, x.ndim)
    rows = x.flatten() if dim is None else movedim(x.atleast_1d(), d, -1)
    if rows.shape[-1] == 0:
        raise ShapeError(f"{name}: expected at least one element, got shape {x.shape}")
    out = _pick_quantiles(rows, positions.flatten(), name, interpolation)  # (..., Q)
    out = movedim(out, -1, 0)
    if keepdim and dim is None:
        out = out.reshape(-1, *(1,) * x.ndim)
    elif keepdim and x.ndim:
        out = out.unsqueeze(d + 1)
    return out if positions.ndim else out.squeeze(0)


def _quantiles(name: str, q: Any) -> Tensor:
    """The wanted quantiles, in float64."""
    if not isinstance(q, (int, float, Tensor)):
        raise DTypeError(f"{name}: expected q to be a number or a tensor, got {q!r}")
    wanted = q if isinstance(q, Tensor) else Tensor(np.asarray(q, np.float64))
    if wanted.ndim > 1:
        raise ShapeError(
            f"{name}: expected q of at most 1 dimension, got {wanted.shape}"
        )
    text = f"{name}: expected q from 0 to 1, got {{value}}{{where}}"
    wanted = require(wanted, lambda q: (q >= 0) & (q <= 1), text)
    return cast(wanted, dtypes.float64)


def _pick_quantiles(rows: Tensor, q: Tensor, name: str, interpolation: str) -> Tensor:
    """Quantiles over the last dimension, which they replace."""
    ordered = sort(rows, -1).values
    count = (rows == rows).sum(-1, keepdim=True)
    last = rows.shape[-1] - 1
    position = q * (count - 1).clamp(min=0)
    if name == "quantile":
        position = where(count <= last, float(last), q * last)
    low, high = (
        gather(ordered, -1, cast(f(position), dtypes.int64)) for f in (floor, ceil)
    )
    part = (position - floor(position)).to(rows.dtype)
    return _BETWEEN[interpolation](low, high, part)


@public(method=True)
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Extreme:
    """The most frequent element (the smallest of equals), and its last index.

    >>> weft.tensor([3, 1, 3, 2]).mode().values
    tensor(3)
    """
    check_accepts("mode", "ordered", input.dtype)
    d = normalize_dim("mode", dim, input.ndim)
    if input.ndim == 0:
        return TYPES["mode"](input, zeros((), dtype=dtypes.int64, device=input.device))
    rows = np.moveaxis(sortable(concrete("mode", input)), d, -1)
    if rows.shape[-1] == 0:
        raise ShapeError(f"mode: dim {d} of shape {input.shape} is empty")
    found = np.zeros((*rows.shape[:-1], 1), np.int64)
    for position in np.ndindex(rows.shape[:-1]):
        kinds, counts = np.unique(rows[position], return_counts=True, equal_nan=False)
        best = kinds[counts.argmax()]
        found[position] = np.flatnonzero((rows[position] == best) | (best != best))[-1]
    indices = Tensor(np.moveaxis(found, -1, d)).to(input.device)
    values = gather(input, d, indices)
    if not keepdim:
        values, indices = values.squeeze(d), indices.squeeze(d)
    return TYPES["mode"](values, indices)


@public(method=True)
def cummax(input: Tensor, dim: int) -> Extreme:
    """The running maximum along a dimension, and its indices.

    >>> weft.tensor([1, 3, 2]).cummax(0).values
    tensor([1, 3, 3])
    """
    return _running_extreme("cummax", cummax_index, input, dim)


@public(method=True)
def cummin(input: Tensor, dim: int) -> Extreme:
    """The running minimum along a dimension, and its indices.

    >>> weft.tensor([3, 1, 2]).cummin(0).values
    tensor([3, 1, 1])
    """
    return _running_extreme("cummin", cummin_index, input, dim)


def _running_extreme(name: str, op: Op, x: Tensor, dim: int) -> Extreme:
    check_accepts(name, "ordered", x.dtype)
    d = normalize_dim(name, dim, x.ndim)
    if x.ndim == 0:
        return TYPES[name](x, zeros((), dtype=dtypes.int64, device=x.device))
    indices = bind(op, (x,), {"dim": d})
    return TYPES[name](gather(x, d, indices), indices)


def _running_index(name: str, ufunc: Any, better: Any) -> Op:
    def eval(x: Any, *, dim: int) -> Any:
        best = ufunc.accumulate(x, dim)
        lone = [1] * x.ndim
        lone[dim] = x.shape[dim]
        positions = np.arange(x.shape[dim]).reshape(lone)
        leads = (x == best) | (x != x)  # a NaN takes the lead and keeps it
        return np.maximum.accumulate(np.where(leads, positions, 0), dim)

    def reference(x: Any, *, dim: int) -> Any:
        rows = np.moveaxis(x, dim, 0)
        out = np.zeros(rows.shape, np.int64)
        for k in range(1, len(rows)):
            held = np.take_along_axis(rows, out[k - 1][None], 0)[0]
            out[k] = np.where(better(rows[k], held), k, out[k - 1])
        return np.moveaxis(out, 0, dim)

    def key(k: Any, value: Any) -> Any:
        """A whole number, above all others for a NaN: quick to compare."""
        kind = key_dtype(value.dtype)
        if ufunc is np.maximum:
            return k.call("sort_key", value, dtype=kind)
        if value.dtype.is_inexact:
            return k.call("sort_key", k.call("neg", value), dtype=kind)
        return k.call("bitwise_not", k.call("sort_key", value, dtype=kind))

    def start(k: Any, x: Any) -> Any:
        kind = key_dtype(x.dtype)
        least = int(np.iinfo(kind.np).min)
        return k.number(least, kind), k.number(0, dtypes.int64)

    def step(k: Any, at: Any, states: Any, value: Any) -> Any:
        (held, index), mine = states, key(k, value)
        leads = k.call("ge", mine, held)
        return k.call("maximum", held, mine), k.call("where", leads, k.at(at), index)

    return define(
        name,
        inputs="x",
        lower=Running(step, start),
        eval=eval,
        type=lambda x, *, dim: TensorType(x.shape, dtypes.int64),
        batch=lambda op, size, args, batched, params: bind(
            op, tuple(args), {"dim": params["dim"] + 1}
        ),
        samples=lambda rng: [
            Sample((rng.uniform(-2, 2, s),), {"dim": d})
            for s, d in (((3, 4), 1), ((5,), 0), ((2, 0), 0))
        ],
        reference=reference,
    )


cummax_index = _running_index("cummax_index", np.maximum, np.greater_equal)
cummin_index = _running_index("cummin_index", np.minimum, np.less_equal)


@public(method=True)
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The different elements (or slices along ``dim``), in order.

    >>> weft.tensor([2, 1, 2]).unique()
    tensor([1, 2])
    """
    array = concrete("unique", input)
    if dim is not None:
        dim = normalize_dim("unique", dim, input.ndim)
    values, inverse, counts = np.unique(
        sortable(array), return_inverse=True, return_counts=True, axis=dim
    )
    values = values.astype(array.dtype, copy=False)
    shape = array.shape if dim is None else (array.shape[dim],)
    out = [Tensor(values)]
    if return_inverse:
        out.append(Tensor(inverse.reshape(shape)))
    if return_counts:
        out.append(Tensor(counts))
    out = [x.to(input.device) for x in out]
    return out[0] if len(out) == 1 else tuple(out)


@public(method=True)
def bincount(
    input: Tensor, weights: Tensor | None = None, minlength: int = 0
) -> Tensor:
    """The number of occurrences of each whole number from 0.

    >>> weft.bincount(weft.tensor([0, 2, 2]))
    tensor([1, 0, 2])
    """
    array = concrete("bincount", input)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DTypeError("bincount: expected a 1-d tensor of integers")
    if array.size and array.min() < 0:
        raise ArgumentError(
            f"bincount: expected no negative numbers, got {array.min()}"
        )
    if weights is None:
        return Tensor(np.bincount(array, minlength=minlength)).to(input.device)
    if weights.shape != input.shape:
        raise ShapeError(
            f"bincount: expected weights of shape {input.shape}, got {weights.shape}"
        )
    counts = np.bincount(array, concrete("bincount", weights), minlength)
    kept = weights.dtype is dtypes.float32
    return Tensor(counts.astype(np.float32 if kept else np.float64)).to(input.device)


@public(method=True)
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """The number of elements in each of some equal bins from ``min`` to ``max``.

    With both 0, from the smallest to the largest element.

    >>> weft.histc(weft.tensor([1.0, 2.0, 1.0]), bins=4, min=0, max=3)
    tensor([0., 2., 1., 0.])
    """
    check_accepts("histc", "floating", input.dtype)
    bins = as_int("histc", bins, "`bins` to be an int")
    if bins <= 0 or max < min:
        raise ArgumentError(
            f"histc: expected positive bins and min <= max, got bins {bins}, min {min} "
            f"and max {max}"
        )
    array = concrete("histc", input).astype(np.float64)
    low, high = float(min), float(max)
    if low == high and array.size:
        low, high = float(array.min()), float(array.max())
    if low == high:
        low, high = low - 1, high + 1
    if not np.isfinite([low, high]).all():
        raise ArgumentError(f"histc: expected a finite range, got {low} to {high}")
    counts, _ = np.histogram(array, bins, (low, high))
    return Tensor(counts.astype(input.dtype.np)).to(input.device)


@public()
def isin(
    elements: Any,
    test_elements: Any,
    *,
    assume_unique: bool = False,
    invert: bool = False,
) -> Tensor:
    """Whether each element is among the others.

    >>> weft.isin(weft.tensor([1, 2, 3]), weft.tensor([2]))
    tensor([False,  True, False])
    """
    wanted = as_tensorlike(test_elements).flatten()
    found = (as_tensorlike(elements).unsqueeze(-1) == wanted).any(-1)
    return ~found if invert else found


@public(method=True)
def unique_consecutive(
    input: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The elements (or slices along ``dim``) with equal neighbours made one.

    >>> weft.unique_consecutive(weft.tensor([1, 1, 2, 1]))
    tensor([1, 2, 1])
    """
    array = concrete("unique_consecutive", input)
    d = 0 if dim is None else normalize_dim("unique_consecutive", dim, input.ndim)
    rows = array.reshape(-1) if dim is None else np.moveaxis(array, d, 0)
    differ = rows[1:] != rows[:-1]
    change = differ.any(tuple(range(1, differ.ndim)))
    starts = np.flatnonzero(np.concatenate([[True] * (len(rows) > 0), change]))
    inverse = np.concatenate([[0] * (len(rows) > 0), change]).cumsum().astype(np.int64)
    out = [Tensor(np.ascontiguousarray(np.moveaxis(rows[starts], 0, d)))]
    if return_inverse:
        out.append(Tensor(inverse.reshape(array.shape if dim is None else -1)))
    if return_counts:
        out.append(Tensor(np.diff(np.append(starts, len(rows))).astype(np.int64)))
    out = [x.to(input.device) for x in out]
    return out[0] if len(out) == 1 else tuple(out)
