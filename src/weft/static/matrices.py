"""Matrices under TensorFlow 1's names."""

from __future__ import annotations

from typing import Any

import weft
from weft.static.building import as_node, function


def _matrix(name: str, fn: Any, text: str, at: str, shape: str) -> Any:
    def call(input: Any) -> Any:
        return fn(as_node(input))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""{text}

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.{name}({at})).shape
    {shape}
    """
    return function(call)


_TWO = "[[2.0, 1.0], [1.0, 2.0]]"
matrix_inverse = _matrix(
    "matrix_inverse", weft.linalg.inv, "The inverse of matrices.", _TWO, "(2, 2)"
)
matrix_determinant = _matrix(
    "matrix_determinant", weft.linalg.det, "The determinants of matrices.", _TWO, "()"
)
cholesky = _matrix(
    "cholesky", weft.linalg.cholesky, "``L`` with ``L @ L.T`` the matrix.", _TWO,
    "(2, 2)",
)  # fmt: skip
matrix_transpose = _matrix(
    "matrix_transpose", lambda x: x.transpose(-2, -1), "The last two axes exchanged.",
    "[[1.0, 2.0]]", "(2, 1)",
)  # fmt: skip
trace = _matrix(
    "trace", lambda x: weft.diagonal(x, dim1=-2, dim2=-1).sum(-1),
    "The sums of diagonals.", _TWO, "()",
)  # fmt: skip
diag = _matrix(
    "diag", lambda x: weft.diag_embed(x.reshape(-1)).reshape(*x.shape, *x.shape),
    "The tensor as the diagonal of one with twice the axes.", "[1.0, 2.0]", "(2, 2)",
)  # fmt: skip
diag_part = _matrix(
    "diag_part", weft.diagonal, "The diagonal of a matrix.", _TWO, "(2,)"
)
matrix_diag = _matrix(
    "matrix_diag", weft.diag_embed, "Matrices with these diagonals.", "[1.0, 2.0]",
    "(2, 2)",
)  # fmt: skip
matrix_diag_part = _matrix(
    "matrix_diag_part", lambda x: weft.diagonal(x, dim1=-2, dim2=-1),
    "The diagonals of matrices.", _TWO, "(2,)",
)  # fmt: skip


@function
def matrix_solve(matrix: Any, rhs: Any, adjoint: bool = False) -> Any:
    """``x`` with ``matrix @ x == rhs``.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.matrix_solve([[2.0]], [[6.0]]))
    array([[3.]], dtype=float32)
    """
    a = as_node(matrix)
    return weft.linalg.solve(a.transpose(-2, -1) if adjoint else a, as_node(rhs))


@function
def svd(tensor: Any, full_matrices: bool = False, compute_uv: bool = True) -> Any:
    """Singular values ``s``, and ``u`` and ``v`` with ``u @ diag(s) @ v.T`` the matrix.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     s, u, v = session.run(weft.static.svd([[3.0, 0.0], [0.0, 2.0]]))
    ...     s
    array([3., 2.], dtype=float32)
    """
    u, s, vt = weft.linalg.svd(as_node(tensor), full_matrices=full_matrices)
    return (s, u, vt.transpose(-2, -1)) if compute_uv else s


@function
def qr(input: Any, full_matrices: bool = False) -> Any:
    """``q`` with orthonormal columns and an upper triangle ``r``: ``q @ r``.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     [x.shape for x in session.run(weft.static.qr([[1.0], [2.0]]))]
    [(2, 1), (1, 1)]
    """
    return weft.linalg.qr(as_node(input), "complete" if full_matrices else "reduced")


@function
def self_adjoint_eig(tensor: Any) -> Any:
    """Eigenvalues (rising) and eigenvectors of symmetric matrices.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.self_adjoint_eig([[2.0, 0.0], [0.0, 1.0]]))[0]
    array([1., 2.], dtype=float32)
    """
    return tuple(weft.linalg.eigh(as_node(tensor)))


@function
def norm(
    tensor: Any, ord: Any = "euclidean", axis: Any = None, keepdims: bool = False,
    keep_dims: bool | None = None,
) -> Any:  # fmt: skip
    """The norm of vectors along an axis, or of all elements.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     float(session.run(weft.static.norm([3.0, 4.0])))
    5.0
    """
    kept = keepdims if keep_dims is None else keep_dims
    x = as_node(tensor)
    if isinstance(axis, (list, tuple)) and len(axis) == 2 and ord != "euclidean":
        return weft.linalg.matrix_norm(x, ord, tuple(axis), kept)
    power = 2 if ord in ("euclidean", "fro") else ord
    return weft.linalg.vector_norm(x, power, axis, kept)


@function
def tensordot(a: Any, b: Any, axes: Any) -> Any:
    """Products summed over axes: so many last and first ones, or lists of them.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.tensordot([[1.0, 2.0]], [[3.0], [4.0]], 1))
    array([[11.]], dtype=float32)
    """
    return weft.tensordot(as_node(a), as_node(b), axes)


@function
def einsum(equation: str, *inputs: Any) -> Any:
    """Products summed as an equation of indices says.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.einsum("i,i->", [1.0, 2.0], [3.0, 4.0])).item()
    11.0
    """
    given = inputs[0] if len(inputs) == 1 and isinstance(inputs[0], tuple) else inputs
    return weft.einsum(equation, *[as_node(x) for x in given])


@function
def matrix_band_part(input: Any, num_lower: int, num_upper: int) -> Any:
    """A band around the diagonals of matrices; -1 keeps a whole triangle.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.matrix_band_part([[1, 2], [3, 4]], -1, 0))
    array([[1, 0],
           [3, 4]])
    """
    x = as_node(input)
    x = x if num_lower < 0 else weft.triu(x, -num_lower)
    return x if num_upper < 0 else weft.tril(x, num_upper)


@function
def cross(a: Any, b: Any) -> Any:
    """The cross product of vectors along the last axis.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.cross([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]))
    array([0., 0., 1.], dtype=float32)
    """
    return weft.linalg.cross(as_node(a), as_node(b))


@function
def logdet(matrix: Any) -> Any:
    """The logarithm of the determinant of positive definite matrices.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     round(session.run(weft.static.linalg.logdet([[4.0]])).item(), 4)
    1.3863
    """
    return weft.logdet(as_node(matrix))


@function
def matrix_set_diag(input: Any, diagonal: Any) -> Any:
    """Matrices with another diagonal.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = [[1.0, 2.0], [3.0, 4.0]]
    ...     session.run(weft.static.matrix_set_diag(x, [0.0, 0.0]))
    array([[0., 2.],
           [3., 0.]], dtype=float32)
    """
    x = as_node(input)
    return weft.diagonal_scatter(x, as_node(diagonal, x.dtype), 0, -2, -1)


@function
def matrix_triangular_solve(
    matrix: Any, rhs: Any, lower: bool = True, adjoint: bool = False
) -> Any:
    """The solutions of triangular systems.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.matrix_triangular_solve([[2.0]], [[4.0]])).item()
    2.0
    """
    a = as_node(matrix)
    a = a.mT if adjoint else a
    return weft.linalg.solve_triangular(a, as_node(rhs), upper=lower == adjoint)


@function
def cholesky_solve(chol: Any, rhs: Any) -> Any:
    """The solutions of systems whose Cholesky factors are given.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.cholesky_solve([[2.0]], [[4.0]])).item()
    1.0
    """
    return weft.cholesky_solve(as_node(rhs), as_node(chol))


@function
def matvec(a: Any, b: Any, transpose_a: bool = False) -> Any:
    """Matrices times vectors.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.linalg.matvec([[1.0, 2.0]], [3.0, 4.0]))
    array([11.], dtype=float32)
    """
    x = as_node(a)
    x = x.mT if transpose_a else x
    return weft.squeeze(weft.matmul(x, as_node(b).unsqueeze(-1)), -1)


@function
def self_adjoint_eigvals(tensor: Any) -> Any:
    """The eigenvalues of symmetric matrices, in order.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.self_adjoint_eigvals([[2.0, 0.0], [0.0, 1.0]]))
    array([1., 2.], dtype=float32)
    """
    return weft.linalg.eigvalsh(as_node(tensor))


def _transform(name: str, fn: Any) -> Any:
    def call(input: Any) -> Any:
        return fn(as_node(input))

    call.__name__ = call.__qualname__ = name
    shape = {"2": "(4, 4)", "3": "(2, 4, 4)"}.get(name[-2], "(4,)")
    call.__doc__ = f"""A discrete Fourier transform (``weft.fft.{fn.__name__}``).

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.{name}(np.ones({shape}, "complex64"))).shape
    {shape}
    """
    return function(call)


def _three(fn: Any) -> Any:
    def call(x: Any) -> Any:
        return fn(x, dim=(-3, -2, -1))

    call.__name__ = fn.__name__
    return call


fft, ifft = _transform("fft", weft.fft.fft), _transform("ifft", weft.fft.ifft)
fft2d, ifft2d = _transform("fft2d", weft.fft.fft2), _transform("ifft2d", weft.fft.ifft2)
fft3d = _transform("fft3d", _three(weft.fft.fftn))
ifft3d = _transform("ifft3d", _three(weft.fft.ifftn))
