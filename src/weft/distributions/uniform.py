"""The uniform distribution."""

from __future__ import annotations

from typing import Any

from weft import Tensor
from weft.distributions import constraints
from weft.distributions.distribution import Distribution
from weft.distributions.utils import (
    all_numbers,
    broadcast_all,
    check_values,
    uniform,
)

__all__ = ["Uniform"]


class Uniform(Distribution):
    """The uniform distribution on [low, high).

    >>> weft.distributions.Uniform(0.0, 2.0).log_prob(weft.tensor(1.0))
    tensor(-0.6931, dtype=float32)
    """

    has_rsample = True
    _parameters = {"low": 0, "high": 0}

    @property
    def arg_constraints(self) -> dict[str, Any]:
        return {
            "low": constraints.dependent(is_discrete=False, event_dim=0),
            "high": constraints.dependent(is_discrete=False, event_dim=0),
        }

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        shape = () if all_numbers(low, high) else self.low.shape
        super().__init__(shape, validate_args=validate_args)
        if self._validate_args:
            check_values(
                self.high, self.low < self.high,
                "Uniform: expected low < high everywhere, got a high of {value}{where}",
            )  # fmt: skip

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return float("nan") * self.high

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / 12**0.5

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low).pow(2) / 12

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = uniform(self.low, self._extended_shape(sample_shape))
        return self.low + u * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._given(value)
        inside = (self.low <= value) & (self.high > value)
        return inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def cdf(self, value: Tensor) -> Tensor:
        value = self._given(value)
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()
