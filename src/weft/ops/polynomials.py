"""Orthogonal polynomials by their recurrences, under PyTorch's names.

The degree is an element of the second operand, cut off to a whole number; a negative
degree gives 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core.dispatch import bind
from weft.core.op import Op, Sample, define
from weft.core.tensor import Tensor
from weft.ops.approximation import Array
from weft.ops.elementwise import elementwise_batch, elementwise_type, prepare, times

Terms = Callable[[int], tuple[float, float, float]]  # a, b, c of the recurrence


def two_in_double(fn: Callable[[Array, Array], Array]) -> Callable[..., Any]:
    """A function of two arrays, evaluated in float64; their dtype comes back."""

    def evaluate(x: Any, y: Any) -> Any:
        dtype = x.dtype if isinstance(x, np.ndarray) else y.dtype
        x, y = np.asarray(x), np.asarray(y)
        wide = np.broadcast_arrays(x.astype(np.float64), y.astype(np.float64))
        with np.errstate(all="ignore"):
            return np.asarray(fn(*wide)).astype(dtype)

    return evaluate


HIGHEST = 10_000  # the highest degree; beyond it, values are NaN


def _recurrence(
    start: tuple[float, float], terms: Terms, shifted: bool, limit: float
) -> Callable[..., Any]:
    """``P_{k+1} = (a + b x) P_k - c P_{k-1}``, and its derivatives of some order."""

    def evaluate(x: Array, n: Array, order: int) -> Array:
        z = 2 * x - 1 if shifted else x
        degree = np.where(np.isnan(n), -1, np.clip(np.trunc(n), -1, HIGHEST + 1))
        zero = [np.zeros(z.shape)] * (order + 1)
        before, now = list(zero), list(zero)
        before[0], now[0] = np.ones(z.shape), start[0] + start[1] * z
        if order:
            now[1] = np.full(z.shape, start[1])
        out = np.where(degree == 0, before[order], now[order])
        top = int(degree.max(initial=0)) if degree.size else 0
        for k in range(1, min(top, HIGHEST)):
            a, b, c = terms(k)
            after = [(a + b * z) * p - c * q for p, q in zip(now, before, strict=True)]
            for m in range(1, order + 1):
                after[m] = after[m] + m * b * now[m - 1]
            before, now = now, after
            out = np.where(degree > k, now[order], out)
        out = np.where(degree < 0, 0.0, out * (2.0**order if shifted else 1.0))
        far = degree > min(limit, HIGHEST)
        return np.where(far | np.isnan(x), np.nan, out)

    def evaluated(x: Any, y: Any, *, order: int) -> Any:
        return two_in_double(lambda a, b: evaluate(a, b, order))(x, y)

    return evaluated


def _polynomial(
    name: str,
    what: str,
    start: tuple[float, float],
    terms: Terms,
    reference: Callable[[float, int], float],
    shifted: bool = False,
    limit: float = math.inf,
) -> Callable[..., Tensor]:
    def samples(rng: np.random.Generator) -> Any:
        for shape in ((3, 4), (), (0, 2)):
            degrees = rng.integers(0, 9, shape) + 0.5
            yield Sample((rng.uniform(0.05, 0.95, shape), degrees), {"order": 0})

    def each(x: Any, y: Any, *, order: int) -> Any:
        pairs = np.broadcast(x, y)
        found = [reference(2 * a - 1 if shifted else a, int(b)) for a, b in pairs]
        return np.array(found, np.float64).reshape(pairs.shape)

    kind = elementwise_type(name, "floating", "same")
    op: Op = define(
        name,
        inputs="x y",
        eval=_recurrence(start, terms, shifted, limit),
        type=lambda x, y, *, order: kind(x, y),
        vjp={"x": lambda g, x, y, order: times(g, op(x, y, order=order + 1))},
        jvp={
            "x": lambda t, x, y, order: times(t, op(x, y, order=order + 1)),
            "y": lambda t, y: t * 0,
        },
        batch=elementwise_batch,
        samples=samples,
        reference=each,
        cost=60,
    )

    def polynomial(input: Any, n: Any) -> Tensor:
        return bind(op, prepare(name, "floating", input, n), {"order": 0})

    polynomial.__name__ = polynomial.__qualname__ = name
    polynomial.__doc__ = f"""{what} of degree ``n``, a number or a tensor.

    >>> weft.special.{name}(weft.ones(1), 0)
    tensor([1.])
    """
    return polynomial


def _angle(fn: Callable[[float, int], float]) -> Callable[[float, int], float]:
    return lambda x, n: fn(math.acos(x), n)


def _sum(terms: Callable[[int, int], float], powers: Callable[[int, int], int]) -> Any:
    """A polynomial by its coefficients, term by term."""

    def value(x: float, n: int) -> float:
        return math.fsum(
            terms(n, m) * x ** powers(n, m) for m in range(n + 1) if powers(n, m) >= 0
        )

    return value


_T = _angle(lambda t, n: math.cos(n * t))
_U = _angle(lambda t, n: math.sin((n + 1) * t) / math.sin(t))
_V = _angle(lambda t, n: math.cos((n + 0.5) * t) / math.cos(t / 2))
_W = _angle(lambda t, n: math.sin((n + 0.5) * t) / math.sin(t / 2))
_CHEBYSHEV = {
    "t": ("first", (0, 1), _T),
    "u": ("second", (0, 2), _U),
    "v": ("third", (-1, 2), _V),
    "w": ("fourth", (1, 2), _W),
}


def _chebyshev(kind: str, shifted: bool) -> Callable[..., Tensor]:
    order, first, reference = _CHEBYSHEV[kind]
    name = f"{'shifted_' if shifted else ''}chebyshev_polynomial_{kind}"
    where = " of ``2 x - 1``" if shifted else ""
    what = f"Chebyshev's polynomial of the {order} kind{where},"
    return _polynomial(name, what, first, lambda k: (0, 2, 1), reference, shifted)


chebyshev_polynomial_t = _chebyshev("t", False)
chebyshev_polynomial_u = _chebyshev("u", False)
chebyshev_polynomial_v = _chebyshev("v", False)
chebyshev_polynomial_w = _chebyshev("w", False)
shifted_chebyshev_polynomial_t = _chebyshev("t", True)
shifted_chebyshev_polynomial_u = _chebyshev("u", True)
shifted_chebyshev_polynomial_v = _chebyshev("v", True)
shifted_chebyshev_polynomial_w = _chebyshev("w", True)


def _hermite_term(n: int, m: int, factor: float) -> float:
    if 2 * m > n:
        return 0.0
    size = math.factorial(n) / (math.factorial(m) * math.factorial(n - 2 * m))
    return (-1) ** m * size * factor


hermite_polynomial_h = _polynomial(
    "hermite_polynomial_h",
    "The physicist's Hermite polynomial",
    (0, 2),
    lambda k: (0, 2, 2 * k),
    _sum(lambda n, m: _hermite_term(n, m, 2.0 ** (n - 2 * m)), lambda n, m: n - 2 * m),
    limit=512,
)
hermite_polynomial_he = _polynomial(
    "hermite_polynomial_he",
    "The probabilist's Hermite polynomial",
    (0, 1),
    lambda k: (0, 1, k),
    _sum(lambda n, m: _hermite_term(n, m, 2.0**-m), lambda n, m: n - 2 * m),
    limit=512,
)
laguerre_polynomial_l = _polynomial(
    "laguerre_polynomial_l",
    "Laguerre's polynomial",
    (1, -1),
    lambda k: ((2 * k + 1) / (k + 1), -1 / (k + 1), k / (k + 1)),
    _sum(lambda n, m: (-1) ** m * math.comb(n, m) / math.factorial(m), lambda n, m: m),
)
legendre_polynomial_p = _polynomial(
    "legendre_polynomial_p",
    "Legendre's polynomial",
    (0, 1),
    lambda k: (0, (2 * k + 1) / (k + 1), k / (k + 1)),
    _sum(
        lambda n, m: (-1) ** m * math.comb(n, m) * math.comb(2 * n - 2 * m, n) / 2.0**n,
        lambda n, m: n - 2 * m,
    ),
)
