"""Decompositions that report which matrices fail, and older names of functions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft.core.results import results
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, ShapeError
from weft.linalg.factoring import cholesky, qr, svd
from weft.linalg.lu_factors import first_zero, lu_factor
from weft.linalg.operands import as_matrix, wide
from weft.linalg.solving import inv, solve, solve_triangular
from weft.ops.creation import arange, full_like, zeros
from weft.ops.diagonals import tril, triu
from weft.ops.joining import stack
from weft.ops.linalg.algebra import LinAlgError, adjoint, identity
from weft.ops.operands import concrete
from weft.ops.public import public


@results("linalg_solve_ex")
class Checked(NamedTuple):
    """The result of ``solve_ex``."""

    result: Tensor
    info: Tensor


@results("linalg_inv_ex")
class CheckedInverse(NamedTuple):
    """The result of ``inv_ex``."""

    inverse: Tensor
    info: Tensor


@results("linalg_cholesky_ex")
class CheckedCholesky(NamedTuple):
    """The result of ``cholesky_ex``."""

    L: Tensor
    info: Tensor


def _each(fn: Any, info: Tensor, *operands: Tensor) -> Tensor:
    """A function of each matrix of a batch; NaN for those that are reported."""
    lead = info.shape
    flat = [x.expand(*lead, *x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in operands]
    failed = concrete("linalg", info).reshape(-1) != 0
    found = [
        full_like(flat[-1][i], float("nan")) if bad else fn(*[x[i] for x in flat])
        for i, bad in enumerate(failed)
    ]
    return stack(found).reshape(*lead, *found[0].shape)


def _checked(name: str, fn: Any, info: Tensor, check: bool, *operands: Tensor) -> Any:
    if not bool((info != 0).any()):
        return fn(*operands)
    if check:
        raise LinAlgError(f"linalg.{name}: a matrix has no such factor (info {info})")
    return _each(fn, info, *operands)


@wide
def inv_ex(A: Tensor, *, check_errors: bool = False) -> CheckedInverse:
    """The inverse, and for each matrix 0 or the number of its first zero pivot.

    The inverse of a singular matrix is NaN.

    >>> weft.linalg.inv_ex(weft.zeros(2, 2)).info
    tensor(1, dtype=weft.int32)
    """
    x = as_matrix("linalg.inv_ex", A, square=True)
    info = first_zero(lu_factor(x.detach()).LU)
    return CheckedInverse(_checked("inv_ex", inv, info, check_errors, x), info)


@wide
def solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False
) -> Checked:
    """The solution of systems, and for each matrix 0 or its first zero pivot.

    >>> weft.linalg.solve_ex(weft.eye(2), weft.ones(2, 1)).info
    tensor(0, dtype=weft.int32)
    """
    x = as_matrix("linalg.solve_ex", A, square=True)
    info = first_zero(lu_factor(x.detach()).LU)
    found = _checked(
        "solve_ex", lambda a, b: solve(a, b, left=left), info, check_errors, x, B
    )
    return Checked(found, info)


@wide
def cholesky_ex(
    A: Tensor, *, upper: bool = False, check_errors: bool = False
) -> CheckedCholesky:
    """Cholesky's factor, and 0 or the first leading minor that is not positive.

    >>> weft.linalg.cholesky_ex(-weft.eye(2)).info
    tensor(1, dtype=weft.int32)
    """
    x = as_matrix("linalg.cholesky_ex", A, square=True)
    info = _first_minor(concrete("linalg.cholesky_ex", x.detach()), upper)
    there = Tensor(info).to(x.device)
    if not info.any():
        return CheckedCholesky(cholesky(x, upper=upper), there)
    found = _checked(
        "cholesky_ex", lambda a: cholesky(a, upper=upper), there, check_errors, x
    )
    return CheckedCholesky(found, there)


def _first_minor(a: np.ndarray, upper: bool) -> np.ndarray:
    """The order of the first leading minor that has no factor, or 0, of each matrix."""
    lower = a.swapaxes(-1, -2).conj() if upper else a
    if _has_factor(lower):
        return np.zeros(a.shape[:-2], np.int32)
    found = [_failing_order(matrix) for matrix in lower.reshape(-1, *a.shape[-2:])]
    return np.array(found, np.int32).reshape(a.shape[:-2])


def _has_factor(lower: np.ndarray) -> bool:
    try:
        return bool(np.isfinite(np.linalg.cholesky(lower)).all())
    except np.linalg.LinAlgError:
        return False


def _failing_order(lower: np.ndarray) -> int:
    if _has_factor(lower):
        return 0
    has, lacks = (
        0,
        len(lower),
    )  # the orders of a minor with a factor, and of one without
    while lacks - has > 1:
        middle = (has + lacks) // 2
        if _has_factor(lower[:middle, :middle]):
            has = middle
        else:
            lacks = middle
    return lacks


# -- systems from Cholesky's factor


@public(method=True)
@wide
def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """The solution of ``A @ X = B`` from Cholesky's factor of A.

    >>> weft.cholesky_solve(weft.ones(1, 1), weft.tensor([[2.0]]))
    tensor([[0.2500]])
    """
    factor = as_matrix("cholesky_solve", L, square=True)
    low = adjoint(triu(factor)) if upper else tril(factor)
    first = solve_triangular(low, B, upper=False)
    return solve_triangular(adjoint(low), first, upper=True)


@public(method=True)
@wide
def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A from Cholesky's factor of A.

    >>> weft.cholesky_inverse(weft.tensor([[2.0]]))
    tensor([[0.2500]])
    """
    factor = as_matrix("cholesky_inverse", L, square=True)
    one = identity(factor.shape[-1], factor).expand(factor.shape)
    return cholesky_solve(one, factor, upper)


# -- tensors as matrices


@wide
def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of a tensor as a map between its last and first dimensions.

    >>> weft.linalg.tensorinv(weft.eye(4).reshape(2, 2, 4), 2).shape
    (4, 2, 2)
    """
    if not isinstance(ind, int) or ind < 1:
        raise ArgumentError(
            f"linalg.tensorinv: expected ind of at least 1, got {ind!r}"
        )
    front, back = A.shape[:ind], A.shape[ind:]
    if ind > A.ndim or front.numel() != back.numel():
        raise ShapeError(
            f"linalg.tensorinv: expected as many elements before dimension {ind} as "
            f"after it, got shape {A.shape}"
        )
    return inv(A.reshape(front.numel(), back.numel())).reshape(*back, *front)


@wide
def tensorsolve(A: Tensor, B: Tensor, dims: Any = None) -> Tensor:
    """The X with ``tensordot(A, X, X.ndim) = B``.

    >>> A = weft.eye(6).reshape(2, 3, 6)
    >>> weft.linalg.tensorsolve(A, weft.ones(2, 3)).shape
    (6,)
    """
    if dims is not None:
        rest = [d for d in range(A.ndim) if d not in {k % A.ndim for k in dims}]
        A = A.permute(*rest, *dims)
    shape = A.shape[B.ndim :]
    if shape.numel() != B.numel():
        raise ShapeError(
            f"linalg.tensorsolve: expected a square map, got {A.shape} and {B.shape}"
        )
    flat = A.reshape(B.numel(), shape.numel())
    return solve(flat, B.reshape(-1)).reshape(shape)


def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """A row of rising powers of each element, from 0 on.

    >>> weft.linalg.vander(weft.tensor([2.0, 3.0]))
    tensor([[1., 2.],
            [1., 3.]])
    """
    x = x if x.ndim else x.reshape(1)
    count = x.shape[-1] if N is None else N
    if count <= 1 and N is not None:
        raise ArgumentError(f"linalg.vander: expected N of more than 1, got {N}")
    return x.unsqueeze(-1) ** arange(count, device=x.device)


# -- older names


@results("svd")
class SVD(NamedTuple):
    """The result of ``weft.svd``."""

    U: Tensor
    S: Tensor
    V: Tensor


@public(name="svd", method=True)
def svd_of(input: Tensor, some: bool = True, compute_uv: bool = True) -> SVD:
    """``linalg.svd`` under its older name: V, not its adjoint.

    >>> weft.svd(weft.tensor([[0.0, 2.0], [3.0, 0.0]])).S
    tensor([3., 2.])
    """
    u, s, vh = svd(input, full_matrices=not some)
    if compute_uv:
        return SVD(u, s, adjoint(vh))
    m, n = input.shape[-2:]
    lead = input.shape[:-2]
    options: Any = {"dtype": input.dtype, "device": input.device}
    return SVD(zeros(*lead, m, m, **options), s, zeros(*lead, n, n, **options))


@public(name="qr", method=True)
def qr_of(input: Tensor, some: bool = True) -> Any:
    """``linalg.qr`` under its older name.

    >>> weft.qr(weft.tensor([[3.0], [4.0]])).R
    tensor([[-5.]])
    """
    return qr(input, "reduced" if some else "complete")


@results("triangular_solve")
class Triangular(NamedTuple):
    """The result of ``triangular_solve``."""

    solution: Tensor
    cloned_coefficient: Tensor


@public(method=True)
def triangular_solve(
    b: Tensor,
    A: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> Triangular:
    """``linalg.solve_triangular`` under its older name and order of arguments.

    >>> weft.triangular_solve(weft.ones(1, 1), weft.tensor([[4.0]])).solution
    tensor([[0.2500]])
    """
    work = A.mT if transpose else A
    options = {"upper": upper != transpose, "unitriangular": unitriangular}
    return Triangular(solve_triangular(work, b, **options), A.clone())
