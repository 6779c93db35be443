"""The Dirichlet distribution."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor, special
from weft.distributions import constraints
from weft.distributions.exp_family import ExponentialFamily
from weft.errors import ArgumentError
from weft.nn import functional as F

__all__ = ["Dirichlet"]


class Dirichlet(ExponentialFamily):
    """The Dirichlet distribution of points on a simplex.

    >>> weft.distributions.Dirichlet(weft.tensor([1.0, 3.0])).mean
    tensor([0.2500, 0.7500], shape=(2,), dtype=float32)
    """

    arg_constraints = {
        "concentration": constraints.independent(constraints.positive, 1)
    }
    support = constraints.simplex
    has_rsample = True
    _parameters = {"concentration": 1}

    def __init__(
        self, concentration: Tensor, validate_args: bool | None = None
    ) -> None:
        if concentration.ndim < 1:
            raise ArgumentError(
                "Dirichlet: expected a concentration of at least one dimension"
            )
        self.concentration = concentration
        shape = concentration.shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return weft._sample_dirichlet(self.concentration.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._given(value)
        return (
            special.xlogy(self.concentration - 1.0, value).sum(-1)
            + self.concentration.sum(-1).lgamma()
            - self.concentration.lgamma().sum(-1)
        )

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def mode(self) -> Tensor:
        less = (self.concentration - 1).clamp(min=0.0)
        mode = less / less.sum(-1, keepdim=True)
        corner = (self.concentration < 1).all(-1, keepdim=True)
        n = self.concentration.shape[-1]
        best = F.one_hot(mode.nan_to_num().argmax(-1), n).to(mode.dtype)
        return weft.where(corner, best, mode)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, keepdim=True)
        return (
            self.concentration
            * (total - self.concentration)
            / (total.pow(2) * (total + 1))
        )

    def entropy(self) -> Tensor:
        k = self.concentration.shape[-1]
        total = self.concentration.sum(-1)
        return (
            self.concentration.lgamma().sum(-1)
            - total.lgamma()
            - (k - total) * total.digamma()
            - ((self.concentration - 1.0) * self.concentration.digamma()).sum(-1)
        )

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.concentration,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        (x,) = natural_params
        return x.lgamma().sum(-1) - x.sum(-1).lgamma()
