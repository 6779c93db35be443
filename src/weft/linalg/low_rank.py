"""Some singular or eigenvalues of large matrices, the largest or smallest first."""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.core.tensor import Tensor
from weft.errors import ArgumentError, ShapeError
from weft.linalg.factoring import cholesky, eigh, qr, svd
from weft.linalg.solving import solve_triangular
from weft.ops.linalg.algebra import adjoint
from weft.ops.padding import flip
from weft.ops.public import public
from weft.ops.random import randn


class LowRank(NamedTuple):
    """The result of ``svd_lowrank`` and ``pca_lowrank``."""

    U: Tensor
    S: Tensor
    V: Tensor


def _basis(a: Tensor, q: int, niter: int) -> Tensor:
    """Orthonormal columns that nearly span the largest q directions of a matrix."""
    n = a.shape[-1]
    start = randn(*a.shape[:-2], n, q, dtype=a.dtype.to_real(), device=a.device)
    found = qr(a @ start.to(a.dtype)).Q
    for _ in range(niter):
        found = qr(a @ qr(adjoint(a) @ found).Q).Q
    return found


@public()
def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> LowRank:
    """The q largest singular values and vectors, nearly, by random projections.

    With M, those of ``A - M``. The method is that of Halko, Martinsson and Tropp, 2009.

    >>> weft.svd_lowrank(weft.eye(4) * 2, q=2).S.round()
    tensor([2., 2.])
    """
    x = A if M is None else A - M.expand(A.shape)
    count = 6 if q is None else q
    _check_rank("svd_lowrank", count, x)
    tall = x.shape[-2] >= x.shape[-1]
    work = x if tall else adjoint(x)
    basis = _basis(work, count, 2 if niter is None else niter)
    u, s, vh = svd(adjoint(basis) @ work, full_matrices=False)
    left, right = basis @ u, adjoint(vh)
    return LowRank(left, s, right) if tall else LowRank(right, s, left)


def _check_rank(name: str, q: int, x: Tensor) -> None:
    if not 0 <= q <= min(x.shape[-2:]):
        raise ArgumentError(
            f"{name}: expected q from 0 to {min(x.shape[-2:])}, got {q}"
        )


@public()
def pca_lowrank(
    A: Tensor, q: int | None = None, center: bool = True, niter: int = 2
) -> LowRank:
    """The q largest principal components, nearly: ``svd_lowrank`` of centred columns.

    >>> weft.pca_lowrank(weft.eye(4), q=2).V.shape
    (4, 2)
    """
    count = min(6, *A.shape[-2:]) if q is None else q
    x = A - A.mean(-2, keepdim=True) if center else A
    return svd_lowrank(x, count, niter)


@public()
def lobpcg(
    A: Tensor,
    k: int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: int | None = None,
    iK: Tensor | None = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: Any = None,
    ortho_iparams: Any = None,
    ortho_fparams: Any = None,
    ortho_bparams: Any = None,
) -> tuple[Tensor, Tensor]:
    """The k largest (or smallest) eigenvalues of ``A x = w B x``, and vectors.

    All eigenvalues are computed and k of them kept, to full accuracy; first guesses,
    preconditioners and limits of an iteration are not needed.

    >>> weft.lobpcg(weft.tensor([[2.0, 0.0], [0.0, 5.0]]), 1)[0]
    tensor([5.])
    """
    if tracker is not None:
        raise ArgumentError("lobpcg: there is no iteration that a tracker could follow")
    count = (1 if X is None else X.shape[-1]) if k is None else k
    if not 1 <= count <= A.shape[-1]:
        raise ShapeError(f"lobpcg: expected k from 1 to {A.shape[-1]}, got {count}")
    root = None if B is None else cholesky(B)
    work = A
    if root is not None:
        half = solve_triangular(root, A, upper=False)
        work = adjoint(solve_triangular(root, adjoint(half), upper=False))
    values, vectors = eigh(work)
    if root is not None:
        vectors = solve_triangular(adjoint(root), vectors, upper=True)
    if largest is None or largest:
        values, vectors = flip(values, (-1,)), flip(vectors, (-1,))
    return values[..., :count], vectors[..., :count]
