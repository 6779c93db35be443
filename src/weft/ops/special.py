"""Special functions: error functions, gamma functions, Bessel functions, softmax.

Evaluation is float64 inside, in whole arrays: Cody's rational approximations
(1969) for the error functions, zeta series and Stirling's for the gamma
functions, power and asymptotic series for the Bessel functions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.core.dims import normalize_dim
from weft.core.dispatch import bind
from weft.core.elementwise import (
    Public,
    as_operand,
    check_accepts,
    elementwise_batch,
    elementwise_type,
    prepare,
    times,
    unary,
)
from weft.core.op import Op, Sample, define
from weft.core.tensor import Tensor
from weft.dtype import as_dtype, float32
from weft.errors import ArgumentError, DTypeError
from weft.ops.elementwise import isnan, sign, where
from weft.ops.movement import cast
from weft.ops.reduce import HALF, amax, sum
from weft.ops.transcendental import exp, log, log1p, xlogy

SQRT_PI = math.sqrt(math.pi)
Array = np.ndarray


_BLOCK = 8192  # elements at a time, so that what is between stays in the cache


def in_double(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Evaluate in float64 and give back the input's dtype."""

    @functools.wraps(fn)
    def wide(x: Any, **params: Any) -> Any:
        with np.errstate(all="ignore"):
            flat = np.ravel(x)
            out = np.empty(flat.shape, x.dtype)
            for k in range(0, flat.size, _BLOCK):
                part = flat[k : k + _BLOCK].astype(np.float64)
                out[k : k + _BLOCK] = fn(part, **params)
        return out.reshape(np.shape(x))

    return wide


def pieces(
    x: Array, *parts: tuple[Any, Callable[[Array], Array]], other: Any = np.nan
) -> Array:
    """A function defined piece by piece: each (mask, function of the elements)."""
    out = np.full(x.shape, other)
    for mask, fn in parts:
        if np.any(mask):
            out[mask] = fn(x[mask])
    return out


def horner(x: Array, coefficients: Sequence[float]) -> Array:
    """A polynomial, its highest coefficient first."""
    total = np.full(x.shape, coefficients[0])
    for c in coefficients[1:]:
        total *= x
        total += c
    return total


# -- error functions (W. J. Cody, Math. Comp. 23, 1969)

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


def by_element(fn: Callable[[float], float]) -> Callable[[Any], Any]:
    """A reference: Python's own function, one element at a time."""

    def each(x: Any) -> Any:
        flat = [fn(float(v)) for v in np.ravel(x)]
        return np.array(flat, np.float64).reshape(np.shape(x))

    return each


def _bisected(y: float) -> float:
    """The x in [-6, 6] where ``math.erf(x) == y``."""
    low, high = -6.0, 6.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erf(middle) < y else (low, middle)
    return (low + high) / 2


erf = unary(
    "erf",
    in_double(erf_array),
    accepts="floating",
    d=lambda x: (-x * x).exp() * (2 / SQRT_PI),
    reference=by_element(math.erf),
    doc="""The error function.

    >>> weft.erf(weft.tensor([0.0, 1.0]))
    tensor([0.0000, 0.8427], shape=(2,), dtype=float32)
    """,
)

erfc = unary(
    "erfc",
    in_double(erfc_array),
    accepts="floating",
    d=lambda x: (-x * x).exp() * (-2 / SQRT_PI),
    reference=by_element(math.erfc),
    doc="""``1 - erf(x)``, exact for large x.

    >>> weft.erfc(weft.tensor([0.0, 1.0]))
    tensor([1.0000, 0.1573], shape=(2,), dtype=float32)
    """,
)

erfcx = unary(
    "erfcx",
    in_double(erfcx_array),
    accepts="floating",
    d=lambda x, out: 2 * x * out - 2 / SQRT_PI,
    reference=by_element(lambda v: math.exp(v * v) * math.erfc(v)),
    doc="""``exp(x * x) * erfc(x)``, without overflow.

    >>> weft.special.erfcx(weft.tensor([0.0, 100.0]))
    tensor([1.0000, 0.0056], shape=(2,), dtype=float32)
    """,
)

erfinv = unary(
    "erfinv",
    in_double(erfinv_array),
    accepts="floating",
    d=lambda out: (out * out).exp() * (SQRT_PI / 2),
    domain=(-0.9, 0.9),
    reference=by_element(_bisected),
    doc="""The inverse of the error function.

    >>> weft.erfinv(weft.tensor([0.0, 0.5]))
    tensor([0.0000, 0.4769], shape=(2,), dtype=float32)
    """,
)


def ndtr(input: Tensor) -> Tensor:
    """The normal distribution's cumulative probability.

    >>> weft.special.ndtr(weft.tensor([0.0, 2.0]))
    tensor([0.5000, 0.9772], shape=(2,), dtype=float32)
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
    reference=by_element(lambda v: math.log(math.erfc(-v / math.sqrt(2)) / 2)),
    doc="""The logarithm of ``ndtr``, exact for very negative x.

    >>> weft.special.log_ndtr(weft.tensor([0.0, -20.0]))
    tensor([  -0.6931, -203.9172], shape=(2,), dtype=float32)
    """,
)


ndtri = unary(
    "ndtri",
    in_double(_ndtri_array),
    accepts="floating",
    d=lambda out: (out * out * 0.5).exp() * math.sqrt(2 * math.pi),
    domain=(0.1, 0.9),
    reference=by_element(lambda p: math.sqrt(2) * _bisected(2 * p - 1)),
    doc="""The inverse of ``ndtr``.

    >>> weft.special.ndtri(weft.tensor([0.5, 0.9]))
    tensor([0.0000, 1.2816], shape=(2,), dtype=float32)
    """,
)


# -- gamma functions

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
    """By reflection in 1/2."""
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


digamma = unary(
    "digamma",
    in_double(digamma_array),
    accepts="floating",
    d=lambda x: polygamma(1, x),
    domain=(0.4, 4.0),
    reference=by_element(_digamma_sum),
    doc="""The logarithmic derivative of the gamma function.

    >>> weft.digamma(weft.tensor([1.0, 0.5]))
    tensor([-0.5772, -1.9635], shape=(2,), dtype=float32)
    """,
)

lgamma = unary(
    "lgamma",
    in_double(lgamma_array),
    accepts="floating",
    d=lambda x: digamma(x),
    domain=(0.4, 4.0),
    reference=by_element(math.lgamma),
    doc="""The logarithm of the gamma function's absolute value.

    >>> weft.lgamma(weft.tensor([1.0, 5.0]))
    tensor([0.0000, 3.1781], shape=(2,), dtype=float32)
    """,
)


def _polygamma_samples(rng: np.random.Generator) -> Any:
    for shape, n in (((3, 4), 1), ((), 2), ((0, 2), 1), ((5,), 3)):
        yield Sample((rng.uniform(0.7, 4.0, shape),), {"n": n})


polygamma_op: Op = define(
    "polygamma",
    inputs="x",
    eval=in_double(polygamma_array),
    type=elementwise_type("polygamma", "floating", "same"),
    vjp={"x": lambda g, x, n: times(g, polygamma_op(x, n=n + 1))},
    jvp={"x": lambda t, x, n: times(t, polygamma_op(x, n=n + 1))},
    batch=elementwise_batch,
    samples=_polygamma_samples,
    reference=lambda x, *, n: by_element(lambda v: _polygamma_sum(v, n))(x),
)


def polygamma(n: int, input: Tensor) -> Tensor:
    """The n-th derivative of ``digamma``.

    >>> weft.polygamma(1, weft.tensor([1.0, 2.0]))
    tensor([1.6449, 0.6449], shape=(2,), dtype=float32)
    """
    if isinstance(n, Tensor) or not isinstance(n, int) or n < 0:
        raise ArgumentError(
            f"polygamma: expected n to be an int of at least 0, got {n!r}"
        )
    if n > 120:
        raise ArgumentError(
            f"polygamma: expected n of at most 120, got {n}: larger ones overflow"
        )
    if n == 0:
        return digamma(input)
    return bind(polygamma_op, prepare("polygamma", "floating", input), {"n": n})


# -- modified Bessel functions


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
    reference=_bessel_reference(0, scaled=False),
    doc="""The modified Bessel function of the first kind, order 0.

    >>> weft.special.i0(weft.tensor([0.0, 1.0]))
    tensor([1.0000, 1.2661], shape=(2,), dtype=float32)
    """,
)

i1: Public = unary(
    "i1",
    _bessel(1, scaled=False),
    accepts="floating",
    d=lambda x, out: -_over(out, x) + i0(x),
    reference=_bessel_reference(1, scaled=False),
    doc="""The modified Bessel function of the first kind, order 1.

    >>> weft.special.i1(weft.tensor([0.0, 1.0]))
    tensor([0.0000, 0.5652], shape=(2,), dtype=float32)
    """,
)

i0e = unary(
    "i0e",
    _bessel(0, scaled=True),
    accepts="floating",
    d=lambda x, out: i1e(x) - sign(x) * out,
    domain=(0.3, 2.0),
    reference=_bessel_reference(0, scaled=True),
    doc="""``exp(-|x|) * i0(x)``.

    >>> weft.special.i0e(weft.tensor([0.0, 1.0]))
    tensor([1.0000, 0.4658], shape=(2,), dtype=float32)
    """,
)

i1e: Public = unary(
    "i1e",
    _bessel(1, scaled=True),
    accepts="floating",
    d=lambda x, out: i0e(x) - sign(x) * out - _over(out, x),
    domain=(0.3, 2.0),
    reference=_bessel_reference(1, scaled=True),
    doc="""``exp(-|x|) * i1(x)``.

    >>> weft.special.i1e(weft.tensor([0.0, 1.0]))
    tensor([0.0000, 0.2079], shape=(2,), dtype=float32)
    """,
)


# -- entropies


def xlog1py(input: Any, other: Any) -> Tensor:
    """``input * log1p(other)``, and 0 where ``input`` is 0 (unless other is NaN).

    The derivative by ``input`` at 0 is ``log1p(other)`` where that is finite.

    >>> weft.special.xlog1py(weft.tensor([0.0, 2.0]), weft.tensor([-1.0, 0.0]))
    tensor([0., 0.], shape=(2,), dtype=float32)
    """
    x, y = _two_tensors("xlog1py", input, other)
    inside = (y > -1) & (y < math.inf)
    return x * log1p(where((x != 0) | inside | isnan(y), y, 0))


def _two_tensors(name: str, *values: Any) -> list[Tensor]:
    from weft.ops.creation import full_like

    operands = [as_operand(name, v) for v in values]
    tensors = [v for v in operands if isinstance(v, Tensor)]
    if not tensors:
        raise DTypeError(f"{name}: expected at least one tensor, got two numbers")
    return [
        v if isinstance(v, Tensor) else full_like(tensors[0], v)
        for v in prepare(name, "floating", *operands)
    ]


def entr(input: Tensor) -> Tensor:
    """``-x * log(x)``: 0 at 0, and minus infinity for negative x.

    >>> weft.special.entr(weft.tensor([0.0, 0.5]))
    tensor([0.0000, 0.3466], shape=(2,), dtype=float32)
    """
    (x,) = prepare("entr", "floating", input)
    return where(x < 0, -math.inf, 0 - xlogy(x, where(x < 0, 1, x)))


# -- softmax


def _softmax_input(name: str, input: Tensor, dim: Any, dtype: Any) -> tuple[Any, ...]:
    """The input in the dtype to compute in, the dimension, the dtype to return."""
    if not isinstance(input, Tensor):
        raise DTypeError(f"{name}: expected a tensor, got {type(input).__name__}")
    x = input if dtype is None else cast(input, as_dtype(dtype))
    if not x.dtype.is_floating_point:
        raise DTypeError(
            f"{name}: expected a floating-point dtype, got {x.dtype.name}; pass "
            "dtype=weft.float32 to convert it first"
        )
    wide = cast(x, float32) if x.dtype.np.char in HALF else x
    return wide, normalize_dim(name, dim, x.ndim), x.dtype


def _below_top(x: Tensor, dim: int) -> Tensor:
    """x with its largest element moved to 0, which changes no softmax."""
    if x.ndim == 0 or x.shape[dim] == 0:
        return x - x.detach() if x.ndim == 0 else x
    return x - amax(x.detach(), dim, keepdim=True)


def _total(x: Tensor, dim: int) -> Tensor:
    return sum(x, dim, keepdim=True) if x.ndim else x


def softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """``exp(x) / sum(exp(x))`` along a dimension, without overflow.

    >>> weft.softmax(weft.tensor([0.0, 1000.0]), 0)
    tensor([0., 1.], shape=(2,), dtype=float32)
    """
    x, d, kind = _softmax_input("softmax", input, dim, dtype)
    power = exp(_below_top(x, d))
    return cast(power / _total(power, d), kind)


def log_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """The logarithm of ``softmax``, without overflow or loss.

    >>> weft.log_softmax(weft.tensor([0.0, 1000.0]), 0)
    tensor([-1000.,     0.], shape=(2,), dtype=float32)
    """
    x, d, kind = _softmax_input("log_softmax", input, dim, dtype)
    low = _below_top(x, d)
    return cast(low - log(_total(exp(low), d)), kind)


def multigammaln(input: Tensor, p: int) -> Tensor:
    """The logarithm of the gamma function of p dimensions.

    >>> weft.special.multigammaln(weft.tensor([3.0]), 2)
    tensor([1.5502], shape=(1,), dtype=float32)
    """
    if not isinstance(p, int) or p < 1:
        raise ArgumentError(f"multigammaln: expected p of at least 1, got {p!r}")
    (x,) = prepare("multigammaln", "floating", input)
    check_accepts("multigammaln", "floating", x.dtype)
    out = lgamma(x) + p * (p - 1) / 4 * math.log(math.pi)
    for j in range(1, p):
        out = out + lgamma(x - j / 2)
    return out
