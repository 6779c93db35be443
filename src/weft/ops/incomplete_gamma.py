"""The incomplete gamma functions, and Hurwitz's zeta function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.core.op import Sample
from weft.core.tensor import Tensor
from weft.ops.approximation import Array
from weft.ops.elementwise import Public, binary
from weft.ops.gamma_functions import _BERNOULLI, lgamma, lgamma_array
from weft.ops.linalg.algebra import no_derivative
from weft.ops.polynomials import two_in_double
from weft.ops.public import Names

_STEPS = 20_000  # terms at most; about sqrt(a) are needed


def _scale(a: Array, x: Array) -> Array:
    """``x^a exp(-x) / gamma(a + 1)``."""
    return np.exp(a * np.log(x) - x - lgamma_array(a + 1))


def _lower(a: Array, x: Array) -> Array:
    """P(a, x) by its series, for x < a + 1."""
    term, total = np.ones(a.shape), np.ones(a.shape)
    for k in range(1, _STEPS):
        term = term * x / (a + k)
        total = total + term
        if (term <= total * 1e-17).all():
            break
    return total * _scale(a, x)


def _upper(a: Array, x: Array) -> Array:
    """Q(a, x) by its continued fraction (Lentz's method), for x >= a + 1."""
    b = x + 1 - a
    c, d = np.full(a.shape, 1e300), 1 / b
    found = d
    for k in range(1, _STEPS):
        numerator = -k * (k - a)
        b = b + 2
        d = 1 / (numerator * d + b)
        c = b + numerator / c
        found = found * (c * d)
        if (np.abs(c * d - 1) <= 1e-16).all():
            break
    return found * _scale(a, x) * a


def _parts(a: Array, x: Array, upper: bool) -> Array:
    """P or Q, and their limits."""
    out = np.full(a.shape, np.nan)
    usual = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    near = usual & (x < a + 1)
    far = usual & ~near
    if near.any():
        p = _lower(a[near], x[near])
        out[near] = 1 - p if upper else p
    if far.any():
        q = _upper(a[far], x[far])
        out[far] = q if upper else 1 - q
    none, all_ = (1.0, 0.0) if upper else (0.0, 1.0)
    out[(a > 0) & (x == 0)] = none
    out[(a == 0) & (x > 0)] = all_
    out[(a >= 0) & np.isfinite(a) & (x == np.inf)] = all_
    out[(a == np.inf) & (x >= 0) & np.isfinite(x)] = none
    return out


def _integral(upper: bool) -> Any:
    """P or Q by Simpson's rule on their integral, in the logarithm of the variable."""

    def value(a: float, x: float) -> float:
        t = np.linspace(-60.0 / max(a, 0.5), math.log(x), 40001)
        if upper:
            t = np.linspace(math.log(x), math.log(x + 60 + 12 * a), 40001)
        weights = np.full(t.shape, 2.0)
        weights[1::2], weights[0], weights[-1] = 4.0, 1.0, 1.0
        inside = np.exp(a * t - np.exp(t) - math.lgamma(a))
        return float((inside * weights).sum() * (t[1] - t[0]) / 3)

    def each(a: Any, x: Any) -> Any:
        pairs = np.broadcast(a, x)
        found = [value(float(p), float(q)) for p, q in pairs]
        return np.array(found, np.float64).reshape(pairs.shape)

    return each


def _slope(x: Any, y: Any) -> Any:
    """The derivative of P(x, y) by y."""
    scale = lgamma(x) if isinstance(x, Tensor) else math.lgamma(x)
    return ((x - 1) * y.log() - y - scale).exp()


_NOT_A = no_derivative(
    "igamma: it has a derivative by `other` alone; use .detach() on `input`"
)
_NOT_S = no_derivative(
    "zeta: it has a derivative by `other` alone; use .detach() on `input`"
)


def _samples(first: float, low: float, high: float) -> Any:
    """A number as the first operand, by which there is no derivative."""

    def samples(rng: np.random.Generator) -> Any:
        for shape in ((3, 4), (), (0, 2)):
            yield Sample((first, rng.uniform(low, high, shape)))

    return samples


igamma: Public = binary(
    "igamma",
    two_in_double(lambda a, x: _parts(a, x, upper=False)),
    accepts="floating",
    vjp={"x": _NOT_A, "y": lambda g, x, y: g * _slope(x, y)},
    jvp={"x": _NOT_A, "y": lambda t, x, y: t * _slope(x, y)},
    samples=_samples(2.5, 0.3, 6.0),
    reference=_integral(upper=False),
    cost=200,
    public=Names(),
    doc="""The regularized lower incomplete gamma function P(input, other).

    It has a derivative by ``other`` alone.

    >>> weft.igamma(weft.tensor([4.0]), weft.tensor([3.0]))
    tensor([0.3528])
    """,
)

igammac: Public = binary(
    "igammac",
    two_in_double(lambda a, x: _parts(a, x, upper=True)),
    accepts="floating",
    vjp={"x": _NOT_A, "y": lambda g, x, y: -g * _slope(x, y)},
    jvp={"x": _NOT_A, "y": lambda t, x, y: -t * _slope(x, y)},
    samples=_samples(1.7, 0.3, 6.0),
    reference=_integral(upper=True),
    cost=200,
    public=Names(),
    doc="""The regularized upper incomplete gamma function, ``1 - igamma``.

    >>> weft.igammac(weft.tensor([4.0]), weft.tensor([3.0]))
    tensor([0.6472])
    """,
)


# -- Hurwitz's zeta function


def _zeta(s: Array, q: Array) -> Array:
    """``sum (q + k)^-s`` for s > 1; the terms below zero are a sum of the same kind."""
    above = _zeta_above(s, np.where(q > 0, q, 1.0))
    part = q - np.floor(q)
    count = -np.floor(q)  # of the terms below zero
    middle = np.where((q < 0) & (part > 0) & np.isfinite(q), part, 0.5)
    far = np.where(q < 0, count, 1.0) + 1 - middle
    sign = np.where(s % 2 == 0, 1.0, -1.0)
    below = sign * (_zeta_above(s, 1 - middle) - _zeta_above(s, far))
    found = np.where(q > 0, above, below + _zeta_above(s, middle))
    found = np.where(q == np.inf, 0.0, found)
    found = np.where((q <= 0) & (q == np.floor(q)), np.inf, found)
    found = np.where((q < 0) & (q != np.floor(q)) & (s != np.floor(s)), np.nan, found)
    found = np.where(np.isnan(q), np.nan, found)
    return np.where(s == 1, np.inf, np.where(s > 1, found, np.nan))


def _zeta_above(s: Array, q: Array) -> Array:
    """The same for q > 0, by Euler and Maclaurin."""
    total = np.zeros(s.shape)
    for k in range(15, -1, -1):
        total += (q + k) ** -s
    y = q + 16
    term = y**-s
    rest = term * (y / (s - 1) + 0.5)
    term = term * s / y
    for j, b in enumerate(_BERNOULLI, 1):
        rest += b / math.factorial(2 * j) * term
        term = term * ((s + 2 * j - 1) * (s + 2 * j) / (y * y))
    return total + rest


def _zeta_reference(s: Any, q: Any) -> Any:
    """The sum of many terms, and the rest by the midpoint integral's series."""
    pairs = np.broadcast(s, q)
    found = []
    for a, b in pairs:
        y = b + 3999.5
        tail = y ** (1 - a) / (a - 1) - a * y ** (-a - 1) / 24
        found.append(math.fsum([(b + k) ** -a for k in range(4000)] + [tail]))
    return np.array(found, np.float64).reshape(pairs.shape)


zeta: Public = binary(
    "zeta",
    two_in_double(_zeta),
    accepts="floating",
    vjp={"x": _NOT_S, "y": lambda g, x, y: -g * x * zeta(x + 1, y)},
    jvp={"x": _NOT_S, "y": lambda t, x, y: -t * x * zeta(x + 1, y)},
    samples=_samples(2.5, 0.3, 4.0),
    reference=_zeta_reference,
    cost=200,
    public=None,
    doc="""Hurwitz's zeta function; it has a derivative by ``other`` alone.

    >>> weft.special.zeta(weft.tensor([2.0]), 1)
    tensor([1.6449])
    """,
)
