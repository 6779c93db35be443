"""Means, variances, correlations, norms and distances."""

from __future__ import annotations

import math
from typing import Any

from weft import late
from weft.core.dims import reduced_dims
from weft.core.size import larger
from weft.core.tensor import Tensor
from weft.dtype import as_dtype, default_dtype, promote_types
from weft.errors import ArgumentError, ChoiceError, DTypeError, ShapeError
from weft.ops.arithmetic import abs
from weft.ops.complex_numbers import real
from weft.ops.copies import cast, in_float32
from weft.ops.elementwise import conj
from weft.ops.extremes import amax, amin
from weft.ops.public import public
from weft.ops.reduce import nansum, sum
from weft.ops.require import require
from weft.ops.select import where
from weft.ops.shaping import reshape
from weft.ops.transcendental import exp, log, sqrt

# -- means and variances


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


@public(method=True)
def mean(
    input: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    axis: Any = None,
    keepdims: Any = None,
) -> Tensor:
    """The mean of all elements, or along dimensions.

    >>> weft.tensor([1.0, 2.0, 6.0]).mean()
    tensor(3.)
    """
    if axis is not None:
        dim = axis
    if keepdims is not None:
        keepdim = keepdims
    x = as_floating("mean", input, dtype)
    dims = None if dim is None else reduced_dims("mean", dim, x.ndim)
    return in_float32(lambda x: _mean(x, dims, keepdim), x)


def _mean(x: Tensor, dims: Any, keepdim: bool) -> Tensor:
    count = math.prod(x.shape) if dims is None else count_along(x, dims)
    total = sum(x, dims, keepdim)
    known = isinstance(count, int)  # an open size may be zero: 0 / 0 is NaN
    return total * math.nan if known and not count else total / count


@public(method=True)
def nanmean(
    input: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    axis: Any = None,
    keepdims: Any = None,
) -> Tensor:
    """The mean of the elements that are not NaN.

    >>> weft.nanmean(weft.tensor([1.0, float("nan"), 3.0]))
    tensor(2.)
    """
    if axis is not None:
        dim = axis
    if keepdims is not None:
        keepdim = keepdims
    x = as_floating("nanmean", input, dtype)

    def plain(x: Tensor) -> Tensor:
        return nansum(x, dim, keepdim) / sum(x == x, dim, keepdim)

    return in_float32(plain, x)


@public(method=True)
def var(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    axis: Any = None,
    keepdims: Any = None,
) -> Tensor:
    """The variance, with ``correction`` degrees of freedom (1) taken off.

    >>> weft.tensor([1.0, 2.0, 3.0]).var()
    tensor(1.)
    """
    if axis is not None:
        dim = axis
    if keepdims is not None:
        keepdim = keepdims
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
    left = larger(count_along(x, dims) - correction, 0)

    def spread(x: Tensor) -> Tensor:
        off = x - mean(x, dims, keepdim=True)
        out = sum(real(off * conj(off)), dims, keepdim) / left
        return sqrt(out) if name.startswith("std") else out

    return in_float32(spread, x)


@public(method=True)
def std(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    axis: Any = None,
    keepdims: Any = None,
) -> Tensor:
    """The standard deviation; its gradient where all elements are equal is 0.

    >>> weft.tensor([1.0, 2.0, 3.0]).std()
    tensor(1.)
    """
    if axis is not None:
        dim = axis
    if keepdims is not None:
        keepdim = keepdims
    return _spread("std", input, dim, unbiased, keepdim, correction)


@public()
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
    (tensor(2.), tensor(2.))
    """
    spread = _spread("var_mean", input, dim, unbiased, keepdim, correction)
    return spread, mean(input, None if isinstance(dim, bool) else dim, keepdim)


@public()
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
    (tensor(0.), tensor(1.))
    """
    spread = _spread("std_mean", input, dim, unbiased, keepdim, correction)
    return spread, mean(input, None if isinstance(dim, bool) else dim, keepdim)


# -- several variables


@public(method=True)
def cov(
    input: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """The covariance matrix of variables (rows) over observations (columns).

    ``fweights`` counts each observation, ``aweights`` weighs it.

    >>> weft.cov(weft.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    if input.ndim > 2:
        raise ShapeError(f"cov: expected at most 2 dimensions, got shape {input.shape}")
    x = input if input.ndim == 2 else reshape(input, (1, input.numel()))
    x = x if x.dtype.is_inexact else cast(x, default_dtype())
    weights = _weights(x, fweights, aweights)
    if weights is not None and weights.dtype.is_inexact:
        x = cast(x, promote_types(x.dtype, weights.dtype))

    def plain(x: Tensor) -> Tensor:
        if weights is None:
            off = x - mean(x, 1, keepdim=True)
            return off @ conj(off).T / max(x.shape[1] - correction, 0)
        total, less = weights.sum(), correction
        off = x - (x * weights).sum(1, keepdim=True) / total
        if aweights is not None:
            less = (weights * aweights).sum() / total * correction
        return (off * weights) @ conj(off).T / (total - less).clamp(min=0)

    table = in_float32(plain, x)
    return reshape(table, ()) if table.numel() == 1 else table


def _weights(x: Tensor, fweights: Any, aweights: Any) -> Tensor | None:
    """The weight of each observation, if any are given."""
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is not None and given.shape != x.shape[1:]:
            raise ShapeError(
                f"cov: expected {name} of shape {x.shape[1:]}, one for each "
                f"observation, got {given.shape}"
            )
    text = "cov: {name} of at least 0 expected, got {{value}}{{where}}"
    if aweights is not None:
        aweights = require(aweights, lambda w: w >= 0, text.format(name="aweights"))
    if fweights is None:
        return aweights
    if fweights.dtype.is_inexact:
        raise DTypeError(
            f"cov: expected whole numbers as fweights, got {fweights.dtype.name}"
        )
    fweights = require(fweights, lambda w: w >= 0, text.format(name="fweights"))
    return fweights if aweights is None else fweights * aweights


@public(method=True)
def corrcoef(input: Tensor) -> Tensor:
    """The correlation coefficients of variables (rows).

    >>> weft.corrcoef(weft.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """

    def plain(x: Tensor) -> Tensor:
        table = cov(x)
        if table.ndim == 0:
            return table / table
        spread = sqrt(real(table.diagonal()))
        return table / spread.unsqueeze(1) / spread.unsqueeze(0)

    return in_float32(plain, input)


# -- norms and distances


@public(method=True)
def logsumexp(
    input: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    axis: Any = None,
    keepdims: Any = None,
) -> Tensor:
    """``log(sum(exp(x)))``, without overflow.

    >>> weft.logsumexp(weft.tensor([1000.0, 0.0]), 0)
    tensor(1000.)
    """
    if axis is not None:
        dim = axis
    if keepdims is not None:
        keepdim = keepdims
    x = input if input.dtype.is_inexact else cast(input, default_dtype())
    dims = reduced_dims("logsumexp", dim, x.ndim)

    def plain(x: Tensor) -> Tensor:
        if count_along(x, dims) == 0:
            return log(sum(exp(x), dims, keepdim))
        top = amax(real(x.detach()), dims, keepdim=True)
        top = where(abs(top) == math.inf, 0, top)
        total = log(sum(exp(x - top), dims, keepdim))
        return total + reshape(top, total.shape)

    return in_float32(plain, x)


@public(method=True)
def norm(
    input: Tensor,
    p: Any = "fro",
    dim: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
    *,
    axis: Any = None,
    keepdims: Any = None,
) -> Tensor:
    """The p-norm of the elements; its gradient at 0 is 0.

    >>> weft.tensor([3.0, 4.0]).norm()
    tensor(5.)
    """
    if axis is not None:
        dim = axis
    if keepdims is not None:
        keepdim = keepdims
    x = as_floating("norm", input, dtype)
    if p == "nuc":
        return late.find("matrix_norm")(x, p, (-2, -1) if dim is None else dim, keepdim)
    dims = reduced_dims("norm", dim, x.ndim)
    return in_float32(lambda x: _norm(x, p, dims, keepdim), x)


def _norm(x: Tensor, p: Any, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    if p in ("fro", 2, 2.0, None):
        return sqrt(sum(real(x * conj(x)), dims, keepdim))
    if not isinstance(p, (int, float)):
        raise ArgumentError(
            f"norm: expected p to be a number, 'fro' or 'nuc', got {p!r}"
        )
    size = abs(x)
    if p == 0:
        return sum(cast(size != 0, size.dtype), dims, keepdim)
    if p == 1:
        return sum(size, dims, keepdim)
    if p == math.inf and count_along(size, dims):
        return amax(size, dims, keepdim)
    if p == -math.inf:
        return amin(size, dims, keepdim)
    if p == math.inf:  # no elements
        return sum(size, dims, keepdim)
    return sum(size**p, dims, keepdim) ** (1.0 / p)


@public(method=True)
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of the difference.

    >>> weft.dist(weft.tensor([1.0, 1.0]), weft.tensor([4.0, 5.0]))
    tensor(5.)
    """
    return in_float32(lambda x, y: norm(x - y, p), input, other)


_CDIST_MODES = {
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
}


@public()
def cdist(
    x1: Tensor,
    x2: Tensor,
    p: float = 2.0,
    compute_mode: str = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor:
    """The p-norm distance of each row of one matrix from each of the other.

    All values of ``compute_mode`` give differences, the most exact of PyTorch's ways.

    >>> weft.cdist(weft.tensor([[0.0, 0.0]]), weft.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[5., 0.]])
    """
    if min(x1.ndim, x2.ndim) < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(
            "cdist: expected matrices (or batches) with rows of one length, got shapes "
            f"{x1.shape} and {x2.shape}"
        )
    if compute_mode not in _CDIST_MODES:
        raise ChoiceError(
            f"cdist: compute_mode must be one of {sorted(_CDIST_MODES)}, got "
            f"{compute_mode!r}"
        )

    def plain(x: Tensor, y: Tensor) -> Tensor:
        off = x.unsqueeze(-2) - y.unsqueeze(-3)
        return norm(off, p, -1) if x.shape[-1] else sum(off, -1)

    return in_float32(plain, x1, x2)
