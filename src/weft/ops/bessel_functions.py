"""Modified Bessel functions, by power and asymptotic series."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core.eager_kernels import SLOW
from weft.core.tensor import Tensor
from weft.ops.approximation import Array, horner, in_double, pieces
from weft.ops.arithmetic import sign
from weft.ops.elementwise import Public, unary
from weft.ops.public import Names
from weft.ops.select import where


def _bessel_series(x: Array, order: int) -> Array:
    """``exp(-|x|) * I(x)`` for |x| <= 20: all terms have one sign."""
    y = x * x / 4
    terms = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(60)]
    return (x / 2) ** order * horner(y, terms[::-1]) * np.exp(-np.abs(x))


def _bessel_tail(x: Array, order: int) -> Array:
    """``exp(-|x|) * I(x)`` for |x| > 20 by the asymptotic series."""
    y = np.abs(x)
    terms = [1.0]
    for k in range(1, 31):
        terms.append(terms[-1] * ((2 * k - 1) ** 2 - 4 * order**2) / (8 * k))
    scaled = horner(1 / y, terms[::-1]) / np.sqrt(2 * math.pi * y)
    return scaled * np.sign(x) ** order


def _bessel(order: int, scaled: bool) -> Callable[..., Any]:
    def evaluate(x: Array) -> Array:
        y = np.abs(x)
        out = pieces(
            x,
            (y <= 20, lambda v: _bessel_series(v, order)),
            ((y > 20) & (y < np.inf), lambda v: _bessel_tail(v, order)),
            (y == np.inf, lambda v: 0 * np.sign(v) ** order),
        )
        if scaled:
            return out
        half = np.exp(y / 2)  # in two steps: exp(y) overflows before the product
        return np.where(y == np.inf, np.inf * np.sign(x) ** order, out * half * half)

    return in_double(evaluate)


def _bessel_reference(order: int, scaled: bool) -> Callable[[Any], Any]:
    """The trapezoid rule on Bessel's integral, which is exact for periods."""
    angles = (np.arange(200) + 0.5) * math.pi / 200

    def reference(x: Any) -> Any:
        x = np.asarray(x)[..., None]
        shift = np.abs(x) if scaled else 0.0
        values = np.exp(x * np.cos(angles) - shift) * np.cos(order * angles)
        return values.mean(-1)

    return reference


def _over(y: Tensor, x: Tensor) -> Any:
    """``y / x`` where y vanishes with x as x / 2."""
    return where(x == 0, 0.5, y / where(x == 0, 1, x))


i0 = unary(
    "i0",
    _bessel(0, scaled=False),
    accepts="floating",
    d=lambda x: i1(x),
    bulk=SLOW,
    reference=_bessel_reference(0, scaled=False),
    cost=60,
    public=Names(inplace=False),
    doc="""The modified Bessel function of the first kind, order 0.

    >>> weft.special.i0(weft.tensor([0.0, 1.0]))
    tensor([1.0000, 1.2661])
    """,
)

i1: Public = unary(
    "i1",
    _bessel(1, scaled=False),
    accepts="floating",
    d=lambda x, out: -_over(out, x) + i0(x),
    bulk=SLOW,
    reference=_bessel_reference(1, scaled=False),
    cost=64,
    public=None,
    doc="""The modified Bessel function of the first kind, order 1.

    >>> weft.special.i1(weft.tensor([0.0, 1.0]))
    tensor([0.0000, 0.5652])
    """,
)

i0e = unary(
    "i0e",
    _bessel(0, scaled=True),
    accepts="floating",
    d=lambda x, out: i1e(x) - sign(x) * out,
    domain=(0.3, 2.0),
    bulk=SLOW,
    reference=_bessel_reference(0, scaled=True),
    cost=60,
    public=None,
    doc="""``exp(-|x|) * i0(x)``.

    >>> weft.special.i0e(weft.tensor([0.0, 1.0]))
    tensor([1.0000, 0.4658])
    """,
)

i1e: Public = unary(
    "i1e",
    _bessel(1, scaled=True),
    accepts="floating",
    d=lambda x, out: i0e(x) - sign(x) * out - _over(out, x),
    domain=(0.3, 2.0),
    bulk=SLOW,
    reference=_bessel_reference(1, scaled=True),
    cost=64,
    public=None,
    doc="""``exp(-|x|) * i1(x)``.

    >>> weft.special.i1e(weft.tensor([0.0, 1.0]))
    tensor([0.0000, 0.2079])
    """,
)
