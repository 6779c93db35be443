"""The binomial distribution."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.distributions import constraints
from weft.distributions.distribution import Distribution
from weft.distributions.utils import (
    broadcast_all,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
)
from weft.errors import ArgumentError

__all__ = ["Binomial"]


class Counts(Distribution):
    """A distribution of counts: ``total_count``, and a probability or log-odds."""

    _parameters = {"total_count": 0, "probs": 0, "logits": 0}

    def __init__(
        self,
        total_count: Any = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if (probs is None) == (logits is None):
            raise ArgumentError(
                f"{type(self).__name__}: expected either probs or logits, not both "
                "and not neither"
            )
        given = logits if probs is None else probs
        like = broadcast_all(given)[0]
        count = total_count
        if not isinstance(count, Tensor):
            count = weft.tensor(count, dtype=like.dtype, device=like.device)
        count, value = weft.broadcast_tensors(count, like)
        self.total_count = count.to(value.dtype)
        setattr(self, "logits" if probs is None else "probs", value)
        super().__init__(value.shape, validate_args=validate_args)

    @lazy_property
    def logits(self) -> Tensor:
        """The log-odds."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """The probability."""
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def _param(self) -> Tensor:
        return self.__dict__["probs" if "probs" in self.__dict__ else "logits"]

    @property
    def param_shape(self) -> tuple[int, ...]:
        """The shape of the parameter."""
        return tuple(self._param.shape)


class Binomial(Counts):
    """The number of successes in ``total_count`` trials.

    >>> weft.distributions.Binomial(10, 0.25).mean
    tensor(2.5000, dtype=float32)
    """

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True
    _parameters = Counts._parameters

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with weft.no_grad():
            return weft.binomial(
                self.total_count.expand(shape), self.probs.expand(shape)
            )

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._given(value)
        n, logits = self.total_count, self.logits
        ways = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        normalizer = n * logits.clamp(min=0) + n * (-logits.abs()).exp().log1p()
        return value * logits + ways - normalizer

    def entropy(self) -> Tensor:
        count = int(self.total_count.max())
        if not count == int(self.total_count.min()):
            raise NotImplementedError(
                "Binomial: the entropy of several total counts is not implemented"
            )
        found = self.log_prob(self.enumerate_support(False))
        return -(found.exp() * found).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count = int(self.total_count.max())
        if not count == int(self.total_count.min()):
            raise NotImplementedError(
                "Binomial: the values of several total counts are not enumerated"
            )
        kind: Any = {"dtype": self._param.dtype, "device": self._param.device}
        return self._enumerated(weft.arange(1 + count, **kind), expand)
