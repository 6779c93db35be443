"""The geometric distribution."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.distributions import constraints
from weft.distributions.bernoulli import Odds
from weft.distributions.utils import (
    bce_with_logits,
    broadcast_all,
    check_values,
    open_uniform,
)

__all__ = ["Geometric"]


class Geometric(Odds):
    """The number of failures before the first success.

    >>> weft.distributions.Geometric(0.25).mean
    tensor(3., dtype=float32)
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer
    _parameters = Odds._parameters

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        shape = self._take(probs, logits)
        super().__init__(shape, validate_args=validate_args)
        if self._validate_args and probs is not None:
            check_values(
                self.probs, self.probs > 0,
                "Geometric: expected parameter probs to be positive, but found "
                "{value}{where}",
            )  # fmt: skip

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return weft.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with weft.no_grad():
            u = open_uniform(self.probs, self._extended_shape(sample_shape))
            return (u.log() / (-self.probs).log1p()).floor().detach()

    def log_prob(self, value: Tensor) -> Tensor:
        value, probs = broadcast_all(self._given(value), self.probs)
        probs = probs.masked_fill((probs == 1) & (value == 0), 0)
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        return bce_with_logits(self.logits, self.probs) / self.probs
