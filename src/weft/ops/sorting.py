"""Sorting, selecting and counting.

Sorted values are gathered by a differentiable index, so only ``argsort`` is a
primitive.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft import dtype as dtypes
from weft.core.dims import normalize_dim
from weft.core.dispatch import bind
from weft.core.elementwise import check_accepts
from weft.core.op import Op, Sample, TensorType, define
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, ShapeError
from weft.ops.index import concrete, gather
from weft.ops.movement import along, reshape
from weft.ops.reduce import Extreme


def _argsort_eval(x: Any, *, dim: int, descending: bool) -> Any:
    if not descending:
        return np.argsort(x, dim, kind="stable")
    # Stable in reverse: sort the flipped array, then turn indices and order.
    turned = np.flip(x, dim)
    order = np.argsort(turned, dim, kind="stable")
    return np.flip(x.shape[dim] - 1 - order, dim)


def _argsort_type(x: TensorType, *, dim: int, descending: bool) -> TensorType:
    check_accepts("argsort", "ordered", x.dtype)
    return TensorType(x.shape, dtypes.int64)


def _argsort_reference(x: Any, *, dim: int, descending: bool) -> Any:
    """Each element's rank by counting, then the ranks inverted."""
    rows = np.moveaxis(x, dim, -1)
    out = np.empty(rows.shape, np.int64)
    for place in np.ndindex(rows.shape[:-1]):
        row = rows[place]
        out[place] = sorted(range(len(row)), key=lambda i: row[i], reverse=descending)
    return np.moveaxis(out, -1, dim)


argsort_op = define(
    "argsort",
    inputs="x",
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


def argsort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """The indices that sort along a dimension (always a stable order).

    >>> weft.tensor([3, 1, 2]).argsort()
    tensor([1, 2, 0], shape=(3,), dtype=int64)
    """
    check_accepts("argsort", "ordered", input.dtype)
    d = normalize_dim("argsort", dim, input.ndim)
    if input.ndim == 0:
        return Tensor(np.zeros((), np.int64))
    return bind(argsort_op, (input,), {"dim": d, "descending": bool(descending)})


class Sorted(NamedTuple):
    """What ``sort`` and ``topk`` return."""

    values: Tensor
    indices: Tensor


def sort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool = True
) -> Sorted:
    """The elements in order along a dimension, and where they came from.

    >>> weft.tensor([3.0, 1.0, 2.0]).sort().values
    tensor([1., 2., 3.], shape=(3,), dtype=float32)
    """
    indices = argsort(input, dim, descending)
    if input.ndim == 0:
        return Sorted(input, indices)
    return Sorted(gather(input, dim, indices), indices)


def msort(input: Tensor) -> Tensor:
    """The elements in order along the first dimension.

    >>> weft.msort(weft.tensor([2, 1]))
    tensor([1, 2], shape=(2,), dtype=int64)
    """
    return sort(input, 0).values


def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Sorted:
    """The k largest (or smallest) elements along a dimension.

    >>> weft.tensor([1.0, 9.0, 4.0]).topk(2).values
    tensor([9., 4.], shape=(2,), dtype=float32)
    """
    d = normalize_dim("topk", dim, input.ndim)
    size = input.shape[d] if input.ndim else 1
    if not 0 <= k <= size:
        raise ShapeError(f"topk: k is {k}, but dim {d} has size {size}")
    if input.ndim == 0:
        return Sorted(input, Tensor(np.zeros((), np.int64)))
    indices = along(argsort(input, d, descending=largest), d, slice(0, k))
    return Sorted(gather(input, d, indices), indices)


def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Extreme:
    """The k-th smallest element along a dimension (k starts at 1).

    >>> weft.tensor([3.0, 1.0, 2.0]).kthvalue(2).values
    tensor(2., dtype=float32)
    """
    d = normalize_dim("kthvalue", dim, input.ndim)
    if input.ndim == 0:
        return Extreme(input, Tensor(np.zeros((), np.int64)))
    if not 1 <= k <= input.shape[d]:
        raise ShapeError(f"kthvalue: k is {k}, but dim {d} has size {input.shape[d]}")
    indices = along(argsort(input, d), d, slice(k - 1, k))
    values = gather(input, d, indices)
    if not keepdim:
        values, indices = values.squeeze(d), indices.squeeze(d)
    return Extreme(values, indices)


def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The middle element (the lower one of two); along a dimension, with indices.

    >>> weft.tensor([3.0, 1.0, 2.0, 9.0]).median()
    tensor(2., dtype=float32)
    """
    if dim is None:
        if input.numel() == 0:
            raise ShapeError("median: expected at least one element, got none")
        return median(reshape(input, (input.numel(),)), 0).values
    d = normalize_dim("median", dim, input.ndim)
    size = input.shape[d] if input.ndim else 1
    if size == 0:
        raise ShapeError(f"median: dim {d} of shape {input.shape} is empty")
    return kthvalue(input, (size + 1) // 2, d, keepdim)


def quantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False
) -> Tensor:
    """The q-quantile, linear between neighbours.

    >>> weft.tensor([1.0, 2.0, 3.0, 4.0]).quantile(0.5)
    tensor(2.5000, dtype=float32)
    """
    if not isinstance(q, (int, float)) or not 0 <= q <= 1:
        raise ArgumentError(f"quantile: expected a number from 0 to 1, got {q!r}")
    x, d = (input, dim) if dim is not None else (input.flatten(), 0)
    d = normalize_dim("quantile", d, x.ndim)
    if x.shape[d] == 0:
        raise ShapeError("quantile: expected at least one element, got none")
    ordered = sort(x, d).values
    place = q * (x.shape[d] - 1)
    low = int(place)
    high = min(low + 1, x.shape[d] - 1)
    part = place - low
    out = along(ordered, d, low) * (1 - part) + along(ordered, d, high) * part
    if not keepdim:
        return out
    return out.unsqueeze(d) if dim is not None else out.reshape((1,) * input.ndim)


def cummax(input: Tensor, dim: int) -> Extreme:
    """The running maximum along a dimension, and where it stands.

    >>> weft.tensor([1, 3, 2]).cummax(0).values
    tensor([1, 3, 3], shape=(3,), dtype=int64)
    """
    return _running_extreme("cummax", cummax_index, input, dim)


def cummin(input: Tensor, dim: int) -> Extreme:
    """The running minimum along a dimension, and where it stands.

    >>> weft.tensor([3, 1, 2]).cummin(0).values
    tensor([3, 1, 1], shape=(3,), dtype=int64)
    """
    return _running_extreme("cummin", cummin_index, input, dim)


def _running_extreme(name: str, op: Op, x: Tensor, dim: int) -> Extreme:
    check_accepts(name, "ordered", x.dtype)
    d = normalize_dim(name, dim, x.ndim)
    if x.ndim == 0:
        return Extreme(x, Tensor(np.zeros((), np.int64)))
    indices = bind(op, (x,), {"dim": d})
    return Extreme(gather(x, d, indices), indices)


def _running_index(name: str, ufunc: Any, better: Any) -> Op:
    def eval(x: Any, *, dim: int) -> Any:
        best = ufunc.accumulate(x, dim)
        lone = [1] * x.ndim
        lone[dim] = x.shape[dim]
        places = np.arange(x.shape[dim]).reshape(lone)
        return np.maximum.accumulate(np.where(x == best, places, 0), dim)

    def reference(x: Any, *, dim: int) -> Any:
        rows = np.moveaxis(x, dim, 0)
        out = np.zeros(rows.shape, np.int64)
        for k in range(1, len(rows)):
            held = np.take_along_axis(rows, out[k - 1][None], 0)[0]
            out[k] = np.where(better(rows[k], held), k, out[k - 1])
        return np.moveaxis(out, 0, dim)

    return define(
        name,
        inputs="x",
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


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The different elements (or slices along ``dim``), in order.

    >>> weft.tensor([2, 1, 2]).unique()
    tensor([1, 2], shape=(2,), dtype=int64)
    """
    array = concrete("unique", input)
    if dim is not None:
        dim = normalize_dim("unique", dim, input.ndim)
    values, inverse, counts = np.unique(
        array, return_inverse=True, return_counts=True, axis=dim
    )
    shape = array.shape if dim is None else (array.shape[dim],)
    out = [Tensor(values)]
    if return_inverse:
        out.append(Tensor(inverse.reshape(shape)))
    if return_counts:
        out.append(Tensor(counts))
    return out[0] if len(out) == 1 else tuple(out)


def bincount(
    input: Tensor, weights: Tensor | None = None, minlength: int = 0
) -> Tensor:
    """How often each whole number from 0 occurs.

    >>> weft.bincount(weft.tensor([0, 2, 2]))
    tensor([1, 0, 2], shape=(3,), dtype=int64)
    """
    array = concrete("bincount", input)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ArgumentError("bincount: expected a 1-d tensor of integers")
    if array.size and array.min() < 0:
        raise ArgumentError(
            f"bincount: expected no negative numbers, got {array.min()}"
        )
    if weights is None:
        return Tensor(np.bincount(array, minlength=minlength))
    counts = np.bincount(array, concrete("bincount", weights), minlength)
    return Tensor(counts.astype(weights.dtype.np))


def searchsorted(
    sorted_sequence: Tensor, input: Any, *, right: bool = False, side: str | None = None
) -> Tensor:
    """Where elements would be put into a sorted 1-d sequence.

    >>> weft.searchsorted(weft.tensor([1, 3, 5]), weft.tensor([3, 6]))
    tensor([1, 3], shape=(2,), dtype=int64)
    """
    if sorted_sequence.ndim != 1:
        raise ShapeError(
            "searchsorted: expected a 1-d sequence, got shape "
            f"{sorted_sequence.shape}"
        )
    values = concrete("searchsorted", input) if isinstance(input, Tensor) else input
    chosen = side or ("right" if right else "left")
    if chosen not in ("left", "right"):
        raise ArgumentError(f"searchsorted: side must be 'left' or 'right', got {side!r}")
    found = np.searchsorted(concrete("searchsorted", sorted_sequence), values, chosen)
    return Tensor(np.asarray(found))


def isin(elements: Tensor, test_elements: Tensor) -> Tensor:
    """Whether each element is among the others.

    >>> weft.isin(weft.tensor([1, 2, 3]), weft.tensor([2]))
    tensor([False,  True, False], shape=(3,), dtype=bool)
    """
    return (elements.unsqueeze(-1) == test_elements.flatten()).any(-1)
