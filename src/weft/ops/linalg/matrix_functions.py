"""Functions of a whole matrix: determinants, and the exponential.

The exponential's rule is that of Mathias, A chain rule for matrix functions,
1996: an upper block of a larger exponential.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core.op import Op, TensorType, define
from weft.core.tensor import Tensor
from weft.ops.complex_numbers import complex, imag, real
from weft.ops.creation import zeros_like
from weft.ops.elementwise import conj, elementwise_batch
from weft.ops.joining import cat
from weft.ops.linalg.algebra import Array, adjoint, diagonal_of, lapack, rows, same_type
from weft.ops.linalg.references import (
    cofactors,
    each_matrix,
    laplace,
    square_samples,
    taylor,
)
from weft.ops.linalg.solving import inv_op, solve_op
from weft.ops.products import matmul_op as mm
from weft.ops.reduce import sum
from weft.ops.shaping import transpose

# -- determinants, and cofactors, which are their derivatives


def _scalar_type(name: str) -> Callable[..., TensorType]:
    def rule(x: TensorType) -> TensorType:
        return TensorType(same_type(name)(x).shape[:-2], x.dtype)

    return rule


det_op = define(
    "det",
    inputs="x",
    eval=lapack("det")(np.linalg.det),
    type=_scalar_type("det"),
    vjp={"x": lambda g, x: rows(rows(g)) * conj(cofactor_op(x))},
    jvp={"x": lambda t, x: sum(t * cofactor_op(x), (-2, -1))},
    batch=elementwise_batch,
    samples=square_samples(),
    reference=each_matrix(laplace),
)


@lapack("det", finite=False)
def _cofactor_eval(x: Any) -> Any:
    """det(x) * inv(x).T, by singular values so that x may be singular."""
    if not np.isfinite(x).all():
        return np.full_like(x, np.nan)
    u, s, vh = np.linalg.svd(x)
    phase = (np.linalg.det(u) * np.linalg.det(vh))[..., None, None]
    others = np.ones_like(s)
    for k in range(s.shape[-1]):
        others[..., k] = np.delete(s, k, -1).prod(-1)
    return (phase * ((u.conj() * others[..., None, :]) @ vh.conj())).astype(x.dtype)


def _cofactor_vjp(g: Tensor, x: Tensor, out: Tensor) -> Tensor:
    if x.shape[-1] <= 1:
        return zeros_like(x)  # the cofactor of a number is 1
    m = conj(transpose(inv_op(x), -2, -1))
    product = mm(mm(m, transpose(g, -2, -1)), conj(out))
    return m * sum(g * conj(out), (-2, -1), keepdim=True) - product


def _cofactor_jvp(t: Tensor, x: Tensor, out: Tensor) -> Tensor:
    if x.shape[-1] <= 1:
        return zeros_like(x)
    m = transpose(inv_op(x), -2, -1)
    product = mm(mm(out, transpose(t, -2, -1)), m)
    return out * sum(t * m, (-2, -1), keepdim=True) - product


# The derivative of the determinant; defined for singular matrices too.
cofactor_op: Op = define(
    "cofactor",
    inputs="x",
    eval=_cofactor_eval,
    type=same_type("cofactor"),
    vjp={"x": _cofactor_vjp},
    jvp={"x": _cofactor_jvp},
    batch=elementwise_batch,
    samples=square_samples(),
    reference=each_matrix(cofactors),
)


def _slogdet_type(x: TensorType) -> tuple[TensorType, TensorType]:
    shape = same_type("slogdet")(x).shape[:-2]
    return TensorType(shape, x.dtype), TensorType(shape, x.dtype.to_real())


def _slogdet_vjp(gs: Any, x: Tensor, sign: Tensor) -> tuple[Tensor]:
    g_sign, g_log = gs
    if x.dtype.is_complex:
        g_log = complex(g_log, -imag(conj(g_sign) * sign))
    return (rows(rows(g_log)) * adjoint(inv_op(x)),)


def _slogdet_jvp(t: Tensor, x: Tensor, sign: Tensor) -> tuple[Tensor, Tensor]:
    z = sum(diagonal_of(solve_op(x, t)), -1)
    if not x.dtype.is_complex:
        return zeros_like(sign), z
    turn = imag(z)
    return sign * complex(zeros_like(turn), turn), real(z)


def _slogdet_reference(a: Array) -> tuple[Any, Any]:
    d = laplace(a)
    return np.array(np.sign(d)), np.array(np.log(np.abs(d)))


slogdet_op = define(
    "slogdet",
    inputs="x",
    outputs="sign logabsdet",
    eval=lapack("slogdet")(lambda x: tuple(np.linalg.slogdet(x))),
    type=_slogdet_type,
    vjp=_slogdet_vjp,
    jvp={"x": _slogdet_jvp},
    batch=elementwise_batch,
    samples=square_samples(),
    reference=each_matrix(_slogdet_reference),
)


# -- the exponential


_PADE = [
    math.factorial(26 - k) / (math.factorial(13 - k) * math.factorial(k))
    for k in range(14)
]  # numerator of the approximant of degree 13, up to a common factor


@lapack("matrix_exp")
def _matrix_exp_eval(x: Any) -> Any:
    """Scaling and squaring (Higham 2005), each matrix by its own power of 2."""
    if not x.size:
        return x.copy()
    norm = np.abs(x).sum(-2).max(-1)
    norm = np.where(np.isfinite(norm), norm, 0)
    squarings = np.maximum(np.ceil(np.log2(np.maximum(norm, 1e-30) / 4)), 0).astype(int)
    small = x / (2.0**squarings).astype(x.real.dtype)[..., None, None]
    one = np.eye(x.shape[-1], dtype=x.dtype)
    even, odd, power = _PADE[0] * one, _PADE[1] * one, one
    square = small @ small
    for k in range(2, 14, 2):
        power = power @ square
        even, odd = even + _PADE[k] * power, odd + _PADE[k + 1] * power
    odd = small @ odd
    out = np.linalg.solve(even - odd, even + odd)
    for k in range(int(squarings.max())):
        more = (squarings > k)[..., None, None]
        out = np.where(more, out @ out, out)
    return out


def _block(x: Tensor, t: Tensor) -> Tensor:
    """[[x, t], [0, x]], whose exponential holds the derivative along t."""
    top = cat([x, t], -1)
    return cat([top, cat([zeros_like(x), x], -1)], -2)


def _exp_along(x: Tensor, t: Tensor) -> Tensor:
    n = x.shape[-1]
    return matrix_exp_op(_block(x, t))[..., :n, n:]


matrix_exp_op: Op = define(
    "matrix_exp",
    inputs="x",
    eval=_matrix_exp_eval,
    type=same_type("matrix_exp"),
    vjp={"x": lambda g, x: _exp_along(adjoint(x), g)},
    jvp={"x": lambda t, x: _exp_along(x, t)},
    batch=elementwise_batch,
    samples=square_samples(),
    reference=each_matrix(taylor),
)
