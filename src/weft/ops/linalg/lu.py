"""LU factors: the pivots of a matrix, and the factors of a matrix in that order.

The factors are one matrix: U in the upper triangle, L below it, whose ones on the
diagonal are not written. Pivots are LAPACK's: row ``i`` was exchanged with row
``pivots[i] - 1``, one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.op import Sample, TensorType, define
from weft.core.tensor import Tensor
from weft.ops.diagonals import tril, triu
from weft.ops.elementwise import elementwise_batch
from weft.ops.joining import cat
from weft.ops.linalg.algebra import (
    Array,
    adjoint,
    check_kind,
    check_matrix,
    identity,
)
from weft.ops.linalg.references import each_matrix, well_conditioned
from weft.ops.linalg.solving import over, under
from weft.ops.products import matmul_op as mm


def _eliminate(a: Array, pivoting: bool) -> tuple[Array, Array]:
    """Gaussian elimination of all matrices of a batch at once."""
    a = a.copy()
    m, n = a.shape[-2:]
    flat = a.reshape(math.prod(a.shape[:-2]), m, n)
    each = np.arange(len(flat))
    pivots = np.empty((len(flat), min(m, n)), np.int32)
    with np.errstate(all="ignore"):
        for j in range(min(m, n)):
            p = np.full(len(flat), j)
            if pivoting:
                p = j + np.argmax(_size(flat[:, j:, j]), -1)
                flat[each, j], flat[each, p] = flat[each, p], flat[each, j]
            pivots[:, j] = p + 1
            top = flat[:, j, j, None]
            column = flat[:, j + 1 :, j]
            column[...] = np.where(top == 0, column, column / top)
            flat[:, j + 1 :, j + 1 :] -= column[..., None] * flat[:, j, None, j + 1 :]
    return flat.reshape(a.shape), pivots.reshape(*a.shape[:-2], min(m, n))


def _size(x: Any) -> Any:
    """What pivots are chosen by: of complex numbers, as in LAPACK, |re| + |im|."""
    return np.abs(x.real) + np.abs(x.imag)


def _check(name: str, x: TensorType) -> None:
    check_kind(name, x.dtype)
    check_matrix(name, x.shape)


def _matrices(rng: np.random.Generator) -> Iterator[Sample]:
    """Matrices of any shape whose leading minors are far from 0."""
    for lead, m, n in (((), 3, 3), ((2,), 4, 2), ((), 2, 4), ((), 1, 1), ((0,), 2, 2)):
        k = max(m, n)
        yield Sample(
            ((well_conditioned(rng, *lead, k, k) + 3 * np.eye(k))[..., :m, :n],)
        )


# -- pivots


def _pivots_type(x: TensorType) -> TensorType:
    _check("lu", x)
    *lead, m, n = x.shape
    return TensorType((*lead, min(m, n)), dtypes.int32)


def _pivots_reference(a: Array) -> Array:
    """The pivots, from the rows that are still there in each step."""
    rows, found = [list(r) for r in a], []
    for j in range(min(a.shape)):
        best = max(range(j, len(rows)), key=lambda i: (_size(rows[i][j]), -i))
        found.append(best + 1)
        rows[j], rows[best] = rows[best], rows[j]
        for i in range(j + 1, len(rows)):
            factor = rows[i][j] / rows[j][j]
            rows[i] = [x - factor * y for x, y in zip(rows[i], rows[j], strict=True)]
    return np.array(found, np.int32)


lu_pivots_op = define(
    "lu_pivots",
    inputs="x",
    eval=lambda x: _eliminate(x, pivoting=True)[1],
    type=_pivots_type,
    batch=elementwise_batch,
    samples=_matrices,
    reference=each_matrix(_pivots_reference),
)


# -- the order of rows that pivots make


def _order_eval(pivots: Any, *, rows: int) -> Any:
    flat = pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1])
    order = np.tile(np.arange(rows), (len(flat), 1))
    each = np.arange(len(flat))
    for i in range(flat.shape[-1]):
        p = flat[:, i] - 1
        order[each, i], order[each, p] = order[each, p], order[each, i]
    return order.reshape(*pivots.shape[:-1], rows)


def _order_reference(pivots: Any, *, rows: int) -> Any:
    order = list(range(rows))
    for i, p in enumerate(pivots):
        order[i], order[p - 1] = order[p - 1], order[i]
    return np.array(order)


def each_vector(fn: Any) -> Any:
    """A function of a vector, for all vectors of a batch."""

    def batched(rows_of: Array, **params: Any) -> Array:
        found = [fn(row, **params) for row in rows_of.reshape(-1, rows_of.shape[-1])]
        width = len(found[0]) if found else params["rows"]
        return np.array(found, np.int64).reshape(*rows_of.shape[:-1], width)

    return batched


def _order_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((np.array([3, 2, 3], np.int32),), {"rows": 4})
    yield Sample((np.array([2, 2], np.int32),), {"rows": 2})
    yield Sample((np.zeros((0, 2), np.int32),), {"rows": 2})


pivot_order_op = define(
    "pivot_order",
    refuses={"pivots": 10**6},
    inputs="pivots",
    eval=_order_eval,
    type=lambda pivots, *, rows: TensorType((*pivots.shape[:-1], rows), dtypes.int64),
    batch=elementwise_batch,
    samples=_order_samples,
    reference=each_vector(_order_reference),
)


# -- the factors of a matrix whose rows are in order


def _square(packed: Tensor) -> tuple[Tensor, Tensor]:
    """L and U of the square part in front."""
    k = min(packed.shape[-2:])
    front = packed[..., :k, :k]
    return tril(front, -1) + identity(k, packed), triu(front)


def _lu_type(x: TensorType) -> TensorType:
    _check("lu", x)
    return x


def _lu_vjp(g: Tensor, out: Tensor) -> Tensor:
    m, n = out.shape[-2:]
    k = min(m, n)
    lower, upper = _square(out)
    gl, gu = tril(g[..., :k, :k], -1), triu(g[..., :k, :k])
    rest = None
    if m > n:  # the rows below are L2 = A2 U^-1
        rest = over(g[..., k:, :], adjoint(upper), upper=False)
        gu = gu - mm(adjoint(out[..., k:, :]), rest)
    if n > m:  # the columns behind are U2 = L^-1 A2
        rest = under(adjoint(lower), g[..., k:], upper=True)
        gl = gl - mm(rest, adjoint(out[..., k:]))
    inner = tril(mm(adjoint(lower), gl), -1) + triu(mm(gu, adjoint(upper)))
    left = under(adjoint(lower), inner, upper=True)
    front = over(left, adjoint(upper), upper=False)
    return front if rest is None else cat([front, rest], -2 if m > n else -1)


def _lu_jvp(t: Tensor, out: Tensor) -> Tensor:
    m, n = out.shape[-2:]
    k = min(m, n)
    lower, upper = _square(out)
    inner = over(under(lower, t[..., :k, :k], upper=False), upper, upper=True)
    dl, du = mm(lower, tril(inner, -1)), mm(triu(inner), upper)
    if m > n:
        below = t[..., k:, :] - mm(out[..., k:, :], du)
        return cat([dl + du, over(below, upper, upper=True)], -2)
    if n > m:
        behind = t[..., k:] - mm(dl, out[..., k:])
        return cat([dl + du, under(lower, behind, upper=False)], -1)
    return dl + du


def _lu_reference(a: Array) -> Array:
    """The factors by Doolittle's sums, element by element."""
    out = np.zeros_like(a)
    for i, j in np.ndindex(*a.shape):
        k = min(i, j)
        left = a[i, j] - sum(out[i, s] * out[s, j] for s in range(k))
        out[i, j] = left / out[j, j] if i > j else left
    return out


lu_op = define(
    "lu",
    inputs="x",
    eval=lambda x: _eliminate(x, pivoting=False)[0],
    type=_lu_type,
    vjp={"x": _lu_vjp},
    jvp={"x": _lu_jvp},
    batch=elementwise_batch,
    samples=_matrices,
    reference=each_matrix(_lu_reference),
)
