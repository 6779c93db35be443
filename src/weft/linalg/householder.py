"""Products of Householder reflections: ``geqrf`` and what is made of its result."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.core.results import results
from weft.core.tensor import Tensor
from weft.errors import ShapeError
from weft.linalg.operands import as_matrix, wide
from weft.ops.creation import zeros
from weft.ops.diagonals import tril
from weft.ops.linalg.algebra import adjoint
from weft.ops.operands import concrete
from weft.ops.public import public


@results("geqrf")
class Reflections(NamedTuple):
    """The result of ``geqrf``."""

    a: Tensor
    tau: Tensor


@public(method=True)
@wide
def geqrf(input: Tensor) -> Reflections:
    """R in the upper triangle, and below it the reflections whose product is Q.

    There is no derivative; ``linalg.qr`` has one.

    >>> weft.geqrf(weft.tensor([[3.0], [4.0]])).a[0]
    tensor([-5.])
    """
    x = as_matrix("geqrf", input)
    packed, tau = np.linalg.qr(concrete("geqrf", x.detach()), mode="raw")
    made = np.ascontiguousarray(packed.swapaxes(-1, -2))
    return Reflections(Tensor(made).to(x.device), Tensor(tau).to(x.device))


def _vectors(input: Tensor, tau: Tensor, name: str) -> Tensor:
    """The reflections' vectors as columns, with their ones."""
    if tau.shape[:-1] != input.shape[:-2] or tau.shape[-1] > input.shape[-1]:
        raise ShapeError(
            f"{name}: expected tau of shape (..., k) with k <= {input.shape[-1]}, got "
            f"{tau.shape} for {input.shape}"
        )
    k = tau.shape[-1]
    ones = zeros(input.shape[-2], k, dtype=input.dtype, device=input.device)
    return tril(input[..., :k], -1) + ones.fill_diagonal_(1)


def _reflected(v: Tensor, tau: Tensor, b: Tensor, order: range) -> Tensor:
    """``b`` with reflections ``1 - tau v v^H`` applied from the left, in an order."""
    for i in order:
        column, factor = v[..., i : i + 1], tau[..., i, None, None]
        b = b - factor * (column @ (adjoint(column) @ b))
    return b


@wide
def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first columns of a product of reflections: Q of ``geqrf``'s result.

    >>> weft.linalg.householder_product(*weft.geqrf(weft.tensor([[3.0], [4.0]])))
    tensor([[-0.6000],
            [-0.8000]])
    """
    x = as_matrix("linalg.householder_product", A)
    m, n = x.shape[-2:]
    if m < n:
        raise ShapeError(
            "linalg.householder_product: expected at least as many rows as columns, "
            f"got {x.shape}"
        )
    v = _vectors(x, tau, "linalg.householder_product")
    start = zeros(m, n, dtype=x.dtype, device=x.device).fill_diagonal_(1)
    start = start.expand(*x.shape[:-2], m, n)
    return _reflected(v, tau, start, range(tau.shape[-1] - 1, -1, -1))


@public(method=True)
def orgqr(input: Tensor, input2: Tensor) -> Tensor:
    """``linalg.householder_product`` under LAPACK's name.

    >>> weft.orgqr(*weft.geqrf(weft.eye(2))).shape
    (2, 2)
    """
    return householder_product(input, input2)


@public(method=True)
@wide
def ormqr(
    input: Tensor,
    tau: Tensor,
    other: Tensor,
    left: bool = True,
    transpose: bool = False,
) -> Tensor:
    """``Q @ other`` (or ``other @ Q``) with the whole Q of ``geqrf``'s result.

    ``transpose`` takes the adjoint of Q.

    >>> weft.ormqr(*weft.geqrf(weft.tensor([[3.0], [4.0]])), weft.eye(2))[:, :1]
    tensor([[-0.6000],
            [-0.8000]])
    """
    v = _vectors(as_matrix("ormqr", input), tau, "ormqr")
    if not left:
        return adjoint(ormqr(input, tau, adjoint(other), True, not transpose))
    k = tau.shape[-1]
    if transpose:
        return _reflected(v, tau.conj(), other, range(k))
    return _reflected(v, tau, other, range(k - 1, -1, -1))
