"""The multivariate normal distribution whose covariance is low-rank and diagonal."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft import Tensor
from weft.distributions import constraints
from weft.distributions.distribution import Distribution
from weft.distributions.multivariate_normal import (
    _batch_mahalanobis,
    _batch_mv,
    half_log_det,
)
from weft.distributions.utils import gaussian, lazy_property
from weft.errors import ArgumentError

__all__ = ["LowRankMultivariateNormal"]


def _batch_capacitance_tril(W: Tensor, D: Tensor) -> Tensor:
    """The Cholesky factor of ``I + W' D^-1 W``."""
    small = W.mT / D.unsqueeze(-2) @ W
    identity = weft.eye(W.shape[-1], dtype=W.dtype, device=W.device)
    return weft.linalg.cholesky(small + identity)


def _batch_lowrank_logdet(W: Tensor, D: Tensor, capacitance_tril: Tensor) -> Tensor:
    """The logarithm of the determinant of ``W W' + D``."""
    return 2 * half_log_det(capacitance_tril) + D.log().sum(-1)


def _batch_lowrank_mahalanobis(
    W: Tensor, D: Tensor, x: Tensor, capacitance_tril: Tensor
) -> Tensor:
    """``x' (W W' + D)^-1 x``, by Woodbury's identity."""
    inner = _batch_mv(W.mT / D.unsqueeze(-2), x)
    return (x.square() / D).sum(-1) - _batch_mahalanobis(capacitance_tril, inner)


class LowRankMultivariateNormal(Distribution):
    """A normal distribution with covariance ``W W' + diag(D)``.

    >>> d = weft.distributions.LowRankMultivariateNormal(
    ...     weft.zeros(2), weft.tensor([[1.0], [0.0]]), weft.ones(2)
    ... )
    >>> d.covariance_matrix.tolist()
    [[2.0, 0.0], [0.0, 1.0]]
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True
    _parameters = {"loc": 1, "cov_diag": 1, "cov_factor": 2}

    def __init__(
        self,
        loc: Tensor,
        cov_factor: Tensor,
        cov_diag: Tensor,
        validate_args: bool | None = None,
    ) -> None:
        if loc.ndim < 1:
            raise ArgumentError(
                "LowRankMultivariateNormal: expected loc to have an axis"
            )
        event = loc.shape[-1:]
        if cov_factor.ndim < 2 or cov_factor.shape[-2:-1] != event:
            raise ArgumentError(
                "LowRankMultivariateNormal: expected cov_factor to be a batch of "
                f"matrices with {event[0]} rows, got {tuple(cov_factor.shape)}"
            )
        if cov_diag.shape[-1:] != event:
            raise ArgumentError(
                "LowRankMultivariateNormal: expected cov_diag to be a batch of "
                f"vectors of {event[0]} elements, got {tuple(cov_diag.shape)}"
            )
        batch = weft.broadcast_shapes(
            loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1]
        )
        self.loc = loc.expand((*batch, *event))
        self.cov_diag = cov_diag.expand((*batch, *event))
        self.cov_factor = cov_factor.expand((*batch, *cov_factor.shape[-2:]))
        self._unbroadcasted_cov_factor = cov_factor
        self._unbroadcasted_cov_diag = cov_diag
        self._capacitance_tril = _batch_capacitance_tril(cov_factor, cov_diag)
        super().__init__(batch, event, validate_args=validate_args)

    def _expand_rest(self, new: Any) -> None:
        new._unbroadcasted_cov_factor = self._unbroadcasted_cov_factor
        new._unbroadcasted_cov_diag = self._unbroadcasted_cov_diag
        new._capacitance_tril = self._capacitance_tril

    def _full(self, matrix: Tensor) -> Tensor:
        n = self._event_shape[0]
        return matrix.expand((*self._batch_shape, n, n))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:
        found = self._unbroadcasted_cov_factor.pow(2).sum(-1)
        found = found + self._unbroadcasted_cov_diag
        return found.expand((*self._batch_shape, *self._event_shape))

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance."""
        return weft.linalg.cholesky(self.covariance_matrix)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        factor = self._unbroadcasted_cov_factor
        diagonal = weft.diag_embed(self._unbroadcasted_cov_diag)
        return self._full(factor @ factor.mT + diagonal)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        right = self._unbroadcasted_cov_factor.mT / (
            self._unbroadcasted_cov_diag.unsqueeze(-2)
        )
        solved = weft.linalg.solve_triangular(
            self._capacitance_tril, right, upper=False
        )
        diagonal = weft.diag_embed(self._unbroadcasted_cov_diag.reciprocal())
        return self._full(diagonal - solved.mT @ solved)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        low = (*shape[:-1], self.cov_factor.shape[-1])
        return (
            self.loc
            + _batch_mv(self._unbroadcasted_cov_factor, gaussian(self.loc, low))
            + self._unbroadcasted_cov_diag.sqrt() * gaussian(self.loc, shape)
        )

    def _parts_of(self) -> tuple[Tensor, Tensor]:
        return self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag

    def log_prob(self, value: Tensor) -> Tensor:
        diff = self._given(value) - self.loc
        parts = self._parts_of()
        distance = _batch_lowrank_mahalanobis(*parts, diff, self._capacitance_tril)
        logdet = _batch_lowrank_logdet(*parts, self._capacitance_tril)
        size = self._event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (size + logdet + distance)

    def entropy(self) -> Tensor:
        logdet = _batch_lowrank_logdet(*self._parts_of(), self._capacitance_tril)
        size = self._event_shape[0] * (1.0 + math.log(2 * math.pi))
        found = 0.5 * (size + logdet)
        return found.expand(self._batch_shape) if self._batch_shape else found
