"""Norms, distances and log-sum-exp."""

from __future__ import annotations

import math
from typing import Any

from weft.core.dims import reduced_dims
from weft.core.elementwise import conj
from weft.core.tensor import Tensor
from weft.dtype import default_dtype
from weft.errors import ArgumentError, ShapeError
from weft.ops.arithmetic import abs
from weft.ops.choosing import where
from weft.ops.complex_numbers import real
from weft.ops.copies import cast
from weft.ops.extremes import amax, amin
from weft.ops.reduce import sum
from weft.ops.shaping import reshape
from weft.ops.statistics import as_floating, count_along
from weft.ops.transcendental import exp, log, sqrt


def logsumexp(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """``log(sum(exp(x)))``, without overflow.

    >>> weft.logsumexp(weft.tensor([1000.0, 0.0]), 0)
    tensor(1000., dtype=float32)
    """
    x = input if input.dtype.is_inexact else cast(input, default_dtype())
    dims = reduced_dims("logsumexp", dim, x.ndim)
    if count_along(x, dims) == 0:
        return log(sum(exp(x), dims, keepdim))
    top = amax(x.detach(), dims, keepdim=True)
    top = where(abs(top) == math.inf, 0, top)
    total = log(sum(exp(x - top), dims, keepdim))
    return total + reshape(top, total.shape)


def norm(
    input: Tensor,
    p: Any = "fro",
    dim: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> Tensor:
    """The p-norm of the elements; its gradient at 0 is 0.

    >>> weft.tensor([3.0, 4.0]).norm()
    tensor(5., dtype=float32)
    """
    x = as_floating("norm", input, dtype)
    dims = reduced_dims("norm", dim, x.ndim)
    if p in ("fro", 2, 2.0, None):
        return sqrt(sum(real(x * conj(x)), dims, keepdim))
    size = abs(x)
    if p == 0:
        return sum(cast(size != 0, size.dtype), dims, keepdim)
    if p == 1:
        return sum(size, dims, keepdim)
    if p == math.inf:
        return amax(size, dims, keepdim)
    if p == -math.inf:
        return amin(size, dims, keepdim)
    if not isinstance(p, (int, float)):
        raise ArgumentError(f"norm: expected p to be a number or 'fro', got {p!r}")
    return sum(size**p, dims, keepdim) ** (1.0 / p)


def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of the difference.

    >>> weft.dist(weft.tensor([1.0, 1.0]), weft.tensor([4.0, 5.0]))
    tensor(5., dtype=float32)
    """
    return norm(input - other, p)


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0) -> Tensor:
    """The p-norm distance of each row of one matrix from each of the other.

    >>> weft.cdist(weft.tensor([[0.0, 0.0]]), weft.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[5., 0.]], shape=(1, 2), dtype=float32)
    """
    if min(x1.ndim, x2.ndim) < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(
            "cdist: expected matrices (or batches) with rows of one length, got shapes "
            f"{x1.shape} and {x2.shape}"
        )
    off = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    if x1.shape[-1] == 0:
        return sum(off, -1)
    return norm(off, p, -1)
