"""Modified Bessel functions of the first kind, of orders 0 and 1.

The power series up to 20, where all its terms have one sign, and the asymptotic series
from there on. Evaluated in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from weft.compile.emit.math.exponential import exp
from weft.compile.emit.math.values import (
    absolute,
    at_least,
    at_most,
    horner,
    in_double,
    square_root,
    with_sign,
)
from weft.compile.emit.values import Value, select

_BORDER = 20.0


def _near_terms(order: int) -> list[float]:
    """Of the power series in ``x * x / 4``."""
    return [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(38)]


def _far_terms(order: int) -> list[float]:
    """Of the asymptotic series in ``1 / x``."""
    terms = [1.0]
    for k in range(1, 31):
        terms.append(terms[-1] * ((2 * k - 1) ** 2 - 4 * order**2) / (8 * k))
    return terms


def _bessel(order: int, *, scaled: bool) -> Callable[..., Value]:
    """The function itself, or ``exp(-|x|)`` times it."""

    @in_double
    def evaluate(x: Value, accuracy: int) -> Value:
        size = absolute(x)
        a, b = at_most(size, _BORDER), at_least(size, _BORDER)
        near = horner(a * a * 0.25, _near_terms(order))
        near = near * (a * 0.5) if order else near
        far = horner(1 / b, _far_terms(order)) / square_root(b * (2 * math.pi))
        if scaled:
            near = near * exp(-a)
        else:
            half = exp(b * 0.5)  # in two steps: exp(b) overflows before the product
            far = select(b.equals(math.inf), math.inf, far * half * half)
        out = select(size > _BORDER, far, near)
        return with_sign(out, x) if order else out

    return evaluate


i0, i1 = _bessel(0, scaled=False), _bessel(1, scaled=False)
i0e, i1e = _bessel(0, scaled=True), _bessel(1, scaled=True)
