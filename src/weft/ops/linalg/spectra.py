"""Singular values and eigenvalues.

The rules are those of Townsend, Differentiating the SVD, 2016, and of Seeger et
al., Auto-differentiating linear algebra, 2017.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.op import Op, TensorType, define
from weft.core.tensor import Tensor
from weft.ops.arithmetic import reciprocal
from weft.ops.complex_numbers import complex, imag, real
from weft.ops.copies import cast
from weft.ops.creation import zeros_like
from weft.ops.diagonals import diag_embed
from weft.ops.elementwise import elementwise_batch
from weft.ops.linalg.algebra import (
    adjoint,
    canonical,
    check_kind,
    check_matrix,
    columns,
    diagonal_of,
    gaps,
    hermitian,
    lapack,
    no_derivative,
    rows,
    same_type,
    skew,
    times,
)
from weft.ops.linalg.references import (
    any_samples,
    each_matrix,
    jacobi,
    jacobi_svd,
    positive_samples,
)
from weft.ops.products import matmul_op as mm

# -- singular values


@lapack("svd", finite=True)
def _svd_eval(x: Any) -> Any:
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    f = canonical(u)
    return u * f, s, vh * f.swapaxes(-1, -2).conj()


def _svd_type(x: TensorType) -> tuple[TensorType, ...]:
    check_kind("svd", x.dtype)
    check_matrix("svd", x.shape)
    *lead, m, n = x.shape
    k = min(m, n)
    return (
        TensorType((*lead, m, k), x.dtype),
        TensorType((*lead, k), x.dtype.to_real()),
        TensorType((*lead, k, n), x.dtype),
    )


def _svd_vjp(gs: Any, u: Tensor, s: Tensor, vh: Tensor) -> tuple[Tensor]:
    gu, g_s, gvh = gs
    v, gv = adjoint(vh), adjoint(gvh)
    in_u, in_v = mm(adjoint(u), gu), mm(vh, gv)
    f = gaps(s * s, u)
    inner = times(skew(in_u), f) * columns(s) + rows(s) * times(skew(in_v), f)
    inner = inner + diag_embed(_svd_diagonal(g_s, in_u, in_v, s))
    over_s = reciprocal(s)
    left = mm(u, inner) + times(gu - mm(u, in_u), columns(over_s))
    right = times(gv - mm(v, in_v), columns(over_s))
    return (mm(left, vh) + mm(u, adjoint(right)),)


def _svd_diagonal(g_s: Tensor, in_u: Tensor, in_v: Tensor, s: Tensor) -> Tensor:
    """The cotangents of the singular values, and of their vectors' phases."""
    if not in_u.dtype.is_complex:
        return g_s
    phase = imag(diagonal_of(in_u)) - imag(diagonal_of(in_v))
    return complex(g_s, times(phase, reciprocal(s)) * 0.5)


def _svd_jvp(t: Tensor, u: Tensor, s: Tensor, vh: Tensor) -> tuple[Tensor, ...]:
    v = adjoint(vh)
    tv, tu = mm(t, v), mm(adjoint(t), u)
    p = mm(adjoint(u), tv)
    f = gaps(s * s, u)
    x = times(p * columns(s) + rows(s) * adjoint(p), f)
    y = times(rows(s) * p + adjoint(p) * columns(s), f)
    if t.dtype.is_complex:
        turn = times(imag(diagonal_of(p)), reciprocal(s)) * 0.5
        phase = diag_embed(complex(zeros_like(turn), turn))
        x, y = x + phase, y - phase
    over_s = columns(reciprocal(s))
    du = mm(u, x) + times(tv - mm(u, p), over_s)
    dv = mm(v, y) + times(tu - mm(v, adjoint(p)), over_s)
    return du, real(diagonal_of(p)), adjoint(dv)


svd_op: Op = define(
    "svd",
    refuses={"x": math.nan},
    inputs="x",
    outputs="u s vh",
    eval=_svd_eval,
    type=_svd_type,
    vjp=_svd_vjp,
    jvp={"x": _svd_jvp},
    batch=elementwise_batch,
    samples=any_samples,
    reference=each_matrix(jacobi_svd),
)


def _svdvals_vjp(g: Tensor, x: Tensor) -> Tensor:
    u, _, vh = svd_op(x)
    return mm(u * columns(cast(g, u.dtype)), vh)


def _svdvals_jvp(t: Tensor, x: Tensor) -> Tensor:
    u, _, vh = svd_op(x)
    return real(diagonal_of(mm(mm(adjoint(u), t), adjoint(vh))))


svdvals_op = define(
    "svdvals",
    refuses={"x": math.nan},
    inputs="x",
    eval=lapack("svdvals", finite=True)(lambda x: np.linalg.svd(x, compute_uv=False)),
    type=lambda x: _svd_type(x)[1],
    vjp={"x": _svdvals_vjp},
    jvp={"x": _svdvals_jvp},
    batch=elementwise_batch,
    samples=any_samples,
    reference=each_matrix(lambda a: jacobi_svd(a)[1]),
)


# -- eigenvalues


@lapack("eigh", finite=True)
def _eigh_eval(x: Any) -> Any:
    w, v = np.linalg.eigh((x + x.swapaxes(-1, -2).conj()) / 2)
    return w, v * canonical(v)


def _eigh_type(x: TensorType) -> tuple[TensorType, TensorType]:
    same_type("eigh")(x)
    return TensorType(x.shape[:-1], x.dtype.to_real()), x


def _eigh_vjp(gs: Any, w: Tensor, v: Tensor) -> tuple[Tensor]:
    gw, gv = gs
    inner = times(mm(adjoint(v), gv), gaps(w, v)) + diag_embed(cast(gw, v.dtype))
    return (hermitian(mm(mm(v, inner), adjoint(v))),)


def _eigh_jvp(t: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    p = mm(mm(adjoint(v), hermitian(t)), v)
    return real(diagonal_of(p)), mm(v, times(p, gaps(w, v)))


eigh_op = define(
    "eigh",
    refuses={"x": math.nan},
    inputs="x",
    outputs="w v",
    eval=_eigh_eval,
    type=_eigh_type,
    vjp=_eigh_vjp,
    jvp={"x": _eigh_jvp},
    batch=elementwise_batch,
    samples=positive_samples,
    reference=each_matrix(jacobi),
)


def _eigvalsh_vjp(g: Tensor, x: Tensor) -> Tensor:
    _, v = eigh_op(x)
    return mm(v * columns(cast(g, v.dtype)), adjoint(v))


def _eigvalsh_jvp(t: Tensor, x: Tensor) -> Tensor:
    _, v = eigh_op(x)
    return real(diagonal_of(mm(mm(adjoint(v), t), v)))


eigvalsh_op = define(
    "eigvalsh",
    refuses={"x": math.nan},
    inputs="x",
    eval=lapack("eigvalsh", finite=True)(
        lambda x: np.linalg.eigvalsh((x + x.swapaxes(-1, -2).conj()) / 2)
    ),
    type=lambda x: _eigh_type(x)[0],
    vjp={"x": _eigvalsh_vjp},
    jvp={"x": _eigvalsh_jvp},
    batch=elementwise_batch,
    samples=positive_samples,
    reference=each_matrix(lambda a: jacobi(a)[0]),
)


@lapack("eig", finite=True)
def _eig_eval(x: Any) -> Any:
    w, v = np.linalg.eig(x)
    kind = dtypes.of_array(x).to_complex().np
    return w.astype(kind), (v * canonical(v)).astype(kind)


def _eig_type(x: TensorType) -> tuple[TensorType, TensorType]:
    same_type("eig")(x)
    kind = x.dtype.to_complex()
    return TensorType(x.shape[:-1], kind), TensorType(x.shape, kind)


_NOT_EIG = no_derivative(
    "linalg.eig: eigenvalues of general matrices have no derivative rule; use eigh "
    "for Hermitian matrices, or pass A.detach()"
)

eig_op = Op(
    "eig",
    inputs="x",
    outputs="w v",
    eval=_eig_eval,
    type=_eig_type,
    vjp=_NOT_EIG,
    jvp=_NOT_EIG,
    batch=elementwise_batch,
)
