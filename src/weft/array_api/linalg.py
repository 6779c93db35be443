"""The standard's ``linalg`` extension, over ``weft.linalg``."""

from __future__ import annotations

from typing import Any, NamedTuple

from weft import linalg as la
from weft.array_api._common import Array, operands
from weft.array_api._manipulation import matrix_transpose
from weft.array_api._products import matmul, tensordot, vecdot
from weft.array_api._statistical import total_dtype
from weft.errors import ArgumentError, ShapeError
from weft.ops import broadcasting, diagonals, products, reduce, shaping
from weft.ops.elementwise import broadcast_shapes

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul",
    "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv",
    "qr", "slogdet", "solve", "svd", "svdvals", "tensordot", "trace", "vecdot",
    "vector_norm",
]  # fmt: skip


class Eigh(NamedTuple):
    """The result of ``eigh``."""

    eigenvalues: Array
    eigenvectors: Array


class QR(NamedTuple):
    """The result of ``qr``."""

    Q: Array
    R: Array


class Slogdet(NamedTuple):
    """The result of ``slogdet``."""

    sign: Array
    logabsdet: Array


class SVD(NamedTuple):
    """The result of ``svd``."""

    U: Array
    S: Array
    Vh: Array


def cholesky(x: Array, /, *, upper: bool = False) -> Array:
    """The Cholesky factor: ``L @ L.mT`` (or ``U.mT @ U``) is the matrix.

    >>> weft.array_api.linalg.cholesky(weft.tensor([[4.0]]))
    tensor([[2.]])
    """
    return la.cholesky(x, upper=upper)


def cross(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """The cross products of vectors of three elements.

    >>> x, y = weft.tensor([1.0, 0.0, 0.0]), weft.tensor([0.0, 1.0, 0.0])
    >>> weft.array_api.linalg.cross(x, y)
    tensor([0., 0., 1.])
    """
    a, b = operands("cross", x1, x2)
    if min(a.ndim, b.ndim) == 0 or a.shape[axis] != 3 or b.shape[axis] != 3:
        raise ShapeError(
            f"cross: expected 3 elements along axis {axis}, got shapes {a.shape} and "
            f"{b.shape}"
        )
    if a.ndim != b.ndim and not -min(a.ndim, b.ndim) <= axis < 0:
        raise ShapeError("cross: expected a negative axis for arrays of unequal rank")
    return la.cross(*broadcasting.broadcast_tensors(a, b), dim=axis)


def det(x: Array, /) -> Array:
    """The determinants.

    >>> weft.array_api.linalg.det(weft.tensor([[2.0]]))
    tensor(2.)
    """
    return la.det(x)


def diagonal(x: Array, /, *, offset: int = 0) -> Array:
    """The diagonals of the last two axes.

    >>> weft.array_api.linalg.diagonal(weft.tensor([[1, 2], [3, 4]]))
    tensor([1, 4])
    """
    return diagonals.diagonal(x, offset, -2, -1)


def eigh(x: Array, /) -> Eigh:
    """The eigenvalues (rising) and eigenvectors of symmetric matrices.

    >>> weft.array_api.linalg.eigh(weft.tensor([[3.0]])).eigenvalues
    tensor([3.])
    """
    return Eigh(*la.eigh(x))


def eigvalsh(x: Array, /) -> Array:
    """The eigenvalues (rising) of symmetric matrices.

    >>> weft.array_api.linalg.eigvalsh(weft.tensor([[3.0]]))
    tensor([3.])
    """
    return la.eigvalsh(x)


def inv(x: Array, /) -> Array:
    """The inverses.

    >>> weft.array_api.linalg.inv(weft.tensor([[2.0]]))
    tensor([[0.5000]])
    """
    return la.inv(x)


def matrix_norm(x: Array, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """The norms of the matrices in the last two axes.

    >>> weft.array_api.linalg.matrix_norm(weft.tensor([[3.0, 4.0]]))
    tensor(5.)
    """
    return la.matrix_norm(x, ord, keepdim=keepdims)


def matrix_power(x: Array, n: int, /) -> Array:
    """Square matrices to a whole power.

    >>> weft.array_api.linalg.matrix_power(weft.tensor([[2.0]]), 3)
    tensor([[8.]])
    """
    return la.matrix_power(x, n)


def matrix_rank(x: Array, /, *, rtol: Any = None) -> Array:
    """The number of singular values above ``rtol`` times the largest.

    >>> weft.array_api.linalg.matrix_rank(weft.ones(2, 2))
    tensor(1)
    """
    return la.matrix_rank(x, rtol=rtol)


def outer(x1: Array, x2: Array, /) -> Array:
    """All products of an element of one vector with one of the other.

    >>> weft.array_api.linalg.outer(weft.ones(2), weft.ones(3)).shape
    (2, 3)
    """
    return products.outer(*operands("outer", x1, x2))


def pinv(x: Array, /, *, rtol: Any = None) -> Array:
    """The Moore-Penrose inverses.

    >>> weft.array_api.linalg.pinv(weft.tensor([[2.0]]))
    tensor([[0.5000]])
    """
    return la.pinv(x, rtol=rtol)


def qr(x: Array, /, *, mode: str = "reduced") -> QR:
    """Orthonormal columns times an upper triangle.

    >>> weft.array_api.linalg.qr(weft.ones(3, 2)).R.shape
    (2, 2)
    """
    if mode not in ("reduced", "complete"):
        raise ArgumentError(f"qr: mode must be 'reduced' or 'complete', got {mode!r}")
    return QR(*la.qr(x, mode))


def slogdet(x: Array, /) -> Slogdet:
    """The sign of the determinant and the logarithm of its size.

    >>> weft.array_api.linalg.slogdet(weft.tensor([[-1.0]])).sign
    tensor(-1.)
    """
    return Slogdet(*la.slogdet(x))


def solve(x1: Array, x2: Array, /) -> Array:
    """The ``y`` with ``x1 @ y == x2``; only a 1-d ``x2`` is one vector.

    >>> weft.array_api.linalg.solve(weft.tensor([[2.0]]), weft.tensor([4.0]))
    tensor([2.])
    """
    a, b = operands("solve", x1, x2)
    columns = shaping.unsqueeze(b, -1) if b.ndim == 1 else b
    lead = broadcast_shapes("solve", a.shape[:-2], columns.shape[:-2])
    # As many axes as x1, so that weft.linalg cannot see a batch of vectors.
    out = la.solve(a, broadcasting.expand(columns, (*lead, *columns.shape[-2:])))
    return shaping.squeeze(out, -1) if b.ndim == 1 else out


def svd(x: Array, /, *, full_matrices: bool = True) -> SVD:
    """``x`` as ``U @ diag(S) @ Vh``.

    >>> weft.array_api.linalg.svd(weft.ones(3, 2)).U.shape
    (3, 3)
    """
    return SVD(*la.svd(x, full_matrices=full_matrices))


def svdvals(x: Array, /) -> Array:
    """The singular values, largest first.

    >>> weft.array_api.linalg.svdvals(weft.tensor([[3.0, 4.0]]))
    tensor([5.])
    """
    return la.svdvals(x)


def trace(x: Array, /, *, offset: int = 0, dtype: Any = None) -> Array:
    """The sums of the diagonals of the last two axes.

    >>> weft.array_api.linalg.trace(weft.tensor([[1, 2], [3, 4]]))
    tensor(5)
    """
    return reduce.sum(diagonal(x, offset=offset), -1, dtype=total_dtype(x, dtype))


def vector_norm(
    x: Array, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2
) -> Array:
    """The norms of vectors along axes (of all elements by default).

    >>> weft.array_api.linalg.vector_norm(weft.tensor([3.0, 4.0]))
    tensor(5.)
    """
    return la.vector_norm(x, ord, axis, keepdims)
