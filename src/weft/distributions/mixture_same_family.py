"""Mixtures of distributions of one family."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.distributions import constraints
from weft.distributions.categorical import Categorical
from weft.distributions.constraints import MixtureSameFamilyConstraint
from weft.distributions.distribution import Distribution
from weft.errors import ArgumentError

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """A mixture; the last batch axis of ``component_distribution`` is mixed.

    >>> D = weft.distributions
    >>> mix = D.Categorical(weft.ones(2))
    >>> D.MixtureSameFamily(mix, D.Normal(weft.tensor([-1.0, 3.0]), 1.0)).mean
    tensor(1., dtype=float32)
    """

    arg_constraints: Any = {}
    has_rsample = False

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        if not isinstance(mixture_distribution, Categorical):
            raise ArgumentError(
                "MixtureSameFamily: expected the mixture distribution to be a "
                f"Categorical, got {type(mixture_distribution).__name__}"
            )
        if not isinstance(component_distribution, Distribution):
            raise ArgumentError(
                "MixtureSameFamily: expected the components to be a Distribution, got "
                f"{type(component_distribution).__name__}"
            )
        outer = mixture_distribution.batch_shape
        inner = component_distribution.batch_shape[:-1]
        for a, b in zip(reversed(outer), reversed(inner), strict=False):
            if a != 1 and b != 1 and a != b:
                raise ArgumentError(
                    f"MixtureSameFamily: the mixture's batch shape {outer} does not "
                    f"fit the components' {inner}"
                )
        km = mixture_distribution.logits.shape[-1]
        kc = component_distribution.batch_shape[-1]
        if km != kc:
            raise ArgumentError(
                f"MixtureSameFamily: the mixture has {km} components, the component "
                f"distribution {kc}"
            )
        self._num_component = km
        event = component_distribution.event_shape
        self._event_ndims = len(event)
        super().__init__(inner, event, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(MixtureSameFamily, _instance)
        batch = tuple(batch_shape)
        new._component_distribution = self.component_distribution.expand(
            (*batch, self._num_component)
        )
        new._mixture_distribution = self.mixture_distribution.expand(batch)
        new._num_component = self._num_component
        new._event_ndims = self._event_ndims
        Distribution.__init__(new, batch, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property
    def support(self) -> Any:
        return MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        """The distribution of the component."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """The components."""
        return self._component_distribution

    def _probs(self) -> Tensor:
        """The weights, with axes for an event."""
        probs = self.mixture_distribution.probs
        return probs.reshape(*probs.shape, *(1,) * self._event_ndims)

    @property
    def mean(self) -> Tensor:
        parts = self._probs() * self.component_distribution.mean
        return parts.sum(-1 - self._event_ndims)

    @property
    def variance(self) -> Tensor:
        probs, axis = self._probs(), -1 - self._event_ndims
        within = (probs * self.component_distribution.variance).sum(axis)
        away = self.component_distribution.mean - self.mean.unsqueeze(axis)
        return within + (probs * away.pow(2.0)).sum(axis)

    def cdf(self, x: Tensor) -> Tensor:
        found = self.component_distribution.cdf(self._padded(x))
        return (found * self.mixture_distribution.probs).sum(-1)

    def log_prob(self, x: Tensor) -> Tensor:
        x = self._padded(self._given(x))
        found = self.component_distribution.log_prob(x)
        weights = self.mixture_distribution.logits.log_softmax(-1)
        return (found + weights).logsumexp(-1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with weft.no_grad():
            gather = len(tuple(sample_shape)) + len(self.batch_shape)
            which = self.mixture_distribution.sample(sample_shape)
            parts = self.component_distribution.sample(sample_shape)
            which = which.expand(parts.shape[:gather])
            which = which.reshape(*which.shape, 1, *(1,) * self._event_ndims)
            which = which.expand((*parts.shape[:gather], 1, *self.event_shape))
            return parts.gather(gather, which).squeeze(gather)

    def _padded(self, x: Tensor) -> Tensor:
        return x.unsqueeze(-1 - self._event_ndims)

    def __repr__(self) -> str:
        return (
            f"MixtureSameFamily(\n  {self.mixture_distribution},\n  "
            f"{self.component_distribution})"
        )
