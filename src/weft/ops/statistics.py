"""Means, variances and correlations."""

from __future__ import annotations

import math
from typing import Any

from weft.core.dims import reduced_dims
from weft.core.elementwise import conj
from weft.core.tensor import Tensor
from weft.dtype import as_dtype, default_dtype
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.ops.complex_numbers import real
from weft.ops.copies import cast
from weft.ops.reduce import nansum, sum
from weft.ops.shaping import reshape
from weft.ops.transcendental import sqrt


def count_along(x: Tensor, dims: tuple[int, ...]) -> int:
    return math.prod(x.shape[d] for d in dims)


def as_floating(name: str, x: Tensor, dtype: Any = None) -> Tensor:
    if dtype is not None:
        x = cast(x, as_dtype(dtype))
    if not x.dtype.is_inexact:
        raise DTypeError(
            f"{name}: expected a floating-point or complex dtype, got "
            f"{x.dtype.name}. Convert it with .float() first"
        )
    return x


def mean(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The mean of all elements, or along dimensions.

    >>> weft.tensor([1.0, 2.0, 6.0]).mean()
    tensor(3., dtype=float32)
    """
    x = as_floating("mean", input, dtype)
    dims = reduced_dims("mean", dim, x.ndim)
    count = count_along(x, dims)
    total = sum(x, dims, keepdim)
    return total / count if count else total * math.nan


def nanmean(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The mean of the elements that are not NaN.

    >>> weft.nanmean(weft.tensor([1.0, float("nan"), 3.0]))
    tensor(2., dtype=float32)
    """
    x = as_floating("nanmean", input, dtype)
    return nansum(x, dim, keepdim) / sum(x == x, dim, keepdim)


def var(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """The variance, with ``correction`` degrees of freedom (1) taken off.

    >>> weft.tensor([1.0, 2.0, 3.0]).var()
    tensor(1., dtype=float32)
    """
    return _spread("var", input, dim, unbiased, keepdim, correction)


def _spread(
    name: str,
    input: Tensor,
    dim: Any,
    unbiased: bool | None,
    keepdim: bool,
    correction: float | None,
) -> Tensor:
    if isinstance(dim, bool):  # PyTorch's var(unbiased)
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        raise ArgumentError(f"{name}: expected unbiased or correction, got both")
    if correction is None:
        correction = 0 if unbiased is False else 1
    x = as_floating(name, input)
    dims = reduced_dims(name, dim, x.ndim)
    off = x - mean(x, dims, keepdim=True)
    total = sum(real(off * conj(off)), dims, keepdim)
    left = count_along(x, dims) - correction
    return total / max(left, 0)


def std(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """The standard deviation; its gradient where all elements are equal is 0.

    >>> weft.tensor([1.0, 2.0, 3.0]).std()
    tensor(1., dtype=float32)
    """
    return sqrt(_spread("std", input, dim, unbiased, keepdim, correction))


def var_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The variance and the mean.

    >>> weft.var_mean(weft.tensor([1.0, 3.0]))
    (tensor(2., dtype=float32), tensor(2., dtype=float32))
    """
    spread = _spread("var_mean", input, dim, unbiased, keepdim, correction)
    return spread, mean(input, None if isinstance(dim, bool) else dim, keepdim)


def std_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The standard deviation and the mean.

    >>> weft.std_mean(weft.tensor([1.0, 1.0]))
    (tensor(0., dtype=float32), tensor(1., dtype=float32))
    """
    spread, middle = var_mean(input, dim, unbiased, keepdim, correction=correction)
    return sqrt(spread), middle


# -- several variables


def cov(input: Tensor, *, correction: int = 1) -> Tensor:
    """The covariance matrix of variables (rows) over observations (columns).

    >>> weft.cov(weft.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]], shape=(2, 2), dtype=float32)
    """
    if input.ndim > 2:
        raise ShapeError(f"cov: expected at most 2 dimensions, got shape {input.shape}")
    x = input if input.ndim == 2 else reshape(input, (1, input.numel()))
    x = x if x.dtype.is_inexact else cast(x, default_dtype())
    off = x - mean(x, 1, keepdim=True)
    table = off @ conj(off).T / max(x.shape[1] - correction, 0)
    return table if input.ndim == 2 else reshape(table, ())


def corrcoef(input: Tensor) -> Tensor:
    """The correlation coefficients of variables (rows).

    >>> weft.corrcoef(weft.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]], shape=(2, 2), dtype=float32)
    """
    table = cov(input)
    if table.ndim == 0:
        return table / table
    spread = sqrt(real(table.diagonal()))
    return table / spread.unsqueeze(1) / spread.unsqueeze(0)
