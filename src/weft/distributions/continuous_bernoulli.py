"""The continuous Bernoulli distribution (Loaiza-Ganem and Cunningham, 2019)."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft import Tensor
from weft.distributions import constraints
from weft.distributions.bernoulli import Odds
from weft.distributions.utils import (
    bce_with_logits,
    broadcast_all,
    check_values,
    clamp_probs,
    lazy_property,
    logits_to_probs,
    uniform,
)

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(Odds):
    """The density on [0, 1] that is proportional to ``p**x (1 - p)**(1 - x)``.

    >>> weft.distributions.ContinuousBernoulli(0.5).mean
    tensor(0.5000, dtype=float32)
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _parameters = Odds._parameters
    _mean_carrier_measure = 0

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._lims = lims
        shape = self._take(probs, logits)
        if probs is not None:
            if self._validate_args if validate_args is None else validate_args:
                good = self.arg_constraints["probs"].check(self.probs)
                check_values(
                    self.probs, good,
                    "ContinuousBernoulli: expected probs in [0, 1], got {value}{where}",
                )  # fmt: skip
            self.probs = clamp_probs(self.probs)
        super().__init__(shape, validate_args=validate_args)

    def _expand_rest(self, new: Any) -> None:
        new._lims = self._lims

    @lazy_property
    def probs(self) -> Tensor:
        """The parameter as a probability."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _outside(self) -> Tensor:
        """Where the parameter is not too near to a half for the formulas."""
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut_probs(self) -> Tensor:
        low = self._lims[0] * weft.ones_like(self.probs)
        return weft.where(self._outside(), self.probs, low)

    def _cont_bern_log_norm(self) -> Tensor:
        """The logarithm of the normalising constant."""
        cut = self._cut_probs()
        below = weft.where(cut <= 0.5, cut, weft.zeros_like(cut))
        above = weft.where(cut >= 0.5, cut, weft.ones_like(cut))
        spread = ((-cut).log1p() - cut.log()).abs().log()
        width = weft.where(
            cut <= 0.5, (-2.0 * below).log1p(), (2.0 * above - 1.0).log()
        )
        x = (self.probs - 0.5).pow(2)
        near = math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x
        return weft.where(self._outside(), spread - width, near)

    @property
    def mean(self) -> Tensor:
        cut = self._cut_probs()
        found = cut / (2.0 * cut - 1.0) + 1.0 / ((-cut).log1p() - cut.log())
        x = self.probs - 0.5
        near = 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.pow(2)) * x
        return weft.where(self._outside(), found, near)

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    @property
    def variance(self) -> Tensor:
        cut = self._cut_probs()
        found = cut * (cut - 1.0) / (1.0 - 2.0 * cut).pow(2)
        found = found + 1.0 / ((-cut).log1p() - cut.log()).pow(2)
        x = (self.probs - 0.5).pow(2)
        near = 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x
        return weft.where(self._outside(), found, near)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(uniform(self.probs, self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, self._given(value))
        return -bce_with_logits(logits, value) + self._cont_bern_log_norm()

    def cdf(self, value: Tensor) -> Tensor:
        value = self._given(value)
        cut = self._cut_probs()
        found = cut.pow(value) * (1.0 - cut).pow(1.0 - value) + cut - 1.0
        inner = weft.where(self._outside(), found / (2.0 * cut - 1.0), value)
        inner = weft.where(value <= 0.0, weft.zeros_like(inner), inner)
        return weft.where(value >= 1.0, weft.ones_like(inner), inner)

    def icdf(self, value: Tensor) -> Tensor:
        cut = self._cut_probs()
        top = (-cut + value * (2.0 * cut - 1.0)).log1p() - (-cut).log1p()
        return weft.where(self._outside(), top / (cut.log() - (-cut).log1p()), value)

    def entropy(self) -> Tensor:
        low, high = (-self.probs).log1p(), self.probs.log()
        return self.mean * (low - high) - self._cont_bern_log_norm() - low

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        (x,) = natural_params
        inside = (x > self._lims[0] - 0.5) & (x < self._lims[1] - 0.5)
        cut = weft.where(inside, (self._lims[0] - 0.5) * weft.ones_like(x), x)
        found = cut.expm1().abs().log() - cut.abs().log()
        near = 0.5 * x + x.pow(2) / 24.0 - x.pow(4) / 2880.0
        return weft.where(inside, near, found)
