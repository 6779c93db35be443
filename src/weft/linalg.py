"""``weft.linalg``: linear algebra, under PyTorch's names.

Every function works on the last two dimensions and takes batches in front of
them, in float32, float64, complex64 and complex128.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.core.dims import normalize_dim, normalize_dims
from weft.core.elementwise import broadcast_shapes, conj, result_type
from weft.core.tensor import Tensor
from weft.dtype import as_dtype, int64
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.ops import reduce
from weft.ops.creation import empty, eye, zeros
from weft.ops.elementwise import where
from weft.ops.index import diagonal as _diagonal
from weft.ops.index import index_select
from weft.ops.linalg import (
    LinAlgError,
    adjoint,
    check_kind,
    check_matrix,
    cholesky_op,
    complement,
    det_op,
    eig_op,
    eigh_op,
    eigvalsh_op,
    inv_op,
    matrix_exp_op,
    pinv_op,
    qr_op,
    slogdet_op,
    solve_op,
    solve_triangular_op,
    svd_op,
    svdvals_op,
)
from weft.ops.movement import cast, cat, expand, movedim, squeeze, tril, triu, unsqueeze
from weft.ops.products import matmul, outer, tensordot
from weft.ops.reduce import amax, amin, sum
from weft.ops.transcendental import log

__all__ = [
    "LinAlgError", "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh",
    "eigvals", "eigvalsh", "inv", "lstsq", "matmul", "matrix_exp", "matrix_norm",
    "matrix_power", "matrix_rank", "multi_dot", "norm", "outer", "pinv", "qr",
    "slogdet", "solve", "solve_triangular", "svd", "svdvals", "tensordot",
    "vecdot", "vector_norm",
]  # fmt: skip


class SlogdetResult(NamedTuple):
    """What ``slogdet`` returns."""

    sign: Tensor
    logabsdet: Tensor


class QRResult(NamedTuple):
    """What ``qr`` returns."""

    Q: Tensor
    R: Tensor


class SVDResult(NamedTuple):
    """What ``svd`` returns."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class EighResult(NamedTuple):
    """What ``eigh`` returns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EigResult(NamedTuple):
    """What ``eig`` returns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class LstsqResult(NamedTuple):
    """What ``lstsq`` returns."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


# -- operands


def _matrix(name: str, x: Any, *, square: bool = False) -> Tensor:
    """A tensor checked to be a (batch of) matrix in a type LAPACK takes."""
    if not isinstance(x, Tensor):
        raise DTypeError(f"{name}: expected a tensor, got {type(x).__name__}")
    check_matrix(name, x.shape, square)
    check_kind(name, x.dtype)
    return x


def _one_type(name: str, a: Tensor, b: Tensor) -> None:
    if a.dtype is not b.dtype:
        raise DTypeError(
            f"{name}: expected equal dtypes, got {a.dtype.name} and {b.dtype.name}"
        )


def _one_batch(name: str, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both with the batch dimensions that they have in common."""
    lead = broadcast_shapes(name, a.shape[:-2], b.shape[:-2])
    return expand(a, (*lead, *a.shape[-2:])), expand(b, (*lead, *b.shape[-2:]))


def _mirrored(x: Tensor, upper: bool) -> Tensor:
    """The Hermitian matrix of which one triangle is given.

    Its value comes from that triangle; its derivative is taken as if the whole
    matrix had been given, so that the gradient is Hermitian too.
    """
    half = triu(x, 1) if upper else tril(x, -1)
    whole = half + adjoint(half) + _diagonal_part(x)
    return x + (whole - x).detach()


def _diagonal_part(x: Tensor) -> Tensor:
    d = triu(tril(x))
    return (d + conj(d)) * 0.5 if x.dtype.is_complex else d


# -- norms


def vector_norm(
    x: Tensor,
    ord: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """The norm of the elements along dimensions (of all, without ``dim``).

    ``ord`` is any number, infinity or minus infinity; 0 counts what is not zero.

    >>> weft.linalg.vector_norm(weft.tensor([3.0, -4.0]), ord=1)
    tensor(7., dtype=float32)
    """
    _check_norm("linalg.vector_norm", x)
    if isinstance(ord, bool) or not isinstance(ord, (int, float)):
        raise ArgumentError(
            f"linalg.vector_norm: expected ord to be a number, got {ord!r}"
        )
    return reduce.norm(x, ord, dim, keepdim, dtype)


def _check_norm(name: str, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise DTypeError(f"{name}: expected a tensor, got {type(x).__name__}")
    if not x.dtype.is_inexact:
        raise DTypeError(
            f"{name}: expected a floating-point or complex dtype, got {x.dtype.name}; "
            "convert it with .float()"
        )


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
    tensor(7., dtype=float32)
    """
    name = "linalg.matrix_norm"
    _check_norm(name, A)
    if not isinstance(dim, (tuple, list)) or len(dim) != 2:
        raise ArgumentError(f"{name}: expected two dimensions, got dim={dim!r}")
    check_matrix(name, A.shape)
    dims = normalize_dims(name, dim, A.ndim)
    x = A if dtype is None else cast(A, as_dtype(dtype))
    if ord == "fro":
        return reduce.norm(x, 2, dims, keepdim)
    out = _matrix_norm(name, movedim(x, dims, (-2, -1)), ord)
    if keepdim:
        for d in sorted(dims):
            out = unsqueeze(out, d)
    return out


def _matrix_norm(name: str, x: Tensor, ord: Any) -> Tensor:
    """The norm over the last two dimensions."""
    if ord in ("nuc", 2, -2):
        s = svdvals(x)
        return sum(s, -1) if ord == "nuc" else (amax if ord == 2 else amin)(s, -1)
    if ord in (1, -1, math.inf, -math.inf):
        sums = sum(abs(x), -2 if ord in (1, -1) else -1)
        return (amax if ord > 0 else amin)(sums, -1)
    raise ArgumentError(
        f"{name}: expected ord 'fro', 'nuc', inf, -inf, 1, -1, 2 or -2, got {ord!r}"
    )


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
    tensor(5., dtype=float32)
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


def cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition number: the norm times the norm of the inverse.

    >>> weft.linalg.cond(weft.tensor([[2.0, 0.0], [0.0, 8.0]]))
    tensor(4., dtype=float32)
    """
    x = _matrix("linalg.cond", A, square=p not in (None, 2, -2))
    if p in (None, 2, -2):
        s = svdvals(x)
        ratio = s[..., 0] / s[..., -1]
        return 1 / ratio if p == -2 else ratio
    return matrix_norm(x, p) * matrix_norm(inv(x), p)


# -- solutions


def inv(A: Tensor) -> Tensor:
    """The inverse of square matrices.

    >>> weft.linalg.inv(weft.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]], shape=(2, 2), dtype=float32)
    """
    return inv_op(_matrix("linalg.inv", A, square=True))


def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """The X with ``A @ X = B`` (``X @ A = B`` if not ``left``).

    B is a vector, a batch of vectors with A's batch dimensions, or matrices.

    >>> A = weft.tensor([[2.0, 0.0], [0.0, 4.0]])
    >>> weft.linalg.solve(A, weft.tensor([2.0, 2.0]))
    tensor([1.0000, 0.5000], shape=(2,), dtype=float32)
    """
    name = "linalg.solve"
    a = _matrix(name, A, square=True)
    b = _right_side(name, a, B)
    if b.ndim < B.ndim + 1 and not left:
        return adjoint(solve(adjoint(a), adjoint(b)))
    _check_rows(name, a, b)
    x = solve_op(*_one_batch(name, a, b))
    return squeeze(x, -1) if b.ndim > B.ndim else x


def _right_side(name: str, a: Tensor, b: Any) -> Tensor:
    """Right-hand sides as matrices; vectors become one column."""
    if not isinstance(b, Tensor):
        raise DTypeError(f"{name}: expected a tensor B, got {type(b).__name__}")
    check_kind(name, b.dtype)
    _one_type(name, a, b)
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


def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """``solve`` for triangular A; the other triangle is not read.

    With ``unitriangular`` the diagonal is taken as ones.

    >>> A = weft.tensor([[2.0, 0.0], [2.0, 1.0]])
    >>> weft.linalg.solve_triangular(A, weft.tensor([[2.0], [3.0]]), upper=False)
    tensor([[1.],
            [1.]], shape=(2, 1), dtype=float32)
    """
    name = "linalg.solve_triangular"
    a, b = _matrix(name, A, square=True), _matrix(name, B)
    _one_type(name, a, b)
    if not left:
        turned = solve_triangular(
            adjoint(a), adjoint(b), upper=not upper, unitriangular=unitriangular
        )
        return adjoint(turned)
    _check_rows(name, a, b)
    params = {"upper": bool(upper), "unitriangular": bool(unitriangular)}
    return solve_triangular_op(*_one_batch(name, a, b), **params)


def pinv(
    A: Tensor, *, atol: float | None = None, rtol: float | None = None,
    hermitian: bool = False,
) -> Tensor:  # fmt: skip
    """The Moore-Penrose inverse; singular values below the tolerance count as 0.

    >>> weft.linalg.pinv(weft.tensor([[2.0], [0.0]]))
    tensor([[0.5000, 0.0000]], shape=(1, 2), dtype=float32)
    """
    x = _matrix("linalg.pinv", A, square=hermitian)
    x = _mirrored(x, upper=False) if hermitian else x
    return pinv_op(x, atol=_number("pinv", atol), rtol=_number("pinv", rtol))


def _number(name: str, tolerance: Any) -> float | None:
    if tolerance is None:
        return None
    if isinstance(tolerance, (int, float)):
        return float(tolerance)
    raise DTypeError(
        f"linalg.{name}: expected a tolerance to be a number, got "
        f"{type(tolerance).__name__}"
    )


def lstsq(
    A: Tensor, B: Tensor, rcond: float | None = None, *, driver: Any = None
) -> Any:
    """The X that makes the norm of ``A @ X - B`` least, and the smallest such X.

    Returns the solution, the squared residuals of each column (if A has full
    rank and more rows than columns, else empty), the rank and the singular
    values. ``driver`` is accepted for PyTorch's sake: there is one method.

    >>> A = weft.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> weft.linalg.lstsq(A, weft.tensor([[0.0], [1.0], [2.0]])).rank
    tensor(2, dtype=int64)
    """
    name = "linalg.lstsq"
    a = _matrix(name, A)
    b = _right_side(name, a, B)
    _check_rows(name, a, b)
    rtol = _number("lstsq", rcond)
    x = matmul(pinv_op(a, atol=None, rtol=rtol), b)
    s = svdvals(a)
    rank = _rank(s, a.shape, None, rtol)
    residuals = _residuals(a, b, x, rank)
    if b.ndim > B.ndim:
        x = squeeze(x, -1)
    return LstsqResult(x, residuals, rank, s)


def _residuals(a: Tensor, b: Tensor, x: Tensor, rank: Tensor) -> Tensor:
    m, n = a.shape[-2:]
    full = rank._interpreter is not None or bool((rank.array() == n).all())
    if m <= n or not full:
        return empty((0,), dtype=a.dtype.to_real())
    off = abs(matmul(a, x) - b)
    return sum(off * off, -2)


# -- determinants


def det(A: Tensor) -> Tensor:
    """The determinant; its gradient is exact for singular matrices too.

    >>> weft.linalg.det(weft.tensor([[2.0, 0.0], [0.0, 3.0]]))
    tensor(6., dtype=float32)
    """
    return det_op(_matrix("linalg.det", A, square=True))


def slogdet(A: Tensor) -> SlogdetResult:
    """The determinant's sign and the logarithm of its absolute value.

    >>> weft.linalg.slogdet(weft.tensor([[-1.0]]))
    SlogdetResult(sign=tensor(-1., dtype=float32), logabsdet=tensor(0., dtype=float32))
    """
    return SlogdetResult(*slogdet_op(_matrix("linalg.slogdet", A, square=True)))


def logdet(A: Tensor) -> Tensor:
    """The logarithm of the determinant; NaN where that is negative.

    >>> weft.logdet(weft.eye(2))
    tensor(0., dtype=float32)
    """
    sign, logabs = slogdet(A)
    if A.dtype.is_complex:
        return log(sign) + logabs
    return where(sign == -1, math.nan, logabs)


# -- decompositions


def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """The lower triangular L with ``A = L @ L.mH`` (``upper``: its adjoint).

    One triangle of the Hermitian A is read; its gradient is Hermitian.

    >>> weft.linalg.cholesky(weft.tensor([[4.0, 0.0], [0.0, 9.0]]))
    tensor([[2., 0.],
            [0., 3.]], shape=(2, 2), dtype=float32)
    """
    x = _mirrored(_matrix("linalg.cholesky", A, square=True), upper)
    factor = cholesky_op(x)
    return adjoint(factor) if upper else factor


def qr(A: Tensor, mode: str = "reduced") -> QRResult:
    """Orthonormal columns Q and an upper triangular R with ``A = Q @ R``.

    ``mode``: ``"reduced"``, ``"complete"`` (Q square; its added columns have no
    derivative) or ``"r"`` (Q left empty).

    >>> weft.linalg.qr(weft.tensor([[3.0], [4.0]])).R
    tensor([[-5.]], shape=(1, 1), dtype=float32)
    """
    x = _matrix("linalg.qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise ArgumentError(
            f"linalg.qr: mode must be 'reduced', 'complete' or 'r', got {mode!r}"
        )
    q, r = _qr(x)
    if mode == "r":
        return QRResult(empty((0,), dtype=x.dtype), r)
    m, k = q.shape[-2:]
    if mode == "complete" and m > k:
        below = zeros((*r.shape[:-2], m - k, r.shape[-1]), dtype=x.dtype)
        q, r = cat([q, complement(q)], -1), cat([r, below], -2)
    return QRResult(q, r)


def _qr(x: Tensor) -> tuple[Tensor, Tensor]:
    """The reduced QR; a wide matrix is its square part and columns turned by Q."""
    m, n = x.shape[-2:]
    if m >= n:
        return qr_op(x)
    q, r = qr_op(x[..., :m])
    return q, cat([r, matmul(adjoint(q), x[..., m:])], -1)


def svd(A: Tensor, full_matrices: bool = True, *, driver: Any = None) -> SVDResult:
    """Singular vectors and values: ``A = U @ diag(S) @ Vh``, S falling.

    The columns that ``full_matrices`` adds to U or Vh have no derivative; the
    other vectors have one while the singular values differ. ``driver`` is
    accepted for PyTorch's sake: there is one method.

    >>> weft.linalg.svd(weft.tensor([[0.0, 2.0], [3.0, 0.0]])).S
    tensor([3., 2.], shape=(2,), dtype=float32)
    """
    x = _matrix("linalg.svd", A)
    u, s, vh = svd_op(x)
    m, n = x.shape[-2:]
    if full_matrices and m > n:
        u = cat([u, complement(u)], -1)
    if full_matrices and m < n:
        vh = cat([vh, adjoint(complement(adjoint(vh)))], -2)
    return SVDResult(u, s, vh)


def svdvals(A: Tensor, *, driver: Any = None) -> Tensor:
    """The singular values, falling.

    >>> weft.linalg.svdvals(weft.tensor([[0.0, 2.0], [3.0, 0.0]]))
    tensor([3., 2.], shape=(2,), dtype=float32)
    """
    return svdvals_op(_matrix("linalg.svdvals", A))


def _uplo(name: str, UPLO: Any) -> bool:
    if not isinstance(UPLO, str) or UPLO.upper() not in ("L", "U"):
        raise ArgumentError(f"{name}: UPLO must be 'L' or 'U', got {UPLO!r}")
    return UPLO.upper() == "U"


def eigh(A: Tensor, UPLO: str = "L") -> EighResult:
    """Eigenvalues (rising) and eigenvectors of Hermitian matrices.

    One triangle is read; the gradient is Hermitian. The vectors have a
    derivative while the eigenvalues differ.

    >>> weft.linalg.eigh(weft.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    tensor([1., 2.], shape=(2,), dtype=float32)
    """
    upper = _uplo("linalg.eigh", UPLO)
    x = _mirrored(_matrix("linalg.eigh", A, square=True), upper)
    return EighResult(*eigh_op(x))


def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of Hermitian matrices, rising.

    >>> weft.linalg.eigvalsh(weft.tensor([[2.0, 0.0], [0.0, 1.0]]))
    tensor([1., 2.], shape=(2,), dtype=float32)
    """
    upper = _uplo("linalg.eigvalsh", UPLO)
    return eigvalsh_op(_mirrored(_matrix("linalg.eigvalsh", A, square=True), upper))


def eig(A: Tensor) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices, complex; no derivative.

    >>> weft.linalg.eig(weft.tensor([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues
    tensor([0.+1.j, 0.-1.j], shape=(2,), dtype=complex64)
    """
    return EigResult(*eig_op(_matrix("linalg.eig", A, square=True)))


def eigvals(A: Tensor) -> Tensor:
    """The eigenvalues of square matrices, complex; they have no derivative.

    >>> weft.linalg.eigvals(weft.tensor([[0.0, 1.0], [-1.0, 0.0]]))
    tensor([0.+1.j, 0.-1.j], shape=(2,), dtype=complex64)
    """
    return eig(A).eigenvalues


def matrix_rank(
    A: Tensor, *, atol: float | None = None, rtol: float | None = None,
    hermitian: bool = False,
) -> Tensor:  # fmt: skip
    """How many singular values are larger than the tolerance.

    >>> weft.linalg.matrix_rank(weft.ones(3, 3))
    tensor(1, dtype=int64)
    """
    x = _matrix("linalg.matrix_rank", A, square=hermitian)
    s = abs(eigvalsh(x)) if hermitian else svdvals(x)
    return _rank(s, x.shape, _number("matrix_rank", atol), _number("matrix_rank", rtol))


def _rank(s: Tensor, shape: tuple[int, ...], atol: Any, rtol: Any) -> Tensor:
    if s.shape[-1] == 0:
        return zeros(s.shape[:-1], dtype=int64)
    if rtol is None:
        rtol = 0.0 if atol else max(shape[-2:]) * float(np.finfo(s.dtype.np).eps)
    least = amax(s, -1, keepdim=True) * rtol
    return sum(cast((s > least) & (s > (atol or 0.0)), int64), -1)


# -- powers and products


def matrix_power(A: Tensor, n: int) -> Tensor:
    """A matrix times itself n times; for negative n, its inverse.

    >>> weft.linalg.matrix_power(weft.tensor([[1.0, 1.0], [0.0, 1.0]]), 5)
    tensor([[1., 5.],
            [0., 1.]], shape=(2, 2), dtype=float32)
    """
    name = "linalg.matrix_power"
    if isinstance(n, bool) or not isinstance(n, int):
        raise DTypeError(f"{name}: expected n to be an int, got {type(n).__name__}")
    if not isinstance(A, Tensor):
        raise DTypeError(f"{name}: expected a tensor, got {type(A).__name__}")
    check_matrix(name, A.shape, square=True)
    if n == 0:
        return expand(eye(A.shape[-1], dtype=A.dtype), A.shape)
    return _by_squaring(A if n > 0 else inv(A), abs(n))


def _by_squaring(square: Tensor, n: int) -> Tensor:
    out = None
    while n:
        if n & 1:
            out = square if out is None else matmul(out, square)
        n >>= 1
        square = matmul(square, square) if n else square
    assert out is not None
    return out


def matrix_exp(A: Tensor) -> Tensor:
    """The exponential of square matrices.

    >>> weft.linalg.matrix_exp(weft.tensor([[0.0, 1.0], [0.0, 0.0]]))
    tensor([[1., 1.],
            [0., 1.]], shape=(2, 2), dtype=float32)
    """
    return matrix_exp_op(_matrix("linalg.matrix_exp", A, square=True))


def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of several matrices, in the order that costs least.

    The first and the last may be vectors.

    >>> a, b, c = weft.ones(2, 9), weft.ones(9, 3), weft.ones(3)
    >>> weft.linalg.multi_dot([a, b, c])
    tensor([27., 27.], shape=(2,), dtype=float32)
    """
    name = "linalg.multi_dot"
    parts = list(tensors)
    if len(parts) < 2:
        raise ArgumentError(f"{name}: expected at least two tensors, got {len(parts)}")
    row, column = parts[0].ndim == 1, parts[-1].ndim == 1
    parts[0] = unsqueeze(parts[0], 0) if row else parts[0]
    parts[-1] = unsqueeze(parts[-1], 1) if column else parts[-1]
    _check_chain(name, parts)
    sizes = [p.shape[0] for p in parts] + [parts[-1].shape[1]]
    out = _multiply(parts, _splits(sizes), 0, len(parts) - 1)
    out = squeeze(out, -1) if column else out
    return squeeze(out, 0) if row else out


def _check_chain(name: str, parts: list[Tensor]) -> None:
    for k, p in enumerate(parts):
        if p.ndim != 2:
            raise ShapeError(
                f"{name}: expected matrices (and vectors only first and last), got "
                f"shape {p.shape} at place {k}"
            )
        if k and parts[k - 1].shape[1] != p.shape[0]:
            raise ShapeError(
                f"{name}: tensors {k - 1} and {k} of shapes {parts[k - 1].shape} and "
                f"{p.shape} cannot be multiplied"
            )


def _splits(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Where to split each run of factors, by dynamic programming."""
    n = len(sizes) - 1
    cost = {(i, i): 0 for i in range(n)}
    best = {}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i, j], best[i, j] = min(
                (
                    cost[i, k]
                    + cost[k + 1, j]
                    + sizes[i] * sizes[k + 1] * sizes[j + 1],
                    k,
                )
                for k in range(i, j)
            )
    return best


def _multiply(parts: list[Tensor], best: Any, i: int, j: int) -> Tensor:
    if i == j:
        return parts[i]
    k = best[i, j]
    return matmul(_multiply(parts, best, i, k), _multiply(parts, best, k + 1, j))


def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The cross product of vectors of three elements.

    >>> x, y = weft.tensor([1.0, 0.0, 0.0]), weft.tensor([0.0, 1.0, 0.0])
    >>> weft.linalg.cross(x, y)
    tensor([0., 0., 1.], shape=(3,), dtype=float32)
    """
    name = "linalg.cross"
    dtype = result_type(input.dtype, other.dtype)
    shape = broadcast_shapes(name, input.shape, other.shape)
    d = normalize_dim(name, dim, len(shape))
    if not shape or shape[d] != 3 or input.ndim != other.ndim:
        raise ShapeError(
            f"{name}: expected size 3 along dim {dim} and as many dimensions in both, "
            f"got shapes {input.shape} and {other.shape}"
        )
    x, y = (cast(expand(v, shape), dtype) for v in (input, other))
    after, last = Tensor(np.array([1, 2, 0])), Tensor(np.array([2, 0, 1]))
    first = index_select(x, d, after) * index_select(y, d, last)
    return first - index_select(x, d, last) * index_select(y, d, after)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The dot products along a dimension, the first operand conjugated.

    >>> weft.linalg.vecdot(weft.ones(2, 3), weft.ones(3))
    tensor([3., 3.], shape=(2,), dtype=float32)
    """
    return sum(conj(x) * y, dim)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices.

    >>> weft.linalg.diagonal(weft.eye(2))
    tensor([1., 1.], shape=(2,), dtype=float32)
    """
    return _diagonal(A, offset, dim1, dim2)


def inverse(input: Tensor) -> Tensor:
    """The inverse of square matrices: ``linalg.inv``.

    >>> weft.inverse(weft.tensor([[4.0]]))
    tensor([[0.2500]], shape=(1, 1), dtype=float32)
    """
    return inv(input)


def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The Moore-Penrose inverse: ``linalg.pinv``.

    >>> weft.pinverse(weft.tensor([[4.0]]))
    tensor([[0.2500]], shape=(1, 1), dtype=float32)
    """
    return pinv(input, rtol=rcond)


def cross_along(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The cross product along ``dim``, or along the first dimension of size 3.

    >>> x, y = weft.tensor([1.0, 0.0, 0.0]), weft.tensor([0.0, 1.0, 0.0])
    >>> weft.cross(x, y)
    tensor([0., 0., 1.], shape=(3,), dtype=float32)
    """
    if dim is None:
        dim = next((d for d, n in enumerate(input.shape) if n == 3), -1)
    return cross(input, other, dim=dim)
