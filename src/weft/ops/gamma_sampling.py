"""Random numbers by rejection, and how those of a gamma distribution move.

A sample is drawn by rejection (Marsaglia and Tsang, 2000), each element from a Philox
block of its own. Its derivative is the implicit one (Figurnov et al., 2018): the sample
stays at the same level of the cumulative distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.dispatch import beside
from weft.core.op import Op, Sample, TensorType, define
from weft.core.tensor import Tensor
from weft.dtype_info import finfo
from weft.errors import DTypeError
from weft.ops.elementwise import (
    elementwise_batch,
    elementwise_type,
    prepare,
    times,
)
from weft.ops.gamma_functions import digamma, digamma_array, polygamma, polygamma_array
from weft.ops.public import public
from weft.ops.random import Generator, _scalar_philox, philox, random_blocks

Array = np.ndarray
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)
_BLOCK = 1024  # elements at a time: each has a row of nodes

# Nodes r and weights of an integral over (0, 40) by the substitution exp(t - exp(-t)),
# which suits functions that decay at any rate.
_T = np.arange(-3.6, 4.0, 0.1)
_NODES = np.exp(_T - np.exp(-_T))
_WEIGHTS = 0.1 * _NODES * (1 + np.exp(-_T))
_NODES, _WEIGHTS = _NODES[_NODES < 42] / 40, _WEIGHTS[_NODES < 42] / 40


def _units(seed: Array, block: Array, turn: int) -> list[Array]:
    """Four uniform numbers in [0, 1) for each block, others in each turn."""
    key: Any = (seed & _LOW, seed >> _32)
    found = []
    for half in (0, 1):
        counter = (block & _LOW, block >> _32, np.uint64(turn), np.uint64(half))
        w = philox(counter, key)
        for high, low in ((w[0], w[1]), (w[2], w[3])):
            high, low = high >> np.uint64(5), low >> np.uint64(6)
            found.append((high * 67108864.0 + low) * 2.0**-53)
    return found


def _rejected(
    seed: Any, block: Any, parameter: Any, good: Any, turned: Callable[..., Any]
) -> Array:
    """Samples in float64: ``turned(parameter, numbers)`` tells which it accepts."""
    a = np.ravel(parameter).astype(np.float64)
    blocks = np.ravel(block).astype(np.uint64)
    seeds = np.broadcast_to(seed, np.shape(parameter)).astype(np.uint64).ravel()
    out = np.full(a.shape, np.nan)
    left, turn = np.flatnonzero(good(a, 0) & (a < np.inf)), 0
    with np.errstate(all="ignore"):
        while left.size:
            u = _units(seeds[left], blocks[left], turn)
            accepted, found = turned(a[left], u)
            out[left[accepted]] = found[accepted]
            left, turn = left[~accepted], turn + 1
    return out.reshape(np.shape(parameter))


def _gamma_turn(a: Array, u: list[Array]) -> tuple[Array, Array]:
    d = a + (a < 1) - 1 / 3
    z = np.sqrt(-2 * np.log1p(-u[0])) * np.cos(2 * math.pi * u[1])
    v = (1 + z / np.sqrt(9 * d)) ** 3
    bound = z * z / 2 + d - d * v + d * np.log(v)
    power = np.where(a < 1, (1 - u[3]) ** (1 / a), 1.0)
    return (v > 0) & (np.log1p(-u[2]) < bound), d * v * power


def _standard_gamma_eval(seed: Any, block: Any, alpha: Any) -> Any:
    out = _rejected(seed, block, alpha, np.greater_equal, _gamma_turn)
    out = np.maximum(out, finfo(dtypes.of_array(alpha)).tiny)
    return out.astype(alpha.dtype)


def _angle_turn(k: Array, u: list[Array]) -> tuple[Array, Array]:
    """Best and Fisher's rejection (1979)."""
    tau = 1 + np.sqrt(1 + 4 * k**2)
    rho = (tau - np.sqrt(2 * tau)) / (2 * k)
    r = np.where(k < 1e-5, 1 / k + k, (1 + rho**2) / (2 * rho))
    z = np.cos(math.pi * u[0])
    f = (1 + r * z) / (r + z)
    c = k * (r - f)
    accepted = (c * (2 - c) > u[1]) | (np.log(c / u[1]) + 1 - c >= 0)
    return accepted, np.sign(u[2] - 0.5) * np.arccos(np.clip(f, -1, 1))


def _angle_eval(seed: Any, block: Any, alpha: Any) -> Any:
    out = _rejected(seed, block, alpha, np.greater, _angle_turn)
    return out.astype(alpha.dtype)


def _one_by_one(one: Callable[..., float]) -> Callable[..., Any]:
    """A reference: samples in Python's numbers."""

    def reference(seed: Any, block: Any, alpha: Any) -> Any:
        found = [
            one(int(np.ravel(seed)[0]), int(b), float(a))
            for b, a in zip(np.ravel(block), np.ravel(alpha), strict=True)
        ]
        return np.array(found).reshape(np.shape(alpha))

    return reference


def _scalar_units(seed: int, block: int, turn: int) -> list[float]:
    w = [x for half in (0, 1) for x in _scalar_philox(seed, block, 4, (turn, half))]
    return [((w[k] >> 5) * 2**26 + (w[k + 1] >> 6)) / 2**53 for k in (0, 2, 4, 6)]


def _one_angle(seed: int, block: int, k: float) -> float:
    for turn in range(100):
        u = _scalar_units(seed, block, turn)
        root = math.sqrt(1 + 4 * k * k)
        rho = (1 + root - math.sqrt(2 * (1 + root))) / (2 * k)
        r = (1 + rho * rho) / (2 * rho)
        f = (1 + r * math.cos(math.pi * u[0])) / (r + math.cos(math.pi * u[0]))
        c = k * (r - f)
        if c * (2 - c) > u[1] or math.log(c / u[1]) >= c - 1:
            return math.copysign(math.acos(f), u[2] - 0.5)
    raise AssertionError("a hundred rejections")


def _one_gamma(seed: int, block: int, a: float) -> float:
    for turn in range(100):
        u = _scalar_units(seed, block, turn)
        d = max(a, a + 1 if a < 1 else a) - 1 / 3
        z = math.sqrt(-2 * math.log(1 - u[0])) * math.cos(2 * math.pi * u[1])
        v = (1 + z / (3 * math.sqrt(d))) ** 3
        if v > 0 and math.log(1 - u[2]) < z * z / 2 + d * (1 - v + math.log(v)):
            return d * v * ((1 - u[3]) ** (1 / a) if a < 1 else 1)
    raise AssertionError("a hundred rejections")


def _gamma_type(seed: TensorType, block: TensorType, alpha: TensorType) -> TensorType:
    if not alpha.dtype.is_floating_point:
        raise DTypeError(f"expected a floating-point parameter, got {alpha.dtype.name}")
    return alpha


def _gamma_batch(op: Op, size: int, args: Any, batched: Any, params: Any) -> Any:
    """A seed belongs to all elements, or else each element has one."""
    seed, *rest = args
    block, alpha = (
        x if b else x.expand(size, *x.shape)
        for x, b in zip(rest, batched[1:], strict=True)
    )
    if batched[0]:
        seed = seed.reshape(size, *seed.shape[1:], *(1,) * (alpha.ndim - seed.ndim))
        seed = seed.expand(alpha.shape)
    return op(seed, block, alpha)


def _gamma_samples(rng: np.random.Generator) -> Any:
    for shape in ((3, 4), (), (0, 2), (50,)):
        block = rng.integers(0, 2**40, shape)
        seed = np.asarray(rng.integers(0, 2**40))
        yield Sample((seed, block, rng.uniform(0.2, 6.0, shape)))


standard_gamma_op: Op = define(
    "standard_gamma",
    inputs="seed block alpha",
    eval=_standard_gamma_eval,
    type=_gamma_type,
    vjp={"alpha": lambda g, alpha, out: times(g, gamma_moved(out, alpha))},
    jvp={"alpha": lambda t, alpha, out: times(t, gamma_moved(out, alpha))},
    batch=_gamma_batch,
    random=True,
    cost=400,
    samples=_gamma_samples,
    reference=_one_by_one(_one_gamma),
)

von_mises_op: Op = define(
    "von_mises",
    inputs="seed block alpha",
    eval=_angle_eval,
    type=_gamma_type,
    batch=_gamma_batch,
    random=True,
    cost=400,
    samples=_gamma_samples,
    reference=_one_by_one(_one_angle),
)


# -- the implicit derivative
#
# With the density p(t; a), D_n = -(d/da)^n P(x; a) / p(x; a). The sample's derivative
# is D_1, and  dD_n/dx = -q_n - D_n (log p)'(x),  dD_n/da = D_{n+1} - D_n q_1,  where
# q_n = ((d/da)^n p) / p is a polynomial of log x - digamma(a) and its derivatives.


def _bell(n: int, terms: list[Any]) -> Any:
    """q_n: Bell's complete polynomial of q_1 and its derivatives."""
    found: list[Any] = [1.0]
    for m in range(n):
        found.append(
            sum(math.comb(m, k) * found[m - k] * terms[k] for k in range(m + 1))
        )
    return found[n]


def _reach(a: Array, x: Array, left: Array) -> Array:
    """The distance in log t at which the density has fallen by exp(-40)."""
    near = np.minimum(np.sqrt(90 / x), 2 + np.log1p(90 / x))
    r = np.where(left, (40 + x) / a, near)
    sign = np.where(left, -1.0, 1.0)
    for _ in range(12):  # Newton, from above, of a concave function
        fallen = a * sign * r - x * np.expm1(sign * r) + 40
        slope = sign * (a - x * np.exp(sign * r))
        r = r - np.where(slope < 0, fallen / slope, 0.0)
    return r


def _moved_array(x: Array, a: Array, n: int) -> Array:
    """D_n, by quadrature over the tail on the sample's own side."""
    left = x < a
    reach = _reach(a, x, left)[:, None]
    sign = np.where(left, -1.0, 1.0)[:, None]
    u = sign * reach * _NODES
    x, a = x[:, None], a[:, None]
    density = np.exp(a * u - x * np.expm1(u))
    terms = [np.log(x) + u - digamma_array(a)]
    terms += [-polygamma_array(a, n=k) for k in range(1, n)]
    total = (density * _bell(n, terms)) @ _WEIGHTS
    return (sign * x * reach)[:, 0] * total


def _moved_eval(x: Any, alpha: Any, *, n: int) -> Any:
    flat, a = np.ravel(x), np.ravel(alpha)
    out = np.empty(flat.shape, x.dtype)
    with np.errstate(all="ignore"):
        for k in range(0, flat.size, _BLOCK):
            some = slice(k, k + _BLOCK)
            one, two = flat[some].astype(np.float64), a[some].astype(np.float64)
            out[some] = np.where(
                (one > 0) & (two > 0), _moved_array(one, two, n), np.nan
            )
    return out.reshape(np.shape(x))


def _moved_reference(x: Any, alpha: Any, *, n: int) -> Any:
    """Differences of the cumulative distribution, which is summed as a series."""
    return np.vectorize(
        lambda x, a: _difference(float(x), float(a), n), otypes=[float]
    )(x, alpha)


def _difference(x: float, a: float, n: int) -> float:
    step = {1: 2e-3, 2: 8e-3}[n]
    weights = {
        1: {-3: -1 / 60, -2: 3 / 20, -1: -3 / 4, 1: 3 / 4, 2: -3 / 20, 3: 1 / 60},
        2: {-3: 1 / 90, -2: -3 / 20, -1: 1.5, 0: -49 / 18, 1: 1.5, 2: -3 / 20,
            3: 1 / 90},
    }[n]  # fmt: skip
    change = math.fsum(w * _lower(a + k * step, x) for k, w in weights.items())
    density = math.exp((a - 1) * math.log(x) - x - math.lgamma(a))
    return -change / step**n / density


def _lower(a: float, x: float) -> float:
    """The cumulative distribution at x, by its series."""
    terms = [1 / a]
    while terms[-1] > 1e-18 * terms[0]:
        terms.append(terms[-1] * x / (a + len(terms)))
    return math.exp(a * math.log(x) - x - math.lgamma(a)) * math.fsum(terms)


def _moved_samples(rng: np.random.Generator) -> Any:
    for shape, n in (((3, 4), 1), ((), 1), ((0, 2), 1), ((5,), 2)):
        args = rng.uniform(0.2, 4.0, shape), rng.uniform(0.3, 4.0, shape)
        yield Sample(args, {"n": n})


def _scores(x: Tensor, alpha: Tensor, n: int) -> list[Any]:
    first = x.log() - digamma(alpha)
    return [first, *(-polygamma(k, alpha) for k in range(1, n))]


def _by_sample(g: Any, x: Any, alpha: Any, out: Any, n: int) -> Any:
    slope = (alpha - 1) / x - 1
    return times(g, -_bell(n, _scores(x, alpha, n)) - out * slope)


def _by_alpha(g: Any, x: Any, alpha: Any, out: Any, n: int) -> Any:
    more = moved_op(x, alpha, n=n + 1)
    return times(g, more - out * (x.log() - digamma(alpha)))


moved_op: Op = define(
    "gamma_moved",
    inputs="x alpha",
    eval=_moved_eval,
    type=elementwise_type("gamma_moved", "floating", "same"),
    vjp={"x": _by_sample, "alpha": _by_alpha},
    jvp={"x": _by_sample, "alpha": _by_alpha},
    batch=elementwise_batch,
    cost=2000,
    samples=_moved_samples,
    reference=_moved_reference,
)


def gamma_moved(x: Tensor, alpha: Tensor) -> Tensor:
    """The derivative of a gamma sample with respect to the concentration.

    >>> from weft.ops.gamma_sampling import gamma_moved
    >>> gamma_moved(weft.tensor(2.0), weft.tensor(1.0))
    tensor(1.6317)
    """
    return moved_op(*prepare("gamma_moved", "floating", x, alpha), n=1)


@public(name="_standard_gamma")
def standard_gamma(alpha: Tensor, generator: Generator | None = None) -> Tensor:
    """Samples of the gamma distribution with rate 1, differentiable in ``alpha``.

    >>> weft._standard_gamma(weft.tensor([0.5, 3.0])).shape
    (2,)
    """
    with beside(alpha):
        seed, block = random_blocks("_standard_gamma", alpha.shape, generator)
    return standard_gamma_op(seed, block, alpha)


def von_mises(concentration: Tensor) -> Tensor:
    """Angles of the von Mises distribution around 0; they have no gradient.

    >>> from weft.ops.gamma_sampling import von_mises
    >>> von_mises(weft.ones(3)).shape
    (3,)
    """
    with beside(concentration):
        seed, block = random_blocks("von_mises", concentration.shape, None)
    return von_mises_op(seed, block, concentration.detach())
