"""The logarithm of the gamma function and its derivatives.

Evaluation is by zeta series near the roots and Stirling's series elsewhere.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.dispatch import bind
from weft.core.eager_kernels import SLOW
from weft.core.lowering import Fold, cast_element
from weft.core.op import Op, Sample, define
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError
from weft.ops.approximation import Array, by_element, horner, in_double, pieces
from weft.ops.elementwise import (
    check_accepts,
    elementwise_batch,
    elementwise_type,
    prepare,
    times,
    unary,
)
from weft.ops.public import public

_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510,
    43867 / 798, -174611 / 330, 854513 / 138, -236364091 / 2730,
)  # fmt: skip  # B_2, B_4, ...

_EULER = 0.57721566490153286061
_ROOT, _ROOT_LOW = 1.4616321449683622, 9.549995429965697e-17  # digamma(_ROOT) = 0
_LARGE = 10.0  # where the asymptotic series have converged


def hurwitz(s: int, x: Array) -> Array:
    """``sum (x + k) ** -s`` over k >= 0, for x > 0, by Euler and Maclaurin."""
    steps = 10 + s
    total = np.zeros(x.shape)
    for k in range(steps - 1, -1, -1):  # small terms first
        total += (x + k) ** -float(s)
    y = x + steps
    term = y ** -float(s)
    rest = term * (y / (s - 1) + 0.5)
    term = term * s / y
    for j, b in enumerate(_BERNOULLI, 1):
        rest += b / math.factorial(2 * j) * term
        term = term * ((s + 2 * j - 1) * (s + 2 * j) / (y * y))
    return np.where(x == np.inf, 0.0, total + rest)


@functools.cache
def _log_gamma_series() -> tuple[float, ...]:
    """Coefficients of lgamma(2 + z) / z, highest first: (zeta(k) - 1) / k."""
    two = np.array(2.0)
    tail = [float(hurwitz(k, two)) * (-1) ** k / k for k in range(2, 31)]
    return (*tail[::-1], 1 - _EULER)


@functools.cache
def _digamma_series() -> tuple[float, ...]:
    """Coefficients of digamma(root + z) / z, highest first."""
    root = np.array(_ROOT)
    return tuple(
        float(hurwitz(k + 1, root)) * (-1) ** (k + 1) for k in range(25, 0, -1)
    )


def _lift(x: Array) -> tuple[Array, Array]:
    """x in (2.5, 10) brought down to [1.5, 2.5], and the product of the steps."""
    product = np.ones(x.shape)
    for _ in range(8):
        high = x > 2.5
        x = np.where(high, x - 1, x)
        product = np.where(high, product * x, product)
    return x, product


def _lgamma_small(x: Array) -> Array:
    """lgamma on (0, 10)."""
    shift = np.where(x < 0.5, 1.0, 0.0) + np.where(x < 1.5, 1.0, 0.0)
    low, product = _lift(x)
    z = np.where(shift == 2, x, np.where(shift == 1, x - 1, low - 2))
    out = z * horner(z, _log_gamma_series())
    out = np.where(shift > 0, out - np.log1p(z), out + np.log(product))
    return np.where(shift == 2, out - np.log(x), out)


def _stirling(x: Array) -> Array:
    """lgamma for x >= 10."""
    z = 1 / (x * x)
    series = [b / (2 * j * (2 * j - 1)) for j, b in enumerate(_BERNOULLI[:10], 1)]
    tail = horner(z, series[::-1]) / x
    return np.where(
        x < 1e300,
        (x - 0.5) * (np.log(x) - 1) + (0.5 * math.log(2 * math.pi) - 0.5) + tail,
        x * (np.log(x) - 1),
    )


def _sin_pi(x: Array) -> Array:
    """``sin(pi x)`` up to its sign, exact near the integers."""
    return np.sin(math.pi * (x - np.round(x)))


def _lgamma_negative(x: Array) -> Array:
    size = np.abs(x * _sin_pi(x))
    return np.where(
        x == np.round(x), np.inf, math.log(math.pi) - np.log(size) - lgamma_array(-x)
    )


def lgamma_array(x: Array) -> Array:
    return pieces(
        x,
        ((x > 0) & (x < _LARGE), _lgamma_small),
        (x >= _LARGE, _stirling),
        (x < 0, _lgamma_negative),
        (x == 0, lambda v: np.full(v.shape, np.inf)),
    )


def _digamma_positive(x: Array) -> Array:
    total = np.zeros(x.shape)
    for _ in range(int(_LARGE)):
        low = x < _LARGE
        total = np.where(low, total - 1 / x, total)
        x = np.where(low, x + 1, x)
    z = 1 / (x * x)
    series = [b / (2 * j) for j, b in enumerate(_BERNOULLI[:10], 1)]
    return total + np.log(x) - 0.5 / x - z * horner(z, series[::-1])


def _digamma_negative(x: Array) -> Array:
    r = x - np.round(x)
    cot = math.pi / np.tan(math.pi * r)
    pole = np.where(x == 0, np.copysign(np.inf, -x), np.nan)
    return np.where(r == 0, pole, digamma_array(1 - x) - cot)


def _near_root(x: Array) -> Array:
    z = (x - _ROOT) - _ROOT_LOW
    return z * horner(z, _digamma_series())


def digamma_array(x: Array) -> Array:
    near = np.abs(x - _ROOT) < 0.25
    return pieces(
        x,
        (near, _near_root),
        ((x > 0) & ~near, _digamma_positive),
        (x <= 0, _digamma_negative),
    )


@functools.cache
def _cotangent_derivative(n: int) -> tuple[float, ...]:
    """d^n cot / d angle^n as a polynomial of the cotangent, highest first."""
    p = np.array([1.0, 0.0])
    for _ in range(n):
        p = -np.polymul(np.polyder(p), [1.0, 0.0, 1.0])
    return tuple(float(c) for c in p)


def _polygamma_positive(x: Array, n: int) -> Array:
    return (-1.0) ** (n + 1) * math.gamma(n + 1) * hurwitz(n + 1, x)


def _polygamma_negative(x: Array, n: int) -> Array:
    """The polygamma function of negative numbers, by reflection in 1/2."""
    r = x - np.round(x)
    cot = horner(1 / np.tan(math.pi * r), _cotangent_derivative(n))
    there = _polygamma_positive(1 - x, n)
    out = (-1.0) ** n * there - math.pi ** (n + 1) * cot
    return np.where(r == 0, (-1.0) ** (n + 1) * np.inf, out)


def polygamma_array(x: Array, *, n: int) -> Array:
    return pieces(
        x,
        (x > 0, lambda v: _polygamma_positive(v, n)),
        (x <= 0, lambda v: _polygamma_negative(v, n)),
    )


# -- polygamma as a loop: the same sum, with the builder's functions


class _Numbers:
    """Arithmetic of a kernel's values in float64, by their names."""

    def __init__(self, k: Any) -> None:
        self.k = k

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.k.call(name, *map(self.value, args))

    def value(self, given: Any) -> Any:
        plain = isinstance(given, (int, float))
        return self.k.number(float(given), dtypes.float64) if plain else given

    def polynomial(self, x: Any, coefficients: Sequence[float]) -> Any:
        total = self.value(coefficients[0])
        for c in coefficients[1:]:
            total = self.add(self.mul(total, x), c)
        return total


def _mirrored(k: Any, out: Any, x: Any) -> tuple[Any, Any, Any]:
    """Arithmetic, an element in float64, and its mirror image where not positive."""
    f, value = _Numbers(k), cast_element(k, x[out], dtypes.float64)
    return f, value, f.where(f.gt(value, 0.0), value, f.sub(1.0, value))


def _polygamma_step(
    k: Any, out: Any, at: Any, states: Any, x: Any, *, n: int
) -> tuple[Any, ...]:
    """One more term, the small ones first."""
    f, _, y = _mirrored(k, out, x)
    term = k.call("cast", k.at(10 + n - at[0]), dtype=dtypes.float64)
    return (f.add(states[0], f.pow(f.add(y, term), -(n + 1.0))),)


def _polygamma_end(k: Any, out: Any, states: Any, x: Any, *, n: int) -> Any:
    f, value, y = _mirrored(k, out, x)
    sum_ = f.add(states[0], _tail(f, f.add(y, 11.0 + n), n + 1))
    right = f.where(f.eq(y, math.inf), 0.0, sum_)
    right = f.mul(right, (-1.0) ** (n + 1) * math.gamma(n + 1))
    r = f.sub(value, f.round(value))
    cot = f.polynomial(f.div(1.0, f.tan(f.mul(r, math.pi))), _cotangent_derivative(n))
    left = f.sub(f.mul(right, (-1.0) ** n), f.mul(cot, math.pi ** (n + 1)))
    left = f.where(f.eq(r, 0.0), (-1.0) ** (n + 1) * math.inf, left)
    found = f.where(f.le(value, 0.0), left, right)
    return cast_element(k, found, k.dtype)


def _tail(f: _Numbers, y: Any, s: int) -> Any:
    """The sum of the terms of ``hurwitz`` from y on."""
    term = f.pow(y, -float(s))
    rest = f.mul(term, f.add(f.div(y, s - 1.0), 0.5))
    term = f.div(f.mul(term, float(s)), y)
    square = f.mul(y, y)
    for j, b in enumerate(_BERNOULLI, 1):
        rest = f.add(rest, f.mul(b / math.factorial(2 * j), term))
        factor = float((s + 2 * j - 1) * (s + 2 * j))
        term = f.mul(term, f.div(factor, square))
    return rest


_POLYGAMMA = Fold(
    domain=lambda x, n: (11 + n,),
    start=lambda k, out, x, n: (k.number(0, dtypes.float64),),
    step=_polygamma_step,
    end=_polygamma_end,
)


def _digamma_sum(x: float) -> float:
    """digamma by its defining series, the tail beyond 4000 terms integrated."""
    terms = [1 / (k + 1) - 1 / (k + x) for k in range(4000)]
    y = 4000.0
    tail = (
        math.log((y + x - 0.5) / (y + 0.5))
        + (1 / (y + x - 0.5) ** 2 - 1 / (y + 0.5) ** 2) / 24
    )
    return math.fsum([-_EULER, *terms, tail])


def _polygamma_sum(x: float, n: int) -> float:
    """polygamma by its defining series, the tail beyond 4000 terms integrated."""
    terms = [(x + k) ** -(n + 1.0) for k in range(4000)]
    y = x + 3999.5
    tail = y**-n / n - (n + 1) * y ** -(n + 2.0) / 24
    return (-1) ** (n + 1) * math.factorial(n) * math.fsum([*terms, tail])


# -- records


digamma = unary(
    "digamma",
    in_double(digamma_array),
    accepts="floating",
    d=lambda x: x.polygamma(1),
    domain=(0.4, 4.0),
    bulk=SLOW,
    reference=by_element(_digamma_sum),
    cost=88,
    doc="""The logarithmic derivative of the gamma function.

    >>> weft.digamma(weft.tensor([1.0, 0.5]))
    tensor([-0.5772, -1.9635])
    """,
)

lgamma = unary(
    "lgamma",
    in_double(lgamma_array),
    accepts="floating",
    d=lambda x: digamma(x),
    domain=(0.4, 4.0),
    bulk=SLOW,
    reference=by_element(math.lgamma),
    cost=94,
    doc="""The logarithm of the gamma function's absolute value.

    >>> weft.lgamma(weft.tensor([1.0, 5.0]))
    tensor([0.0000, 3.1781])
    """,
)


def _polygamma_samples(rng: np.random.Generator) -> Any:
    for shape, n in (((3, 4), 1), ((), 2), ((0, 2), 1), ((5,), 3)):
        yield Sample((rng.uniform(0.7, 4.0, shape),), {"n": n})


polygamma_op: Op = define(
    "polygamma",
    inputs="x",
    lower=_POLYGAMMA,
    eval=in_double(polygamma_array),
    type=elementwise_type("polygamma", "floating", "same"),
    cost=200,
    vjp={"x": lambda g, x, n: times(g, polygamma_op(x, n=n + 1))},
    jvp={"x": lambda t, x, n: times(t, polygamma_op(x, n=n + 1))},
    batch=elementwise_batch,
    samples=_polygamma_samples,
    reference=lambda x, *, n: by_element(lambda v: _polygamma_sum(v, n))(x),
)


@public()
def polygamma(n: int, input: Tensor) -> Tensor:
    """The n-th derivative of ``digamma``.

    >>> weft.polygamma(1, weft.tensor([1.0, 2.0]))
    tensor([1.6449, 0.6449])
    """
    if isinstance(n, Tensor) or not isinstance(n, int) or n < 0:
        error = ArgumentError if isinstance(n, int) else DTypeError
        raise error(f"polygamma: expected n to be an int of at least 0, got {n!r}")
    if n > 120:
        raise ArgumentError(
            f"polygamma: expected n of at most 120, got {n}: larger ones overflow"
        )
    if n == 0:
        return digamma(input)
    return bind(polygamma_op, prepare("polygamma", "floating", input), {"n": n})


def multigammaln(input: Tensor, p: int) -> Tensor:
    """The logarithm of the gamma function of p dimensions.

    >>> weft.special.multigammaln(weft.tensor([3.0]), 2)
    tensor([1.5502])
    """
    if not isinstance(p, int) or p < 1:
        raise ArgumentError(f"multigammaln: expected p of at least 1, got {p!r}")
    (x,) = prepare("multigammaln", "floating", input)
    check_accepts("multigammaln", "floating", x.dtype)
    out = lgamma(x) + p * (p - 1) / 4 * math.log(math.pi)
    for j in range(1, p):
        out = out + lgamma(x - j / 2)
    return out
