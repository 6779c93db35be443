"""Cholesky's and QR factors.

The rules are those of Seeger et al., Auto-differentiating linear algebra, 2017,
and of Walter and Lehmann, 2018.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.core.op import Op, TensorType, define
from weft.core.tensor import Tensor
from weft.errors import ShapeError
from weft.ops.complex_numbers import complex, imag
from weft.ops.creation import zeros_like
from weft.ops.diagonals import diag_embed, tril, triu
from weft.ops.elementwise import elementwise_batch
from weft.ops.linalg.algebra import (
    adjoint,
    check_kind,
    check_matrix,
    diagonal_of,
    half_lower,
    hermitian,
    lapack,
    no_derivative,
    same_type,
    skew,
)
from weft.ops.linalg.references import (
    banachiewicz,
    each_matrix,
    householder,
    positive_samples,
    tall_samples,
)
from weft.ops.linalg.solving import over, under
from weft.ops.products import matmul_op as mm

# -- Cholesky


@lapack("cholesky")
def _cholesky_eval(x: Any) -> Any:
    out = np.linalg.cholesky((x + x.swapaxes(-1, -2).conj()) / 2)
    if not np.isfinite(out).all():  # NaN passes through some LAPACKs
        raise np.linalg.LinAlgError
    return out


def _cholesky_vjp(g: Tensor, out: Tensor) -> Tensor:
    inner = half_lower(mm(adjoint(out), g))
    left = under(adjoint(out), inner, upper=True)
    return hermitian(over(left, out, upper=False))


def _cholesky_jvp(t: Tensor, out: Tensor) -> Tensor:
    inner = under(out, hermitian(t), upper=False)
    return mm(out, half_lower(over(inner, adjoint(out), upper=True)))


cholesky_op = define(
    "cholesky",
    refuses={"x": math.nan},
    inputs="x",
    eval=_cholesky_eval,
    type=same_type("cholesky"),
    vjp={"x": _cholesky_vjp},
    jvp={"x": _cholesky_jvp},
    batch=elementwise_batch,
    samples=positive_samples,
    reference=each_matrix(banachiewicz),
)


# -- QR (of matrices with at least as many rows as columns)


def _qr_type(x: TensorType) -> tuple[TensorType, TensorType]:
    check_kind("qr", x.dtype)
    check_matrix("qr", x.shape)
    *lead, m, n = x.shape
    if m < n:
        raise ShapeError(
            f"qr: expected at least as many rows as columns, got {x.shape}"
        )
    return x, TensorType((*lead, n, n), x.dtype)


@lapack("qr")
def _qr_eval(x: Any) -> Any:
    if x.shape[-2] < x.shape[-1]:
        raise ValueError("a wide matrix")
    return tuple(np.linalg.qr(x))


def _qr_vjp(gs: Any, q: Tensor, r: Tensor) -> tuple[Tensor]:
    gq, gr = gs
    m = mm(r, adjoint(gr)) - mm(adjoint(gq), q)
    lower = half_lower(m)
    return (over(gq + mm(q, lower + adjoint(lower)), adjoint(r), upper=False),)


def _qr_jvp(t: Tensor, q: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    w = over(t, r, upper=True)
    s = mm(adjoint(q), w)
    lower = tril(s, -1)
    turn = skew(lower)
    if t.dtype.is_complex:
        phase = imag(diagonal_of(s))
        turn = turn + diag_embed(complex(zeros_like(phase), phase))
    change = s - turn
    return w - mm(q, change), mm(triu(change), r)


qr_op = define(
    "qr",
    inputs="x",
    outputs="q r",
    eval=_qr_eval,
    type=_qr_type,
    vjp=_qr_vjp,
    jvp={"x": _qr_jvp},
    batch=elementwise_batch,
    samples=tall_samples,
    reference=each_matrix(householder),
)

_COMPLETION = no_derivative(
    "linalg: the columns that complete a basis are not unique, so they have no "
    "derivative; use mode='reduced' (qr) or full_matrices=False (svd)"
)


def _complement_type(q: TensorType) -> TensorType:
    *lead, m, n = q.shape
    return TensorType((*lead, m, m - n), q.dtype)


# Not in the registry, which holds what can be differentiated and tested by rule.
# Orthonormal columns that complete orthonormal columns to a basis.
complement = Op(
    "complement",
    inputs="q",
    eval=lapack("qr")(lambda q: np.linalg.qr(q, "complete")[0][..., q.shape[-1] :]),
    type=_complement_type,
    vjp=_COMPLETION,
    jvp=_COMPLETION,
    batch=elementwise_batch,
)
