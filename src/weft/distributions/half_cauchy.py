"""The half-Cauchy distribution."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft import Tensor
from weft.distributions.cauchy import Cauchy
from weft.distributions.half_normal import Half
from weft.distributions.transforms import AbsTransform

__all__ = ["HalfCauchy"]


class HalfCauchy(Half):
    """The absolute value of a Cauchy number around 0.

    >>> weft.distributions.HalfCauchy(1.0).mode
    tensor(0.)
    """

    base_dist: Cauchy
    _parameters = {}

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        base = Cauchy(0, scale, validate_args=False)
        super().__init__(base, AbsTransform(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return weft.full_like(self.scale, math.inf)

    @property
    def mode(self) -> Tensor:
        return weft.zeros_like(self.scale)

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance
