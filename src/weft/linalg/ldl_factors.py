"""LDL factors of symmetric and Hermitian matrices (Bunch and Kaufman, 1977).

``P A P^T = L D L^T``: L has ones on its diagonal, and D has blocks of one or two rows.
They are kept in one matrix, and the exchanges as LAPACK's pivots: negative twice where
a block has two rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft.core.results import results
from weft.core.tensor import Tensor
from weft.errors import AutogradError, ShapeError
from weft.linalg.operands import as_matrix, one_type, wide
from weft.ops.linalg.algebra import LinAlgError
from weft.ops.operands import concrete

_ALPHA = (1 + 17**0.5) / 8  # bounds the growth of the elements


@results("linalg_ldl_factor")
class LDLFactors(NamedTuple):
    """The result of ``ldl_factor``."""

    LD: Tensor
    pivots: Tensor


@results("linalg_ldl_factor_ex")
class LDLFactorsChecked(NamedTuple):
    """The result of ``ldl_factor_ex``."""

    LD: Tensor
    pivots: Tensor
    info: Tensor


def _array(name: str, x: Tensor) -> np.ndarray:
    if x.requires_grad:
        raise AutogradError(
            f"linalg.{name}: it has no derivative; use linalg.solve, or detach the "
            "matrix"
        )
    return concrete(f"linalg.{name}", x)


def _size(z: Any) -> Any:
    return np.abs(z.real) + np.abs(z.imag)


def _factored(a: np.ndarray, hermitian: bool) -> tuple[np.ndarray, np.ndarray, int]:
    """The factors of one matrix, its pivots, and the first block that is 0."""
    a = np.tril(a)
    n, k, info = a.shape[0], 0, 0
    pivots = np.zeros(n, np.int32)
    conj = np.conj if hermitian else np.positive
    if hermitian:
        np.fill_diagonal(a, a.diagonal().real)
    while k < n:
        width, p = _pivot(a, k)
        if not _size(a[k:, k]).max() > 0:
            info = info or k + 1
            pivots[k] = k + 1
            k += 1
            continue
        last = k + width - 1
        if p != last:
            _exchange(a, last, p, conj, k)
        block = a[k : last + 1, k : last + 1].copy()
        block = np.tril(block) + conj(np.tril(block, -1)).T
        rest = a[last + 1 :, k : last + 1].copy()
        factor = np.linalg.solve(block.T, rest.T).T if rest.size else rest
        a[last + 1 :, last + 1 :] -= np.tril(factor @ conj(rest).T)
        a[last + 1 :, k : last + 1] = factor
        pivots[k : last + 1] = p + 1 if width == 1 else -(p + 1)
        k += width
    return a, pivots, info


def _pivot(a: np.ndarray, k: int) -> tuple[int, int]:
    """How many rows the next block has, and the row to bring to its end."""
    own = _size(a[k, k])
    column = _size(a[k + 1 :, k])
    if not column.size:
        return 1, k
    r = k + 1 + int(column.argmax())
    largest = column.max()
    if own >= _ALPHA * largest:
        return 1, k
    row = max(_size(a[r, k:r]).max(), _size(a[r + 1 :, r]).max(initial=0))
    if own * row >= _ALPHA * largest**2:
        return 1, k
    return (1, r) if _size(a[r, r]) >= _ALPHA * row else (2, r)


def _exchange(a: np.ndarray, i: int, p: int, conj: Any, k: int) -> None:
    """Exchange rows and columns i < p of a matrix that is kept below its diagonal."""
    a[[i, p], k:i] = a[[p, i], k:i]
    a[[i, p], [i, p]] = a[[p, i], [p, i]]
    a[p + 1 :, [i, p]] = a[p + 1 :, [p, i]]
    middle = a[i + 1 : p, i].copy()
    a[i + 1 : p, i] = conj(a[p, i + 1 : p])
    a[p, i + 1 : p] = conj(middle)
    a[p, i] = conj(a[p, i])


@wide
def ldl_factor_ex(
    A: Tensor, *, hermitian: bool = False, check_errors: bool = False
) -> LDLFactorsChecked:
    """``ldl_factor``, and for each matrix the number of its first block that is 0.

    >>> weft.linalg.ldl_factor_ex(weft.eye(2)).info
    tensor(0, dtype=weft.int32)
    """
    x = as_matrix("linalg.ldl_factor_ex", A, square=True)
    array = _array("ldl_factor_ex", x)
    factors, pivots = np.empty_like(array), np.empty(array.shape[:-1], np.int32)
    info = np.zeros(array.shape[:-2], np.int32)
    for place in np.ndindex(array.shape[:-2]):
        factors[place], pivots[place], info[place] = _factored(array[place], hermitian)
    if check_errors and info.any():
        raise LinAlgError("linalg.ldl_factor_ex: the matrix is singular")
    found = (Tensor(v).to(x.device) for v in (factors, pivots, info))
    return LDLFactorsChecked(*found)


@wide
def ldl_factor(A: Tensor, *, hermitian: bool = False) -> LDLFactors:
    """The factors of a symmetric or Hermitian matrix, for ``ldl_solve``.

    >>> weft.linalg.ldl_factor(weft.tensor([[4.0, 2.0], [2.0, 2.0]])).LD
    tensor([[4.0000, 0.0000],
            [0.5000, 1.0000]])
    """
    return LDLFactors(*ldl_factor_ex(A, hermitian=hermitian)[:2])


def _solved(
    ld: np.ndarray, pivots: np.ndarray, b: np.ndarray, hermitian: bool
) -> np.ndarray:
    conj = np.conj if hermitian else np.positive
    n = len(pivots)
    lower, middle, order = np.tril(ld, -1), np.zeros_like(ld), np.arange(n)
    np.fill_diagonal(lower, 1)
    np.fill_diagonal(middle, ld.diagonal())
    k = 0
    blocks = []
    while k < n:
        width = 1 if pivots[k] > 0 else 2
        last, p = k + width - 1, abs(int(pivots[k])) - 1
        if width == 2:
            middle[last, k], middle[k, last] = ld[last, k], conj(ld[last, k])
            lower[last, k] = 0
        if p != last:  # the rows of L so far are exchanged along
            order[[last, p]] = order[[p, last]]
            blocks.append((last, p, k))
        k += width
    for last, p, k in blocks:
        lower[[last, p], :k] = lower[[p, last], :k]
    x = np.linalg.solve(lower, b[order])
    x = np.linalg.solve(conj(lower).T, np.linalg.solve(middle, x))
    out = np.empty_like(x)
    out[order] = x
    return out


@wide
def ldl_solve(
    LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False
) -> Tensor:
    """Solve ``A @ X = B`` with the factors of A.

    >>> A = weft.tensor([[4.0, 2.0], [2.0, 2.0]])
    >>> LD, pivots = weft.linalg.ldl_factor(A)
    >>> weft.linalg.ldl_solve(LD, pivots, weft.tensor([[6.0], [4.0]]))
    tensor([[1.],
            [1.]])
    """
    factors = as_matrix("linalg.ldl_solve", LD, square=True)
    right = as_matrix("linalg.ldl_solve", B)
    one_type("linalg.ldl_solve", factors, right)
    if right.shape[-2] != factors.shape[-1]:
        raise ShapeError(
            f"linalg.ldl_solve: expected {factors.shape[-1]} rows on the right, got "
            f"shape {right.shape}"
        )
    ld, b = _array("ldl_solve", factors), _array("ldl_solve", right)
    lead = np.broadcast_shapes(ld.shape[:-2], b.shape[:-2])
    ld = np.broadcast_to(ld, (*lead, *ld.shape[-2:]))
    b = np.broadcast_to(b, (*lead, *b.shape[-2:]))
    order = np.broadcast_to(concrete("linalg.ldl_solve", pivots), ld.shape[:-1])
    out = np.empty(b.shape, b.dtype)
    for place in np.ndindex(lead):
        out[place] = _solved(ld[place], order[place], b[place], hermitian)
    return Tensor(out).to(LD.device)
