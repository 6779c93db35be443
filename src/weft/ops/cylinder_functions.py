"""Bessel functions of both kinds, modified ones of the second kind, and Airy's.

Near 0 by power series (in extended precision, as large terms cancel there), far away by
Hankel's asymptotic series; decaying functions by the trapezoid rule on their integral,
which converges as fast as the integrand decays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core.eager_kernels import SLOW
from weft.ops.approximation import Array, in_double, pieces
from weft.ops.bessel_functions import _over as over_x
from weft.ops.elementwise import Public, unary
from weft.ops.select import where

_EULER = np.longdouble("0.577215664901532860606512090082402431")
_ONE = np.longdouble(1)
_NEAR = 16.0  # where both series are good to 1e-14


def _power_series(x: Array, order: int, sign: int) -> tuple[Array, Array]:
    """``sum (sign y)^k / (k! (k+n)!)`` for y = (x/2)^2, and the sum with psi factors.

    Times (x/2)^n the first is J_n (sign -1) or I_n (sign 1); the second has each term
    times ``psi(k+1) + psi(k+n+1)``.
    """
    y = (x.astype(np.longdouble) / 2) ** 2
    term: Any = np.full(y.shape, _ONE / math.factorial(order))
    low, high = -_EULER, -_EULER + sum(_ONE / j for j in range(1, order + 1))
    plain, logs = np.zeros_like(y), np.zeros_like(y)
    for k in range(80):
        plain += term
        logs += term * (low + high)
        low, high = low + _ONE / (k + 1), high + _ONE / (k + 1 + order)
        term = term * (sign * y) / ((k + 1) * (k + 1 + order))
    return plain, logs


def _first_near(x: Array, order: int) -> Array:
    return np.asarray(_power_series(x, order, -1)[0] * (x / 2) ** order, np.float64)


def _second_near(x: Array, order: int) -> Array:
    """Y_0 or Y_1 of small positive numbers."""
    plain, logs = _power_series(x, order, -1)
    half = x.astype(np.longdouble) / 2
    found = (2 * np.log(half) * plain - logs) * half**order
    if order:
        found = found - 1 / half
    return np.asarray(found / math.pi, np.float64)


def _hankel(x: Array, order: int) -> tuple[Array, Array, Array]:
    """The two sums of Hankel's expansion, and the angle."""
    even, odd = np.zeros(x.shape), np.zeros(x.shape)
    term = np.ones(x.shape)
    for k in range(32):
        (even if k % 2 == 0 else odd)[...] += term * (-1) ** (k // 2)
        term = term * (4 * order**2 - (2 * k + 1) ** 2) / (8 * (k + 1) * x)
    return even, odd, x - (order / 2 + 0.25) * math.pi


def _first_far(x: Array, order: int) -> Array:
    even, odd, angle = _hankel(x, order)
    return np.sqrt(2 / (math.pi * x)) * (even * np.cos(angle) - odd * np.sin(angle))


def _second_far(x: Array, order: int) -> Array:
    even, odd, angle = _hankel(x, order)
    return np.sqrt(2 / (math.pi * x)) * (even * np.sin(angle) + odd * np.cos(angle))


def _first(order: int) -> Callable[..., Any]:
    def evaluate(x: Array) -> Array:
        y = np.abs(x)
        out = pieces(
            y,
            (y < _NEAR, lambda v: _first_near(v, order)),
            ((y >= _NEAR) & (y < np.inf), lambda v: _first_far(v, order)),
            (y == np.inf, np.zeros_like),
        )
        return np.where(x < 0, -out, out) if order else out

    return in_double(evaluate)


def _second(order: int) -> Callable[..., Any]:
    def evaluate(x: Array) -> Array:
        return pieces(
            x,
            ((x > 0) & (x < _NEAR), lambda v: _second_near(v, order)),
            ((x >= _NEAR) & (x < np.inf), lambda v: _second_far(v, order)),
            (x == np.inf, np.zeros_like),
            (x == 0, lambda v: np.full(v.shape, -np.inf)),
        )

    return in_double(evaluate)


# -- modified functions of the second kind


def decay_integral(x: Array, order: float) -> Array:
    """``exp(x) K_n(x)`` for x > 1: the integral of exp(-x (cosh t - 1)) cosh(n t)."""
    step = 0.125 * np.minimum(1.0, np.sqrt(2 / x))
    t = np.arange(1, 56)[:, None] * step
    grown = np.exp(-2 * x * np.sinh(t / 2) ** 2) * np.cosh(order * t)
    return step * (0.5 + grown.sum(0))


def _modified_near(x: Array, order: int) -> Array:
    """K_0 or K_1 of small positive numbers."""
    plain, logs = _power_series(x, order, 1)
    half = x.astype(np.longdouble) / 2
    found = (logs / 2 - np.log(half) * plain) * half**order
    if order:
        found = 0.5 / half - found
    return np.asarray(found, np.float64)


def _modified(order: int, scaled: bool) -> Callable[..., Any]:
    def evaluate(x: Array) -> Array:
        out = pieces(
            x,
            ((x > 0) & (x <= 2), lambda v: _modified_near(v, order) * np.exp(v)),
            ((x > 2) & (x < np.inf), lambda v: decay_integral(v, order)),
            (x == np.inf, np.zeros_like),
            (x == 0, lambda v: np.full(v.shape, np.inf)),
        )
        return out if scaled else out * np.exp(-x)

    return in_double(evaluate)


# -- Airy's function


_AIRY = np.longdouble("0.355028053887817239260063186004183176")  # Ai(0)
_AIRY_SLOPE = np.longdouble("0.258819403792806798405183560189203963")  # -Ai'(0)


def _airy_near(x: Array, slope: bool) -> Array:
    """Ai or Ai' by its two power series."""
    y = x.astype(np.longdouble)
    cube: Any = y**3
    f: Any = np.zeros_like(y)
    g: Any = np.zeros_like(y)
    a: Any = np.ones_like(y)
    b: Any = np.ones_like(y)  # b is the second series over y
    for k in range(1, 90):
        f = f + (a * (3 * k - 3) if slope else a)
        g = g + (b * (3 * k - 2) if slope else b)
        a = a * cube / ((3 * k) * (3 * k - 1))
        b = b * cube / ((3 * k) * (3 * k + 1))
    if slope:
        f = np.divide(f, y, out=np.zeros_like(f), where=y != 0)
    else:
        g = g * y
    return np.asarray(_AIRY * f - _AIRY_SLOPE * g, np.float64)


def _airy_right(x: Array, slope: bool) -> Array:
    z = x * np.sqrt(x) * (2 / 3)
    root, order = (-x, 2 / 3) if slope else (np.sqrt(x), 1 / 3)
    size = root / math.sqrt(3) / math.pi
    return size * decay_integral(z, order) * np.exp(-z)


def _airy_left(x: Array, slope: bool) -> Array:
    y = -x
    z = y * np.sqrt(y) * (2 / 3)
    even, odd = np.zeros(y.shape), np.zeros(y.shape)
    term = np.ones(y.shape)
    for k in range(24):
        one = term * (6 * k + 1) / (1 - 6 * k) if slope else term
        (even if k % 2 == 0 else odd)[...] += one * (-1) ** (k // 2)
        term = term * (6 * k + 1) * (6 * k + 5) / (72 * (k + 1) * z)
    angle, root = z - math.pi / 4, np.sqrt(np.sqrt(y))
    if slope:
        return (even * np.sin(angle) - odd * np.cos(angle)) * root / _SQRT_PI
    return (even * np.cos(angle) + odd * np.sin(angle)) / root / _SQRT_PI


_SQRT_PI = math.sqrt(math.pi)


def _airy(slope: bool) -> Callable[..., Any]:
    def evaluate(x: Array) -> Array:
        return pieces(
            x,
            ((x >= -8) & (x <= 2.5), lambda v: _airy_near(v, slope)),
            ((x > 2.5) & (x < np.inf), lambda v: _airy_right(v, slope)),
            ((x < -8) & (x > -np.inf), lambda v: _airy_left(v, slope)),
            (x == np.inf, np.zeros_like),
        )

    return in_double(evaluate)


def _sinc(x: Array) -> Array:
    return pieces(
        x,
        (np.abs(x) < 0.5, lambda v: _sinc_near(v * v)),
        ((np.abs(x) >= 0.5) & np.isfinite(x), lambda v: np.sin(v) / v),
        (np.isinf(x), np.zeros_like),
    )


def _sinc_near(y: Array) -> Any:
    return sum((-y) ** k / math.factorial(2 * k + 1) for k in range(8))


# -- references: other integrals, by Simpson's rule


def _simpson(fn: Callable[[Array], Array], low: float, high: float) -> Array:
    t = np.linspace(low, high, 4001)
    weights = np.full(t.shape, 2.0)
    weights[1::2], weights[0], weights[-1] = 4.0, 1.0, 1.0
    return (fn(t) * weights).sum(-1) * ((high - low) / 4000) / 3


def _first_reference(order: int) -> Callable[[Any], Any]:
    def reference(x: Any) -> Any:
        v = np.asarray(x)[..., None]
        wave = _simpson(lambda t: np.cos(order * t - v * np.sin(t)), 0, math.pi)
        return wave / math.pi

    return reference


def _second_reference(order: int) -> Callable[[Any], Any]:
    def reference(x: Any) -> Any:
        v = np.asarray(x)[..., None]
        wave = _simpson(lambda t: np.sin(v * np.sin(t) - order * t), 0, math.pi)
        grow = (lambda t: 2 * np.sinh(t)) if order else (lambda t: 2.0)
        tail = _simpson(lambda t: grow(t) * np.exp(-v * np.sinh(t)), 0, 8)
        return (wave - tail) / math.pi

    return reference


def _modified_reference(order: int, scaled: bool) -> Callable[[Any], Any]:
    def reference(x: Any) -> Any:
        v = np.asarray(x)[..., None]
        shift = 1.0 if scaled else 0.0
        return _simpson(
            lambda t: np.exp(-v * (np.cosh(t) - shift)) * np.cosh(order * t), 0, 8
        )

    return reference


def _airy_reference(slope: bool) -> Callable[[Any], Any]:
    """Airy's integral along a path on which it decays: t + i for all t."""

    def reference(x: Any) -> Any:
        v = np.asarray(x)[..., None]

        def wave(t: Array) -> Array:
            z = t + 1j
            return (np.exp(1j * (z**3 / 3 + v * z)) * (1j * z if slope else 1)).real

        return _simpson(wave, -9, 9) / (2 * math.pi)

    return reference


def _function(
    name: str, eval: Any, reference: Any, domain: tuple[float, float], what: str, d: Any
) -> Public:
    return unary(
        name,
        eval,
        accepts="floating",
        reference=reference,
        domain=domain,
        d=d,
        bulk=SLOW,
        cost=100,
        public=None,
        doc=f"""{what}.

    >>> bool(weft.special.{name}(weft.ones(1)).isfinite().all())
    True
    """,
    )


airy_slope: Public = unary(
    "airy_slope",
    _airy(True),
    accepts="floating",
    reference=_airy_reference(True),
    domain=(-6.0, 4.0),
    d=lambda x: x * airy_ai(x),
    bulk=SLOW,
    cost=100,
    public=None,
    doc="""The derivative of Airy's function Ai.

    >>> from weft.ops.cylinder_functions import airy_slope
    >>> airy_slope(weft.zeros(1))
    tensor([-0.2588])
    """,
)
bessel_j0: Public = _function(
    "bessel_j0", _first(0), _first_reference(0), (-20.0, 20.0),
    "The Bessel function of the first kind, order 0", lambda x: -bessel_j1(x),
)  # fmt: skip
bessel_j1: Public = _function(
    "bessel_j1", _first(1), _first_reference(1), (-20.0, 20.0),
    "The Bessel function of the first kind, order 1",
    lambda x, out: bessel_j0(x) - over_x(out, x),
)  # fmt: skip
bessel_y0: Public = _function(
    "bessel_y0", _second(0), _second_reference(0), (0.5, 20.0),
    "The Bessel function of the second kind, order 0", lambda x: -bessel_y1(x),
)  # fmt: skip
bessel_y1: Public = _function(
    "bessel_y1", _second(1), _second_reference(1), (0.5, 20.0),
    "The Bessel function of the second kind, order 1",
    lambda x, out: bessel_y0(x) - out / x,
)  # fmt: skip
modified_bessel_k0: Public = _function(
    "modified_bessel_k0", _modified(0, False), _modified_reference(0, False),
    (0.5, 6.0), "The modified Bessel function of the second kind, order 0",
    lambda x: -modified_bessel_k1(x),
)  # fmt: skip
modified_bessel_k1: Public = _function(
    "modified_bessel_k1", _modified(1, False), _modified_reference(1, False),
    (0.5, 6.0), "The modified Bessel function of the second kind, order 1",
    lambda x, out: -modified_bessel_k0(x) - out / x,
)  # fmt: skip
scaled_modified_bessel_k0: Public = _function(
    "scaled_modified_bessel_k0", _modified(0, True), _modified_reference(0, True),
    (0.5, 6.0), "``exp(x)`` times ``modified_bessel_k0``",
    lambda x, out: out - scaled_modified_bessel_k1(x),
)  # fmt: skip
scaled_modified_bessel_k1: Public = _function(
    "scaled_modified_bessel_k1", _modified(1, True), _modified_reference(1, True),
    (0.5, 6.0), "``exp(x)`` times ``modified_bessel_k1``",
    lambda x, out: out - scaled_modified_bessel_k0(x) - out / x,
)  # fmt: skip
airy_ai: Public = _function(
    "airy_ai", _airy(False), _airy_reference(False), (-6.0, 4.0), "Airy's function Ai",
    lambda x: airy_slope(x),
)  # fmt: skip
spherical_bessel_j0 = _function(
    "spherical_bessel_j0", in_double(_sinc),
    lambda x: np.sin(np.asarray(x)) / np.asarray(x), (0.2, 9.0),
    "The spherical Bessel function of order 0, sin(x) / x",
    lambda x, out: where(x == 0, 0.0, (x.cos() - out) / where(x == 0, 1, x)),
)  # fmt: skip
