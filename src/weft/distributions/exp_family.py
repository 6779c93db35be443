"""Exponential families, whose entropy follows from the log-normaliser."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.distributions.distribution import Distribution
from weft.distributions.utils import sum_rightmost


class ExponentialFamily(Distribution):
    """A distribution with density ``exp(natural · t(x) - F(natural) + k(x))``.

    >>> weft.distributions.Gamma(2.0, 1.0).__class__.__mro__[1].__name__
    'ExponentialFamily'
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        """The natural parameters."""
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        """F, as a function of the natural parameters."""
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Any:
        """The expectation of k(x)."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The entropy as a Bregman divergence of the log-normaliser."""
        result = -self._mean_carrier_measure
        natural = [p.detach().requires_grad_() for p in self._natural_params]
        with weft.enable_grad():
            normalizer = self._log_normalizer(*natural)
            slopes = weft.autograd.grad(normalizer.sum(), natural, create_graph=True)
        result = result + normalizer
        for parameter, slope in zip(natural, slopes, strict=True):
            part = -parameter * slope
            result = result + sum_rightmost(part, part.ndim - len(self._batch_shape))
        return result
