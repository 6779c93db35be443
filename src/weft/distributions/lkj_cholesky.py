"""Random Cholesky factors of correlation matrices (Lewandowski et al., 2009)."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft import Tensor
from weft.distributions import constraints
from weft.distributions.beta import Beta
from weft.distributions.distribution import Distribution
from weft.distributions.utils import broadcast_all, gaussian
from weft.errors import ArgumentError

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices, uniform at concentration 1.

    >>> weft.distributions.LKJCholesky(3, 0.5).sample().shape
    (3, 3)
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky
    _parameters = {"concentration": 0}

    def __init__(
        self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise ArgumentError(f"LKJCholesky: expected dim of at least 2, got {dim}")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        batch = self.concentration.shape
        self._beta = self._rows()
        super().__init__(batch, (dim, dim), validate_args=validate_args)

    def _rows(self) -> Beta:
        """The distribution of each row's squared distance, in the onion method."""
        like = self.concentration
        first = like + 0.5 * (self.dim - 2)
        offset = weft.arange(self.dim - 1, dtype=like.dtype, device=like.device)
        offset = weft.cat([offset[:1] * 0, offset])
        return Beta(offset + 0.5, first.unsqueeze(-1) - 0.5 * offset)

    def _expand_rest(self, new: Any) -> None:
        new.dim = self.dim
        shape = (*new.concentration.shape, self.dim)
        new._beta = self._beta.expand(shape)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with weft.no_grad():
            y = self._beta.sample(sample_shape).unsqueeze(-1)
            shape = self._extended_shape(sample_shape)
            u = gaussian(self.concentration, shape).tril(-1)
            norm = u.square().sum(-1, keepdim=True).sqrt()
            u = weft.where(norm > 0, u / norm, 0.0)  # the first row has no direction
            w = y.sqrt() * u
            left = (1 - w.square().sum(-1)).clamp(min=weft.finfo(w.dtype).tiny)
            return w + weft.diag_embed(left.sqrt())

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._given(value)
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        like = self.concentration
        order = weft.arange(2, self.dim + 1, dtype=like.dtype, device=like.device)
        order = 2 * (like - 1).unsqueeze(-1) + self.dim - order
        density = (order * diagonal.log()).sum(-1)
        less = self.dim - 1
        alpha = like + 0.5 * less
        bottom = alpha.lgamma() * less
        top = weft.special.multigammaln(alpha - 0.5, less)
        return density - (0.5 * less * math.log(math.pi) + top - bottom)
