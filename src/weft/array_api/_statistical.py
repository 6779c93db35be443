"""Sums, extremes and moments; and the truth of all or any elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import dtype as dtypes
from weft.array_api._common import Array, check_array, operands
from weft.core.dims import normalize_dim, normalize_dims
from weft.dtype import DType, as_dtype
from weft.errors import ArgumentError, ShapeError
from weft.ops import (
    creation,
    cumulative,
    extremes,
    joining,
    reduce,
    shaping,
    slicing,
    statistics,
)


def _reduced(
    fn: Callable[..., Array], x: Array, axis: Any, keepdims: bool, **options: Any
) -> Array:
    """A reduction over axes; none of them for ``()``, which PyTorch takes as all."""
    if axis == ():
        return fn(shaping.unsqueeze(x, 0), dim=0, **options)
    return fn(x, dim=axis, keepdim=keepdims, **options)


def total_dtype(x: Array, dtype: Any) -> DType | None:
    """The dtype of sums and products: that of unsigned numbers is unsigned too."""
    if dtype is not None:
        return as_dtype(dtype)
    unsigned = x.dtype.category == dtypes.INT and not x.dtype.is_signed
    return dtypes.uint64 if unsigned else None


def all(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """Whether all elements are true (nonzero).

    >>> weft.array_api.all(weft.tensor([True, False]))
    tensor(False)
    """
    return _reduced(reduce.all, check_array("all", x), axis, keepdims)


def any(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """Whether at least one element is true (nonzero).

    >>> weft.array_api.any(weft.tensor([True, False]))
    tensor(True)
    """
    return _reduced(reduce.any, check_array("any", x), axis, keepdims)


def max(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The largest elements.

    >>> weft.array_api.max(weft.tensor([[1, 9], [3, 4]]), axis=1)
    tensor([9, 4])
    """
    return _reduced(extremes.amax, x, axis, keepdims)


def mean(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The means of floating-point elements.

    >>> weft.array_api.mean(weft.tensor([1.0, 2.0, 6.0]))
    tensor(3.)
    """
    return _reduced(statistics.mean, x, axis, keepdims)


def min(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The smallest elements.

    >>> weft.array_api.min(weft.tensor([[1, 9], [3, 4]]), axis=1)
    tensor([1, 3])
    """
    return _reduced(extremes.amin, x, axis, keepdims)


def prod(
    x: Array, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False
) -> Array:
    """The products; integers are multiplied in int64, unsigned ones in uint64.

    >>> weft.array_api.prod(weft.tensor([[1, 2], [3, 4]]), axis=(0, 1))
    tensor(24)
    """
    axes = normalize_dims("prod", axis, x.ndim)
    out = cumulative.prod(_flat_last(x, axes), -1, dtype=total_dtype(x, dtype))
    if not keepdims:
        return out
    return shaping.reshape(out, reduce.reduced_shape(x.shape, axes, True))


def _flat_last(x: Array, axes: tuple[int, ...]) -> Array:
    """The array with some axes folded into one last one."""
    kept = [a for a in range(x.ndim) if a not in axes]
    shape = [x.shape[a] for a in kept]
    count = 1
    for a in axes:
        count *= x.shape[a]
    return shaping.reshape(shaping.permute(x, (*kept, *axes)), (*shape, count))


def std(
    x: Array, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False
) -> Array:
    """The standard deviations.

    >>> weft.array_api.std(weft.tensor([1.0, 3.0]))
    tensor(1.)
    """
    return _reduced(statistics.std, x, axis, keepdims, correction=correction)


def sum(
    x: Array, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False
) -> Array:
    """The sums; integers are added in int64, unsigned ones in uint64.

    >>> weft.array_api.sum(weft.tensor([[1, 2], [3, 4]]), axis=0)
    tensor([4, 6])
    """
    kind = total_dtype(check_array("sum", x), dtype)
    return _reduced(reduce.sum, x, axis, keepdims, dtype=kind)


def var(
    x: Array, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False
) -> Array:
    """The variances.

    >>> weft.array_api.var(weft.tensor([1.0, 3.0]))
    tensor(1.)
    """
    return _reduced(statistics.var, x, axis, keepdims, correction=correction)


def cumulative_sum(
    x: Array,
    /,
    *,
    axis: int | None = None,
    dtype: Any = None,
    include_initial: bool = False,
) -> Array:
    """The running sums along an axis, from 0 if ``include_initial``.

    >>> weft.array_api.cumulative_sum(weft.tensor([1, 2, 3]), include_initial=True)
    tensor([0, 1, 3, 6])
    """
    return _cumulative(
        "cumulative_sum", cumulative.cumsum, 0, x, axis, dtype, include_initial
    )


def cumulative_prod(
    x: Array,
    /,
    *,
    axis: int | None = None,
    dtype: Any = None,
    include_initial: bool = False,
) -> Array:
    """The running products along an axis, from 1 if ``include_initial``.

    >>> weft.array_api.cumulative_prod(weft.tensor([1, 2, 3]))
    tensor([1, 2, 6])
    """
    return _cumulative(
        "cumulative_prod", cumulative.cumprod, 1, x, axis, dtype, include_initial
    )


def _cumulative(
    name: str, fn: Any, first: int, x: Array, axis: Any, dtype: Any, initial: bool
) -> Array:
    if x.ndim == 0:
        raise ShapeError(f"{name}: expected at least one axis, got a 0-d array")
    if axis is None and x.ndim > 1:
        raise ArgumentError(
            f"{name}: expected an axis for an array of shape {x.shape}, got None"
        )
    along = normalize_dim(name, 0 if axis is None else axis, x.ndim)
    out = fn(x, along, dtype=total_dtype(x, dtype))
    if not initial:
        return out
    shape = (*x.shape[:along], 1, *x.shape[along + 1 :])
    start = creation.full(shape, first, dtype=out.dtype)
    return _joined([start, out], along)


def _joined(parts: list[Array], axis: int) -> Array:
    return joining.cat_op(*parts, dim=axis)


def count_nonzero(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The number of elements that are not zero.

    >>> weft.array_api.count_nonzero(weft.tensor([0, 3, 0, 4]))
    tensor(2)
    """
    return _reduced(reduce.sum, x != 0, axis, keepdims)


def diff(
    x: Array,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Array | None = None,
    append: Array | None = None,
) -> Array:
    """The n-th differences of neighbours along an axis.

    >>> weft.array_api.diff(weft.tensor([1, 4, 9]), prepend=weft.tensor([0]))
    tensor([1, 3, 5])
    """
    if x.ndim == 0:
        raise ShapeError("diff: expected at least one axis, got a 0-d array")
    along = normalize_dim("diff", axis, x.ndim)
    parts = [part for part in (prepend, x, append) if part is not None]
    joined = _joined(list(operands("diff", *parts)), along) if len(parts) > 1 else x
    if joined.dtype is dtypes.bool_:
        return _flips(joined, n, along)
    return cumulative.diff(joined, n, along)


def _flips(x: Array, n: int, axis: int) -> Array:
    """Differences of booleans: where neighbours are not the same."""
    for _ in range(n):
        low, high = slice(0, -1), slice(1, None)
        x = slicing.along(x, axis, high) != slicing.along(x, axis, low)
    return x
