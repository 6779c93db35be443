"""The generalised Pareto distribution."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft import Tensor
from weft.distributions import constraints
from weft.distributions.distribution import Distribution
from weft.distributions.utils import all_numbers, broadcast_all, uniform

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """The distribution of what exceeds a high threshold.

    >>> weft.distributions.GeneralizedPareto(0.0, 1.0, 0.5).mean
    tensor(2., dtype=float32)
    """

    arg_constraints = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True
    _parameters = {"loc": 0, "scale": 0, "concentration": 0}

    def __init__(
        self,
        loc: Any,
        scale: Any,
        concentration: Any,
        validate_args: bool | None = None,
    ) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(
            loc, scale, concentration
        )
        number = all_numbers(loc, scale, concentration)
        shape = () if number else self.loc.shape
        super().__init__(shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(uniform(self.loc, self._extended_shape(sample_shape)))

    def _zero(self) -> Tensor:
        """Where the concentration is zero, and the distribution exponential."""
        return self.concentration.isclose(weft.zeros_like(self.concentration))

    def _safe(self) -> Tensor:
        one = weft.ones_like(self.concentration)
        return weft.where(self._zero(), one, self.concentration)

    def log_prob(self, value: Tensor) -> Tensor:
        y = (self._given(value) - self.loc) / self.scale
        k = self._safe()
        inside = 1 + k * y
        tail = (1 / k + 1) * inside.log()
        return -self.scale.log() - weft.where(self._zero(), y, tail)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of values above this one."""
        y = (self._given(value) - self.loc) / self.scale
        k = self._safe()
        return weft.where(self._zero(), -y, -(k * y).log1p() / k)

    def log_cdf(self, value: Tensor) -> Tensor:
        """The logarithm of ``cdf``."""
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return self.log_cdf(value).exp()

    def icdf(self, value: Tensor) -> Tensor:
        k = self._safe()
        left = (-value).log1p()
        found = ((-k * left).exp() - 1) / k
        return self.loc + self.scale * weft.where(self._zero(), -left, found)

    def _below(self, bound: float, found: Tensor) -> Tensor:
        """A moment, which is infinite unless the concentration is below a bound."""
        return weft.where(self.concentration < bound, found, math.inf)

    @property
    def mean(self) -> Tensor:
        k = weft.where(self.concentration < 1, self.concentration, 0.5)
        return self._below(1, self.loc + self.scale / (1 - k))

    @property
    def variance(self) -> Tensor:
        k = weft.where(self.concentration < 0.5, self.concentration, 0.25)
        return self._below(0.5, self.scale.pow(2) / ((1 - k).pow(2) * (1 - 2 * k)))

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1

    @property
    def mode(self) -> Tensor:
        return self.loc

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        end = self.loc - self.scale / self._safe()
        upper = weft.where(self.concentration < 0, end, math.inf)
        return constraints.interval(self.loc, upper)
