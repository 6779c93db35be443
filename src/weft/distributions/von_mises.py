"""The von Mises distribution of angles."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft import Tensor, special
from weft.distributions import constraints
from weft.distributions.distribution import Distribution
from weft.distributions.utils import broadcast_all
from weft.ops.gamma_sampling import von_mises

__all__ = ["VonMises"]


def _log_i0(x: Tensor) -> Tensor:
    return special.i0e(x).log() + x.abs()


class VonMises(Distribution):
    """The von Mises distribution of angles around ``loc``.

    Samples have no gradient.

    >>> weft.distributions.VonMises(0.0, 1.0).log_prob(weft.tensor(0.0))
    tensor(-1.0738)
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False
    _parameters = {"loc": 0, "concentration": 0}

    def __init__(
        self, loc: Any, concentration: Any, validate_args: bool | None = None
    ) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._given(value)
        found = self.concentration * (value - self.loc).cos()
        return found - math.log(2 * math.pi) - _log_i0(self.concentration)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with weft.no_grad():
            k = self.concentration.detach().double().expand(shape)
            angle = von_mises(k).to(self.loc.dtype)
            loc = self.loc.detach()
            return (angle + loc + math.pi) % (2 * math.pi) - math.pi

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The circular variance."""
        ratio = special.i1e(self.concentration) / special.i0e(self.concentration)
        return 1 - ratio
