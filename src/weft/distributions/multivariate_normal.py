"""The multivariate normal distribution."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft import Tensor
from weft.distributions import constraints
from weft.distributions.distribution import Distribution
from weft.distributions.utils import gaussian, lazy_property
from weft.errors import ArgumentError

__all__ = ["MultivariateNormal"]


def _batch_mv(bmat: Tensor, bvec: Tensor) -> Tensor:
    """Products of matrices with vectors, both in batches."""
    return (bmat @ bvec.unsqueeze(-1)).squeeze(-1)


def _batch_mahalanobis(bL: Tensor, bx: Tensor) -> Tensor:
    """``x' M^-1 x`` where M = L L', both in batches that broadcast."""
    shape = weft.broadcast_shapes(bL.shape[:-2], bx.shape[:-1])
    n = bx.shape[-1]
    right = bx.expand((*shape, n)).unsqueeze(-1)
    found = weft.linalg.solve_triangular(bL.expand((*shape, n, n)), right, upper=False)
    return found.square().sum((-2, -1))


def _precision_to_scale_tril(P: Tensor) -> Tensor:
    """The Cholesky factor of the inverse of a matrix."""
    factor = weft.linalg.cholesky(P.flip((-2, -1))).flip((-2, -1)).mT
    identity = weft.eye(P.shape[-1], dtype=P.dtype, device=P.device)
    return weft.linalg.solve_triangular(
        factor, identity.expand(factor.shape), upper=False
    )


def half_log_det(factor: Tensor) -> Tensor:
    """Half the logarithm of a matrix's determinant, from its Cholesky factor."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


class MultivariateNormal(Distribution):
    """The normal distribution of vectors, with a covariance.

    One of ``covariance_matrix``, ``precision_matrix`` and ``scale_tril``, the Cholesky
    factor of the covariance, is given.

    >>> d = weft.distributions.MultivariateNormal(weft.zeros(2), weft.eye(2))
    >>> d.log_prob(weft.zeros(2))
    tensor(-1.8379, dtype=float32)
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True
    _parameters = {
        "loc": 1, "covariance_matrix": 2, "precision_matrix": 2, "scale_tril": 2,
    }  # fmt: skip

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.ndim < 1:
            raise ArgumentError("MultivariateNormal: expected loc to have an axis")
        given = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        known = {name: v for name, v in given.items() if v is not None}
        if len(known) != 1:
            raise ArgumentError(
                "MultivariateNormal: expected exactly one of covariance_matrix, "
                f"precision_matrix and scale_tril, got {len(known)}"
            )
        ((name, matrix),) = known.items()
        if matrix.ndim < 2:
            raise ArgumentError(
                f"MultivariateNormal: expected {name} of at least two dimensions"
            )
        batch = weft.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        setattr(self, name, matrix.expand((*batch, *matrix.shape[-2:])))
        self.loc = loc.expand((*batch, loc.shape[-1]))
        event = self.loc.shape[-1:]
        super().__init__(batch, event, validate_args=validate_args)
        if scale_tril is not None:
            self._unbroadcasted_scale_tril = scale_tril
        elif covariance_matrix is not None:
            self._unbroadcasted_scale_tril = weft.linalg.cholesky(covariance_matrix)
        else:
            self._unbroadcasted_scale_tril = _precision_to_scale_tril(matrix)

    def _expand_rest(self, new: Any) -> None:
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril

    def _full(self, matrix: Tensor) -> Tensor:
        n = self._event_shape[0]
        return matrix.expand((*self._batch_shape, n, n))

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance."""
        return self._full(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        factor = self._unbroadcasted_scale_tril
        return self._full(factor @ factor.mT)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        factor = self._unbroadcasted_scale_tril
        return self._full(weft.linalg.inv(factor @ factor.mT))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        found = self._unbroadcasted_scale_tril.pow(2).sum(-1)
        return found.expand((*self._batch_shape, *self._event_shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        noise = gaussian(self.loc, self._extended_shape(sample_shape))
        return self.loc + _batch_mv(self._unbroadcasted_scale_tril, noise)

    def log_prob(self, value: Tensor) -> Tensor:
        diff = self._given(value) - self.loc
        distance = _batch_mahalanobis(self._unbroadcasted_scale_tril, diff)
        size = self._event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (size + distance) - half_log_det(self._unbroadcasted_scale_tril)

    def entropy(self) -> Tensor:
        size = self._event_shape[0] * (1.0 + math.log(2 * math.pi))
        found = 0.5 * size + half_log_det(self._unbroadcasted_scale_tril)
        return found.expand(self._batch_shape) if self._batch_shape else found
