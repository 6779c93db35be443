"""Inverses, solutions of linear systems, and determinants."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from weft.core.results import results
from weft.core.tensor import Tensor
from weft.errors import DTypeError, ShapeError
from weft.linalg.factoring import svdvals
from weft.linalg.operands import (
    as_matrix,
    as_number,
    mirrored,
    one_batch,
    one_by_one,
    one_type,
    rank_of,
    wide,
)
from weft.ops.creation import empty
from weft.ops.linalg.algebra import adjoint, check_kind, check_matrix
from weft.ops.linalg.matrix_functions import det_op, slogdet_op
from weft.ops.linalg.solving import inv_op, pinv_op, solve_op, solve_triangular_op
from weft.ops.products import matmul
from weft.ops.public import public
from weft.ops.reduce import sum
from weft.ops.require import known, require
from weft.ops.select import where
from weft.ops.shaping import squeeze, unsqueeze
from weft.ops.transcendental import log


@results("linalg_lstsq")
class LstsqResult(NamedTuple):
    """The result of ``lstsq``."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


@wide
def inv(A: Tensor) -> Tensor:
    """The inverse of square matrices.

    >>> weft.linalg.inv(weft.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]])
    """
    return inv_op(as_matrix("linalg.inv", A, square=True))


@wide
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """The X with ``A @ X = B`` (``X @ A = B`` if not ``left``).

    B is a vector, a batch of vectors with A's batch dimensions, or matrices.

    >>> A = weft.tensor([[2.0, 0.0], [0.0, 4.0]])
    >>> weft.linalg.solve(A, weft.tensor([2.0, 2.0]))
    tensor([1.0000, 0.5000])
    """
    name = "linalg.solve"
    a = as_matrix(name, A, square=True)
    b = _right_side(name, a, B)
    if b.ndim < B.ndim + 1 and not left:
        return adjoint(solve(adjoint(a), adjoint(b)))
    _check_rows(name, a, b)
    x = solve_op(*one_batch(name, a, b))
    return squeeze(x, -1) if b.ndim > B.ndim else x


def _right_side(name: str, a: Tensor, b: Any) -> Tensor:
    """Right-hand sides as matrices; vectors become one column."""
    if not isinstance(b, Tensor):
        raise DTypeError(f"{name}: expected a tensor B, got {type(b).__name__}")
    check_kind(name, b.dtype)
    one_type(name, a, b)
    if b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1]):
        return unsqueeze(b, -1)
    check_matrix(name, b.shape)
    return b


def _check_rows(name: str, a: Tensor, b: Tensor) -> None:
    if a.shape[-2] != b.shape[-2]:
        raise ShapeError(
            f"{name}: A of shape {a.shape} and B of shape {b.shape} do not fit: "
            f"expected {a.shape[-2]} rows in B, got {b.shape[-2]}"
        )


@wide
def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """``solve`` for triangular A; the other triangle is not read.

    With ``unitriangular`` the diagonal is taken as ones.

    >>> A = weft.tensor([[2.0, 0.0], [2.0, 1.0]])
    >>> weft.linalg.solve_triangular(A, weft.tensor([[2.0], [3.0]]), upper=False)
    tensor([[1.],
            [1.]])
    """
    name = "linalg.solve_triangular"
    a, b = as_matrix(name, A, square=True), as_matrix(name, B)
    one_type(name, a, b)
    if not left:
        solved = solve_triangular(
            adjoint(a), adjoint(b), upper=not upper, unitriangular=unitriangular
        )
        return adjoint(solved)
    _check_rows(name, a, b)
    params = {"upper": bool(upper), "unitriangular": bool(unitriangular)}
    return solve_triangular_op(*one_batch(name, a, b), **params)


@wide
def pinv(
    A: Tensor, *, atol: Any = None, rtol: Any = None, hermitian: bool = False
) -> Tensor:
    """The Moore-Penrose inverse; singular values below the tolerance count as 0.

    A tolerance may be a tensor with one number for each matrix.

    >>> weft.linalg.pinv(weft.tensor([[2.0], [0.0]]))
    tensor([[0.5000, 0.0000]])
    """
    x = as_matrix("linalg.pinv", A, square=hermitian)
    x = mirrored(x, upper=False) if hermitian else x
    each = one_by_one("pinv", pinv, x, {"atol": atol, "rtol": rtol})
    if each is not None:
        return each
    return pinv_op(x, atol=as_number("pinv", atol), rtol=as_number("pinv", rtol))


@wide
def lstsq(
    A: Tensor, B: Tensor, rcond: float | None = None, *, driver: Any = None
) -> Any:
    """The X that makes the norm of ``A @ X - B`` least, and the smallest such X.

    Returns the solution, the squared residuals of each column (if A has full
    rank and more rows than columns, else empty), the rank and the singular
    values. ``driver`` is accepted for PyTorch's sake: there is one method.

    >>> A = weft.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> weft.linalg.lstsq(A, weft.tensor([[0.0], [1.0], [2.0]])).rank
    tensor(2)
    """
    name = "linalg.lstsq"
    a = as_matrix(name, A)
    b = _right_side(name, a, B)
    _check_rows(name, a, b)
    rtol = as_number("lstsq", rcond)
    x = matmul(pinv_op(a, atol=None, rtol=rtol), b)
    s = svdvals(a)
    rank = rank_of(s, a.shape, None, rtol)
    residuals = _residuals(a, b, x, rank)
    if b.ndim > B.ndim:
        x = squeeze(x, -1)
    return LstsqResult(x, residuals, rank, s)


def _residuals(a: Tensor, b: Tensor, x: Tensor, rank: Tensor) -> Tensor:
    m, n = a.shape[-2:]
    if m <= n or (known(rank) and bool((rank.array() < n).any())):
        return empty((0,), dtype=a.dtype.to_real())
    off = abs(matmul(a, x) - b)
    residuals = sum(off * off, -2)
    if known(rank):
        return residuals
    text = (
        f"linalg.lstsq: a matrix has rank {{value}}, not {n}, so there are no "
        "residuals; in a program, whose shapes are fixed, give matrices of full rank"
    )
    full = require(rank, lambda r: r >= n, text)
    return where((full >= n).unsqueeze(-1), residuals, 0)


@public(method=True)
def inverse(input: Tensor) -> Tensor:
    """The inverse of square matrices: ``linalg.inv``.

    >>> weft.inverse(weft.tensor([[4.0]]))
    tensor([[0.2500]])
    """
    return inv(input)


@public(method=True)
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The Moore-Penrose inverse: ``linalg.pinv``.

    >>> weft.pinverse(weft.tensor([[4.0]]))
    tensor([[0.2500]])
    """
    return pinv(input, rtol=rcond)


# -- determinants


@results("linalg_slogdet")
class SlogdetResult(NamedTuple):
    """The result of ``slogdet``."""

    sign: Tensor
    logabsdet: Tensor


@public(method=True)
@wide
def det(A: Tensor) -> Tensor:
    """The determinant; its gradient is exact for singular matrices too.

    >>> weft.linalg.det(weft.tensor([[2.0, 0.0], [0.0, 3.0]]))
    tensor(6.)
    """
    return det_op(as_matrix("linalg.det", A, square=True))


@public(method=True)
@wide
def slogdet(A: Tensor) -> SlogdetResult:
    """The determinant's sign and the logarithm of its absolute value.

    >>> weft.linalg.slogdet(weft.tensor([[-1.0]]))
    weft.return_types.linalg_slogdet(
    sign=tensor(-1.),
    logabsdet=tensor(0.))
    """
    return SlogdetResult(*slogdet_op(as_matrix("linalg.slogdet", A, square=True)))


@public(method=True)
@wide
def logdet(A: Tensor) -> Tensor:
    """The logarithm of the determinant; NaN where that is negative.

    >>> weft.logdet(weft.eye(2))
    tensor(0.)
    """
    sign, logabs = slogdet(A)
    if A.dtype.is_complex:
        return log(sign) + logabs
    return where(sign == -1, math.nan, logabs)
