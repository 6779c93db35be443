"""The error function, its relatives and inverses, and the normal distribution.

Evaluation is by Cody's rational approximations (Math. Comp. 23, 1969).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.core.eager_kernels import SLOW
from weft.core.tensor import Tensor
from weft.ops.approximation import (
    SQRT_PI,
    Array,
    bisected,
    by_element,
    horner,
    in_double,
    pieces,
)
from weft.ops.elementwise import unary

_ERF_P = (
    1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2,
    3.77485237685302021e2, 3.20937758913846947e3,
)  # fmt: skip

_ERF_Q = (
    1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3,
    2.84423683343917062e3,
)  # fmt: skip

_ERFC_P = (
    2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0,
    6.61191906371416295e1, 2.98635138197400131e2, 8.81952221241769090e2,
    1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3,
)  # fmt: skip

_ERFC_Q = (
    1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2,
    1.62138957456669019e3, 3.29079923573345963e3, 4.36261909014324716e3,
    3.43936767414372164e3, 1.23033935480374942e3,
)  # fmt: skip

_TAIL_P = (
    1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1,
    1.25781726111229246e-1, 1.60837851487422766e-2, 6.58749161529837803e-4,
)  # fmt: skip

_TAIL_Q = (
    1.0, 2.56852019228982242e0, 1.87295284992346725e0, 5.27905102951428412e-1,
    6.05183413124413191e-2, 2.33520497626869185e-3,
)  # fmt: skip

_CENTRE = 0.46875


def _erf_centre(x: Array) -> Array:
    y = x * x
    return x * horner(y, _ERF_P) / horner(y, _ERF_Q)


def _scaled_middle(y: Array) -> Array:
    """``exp(y*y) * erfc(y)`` for 0.46875 <= y <= 4."""
    return horner(y, _ERFC_P) / horner(y, _ERFC_Q)


def _scaled_tail(y: Array) -> Array:
    """``exp(y*y) * erfc(y)`` for y > 4."""
    z = 1 / (y * y)
    r = z * horner(z, _TAIL_P) / horner(z, _TAIL_Q)
    return (1 / SQRT_PI - r) / y


def _gauss(y: Array, power: float = -1.0) -> Array:
    """``exp(-y*y)``, with y*y split so that its rounding does not show."""
    head = np.trunc(y * 16) / 16
    return np.exp(power * head * head) * np.exp(power * (y - head) * (y + head))


def _erfc_positive(y: Array) -> Array:
    """``erfc`` for y >= 0.46875."""
    scaled = pieces(y, (y <= 4, _scaled_middle), (y > 4, _scaled_tail), other=0.0)
    return np.where(y < 27, _gauss(np.minimum(y, 27)) * scaled, 0.0)


def erf_array(x: Array) -> Array:
    y = np.abs(x)
    return pieces(
        x,
        (y <= _CENTRE, _erf_centre),
        (y > _CENTRE, lambda v: np.copysign(1 - _erfc_positive(np.abs(v)), v)),
    )


def erfc_array(x: Array) -> Array:
    return pieces(
        x,
        (np.abs(x) <= _CENTRE, lambda v: 1 - _erf_centre(v)),
        (x > _CENTRE, _erfc_positive),
        (x < -_CENTRE, lambda v: 2 - _erfc_positive(-v)),
    )


def erfcx_array(x: Array) -> Array:
    return pieces(
        x,
        (np.abs(x) <= _CENTRE, lambda v: np.exp(v * v) * (1 - _erf_centre(v))),
        ((x > _CENTRE) & (x <= 4), _scaled_middle),
        (x > 4, _scaled_tail),
        (x < -_CENTRE, lambda v: 2 * _gauss(np.maximum(v, -30), 1.0) - erfcx_array(-v)),
    )


def _inverse_from(x: Array, tail: Array) -> Array:
    """The y >= 0 with erf(y) = x and erfc(y) = tail: Halley from Winitzki's guess."""
    u = np.where(tail > 0.5, np.log1p(-x * x), np.log(tail * (2 - tail))) / 2
    v = 2 / (math.pi * 0.147) + u
    y = np.sqrt(np.maximum(np.sqrt(v * v - 2 * u / 0.147) - v, 0))
    for _ in range(4):
        off = np.where(tail > 0.5, erf_array(y) - x, tail - erfc_array(y))
        off = off / (2 / SQRT_PI * _gauss(y))
        y = y - off / (1 + y * off)
    return y


def _erfinv_inside(x: Array) -> Array:
    y = np.abs(x)
    return np.copysign(_inverse_from(y, 1 - y), x)


def erfinv_array(x: Array) -> Array:
    y = np.abs(x)
    return pieces(
        x, (y < 1, _erfinv_inside), (y == 1, lambda v: np.copysign(np.inf, v))
    )


def _ndtri_inside(p: Array) -> Array:
    tail = 2 * np.minimum(p, 1 - p)
    return np.copysign(math.sqrt(2) * _inverse_from(1 - tail, tail), p - 0.5)


def _ndtri_array(p: Array) -> Array:
    return pieces(
        p,
        ((p > 0) & (p < 1), _ndtri_inside),
        ((p == 0) | (p == 1), lambda v: np.copysign(np.inf, v - 0.5)),
    )


# -- records


erf = unary(
    "erf",
    in_double(erf_array),
    accepts="floating",
    d=lambda x: (-x * x).exp() * (2 / SQRT_PI),
    bulk=SLOW,
    reference=by_element(math.erf),
    cost=24,
    bounds=(-1, 1),
    doc="""The error function.

    >>> weft.erf(weft.tensor([0.0, 1.0]))
    tensor([0.0000, 0.8427])
    """,
)

erfc = unary(
    "erfc",
    in_double(erfc_array),
    accepts="floating",
    d=lambda x: (-x * x).exp() * (-2 / SQRT_PI),
    bulk=SLOW,
    reference=by_element(math.erfc),
    cost=44,
    doc="""``1 - erf(x)``, exact for large x.

    >>> weft.erfc(weft.tensor([0.0, 1.0]))
    tensor([1.0000, 0.1573])
    """,
)

erfcx = unary(
    "erfcx",
    in_double(erfcx_array),
    accepts="floating",
    d=lambda x, out: 2 * x * out - 2 / SQRT_PI,
    bulk=SLOW,
    reference=by_element(lambda v: math.exp(v * v) * math.erfc(v)),
    cost=40,
    public=None,
    doc="""``exp(x * x) * erfc(x)``, without overflow.

    >>> weft.special.erfcx(weft.tensor([0.0, 100.0]))
    tensor([1.0000, 0.0056])
    """,
)

erfinv = unary(
    "erfinv",
    in_double(erfinv_array),
    accepts="floating",
    d=lambda out: (out * out).exp() * (SQRT_PI / 2),
    domain=(-0.9, 0.9),
    bulk=SLOW,
    reference=by_element(bisected),
    cost=38,
    doc="""The inverse of the error function.

    >>> weft.erfinv(weft.tensor([0.0, 0.5]))
    tensor([0.0000, 0.4769])
    """,
)


def ndtr(input: Tensor) -> Tensor:
    """The normal distribution's cumulative probability.

    >>> weft.special.ndtr(weft.tensor([0.0, 2.0]))
    tensor([0.5000, 0.9772])
    """
    return erfc(input * -math.sqrt(0.5)) * 0.5


def _mills(x: Tensor) -> Any:
    """The derivative of ``log_ndtr``: density over probability."""
    scaled: Any = erfcx(x * -math.sqrt(0.5))
    return math.sqrt(2 / math.pi) / scaled


def _log_ndtr_array(x: Array) -> Array:
    y = x * -math.sqrt(0.5)
    return pieces(
        y,
        (y > _CENTRE, lambda v: np.log(erfcx_array(v) / 2) - v * v),
        (y <= _CENTRE, lambda v: np.log1p(-erfc_array(-v) / 2)),
    )


log_ndtr = unary(
    "log_ndtr",
    in_double(_log_ndtr_array),
    accepts="floating",
    d=lambda x: _mills(x),
    domain=(-4.0, 3.0),
    bulk=SLOW,
    reference=by_element(lambda v: math.log(math.erfc(-v / math.sqrt(2)) / 2)),
    cost=140,
    public=None,
    doc="""The logarithm of ``ndtr``, exact for very negative x.

    >>> weft.special.log_ndtr(weft.tensor([0.0, -20.0]))
    tensor([  -0.6931, -203.9172])
    """,
)

ndtri = unary(
    "ndtri",
    in_double(_ndtri_array),
    accepts="floating",
    d=lambda out: (out * out * 0.5).exp() * math.sqrt(2 * math.pi),
    domain=(0.1, 0.9),
    bulk=SLOW,
    reference=by_element(lambda p: math.sqrt(2) * bisected(2 * p - 1)),
    cost=310,
    public=None,
    doc="""The inverse of ``ndtr``.

    >>> weft.special.ndtri(weft.tensor([0.5, 0.9]))
    tensor([0.0000, 1.2816])
    """,
)
