"""Factors of matrices: Cholesky, QR, singular values and eigenvalues."""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.core.results import results
from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.linalg.operands import as_matrix, mirrored, wide
from weft.ops.creation import empty
from weft.ops.joining import cat
from weft.ops.linalg.algebra import adjoint
from weft.ops.linalg.factoring import cholesky_op, complement, qr_op
from weft.ops.linalg.spectra import eig_op, eigh_op, eigvalsh_op, svd_op, svdvals_op
from weft.ops.products import matmul
from weft.ops.public import public


@results("linalg_qr")
class QRResult(NamedTuple):
    """The result of ``qr``."""

    Q: Tensor
    R: Tensor


@results("linalg_svd")
class SVDResult(NamedTuple):
    """The result of ``svd``."""

    U: Tensor
    S: Tensor
    Vh: Tensor


@results("linalg_eigh")
class EighResult(NamedTuple):
    """The result of ``eigh``."""

    eigenvalues: Tensor
    eigenvectors: Tensor


@results("linalg_eig")
class EigResult(NamedTuple):
    """The result of ``eig``."""

    eigenvalues: Tensor
    eigenvectors: Tensor


@public(method=True)
@wide
def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """The lower triangular L with ``A = L @ L.mH`` (``upper``: its adjoint).

    One triangle of the Hermitian A is read; its gradient is Hermitian.

    >>> weft.linalg.cholesky(weft.tensor([[4.0, 0.0], [0.0, 9.0]]))
    tensor([[2., 0.],
            [0., 3.]])
    """
    x = mirrored(as_matrix("linalg.cholesky", A, square=True), upper)
    factor = cholesky_op(x)
    return adjoint(factor) if upper else factor


@wide
def qr(A: Tensor, mode: str = "reduced") -> QRResult:
    """Orthonormal columns Q and an upper triangular R with ``A = Q @ R``.

    ``mode``: ``"reduced"``, ``"complete"`` (Q square; its added columns have no
    derivative) or ``"r"`` (Q left empty).

    >>> weft.linalg.qr(weft.tensor([[3.0], [4.0]])).R
    tensor([[-5.]])
    """
    x = as_matrix("linalg.qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise ArgumentError(
            f"linalg.qr: mode must be 'reduced', 'complete' or 'r', got {mode!r}"
        )
    q, r = _qr(x)
    if mode == "r":
        return QRResult(empty((0,), dtype=x.dtype), r)
    m, k = q.shape[-2:]
    if mode == "complete" and m > k:
        below = x.new_zeros(*r.shape[:-2], m - k, r.shape[-1])
        q, r = cat([q, complement(q)], -1), cat([r, below], -2)
    return QRResult(q, r)


def _qr(x: Tensor) -> tuple[Tensor, Tensor]:
    """The reduced QR; a wide matrix is its square part and columns multiplied by Q'."""
    m, n = x.shape[-2:]
    if m >= n:
        return qr_op(x)
    q, r = qr_op(x[..., :m])
    return q, cat([r, matmul(adjoint(q), x[..., m:])], -1)


@wide
def svd(A: Tensor, full_matrices: bool = True, *, driver: Any = None) -> SVDResult:
    """Singular vectors and values: ``A = U @ diag(S) @ Vh``, S falling.

    The columns that ``full_matrices`` adds to U or Vh have no derivative; the
    other vectors have one while the singular values differ. ``driver`` is
    accepted for PyTorch's sake: there is one method.

    >>> weft.linalg.svd(weft.tensor([[0.0, 2.0], [3.0, 0.0]])).S
    tensor([3., 2.])
    """
    x = as_matrix("linalg.svd", A)
    u, s, vh = svd_op(x)
    m, n = x.shape[-2:]
    if full_matrices and m > n:
        u = cat([u, complement(u)], -1)
    if full_matrices and m < n:
        vh = cat([vh, adjoint(complement(adjoint(vh)))], -2)
    return SVDResult(u, s, vh)


@wide
def svdvals(A: Tensor, *, driver: Any = None) -> Tensor:
    """The singular values, falling.

    >>> weft.linalg.svdvals(weft.tensor([[0.0, 2.0], [3.0, 0.0]]))
    tensor([3., 2.])
    """
    return svdvals_op(as_matrix("linalg.svdvals", A))


def _uplo(name: str, UPLO: Any) -> bool:
    if not isinstance(UPLO, str) or UPLO.upper() not in ("L", "U"):
        raise ArgumentError(f"{name}: UPLO must be 'L' or 'U', got {UPLO!r}")
    return UPLO.upper() == "U"


@wide
def eigh(A: Tensor, UPLO: str = "L") -> EighResult:
    """Eigenvalues (rising) and eigenvectors of Hermitian matrices.

    One triangle is read; the gradient is Hermitian. The vectors have a
    derivative while the eigenvalues differ.

    >>> weft.linalg.eigh(weft.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    tensor([1., 2.])
    """
    upper = _uplo("linalg.eigh", UPLO)
    x = mirrored(as_matrix("linalg.eigh", A, square=True), upper)
    return EighResult(*eigh_op(x))


@wide
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of Hermitian matrices, rising.

    >>> weft.linalg.eigvalsh(weft.tensor([[2.0, 0.0], [0.0, 1.0]]))
    tensor([1., 2.])
    """
    upper = _uplo("linalg.eigvalsh", UPLO)
    return eigvalsh_op(mirrored(as_matrix("linalg.eigvalsh", A, square=True), upper))


@wide
def eig(A: Tensor) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices, complex; no derivative.

    >>> weft.linalg.eig(weft.tensor([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues
    tensor([0.+1.j, 0.-1.j])
    """
    return EigResult(*eig_op(as_matrix("linalg.eig", A, square=True)))


@wide
def eigvals(A: Tensor) -> Tensor:
    """The eigenvalues of square matrices, complex; they have no derivative.

    >>> weft.linalg.eigvals(weft.tensor([[0.0, 1.0], [-1.0, 0.0]]))
    tensor([0.+1.j, 0.-1.j])
    """
    return eig(A).eigenvalues
