"""Powers, exponentials and products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.core.dims import normalize_dim
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.linalg.operands import as_matrix, wide
from weft.linalg.solving import inv
from weft.ops.broadcasting import expand
from weft.ops.copies import cast
from weft.ops.creation import eye
from weft.ops.diagonals import diagonal as _diagonal
from weft.ops.elementwise import broadcast_shapes, conj, result_type
from weft.ops.index import index_select
from weft.ops.linalg.algebra import check_matrix
from weft.ops.linalg.matrix_functions import matrix_exp_op
from weft.ops.products import matmul
from weft.ops.public import public
from weft.ops.reduce import sum
from weft.ops.shaping import squeeze, unsqueeze


@public(method=True)
@wide
def matrix_power(A: Tensor, n: int) -> Tensor:
    """A matrix times itself n times; for negative n, its inverse.

    >>> weft.linalg.matrix_power(weft.tensor([[1.0, 1.0], [0.0, 1.0]]), 5)
    tensor([[1., 5.],
            [0., 1.]])
    """
    name = "linalg.matrix_power"
    if isinstance(n, bool) or not isinstance(n, int):
        raise DTypeError(f"{name}: expected n to be an int, got {type(n).__name__}")
    if not isinstance(A, Tensor):
        raise DTypeError(f"{name}: expected a tensor, got {type(A).__name__}")
    check_matrix(name, A.shape, square=True)
    if n == 0:
        return expand(eye(A.shape[-1], dtype=A.dtype, device=A.device), A.shape)
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


@public(method=True)
@wide
def matrix_exp(A: Tensor) -> Tensor:
    """The exponential of square matrices.

    >>> weft.linalg.matrix_exp(weft.tensor([[0.0, 1.0], [0.0, 0.0]]))
    tensor([[1., 1.],
            [0., 1.]])
    """
    return matrix_exp_op(as_matrix("linalg.matrix_exp", A, square=True))


@wide
def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of several matrices, in the order that costs least.

    The first and the last may be vectors.

    >>> a, b, c = weft.ones(2, 9), weft.ones(9, 3), weft.ones(3)
    >>> weft.linalg.multi_dot([a, b, c])
    tensor([27., 27.])
    """
    name = "linalg.multi_dot"
    factors = list(tensors)
    if len(factors) < 2:
        count = len(factors)
        raise ArgumentError(f"{name}: expected at least two tensors, got {count}")
    row, column = factors[0].ndim == 1, factors[-1].ndim == 1
    factors[0] = unsqueeze(factors[0], 0) if row else factors[0]
    factors[-1] = unsqueeze(factors[-1], 1) if column else factors[-1]
    _check_chain(name, factors)
    sizes = [p.shape[0] for p in factors] + [factors[-1].shape[1]]
    out = _multiply(factors, _splits(sizes), 0, len(factors) - 1)
    out = squeeze(out, -1) if column else out
    return squeeze(out, 0) if row else out


def _check_chain(name: str, factors: list[Tensor]) -> None:
    for k, p in enumerate(factors):
        if p.ndim != 2:
            raise ShapeError(
                f"{name}: expected matrices (and vectors only first and last), got "
                f"shape {p.shape} at place {k}"
            )
        if k and factors[k - 1].shape[1] != p.shape[0]:
            raise ShapeError(
                f"{name}: tensors {k - 1} and {k} of shapes {factors[k - 1].shape} and "
                f"{p.shape} cannot be multiplied"
            )


def _splits(sizes: list[int]) -> dict[tuple[int, int], int]:
    """The index to split each run of factors at, by dynamic programming."""
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


def _multiply(factors: list[Tensor], best: Any, i: int, j: int) -> Tensor:
    if i == j:
        return factors[i]
    k = best[i, j]
    return matmul(_multiply(factors, best, i, k), _multiply(factors, best, k + 1, j))


@wide
def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The cross product of vectors of three elements.

    >>> x, y = weft.tensor([1.0, 0.0, 0.0]), weft.tensor([0.0, 1.0, 0.0])
    >>> weft.linalg.cross(x, y)
    tensor([0., 0., 1.])
    """
    name = "linalg.cross"
    dtype = result_type(input.dtype, other.dtype)
    shape = broadcast_shapes(name, input.shape, other.shape)
    d = normalize_dim(name, dim, len(shape))
    ranks_fit = input.ndim == other.ndim and input.ndim > 0
    if not ranks_fit or input.shape[d] != 3 or other.shape[d] != 3:
        raise ShapeError(
            f"{name}: expected size 3 along dim {dim} and as many dimensions in both, "
            f"got shapes {input.shape} and {other.shape}"
        )
    x, y = (cast(expand(v, shape), dtype) for v in (input, other))
    after, last = (
        Tensor(np.array(positions)).to(x.device) for positions in ([1, 2, 0], [2, 0, 1])
    )
    first = index_select(x, d, after) * index_select(y, d, last)
    return first - index_select(x, d, last) * index_select(y, d, after)


@wide
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The dot products along a dimension, the first operand conjugated.

    >>> weft.linalg.vecdot(weft.ones(2, 3), weft.ones(3))
    tensor([3., 3.])
    """
    return sum(conj(x) * y, dim)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices.

    >>> weft.linalg.diagonal(weft.eye(2))
    tensor([1., 1.])
    """
    return _diagonal(A, offset, dim1, dim2)


@public("cross", method=True)
def cross_along(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The cross product along ``dim``, or along the first dimension of size 3.

    >>> x, y = weft.tensor([1.0, 0.0, 0.0]), weft.tensor([0.0, 1.0, 0.0])
    >>> weft.cross(x, y)
    tensor([0., 0., 1.])
    """
    if dim is None:
        dim = next((d for d, n in enumerate(input.shape) if n == 3), -1)
    return cross(input, other, dim=dim)


@public()
def chain_matmul(*matrices: Any) -> Tensor:
    """The product of several matrices, in the order that costs least.

    >>> weft.chain_matmul(weft.ones(2, 3), weft.ones(3, 4), weft.ones(4, 1)).shape
    (2, 1)
    """
    given = list(matrices[0] if isinstance(matrices[0], (list, tuple)) else matrices)
    if any(m.ndim != 2 for m in given):
        shapes = [tuple(m.shape) for m in given]
        raise ShapeError(f"chain_matmul: expected matrices, got shapes {shapes}")
    return given[0] if len(given) == 1 else multi_dot(given)
