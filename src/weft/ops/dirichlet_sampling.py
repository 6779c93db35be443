"""Random points of a Dirichlet distribution, and how they move.

A component x of a sample has a beta distribution with the parameters a (its own
concentration) and b (the sum of the others). When a changes, x moves so that it stays
at the same level of that distribution, and the others shrink in proportion
(Figurnov et al., 2018). With its distribution F and density p, x moves by

    m (1 - x),    m = -(dF/da) / (p (1 - x)).

F is a sum of positive terms (DLMF 8.17.8), so that m is one of them and of their
derivatives by a; on the other side of the mean, 1 - F is the sum.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.dispatch import beside
from weft.core.op import Op, Sample, define
from weft.core.tensor import Tensor
from weft.ops.copies import cast
from weft.ops.elementwise import elementwise_batch, elementwise_type, times
from weft.ops.gamma_functions import digamma, digamma_array
from weft.ops.gamma_sampling import (
    _gamma_batch,
    _gamma_type,
    _standard_gamma_eval,
    standard_gamma_op,
)
from weft.ops.public import public
from weft.ops.random import Generator, random_blocks
from weft.ops.select import minimum

Array = np.ndarray
_SLOW = 0.99  # a series in a larger number has too many terms
_MOST = 100_000  # terms; far fewer are needed where samples are
# Weights of a central difference of the sixth order.
_STENCIL = {1: 3 / 4, 2: -3 / 20, 3: 1 / 60}


def _series(x: Array, a: Array, b: Array, own: bool) -> tuple[Array, Array]:
    """The sum over n of (a + b)_n / (a + 1)_n x^n, and its derivative.

    The derivative is by a where ``own``, else by b.
    """
    term, slope = np.ones_like(x), np.zeros_like(x)  # and the logarithm's derivative
    total, by_parameter = np.ones_like(x), np.zeros_like(x)
    for n in range(_MOST):
        term = term * (a + b + n) / (a + 1 + n) * x
        slope = slope + 1 / (a + b + n) - (1 / (a + 1 + n) if own else 0.0)
        total, by_parameter = total + term, by_parameter + term * slope
        if not (term > 1e-17 * total).any():
            break
    return total, by_parameter


def _moved_array(x: Array, a: Array, total: Array) -> Array:
    b, y = total - a, 1 - x
    below = np.where(x > _SLOW, False, np.where(y > _SLOW, True, x * total <= a))
    # Above the mean, the two sides change places.
    sides = np.where(below, (x, a, b), (y, b, a))
    sums = np.empty((2, *x.shape))
    for own in (True, False):
        some = below == own
        one, two, three = (side[some] for side in sides)
        sums[:, some] = _series(one, two, three, own)
    level = np.log(x) + digamma_array(total) - digamma_array(a)
    by_a = sums[0] * np.where(below, level - 1 / a, level) + sums[1]
    return np.where(below, -x / a, x / b) * by_a


def _moved_eval(x: Any, alpha: Any, total: Any) -> Any:
    with np.errstate(all="ignore"):
        args = (np.asarray(v, np.float64) for v in (x, alpha, total))
        x64, a, t = np.broadcast_arrays(*args)
        good = (x64 > 0) & (x64 < 1) & (a > 0) & (t > a)
        safe = (np.where(good, v, d) for v, d in ((x64, 0.5), (a, 1.0), (t, 2.0)))
        # At the ends of the interval a sample no longer moves.
        found = np.where(good, _moved_array(*safe), 0.0)
    return found.astype(x.dtype)


def _moved_reference(x: Any, alpha: Any, total: Any) -> Any:
    """Differences of the distribution in Python's numbers."""

    def level(x: float, a: float, b: float) -> float:
        terms = [1 / a]
        while terms[-1] > 1e-18 * terms[0]:
            n = len(terms) - 1
            terms.append(terms[-1] * (a + b + n) / (a + 1 + n) * x)
        return x * (1 - x) * density(x, a, b) * math.fsum(terms)

    def density(x: float, a: float, b: float) -> float:
        scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
        return math.exp(scale + (a - 1) * math.log(x) + (b - 1) * math.log(1 - x))

    def one(x: float, a: float, total: float) -> float:
        b, h = total - a, 2e-3
        change = math.fsum(
            sign * weight * level(x, a + sign * k * h, b) / h
            for k, weight in _STENCIL.items()
            for sign in (1, -1)
        )
        return -change / density(x, a, b) / (1 - x)

    return np.vectorize(one, otypes=[float])(x, alpha, total)


def _moved_samples(rng: np.random.Generator) -> Any:
    for shape in ((3, 4), (), (0, 2)):
        alpha = rng.uniform(0.5, 4.0, shape)
        total = alpha + rng.uniform(0.5, 4.0, shape)
        yield Sample((rng.uniform(0.1, 0.9, shape), alpha, total))


def _by_sample(g: Any, x: Any, alpha: Any, total: Any, out: Any) -> Any:
    """Exact: F differentiated by a and x is the density's derivative by a."""
    score = x.log() + digamma(total) - digamma(alpha)
    slope = (alpha - 1) / x - (total - alpha) / (1 - x)
    return times(g, -score / (1 - x) - out * slope)


def _by_parameter(place: int) -> Any:
    """A difference in float64: second derivatives to about ten digits."""

    def rule(g: Any, x: Any, alpha: Any, total: Any, out: Any) -> Any:
        args = [cast(v, dtypes.float64) for v in (x, alpha, total)]
        step = minimum(args[1], args[2] - args[1]).detach() * 0.01
        change: Any = 0.0
        for k, weight in _STENCIL.items():
            for sign in (1, -1):
                moved = list(args)
                moved[place] = moved[place] + sign * k * step
                change = change + sign * weight * dirichlet_moved_op(*moved)
        return times(g, cast(change / step, x.dtype))

    return rule


_RULES = {"x": _by_sample, "alpha": _by_parameter(1), "total": _by_parameter(2)}
dirichlet_moved_op: Op = define(
    "dirichlet_moved",
    inputs="x alpha total",
    eval=_moved_eval,
    type=elementwise_type("dirichlet_moved", "floating", "same"),
    vjp=_RULES,
    jvp=_RULES,
    batch=elementwise_batch,
    cost=2000,
    samples=_moved_samples,
    reference=_moved_reference,
)


def _moved(alpha: Tensor, out: Tensor) -> Tensor:
    total = alpha.sum(-1, keepdim=True).expand(alpha.shape)
    return dirichlet_moved_op(out, alpha, total)


def _pull(g: Tensor, alpha: Tensor, out: Tensor) -> Tensor:
    return times(_moved(alpha, out), g - (out * g).sum(-1, keepdim=True))


def _push(t: Tensor, alpha: Tensor, out: Tensor) -> Tensor:
    own = times(_moved(alpha, out), t)
    return own - out * own.sum(-1, keepdim=True)


def _sample_eval(seed: Any, block: Any, alpha: Any) -> Any:
    drawn = _standard_gamma_eval(seed, block, alpha)
    return drawn / drawn.sum(-1, keepdims=True)


def _sample_reference(seed: Any, block: Any, alpha: Any) -> Any:
    drawn = standard_gamma_op.reference(seed, block, alpha)  # type: ignore[misc]
    return drawn / drawn.sum(-1, keepdims=True)


def _sample_samples(rng: np.random.Generator) -> Any:
    for shape in ((3, 4), (2,), (0, 2)):
        block = rng.integers(0, 2**40, shape)
        seed = np.asarray(rng.integers(0, 2**40))
        yield Sample((seed, block, rng.uniform(0.2, 6.0, shape)))


dirichlet_op: Op = define(
    "dirichlet",
    inputs="seed block alpha",
    eval=_sample_eval,
    type=_gamma_type,
    vjp={"alpha": _pull},
    jvp={"alpha": _push},
    batch=_gamma_batch,
    random=True,
    cost=400,
    samples=_sample_samples,
    reference=_sample_reference,
)


@public(name="_sample_dirichlet")
def sample_dirichlet(alpha: Tensor, generator: Generator | None = None) -> Tensor:
    """Samples of the Dirichlet distribution along the last axis.

    >>> float(weft._sample_dirichlet(weft.ones(3)).sum().round(decimals=4))
    1.0
    """
    with beside(alpha):
        seed, block = random_blocks("_sample_dirichlet", alpha.shape, generator)
    return dirichlet_op(seed, block, alpha)


@public(name="_dirichlet_grad")
def dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    """How a component of a Dirichlet sample moves with its concentration.

    >>> x, alpha, total = weft.tensor([[0.5], [1.0], [2.0]])
    >>> weft._dirichlet_grad(x, alpha, total)
    tensor([0.6931])
    """
    return dirichlet_moved_op(x, alpha, total)
