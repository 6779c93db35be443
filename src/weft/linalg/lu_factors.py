"""LU factors of matrices, and systems that are solved by them."""

from __future__ import annotations

from typing import Any, NamedTuple

from weft import dtype as dtypes
from weft.core.results import results
from weft.core.size import same
from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.linalg.operands import as_matrix, one_batch, one_type, wide
from weft.linalg.solving import solve_triangular
from weft.ops.copies import cast
from weft.ops.creation import arange, empty, zeros
from weft.ops.diagonals import tril, triu
from weft.ops.gathering import gather
from weft.ops.linalg.algebra import LinAlgError, adjoint, diagonal_of, identity
from weft.ops.linalg.lu import lu_op, lu_pivots_op, pivot_order_op
from weft.ops.public import public


@results("linalg_lu_factor")
class LUFactors(NamedTuple):
    """The result of ``lu_factor``."""

    LU: Tensor
    pivots: Tensor


@results("linalg_lu_factor_ex")
class LUFactorsChecked(NamedTuple):
    """The result of ``lu_factor_ex``."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


@results("linalg_lu")
class LU(NamedTuple):
    """The result of ``lu``."""

    P: Tensor
    L: Tensor
    U: Tensor


def _rows(x: Tensor, order: Tensor) -> Tensor:
    """The rows of matrices in another order."""
    index = order.unsqueeze(-1).expand(*order.shape, x.shape[-1])
    return gather(x, -2, index)


def _trivial(x: Tensor) -> Tensor:
    """The pivots of no exchanges."""
    k = min(x.shape[-2:])
    first = arange(1, k + 1, dtype=dtypes.int32, device=x.device)
    return first.expand(*x.shape[:-2], k)


@wide
def lu_factor(A: Tensor, *, pivot: bool = True) -> LUFactors:
    """The factors of ``P @ L @ U`` as one matrix, and pivots for ``lu_solve``.

    >>> weft.linalg.lu_factor(weft.tensor([[1.0, 2.0], [4.0, 4.0]]))
    weft.return_types.linalg_lu_factor(
    LU=tensor([[4.0000, 4.0000],
            [0.2500, 1.0000]]),
    pivots=tensor([2, 2], dtype=weft.int32))
    """
    x = as_matrix("linalg.lu_factor", A)
    if not pivot:
        return LUFactors(lu_op(x), _trivial(x))
    pivots = lu_pivots_op(x.detach())
    order = pivot_order_op(pivots, rows=x.shape[-2])
    return LUFactors(lu_op(_rows(x, order)), pivots)


def first_zero(factors: Tensor) -> Tensor:
    """LAPACK's report: the number of the first pivot that is 0, or 0."""
    zero = diagonal_of(factors) == 0
    if same(zero.shape[-1], 0):
        return cast(zero.any(-1), dtypes.int32)
    number = zero.to(dtypes.int32).argmax(-1).to(dtypes.int32) + 1
    return cast(zero.any(-1), dtypes.int32) * number


@wide
def lu_factor_ex(
    A: Tensor, *, pivot: bool = True, check_errors: bool = False
) -> LUFactorsChecked:
    """``lu_factor``, and for each matrix the number of its first pivot that is 0.

    >>> weft.linalg.lu_factor_ex(weft.eye(2)).info
    tensor(0, dtype=weft.int32)
    """
    factors, pivots = lu_factor(A, pivot=pivot)
    info = first_zero(factors)
    if check_errors and bool((info > 0).any()):
        raise LinAlgError("linalg.lu_factor_ex: the matrix is singular")
    return LUFactorsChecked(factors, pivots, info)


def permutation(pivots: Tensor, rows: int, like: Tensor) -> Tensor:
    """The matrix P with ``A = P @ L @ U`` of LAPACK's pivots."""
    order = pivot_order_op(pivots, rows=rows)
    rows_of = identity(rows, like).expand(*order.shape, rows)
    return _rows(rows_of, order).mT


def _unpacked(factors: Tensor) -> tuple[Tensor, Tensor]:
    m, n = factors.shape[-2:]
    k = min(m, n)
    ones = zeros(m, k, dtype=factors.dtype, device=factors.device).fill_diagonal_(1)
    return tril(factors[..., :k], -1) + ones, triu(factors[..., :k, :])


@wide
def lu(A: Tensor, *, pivot: bool = True) -> LU:
    """P, L and U with ``A = P @ L @ U``; P is empty without pivoting.

    >>> weft.linalg.lu(weft.tensor([[1.0, 2.0], [4.0, 4.0]])).U
    tensor([[4., 4.],
            [0., 1.]])
    """
    factors, pivots = lu_factor(A, pivot=pivot)
    lower, upper = _unpacked(factors)
    if not pivot:
        return LU(empty(0, dtype=factors.dtype), lower, upper)
    return LU(permutation(pivots, factors.shape[-2], factors), lower, upper)


@wide
def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """The solution of ``A @ X = B`` from the factors of A.

    ``left=False`` solves ``X @ A = B``, and ``adjoint`` takes the adjoint of A.

    >>> factors = weft.linalg.lu_factor(weft.tensor([[2.0, 0.0], [0.0, 4.0]]))
    >>> weft.linalg.lu_solve(*factors, weft.tensor([[2.0], [4.0]]))
    tensor([[1.],
            [1.]])
    """
    name = "linalg.lu_solve"
    factors, b = as_matrix(name, LU, square=True), as_matrix(name, B)
    one_type(name, factors, b)
    if not left:
        return flipped(lu_solve(factors, pivots, flipped(b), adjoint=not adjoint))
    p = permutation(pivots, factors.shape[-1], factors)
    if not adjoint:
        first = solve_triangular(
            *one_batch(name, factors, p.mT @ b), upper=False, unitriangular=True
        )
        return solve_triangular(*one_batch(name, factors, first), upper=True)
    turned = flipped(factors)
    first = solve_triangular(*one_batch(name, turned, b), upper=False)
    then = solve_triangular(
        *one_batch(name, turned, first), upper=True, unitriangular=True
    )
    return p @ then


flipped = adjoint


@public(name="lu")
def lu_of(A: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Any, ...]:
    """``linalg.lu_factor`` under its older name; ``get_infos`` adds the info.

    >>> weft.lu(weft.eye(2))[1]
    tensor([1, 2], dtype=weft.int32)
    """
    found = lu_factor_ex(A, pivot=pivot)
    return tuple(found) if get_infos else tuple(found[:2])


@public(name="lu_solve", method=True)
def lu_solved(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """``linalg.lu_solve`` under its older name and order of arguments.

    >>> weft.lu_solve(weft.ones(2, 1), *weft.linalg.lu_factor(weft.eye(2) * 2))
    tensor([[0.5000],
            [0.5000]])
    """
    return lu_solve(LU_data, LU_pivots, b)


@public()
def lu_unpack(
    LU_data: Tensor,
    LU_pivots: Tensor,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> LU:
    """P, L and U from the factors and pivots of ``lu_factor``.

    >>> weft.lu_unpack(*weft.linalg.lu_factor(weft.eye(2) * 2)).U
    tensor([[2., 0.],
            [0., 2.]])
    """
    if LU_pivots.dtype is not dtypes.int32:
        raise ArgumentError(
            f"lu_unpack: expected pivots of dtype int32, got {LU_pivots.dtype.name}"
        )
    as_matrix("lu_unpack", LU_data)
    none = empty(0, dtype=LU_data.dtype)
    rows = LU_data.shape[-2]
    p = permutation(LU_pivots, rows, LU_data) if unpack_pivots else none
    return LU(p, *(_unpacked(LU_data) if unpack_data else (none, none)))
