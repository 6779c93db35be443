"""Norms of vectors and matrices, condition numbers and ranks."""

from __future__ import annotations

import math
from typing import Any

from weft.core.dims import normalize_dims
from weft.core.size import same
from weft.core.tensor import Tensor
from weft.dtype import as_dtype
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.linalg.factoring import eigvalsh, svdvals
from weft.linalg.operands import as_matrix, as_number, one_by_one, rank_of, wide
from weft.linalg.solving import inv
from weft.ops import statistics
from weft.ops.copies import cast
from weft.ops.creation import zeros
from weft.ops.extremes import amax, amin
from weft.ops.linalg.algebra import check_matrix
from weft.ops.public import public
from weft.ops.reduce import sum
from weft.ops.shaping import movedim, unsqueeze


@wide
def vector_norm(
    x: Tensor,
    ord: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """The norm of the elements along dimensions (of all, without ``dim``).

    ``ord`` is any number, infinity or minus infinity; 0 counts the nonzero elements.

    >>> weft.linalg.vector_norm(weft.tensor([3.0, -4.0]), ord=1)
    tensor(7.)
    """
    _check_norm("linalg.vector_norm", x)
    if isinstance(ord, bool) or not isinstance(ord, (int, float)):
        raise DTypeError(
            f"linalg.vector_norm: expected ord to be a number, got {ord!r}"
        )
    return statistics.norm(x, ord, dim, keepdim, dtype)


def _check_norm(name: str, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise DTypeError(f"{name}: expected a tensor, got {type(x).__name__}")
    if not x.dtype.is_inexact:
        raise DTypeError(
            f"{name}: expected a floating-point or complex dtype, got {x.dtype.name}; "
            "convert it with .float()"
        )


@wide
def matrix_norm(
    A: Tensor,
    ord: Any = "fro",
    dim: Any = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """The norm of matrices.

    ``ord``: ``"fro"``, ``"nuc"`` (the sum of singular values), 2 and -2 (the
    largest and smallest), 1 and -1 (sums of columns), inf and -inf (of rows).

    >>> weft.linalg.matrix_norm(weft.tensor([[3.0, 0.0], [0.0, 4.0]]), "nuc")
    tensor(7.)
    """
    name = "linalg.matrix_norm"
    _check_norm(name, A)
    if not isinstance(dim, (tuple, list)) or len(dim) != 2:
        raise ArgumentError(f"{name}: expected two dimensions, got dim={dim!r}")
    check_matrix(name, A.shape)
    dims = normalize_dims(name, dim, A.ndim)
    x = A if dtype is None else cast(A, as_dtype(dtype))
    if ord == "fro":
        return statistics.norm(x, 2, dims, keepdim)
    out = _matrix_norm(name, movedim(x, dims, (-2, -1)), ord)
    if keepdim:
        for d in sorted(dims):
            out = unsqueeze(out, d)
    return out


def _matrix_norm(name: str, x: Tensor, ord: Any) -> Tensor:
    """The norm over the last two dimensions."""
    if ord == "nuc":
        return sum(svdvals(x), -1)
    if ord in (2, -2):
        sizes = svdvals(x)
    elif ord in (1, -1, math.inf, -math.inf):
        sizes = sum(abs(x), -2 if ord in (1, -1) else -1)
    else:
        raise ArgumentError(
            f"{name}: expected ord 'fro', 'nuc', inf, -inf, 1, -1, 2 or -2, got {ord!r}"
        )
    if ord > 0 and same(sizes.shape[-1], 0):
        return sum(sizes, -1)
    return (amax if ord > 0 else amin)(sizes, -1)


@wide
def norm(
    A: Tensor,
    ord: Any = None,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """A vector norm or a matrix norm, by ``dim`` and the number of dimensions.

    >>> weft.linalg.norm(weft.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor(5.)
    """
    _check_norm("linalg.norm", A)
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype)
    if dim is None and A.ndim > 2:
        raise ShapeError(
            "linalg.norm: expected a vector or a matrix when ord is given without "
            f"dim, got shape {A.shape}; pass dim"
        )
    pair = isinstance(dim, (tuple, list)) and len(dim) == 2
    if pair or (dim is None and A.ndim == 2) or isinstance(ord, str):
        return matrix_norm(
            A, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype
        )
    return vector_norm(A, ord, dim, keepdim, dtype=dtype)


@wide
def cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition number: the norm times the norm of the inverse.

    >>> weft.linalg.cond(weft.tensor([[2.0, 0.0], [0.0, 8.0]]))
    tensor(4.)
    """
    x = as_matrix("linalg.cond", A, square=p not in (None, 2, -2))
    if p in (None, 2, -2):
        s = svdvals(x)
        if not s.shape[-1]:
            return zeros(s.shape[:-1], dtype=s.dtype, device=s.device)
        ratio = s[..., 0] / s[..., -1]
        return 1 / ratio if p == -2 else ratio
    return matrix_norm(x, p) * matrix_norm(inv(x), p)


@wide
def matrix_rank(
    A: Tensor, *, atol: Any = None, rtol: Any = None, hermitian: bool = False
) -> Tensor:
    """The number of singular values larger than the tolerance.

    A tolerance may be a tensor with one number for each matrix.

    >>> weft.linalg.matrix_rank(weft.ones(3, 3))
    tensor(1)
    """
    x = as_matrix("linalg.matrix_rank", A, square=hermitian)
    each = one_by_one("matrix_rank", matrix_rank, x, {"atol": atol, "rtol": rtol})
    if each is not None:
        return each
    s = abs(eigvalsh(x)) if hermitian else svdvals(x)
    return rank_of(
        s, x.shape, as_number("matrix_rank", atol), as_number("matrix_rank", rtol)
    )


@public()
def nuclear_norm(input: Tensor, dim: Any = (-2, -1), keepdim: bool = False) -> Tensor:
    """The sum of a matrix's singular values.

    >>> weft.nuclear_norm(weft.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor(7.)
    """
    return matrix_norm(input, "nuc", dim, keepdim)
