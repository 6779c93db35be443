"""The matrix exponential.

The rule is that of Mathias, A chain rule for matrix functions, 1996: an upper
block of a larger exponential.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.core.elementwise import elementwise_batch
from weft.core.op import Op, define
from weft.core.tensor import Tensor
from weft.ops.creation import zeros_like
from weft.ops.joining import cat
from weft.ops.linalg.algebra import adjoint, lapack, same_type
from weft.ops.linalg.references import each_matrix, square_samples, taylor

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
