"""Kullback-Leibler divergences between distributions.

``kl_divergence(p, q)`` finds a function by the classes of both. Where p and q are of
different families, the divergence is ``-entropy(p) - E_p[log q]``, and the expectation
is made of p's moments: E x, Var x, E log x and E exp(-t x).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import weft
from weft import Tensor, special
from weft.distributions.bernoulli import Bernoulli
from weft.distributions.beta import Beta
from weft.distributions.binomial import Binomial
from weft.distributions.categorical import Categorical
from weft.distributions.cauchy import Cauchy
from weft.distributions.continuous_bernoulli import ContinuousBernoulli
from weft.distributions.dirichlet import Dirichlet
from weft.distributions.distribution import Distribution
from weft.distributions.exp_family import ExponentialFamily
from weft.distributions.exponential import Exponential
from weft.distributions.gamma import Gamma
from weft.distributions.geometric import Geometric
from weft.distributions.gumbel import Gumbel
from weft.distributions.half_normal import HalfNormal
from weft.distributions.independent import Independent
from weft.distributions.laplace import Laplace
from weft.distributions.lowrank_multivariate_normal import (
    LowRankMultivariateNormal,
    _batch_lowrank_logdet,
    _batch_lowrank_mahalanobis,
)
from weft.distributions.multivariate_normal import (
    MultivariateNormal,
    _batch_mahalanobis,
    half_log_det,
)
from weft.distributions.normal import Normal
from weft.distributions.one_hot_categorical import OneHotCategorical
from weft.distributions.pareto import Pareto
from weft.distributions.poisson import Poisson
from weft.distributions.transformed_distribution import TransformedDistribution
from weft.distributions.uniform import Uniform
from weft.distributions.utils import broadcast_all, euler_constant, sum_rightmost
from weft.errors import DTypeError
from weft.nn import functional as F

__all__ = ["kl_divergence", "register_kl"]

Rule = Callable[[Any, Any], Tensor]
_KL_REGISTRY: dict[tuple[type, type], Rule] = {}
_KL_MEMOIZE: dict[tuple[type, type], Rule] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Rule], Rule]:
    """A decorator that registers a function for ``kl_divergence``.

    The most specific pair of classes is found; two that are equally specific are told
    by a RuntimeWarning.

    >>> D = weft.distributions
    >>> class Mine(D.Normal):
    ...     pass
    >>> @D.register_kl(Mine, D.Normal)
    ... def mine(p, q):
    ...     return weft.tensor(7.0)
    >>> D.kl_divergence(Mine(0.0, 1.0), D.Normal(0.0, 1.0))
    tensor(7.)
    """
    for name, given in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(given, type):
            raise DTypeError(
                f"register_kl: expected {name} to be a class, got {given!r}"
            )

    def decorator(fun: Rule) -> Rule:
        _KL_REGISTRY[type_p, type_q] = fun
        _KL_MEMOIZE.clear()  # the order may have changed
        return fun

    return decorator


def _precedes(a: tuple[type, type], b: tuple[type, type]) -> bool:
    """Whether a pair of classes is at least as specific, in order of the pair."""
    for x, y in zip(a, b, strict=True):
        if not issubclass(x, y):
            return False
        if x is not y:
            break
    return True


def _first(matches: list[tuple[type, type]]) -> tuple[type, type]:
    best = matches[0]
    for other in matches[1:]:
        if _precedes(other, best):
            best = other
    return best


def _dispatch_kl(type_p: type, type_q: type) -> Any:
    """The function of the most specific match."""
    matches = [
        (p, q)
        for p, q in _KL_REGISTRY
        if issubclass(type_p, p) and issubclass(type_q, q)
    ]
    if not matches:
        return NotImplemented
    left_p, left_q = _first(matches)
    right_q, right_p = _first([(q, p) for p, q in matches])
    left, right = _KL_REGISTRY[left_p, left_q], _KL_REGISTRY[right_p, right_q]
    if left is not right:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please "
            f"register_kl({left_p.__name__}, {right_q.__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return left


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The Kullback-Leibler divergence ``E_p[log p(x) - log q(x)]``.

    >>> D = weft.distributions
    >>> D.kl_divergence(D.Normal(0.0, 1.0), D.Normal(1.0, 1.0))
    tensor(0.5000)
    """
    pair = type(p), type(q)
    rule = _KL_MEMOIZE.get(pair)
    if rule is None:
        rule = _KL_MEMOIZE[pair] = _dispatch_kl(*pair)
    if rule is NotImplemented:
        raise NotImplementedError(
            f"no KL divergence is registered for p of {type(p).__name__} and q of "
            f"{type(q).__name__}; add one with register_kl"
        )
    return rule(p, q)


def _infinite(p: Any, q: Any) -> Tensor:
    """Infinity, where p has values that q has not."""
    like = p.entropy()
    shape = weft.broadcast_shapes(p.batch_shape, q.batch_shape)
    return weft.full(shape, math.inf, dtype=like.dtype, device=like.device)


def _inf_where(condition: Tensor, value: Tensor) -> Tensor:
    condition, value = weft.broadcast_tensors(condition, value)
    return value.masked_fill(condition, math.inf)


# -- distributions of one family


@register_kl(Bernoulli, Bernoulli)
def _kl_bernoulli_bernoulli(p: Any, q: Any) -> Tensor:
    one = p.probs * (F.softplus(-q.logits) - F.softplus(-p.logits))
    one = _inf_where(q.probs == 0, one)
    one = weft.where(p.probs == 0, 0.0, one)
    zero = (1 - p.probs) * (F.softplus(q.logits) - F.softplus(p.logits))
    zero = _inf_where(q.probs == 1, zero)
    return one + weft.where(p.probs == 1, 0.0, zero)


@register_kl(Beta, Beta)
def _kl_beta_beta(p: Any, q: Any) -> Tensor:
    return _kl_dirichlet_dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Binomial, Binomial)
def _kl_binomial_binomial(p: Any, q: Any) -> Tensor:
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError(
            "KL between Binomials where q.total_count > p.total_count is not "
            "implemented"
        )
    odds = p.probs * (p.logits - q.logits)
    found = p.total_count * (odds + (-p.probs).log1p() - (-q.probs).log1p())
    return _inf_where(p.total_count > q.total_count, found)


@register_kl(Categorical, Categorical)
def _kl_categorical_categorical(p: Any, q: Any) -> Tensor:
    t = _inf_where(q.probs == 0, p.probs * (p.logits - q.logits))
    return weft.where(p.probs == 0, 0.0, t).sum(-1)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _kl_continuous_bernoulli_continuous_bernoulli(p: Any, q: Any) -> Tensor:
    mine = p._cont_bern_log_norm() + (-p.probs).log1p()
    theirs = q._cont_bern_log_norm() + (-q.probs).log1p()
    return p.mean * (p.logits - q.logits) + mine - theirs


@register_kl(Dirichlet, Dirichlet)
def _kl_dirichlet_dirichlet(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    sizes = total.lgamma() - b.sum(-1).lgamma()
    ways = (b.lgamma() - a.lgamma()).sum(-1)
    slopes = ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)
    return sizes + ways + slopes


@register_kl(Exponential, Exponential)
def _kl_exponential_exponential(p: Any, q: Any) -> Tensor:
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@register_kl(ExponentialFamily, ExponentialFamily)
def _kl_expfamily_expfamily(p: Any, q: Any) -> Tensor:
    """The Bregman divergence of the log-normaliser."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "the cross KL-divergence between different exponential families cannot be "
            "computed by Bregman divergences"
        )
    mine = [n.detach().requires_grad_() for n in p._natural_params]
    theirs = q._natural_params
    with weft.enable_grad():
        normalizer = p._log_normalizer(*mine)
        slopes = weft.autograd.grad(normalizer.sum(), mine, create_graph=True)
    result = q._log_normalizer(*theirs) - normalizer
    for a, b, slope in zip(mine, theirs, slopes, strict=True):
        result = result - sum_rightmost((b - a) * slope, len(q.event_shape))
    return result


@register_kl(Gamma, Gamma)
def _kl_gamma_gamma(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    return (
        b * (p.rate / q.rate).log()
        + b.lgamma()
        - a.lgamma()
        + (a - b) * a.digamma()
        + (q.rate - p.rate) * (a / p.rate)
    )


@register_kl(Gumbel, Gumbel)
def _kl_gumbel_gumbel(p: Any, q: Any) -> Tensor:
    ratio = p.scale / q.scale
    away = (q.loc - p.loc) / q.scale
    return (
        -ratio.log()
        - away
        + ratio * euler_constant
        + (away + (1 + ratio).lgamma()).exp()
        - (1 + euler_constant)
    )


@register_kl(Geometric, Geometric)
def _kl_geometric_geometric(p: Any, q: Any) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(HalfNormal, HalfNormal)
def _kl_halfnormal_halfnormal(p: Any, q: Any) -> Tensor:
    return _kl_normal_normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _kl_laplace_laplace(p: Any, q: Any) -> Tensor:
    ratio = p.scale / q.scale
    away = (p.loc - q.loc).abs()
    return -ratio.log() + away / q.scale + ratio * (-away / p.scale).exp() - 1


def _trace_of_square(matrix: Tensor) -> Tensor:
    """The trace of ``X X'``."""
    return matrix.square().sum((-2, -1))


def _kl_gaussians(p: Any, trace: Tensor, distance: Tensor, logdet: Tensor) -> Tensor:
    """Of multivariate normal distributions: logdet is q's less p's."""
    return 0.5 * (logdet + trace + distance - p.event_shape[0])


def _check_sizes(p: Any, q: Any) -> None:
    if p.event_shape != q.event_shape:
        raise weft.errors.ArgumentError(
            "kl_divergence: expected multivariate normal distributions of one size, "
            f"got {p.event_shape} and {q.event_shape}"
        )


def _dense_terms(
    factor: Tensor, parts: list[Tensor], diff: Tensor
) -> tuple[Tensor, Tensor]:
    """The trace and the distance for q with a Cholesky factor."""
    n = factor.shape[-1]
    trace: Any = 0.0
    for part in parts:
        batch = weft.broadcast_shapes(factor.shape[:-2], part.shape[:-2])
        left = factor.expand((*batch, n, n))
        right = part.expand((*batch, *part.shape[-2:]))
        solved = weft.linalg.solve_triangular(left, right, upper=False)
        trace = trace + _trace_of_square(solved)
    return trace, _batch_mahalanobis(factor, diff)


def _lowrank_terms(q: Any, parts: list[Tensor], diff: Tensor) -> tuple[Tensor, Tensor]:
    """The trace and the distance for q with a low-rank covariance (Woodbury)."""
    w, d = q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag
    inner = w.mT / d.unsqueeze(-2)  # (..., rank, n)
    capacitance = q._capacitance_tril
    trace: Any = 0.0
    for part in parts:
        first = (part.square() / d.unsqueeze(-1)).sum((-2, -1))
        product = inner @ part
        batch = weft.broadcast_shapes(capacitance.shape[:-2], product.shape[:-2])
        left = capacitance.expand((*batch, *capacitance.shape[-2:]))
        right = product.expand((*batch, *product.shape[-2:]))
        solved = weft.linalg.solve_triangular(left, right, upper=False)
        trace = trace + first - _trace_of_square(solved)
    return trace, _batch_lowrank_mahalanobis(w, d, diff, capacitance)


def _roots(p: Any) -> list[Tensor]:
    """Matrices whose squares add up to p's covariance."""
    if isinstance(p, MultivariateNormal):
        return [p._unbroadcasted_scale_tril]
    return [
        p._unbroadcasted_cov_factor,
        weft.diag_embed(p._unbroadcasted_cov_diag.sqrt()),
    ]


def _logdet(p: Any) -> Tensor:
    if isinstance(p, MultivariateNormal):
        return 2 * half_log_det(p._unbroadcasted_scale_tril)
    return _batch_lowrank_logdet(
        p._unbroadcasted_cov_factor, p._unbroadcasted_cov_diag, p._capacitance_tril
    )


@register_kl(MultivariateNormal, MultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _kl_to_multivariate_normal(p: Any, q: Any) -> Tensor:
    _check_sizes(p, q)
    terms = _dense_terms(q._unbroadcasted_scale_tril, _roots(p), q.loc - p.loc)
    return _kl_gaussians(p, *terms, _logdet(q) - _logdet(p))


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _kl_to_lowrank_multivariate_normal(p: Any, q: Any) -> Tensor:
    _check_sizes(p, q)
    terms = _lowrank_terms(q, _roots(p), q.loc - p.loc)
    return _kl_gaussians(p, *terms, _logdet(q) - _logdet(p))


@register_kl(Normal, Normal)
def _kl_normal_normal(p: Any, q: Any) -> Tensor:
    ratio = (p.scale / q.scale).pow(2)
    away = ((p.loc - q.loc) / q.scale).pow(2)
    return 0.5 * (ratio + away - 1 - ratio.log())


@register_kl(OneHotCategorical, OneHotCategorical)
def _kl_onehotcategorical_onehotcategorical(p: Any, q: Any) -> Tensor:
    return _kl_categorical_categorical(p._categorical, q._categorical)


@register_kl(Pareto, Pareto)
def _kl_pareto_pareto(p: Any, q: Any) -> Tensor:
    scale, alpha = p.scale / q.scale, q.alpha / p.alpha
    found = q.alpha * scale.log() - alpha.log() + alpha - 1
    return _inf_where(p.scale < q.scale, found)


@register_kl(Poisson, Poisson)
def _kl_poisson_poisson(p: Any, q: Any) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(TransformedDistribution, TransformedDistribution)
def _kl_transformed_transformed(p: Any, q: Any) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError(
            "the KL divergence of transformed distributions needs equal transforms"
        )
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Uniform, Uniform)
def _kl_uniform_uniform(p: Any, q: Any) -> Tensor:
    found = ((q.high - q.low) / (p.high - p.low)).log()
    return _inf_where((q.low > p.low) | (q.high < p.high), found)


@register_kl(Independent, Independent)
def _kl_independent_independent(p: Any, q: Any) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError(
            "the KL divergence of Independent distributions needs as many "
            "reinterpreted axes of both"
        )
    found = kl_divergence(p.base_dist, q.base_dist)
    return sum_rightmost(found, p.reinterpreted_batch_ndims)


@register_kl(Cauchy, Cauchy)
def _kl_cauchy_cauchy(p: Any, q: Any) -> Tensor:
    top = ((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log()
    return top - (4 * p.scale * q.scale).log()


# -- p's moments


def _mean_of_log(p: Any) -> Tensor:
    """E log x."""
    if isinstance(p, Beta):
        total = p.concentration1 + p.concentration0
        return p.concentration1.digamma() - total.digamma()
    if isinstance(p, Gamma):
        return p.concentration.digamma() - p.rate.log()
    if isinstance(p, Exponential):
        return -euler_constant - p.rate.log()
    if isinstance(p, Pareto):
        return p.scale.log() + p.alpha.reciprocal()
    return (_x_log_x(p.high) - _x_log_x(p.low)) / (p.high - p.low) - 1  # Uniform


def _x_log_x(x: Tensor) -> Tensor:
    return special.xlogy(x, x)


def _mean_of_log1m(p: Any) -> Tensor:
    """E log(1 - x)."""
    if isinstance(p, Beta):
        total = p.concentration1 + p.concentration0
        return p.concentration0.digamma() - total.digamma()
    return (_x_log_x(1 - p.low) - _x_log_x(1 - p.high)) / (p.high - p.low) - 1


def _decay(p: Any, t: Tensor) -> Tensor:
    """E exp(-t x)."""
    if isinstance(p, Exponential):
        return p.rate / (p.rate + t)
    if isinstance(p, Gamma):
        return (1 + t / p.rate).pow(-p.concentration)
    if isinstance(p, Normal):
        return (0.5 * (t * p.scale).pow(2) - t * p.loc).exp()
    width = t * (p.high - p.low)  # Uniform
    return ((-t * p.low).exp() - (-t * p.high).exp()) / width


# -- E_p[log q], by q


def _to_exponential(p: Any, q: Any) -> Tensor:
    return q.rate.log() - q.rate * p.mean


def _to_gamma(p: Any, q: Any) -> Tensor:
    a = q.concentration
    power = a * q.rate.log() - a.lgamma()
    return power + (a - 1) * _mean_of_log(p) - q.rate * p.mean


def _to_normal(p: Any, q: Any) -> Tensor:
    away = (p.variance + (p.mean - q.loc).pow(2)) / q.scale.pow(2)
    return -0.5 * away - q.scale.log() - 0.5 * math.log(2 * math.pi)


def _to_gumbel(p: Any, q: Any) -> Tensor:
    linear = (q.loc - p.mean) / q.scale
    decay = (q.loc / q.scale).exp() * _decay(p, q.scale.reciprocal())
    return linear - decay - q.scale.log()


def _to_continuous_bernoulli(p: Any, q: Any) -> Tensor:
    return p.mean * q.logits + (-q.probs).log1p() + q._cont_bern_log_norm()


def _to_beta(p: Any, q: Any) -> Tensor:
    a, b = q.concentration1, q.concentration0
    ways = (a + b).lgamma() - a.lgamma() - b.lgamma()
    return ways + (a - 1) * _mean_of_log(p) + (b - 1) * _mean_of_log1m(p)


def _to_uniform(p: Any, q: Any) -> Tensor:
    return -(q.high - q.low).log()


def _to_pareto(p: Any, q: Any) -> Tensor:
    return q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * _mean_of_log(p)


def _to_laplace(p: Any, q: Any) -> Tensor:
    """Of a normal p."""
    away = p.loc - q.loc
    z = away / p.scale
    folded = p.scale * math.sqrt(2 / math.pi) * (-0.5 * z.pow(2)).exp()
    folded = folded + away * (z / math.sqrt(2)).erf()
    return -(2 * q.scale).log() - folded / q.scale


_EXPECTED: dict[type, Callable[[Any, Any], Tensor]] = {
    Beta: _to_beta, ContinuousBernoulli: _to_continuous_bernoulli,
    Exponential: _to_exponential, Gamma: _to_gamma, Gumbel: _to_gumbel,
    Laplace: _to_laplace, Normal: _to_normal, Pareto: _to_pareto,
    Uniform: _to_uniform,
}  # fmt: skip


def _outside_unit(p: Any, q: Any) -> Tensor:
    return (p.low < 0) | (p.high > 1)


def _negative(p: Any, q: Any) -> Tensor:
    return p.low < 0


def _inner_unit(p: Any, q: Any) -> Tensor:
    return (q.low > 0) | (q.high < 1)


def _heavy(p: Any, q: Any) -> Tensor:
    return p.alpha <= 1


# For each p: the q's, each with the condition under which p has values or moments that
# q has not.
_CROSSED: dict[type, dict[type, Any]] = {
    Beta: {ContinuousBernoulli: None, Exponential: None, Gamma: None, Normal: None,
           Uniform: _inner_unit},
    ContinuousBernoulli: {Exponential: None, Normal: None, Uniform: _inner_unit},
    Exponential: {Gamma: None, Gumbel: None, Normal: None},
    Gamma: {Exponential: None, Gumbel: None, Normal: None},
    Gumbel: {Normal: None},
    Laplace: {Normal: None},
    Normal: {Gumbel: None, Laplace: None},
    Pareto: {Exponential: _heavy, Gamma: _heavy, Normal: lambda p, q: p.alpha <= 2},
    Uniform: {Beta: _outside_unit, ContinuousBernoulli: _outside_unit,
              Exponential: _negative, Gamma: _negative, Gumbel: None, Normal: None,
              Pareto: lambda p, q: p.low < q.scale},
}  # fmt: skip
# For each p: the q's that never have all of its values.
_NARROWER: dict[type, tuple[type, ...]] = {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gamma: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gumbel: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Laplace: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Normal: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Pareto: (Beta, ContinuousBernoulli, Uniform),
}


def _crossed(type_q: type, outside: Any) -> Rule:
    """The divergence to another family, by its expected logarithm."""

    def rule(p: Any, q: Any) -> Tensor:
        found = -p.entropy() - _EXPECTED[type_q](p, q)
        return found if outside is None else _inf_where(outside(p, q), found)

    return rule


for _p, _row in _CROSSED.items():
    for _q, _outside in _row.items():
        register_kl(_p, _q)(_crossed(_q, _outside))
for _p, _narrow in _NARROWER.items():
    for _q in _narrow:
        register_kl(_p, _q)(_infinite)


@register_kl(Bernoulli, Poisson)
def _kl_bernoulli_poisson(p: Any, q: Any) -> Tensor:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


def _infinite_counts(p: Any, q: Any) -> Tensor:
    """Infinity of a Poisson number's shape: it may be larger than any bound."""
    like, _ = broadcast_all(p.rate, q.probs)
    return weft.full_like(like, math.inf)


for _q in (Bernoulli, Binomial):
    register_kl(Poisson, _q)(_infinite_counts)
