"""The negative binomial distribution."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.distributions import constraints
from weft.distributions.binomial import Counts
from weft.distributions.gamma import Gamma
from weft.nn import functional as F

__all__ = ["NegativeBinomial"]


class NegativeBinomial(Counts):
    """The number of successes before ``total_count`` failures.

    >>> weft.distributions.NegativeBinomial(3.0, 0.5).mean
    tensor(3., dtype=float32)
    """

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer
    _parameters = Counts._parameters

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        mode = ((self.total_count - 1) * self.logits.exp()).floor()
        return mode.clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / (-self.logits).sigmoid()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with weft.no_grad():
            rates = Gamma(
                self.total_count, (-self.logits).exp(), validate_args=False
            ).sample(sample_shape)
            return weft.poisson(rates)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._given(value)
        chances = self.total_count * F.logsigmoid(-self.logits)
        chances = chances + value * F.logsigmoid(self.logits)
        ways = (
            -(self.total_count + value).lgamma()
            + (1.0 + value).lgamma()
            + self.total_count.lgamma()
        )
        ways = ways.masked_fill(self.total_count + value == 0.0, 0.0)
        return chances - ways
