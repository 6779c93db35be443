"""The Wishart distribution."""

from __future__ import annotations

import math
import warnings
from typing import Any

import weft
from weft import Tensor
from weft.distributions import constraints
from weft.distributions.exp_family import ExponentialFamily
from weft.distributions.multivariate_normal import (
    _precision_to_scale_tril,
    half_log_det,
)
from weft.distributions.utils import check_values, gaussian, lazy_property
from weft.errors import ArgumentError

__all__ = ["Wishart"]

_log_2 = math.log(2)


def _mvdigamma(x: Tensor, p: int) -> Tensor:
    """The derivative of ``multigammaln`` of p dimensions."""
    steps = weft.arange(p, dtype=x.dtype, device=x.device) / 2
    return (x.unsqueeze(-1) - steps).digamma().sum(-1)


def _factor(x: Tensor) -> Tensor:
    return weft.linalg.cholesky(x)


class Wishart(ExponentialFamily):
    """The Wishart distribution of positive definite matrices.

    One of ``covariance_matrix``, ``precision_matrix`` and ``scale_tril`` is given.

    >>> weft.distributions.Wishart(3.0, weft.eye(2)).mean.tolist()
    [[3.0, 0.0], [0.0, 3.0]]
    """

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0
    _parameters = {
        "df": 0, "covariance_matrix": 2, "precision_matrix": 2, "scale_tril": 2,
    }  # fmt: skip

    @property
    def arg_constraints(self) -> dict[str, Any]:
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(0),
        }

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        given = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        known = {name: v for name, v in given.items() if v is not None}
        if len(known) != 1:
            raise ArgumentError(
                "Wishart: expected exactly one of covariance_matrix, "
                f"precision_matrix and scale_tril, got {len(known)}"
            )
        ((name, matrix),) = known.items()
        if matrix.ndim < 2:
            raise ArgumentError(f"Wishart: expected {name} of at least two dimensions")
        if not isinstance(df, Tensor):
            df = weft.tensor(df, dtype=matrix.dtype, device=matrix.device)
        batch = weft.broadcast_shapes(matrix.shape[:-2], df.shape)
        event = matrix.shape[-2:]
        self.df = df.expand(batch)
        setattr(self, name, matrix.expand((*batch, *event)))
        if self._validate_args if validate_args is None else validate_args:
            check_values(
                self.df, self.df > event[-1] - 1,
                f"Wishart: expected df above {event[-1] - 1} (the number of rows less "
                "1), got {value}{where}",
            )  # fmt: skip
        super().__init__(batch, event, validate_args=validate_args)
        if scale_tril is not None:
            self._unbroadcasted_scale_tril = scale_tril
        elif covariance_matrix is not None:
            self._unbroadcasted_scale_tril = _factor(covariance_matrix)
        else:
            self._unbroadcasted_scale_tril = _precision_to_scale_tril(matrix)

    def _expand_rest(self, new: Any) -> None:
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril

    def _full(self, matrix: Tensor) -> Tensor:
        return matrix.expand((*self._batch_shape, *self._event_shape))

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the scale matrix."""
        return self._full(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The scale matrix."""
        factor = self._unbroadcasted_scale_tril
        return self._full(factor @ factor.mT)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the scale matrix."""
        factor = self._unbroadcasted_scale_tril
        return self._full(weft.linalg.inv(factor @ factor.mT))

    def _df(self) -> Tensor:
        return self.df.reshape(*self._batch_shape, 1, 1)

    @property
    def mean(self) -> Tensor:
        return self._df() * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self.df - self.covariance_matrix.shape[-1] - 1
        factor = factor.masked_fill(factor <= 0, math.nan)
        return factor.reshape(*self._batch_shape, 1, 1) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self._df() * (v.pow(2) + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def rsample(
        self, sample_shape: Any = (), max_try_correction: int | None = None
    ) -> Tensor:
        """Samples by Bartlett's decomposition.

        PyTorch draws samples again that are singular; here the diagonal of the factor
        is positive by construction, so ``max_try_correction`` is not needed.
        """
        if max_try_correction is not None:
            warnings.warn(
                "Wishart: samples are never singular, so max_try_correction is not "
                "used",
                stacklevel=2,
            )
        p = self._event_shape[-1]
        shape = self._extended_shape(sample_shape)
        steps = weft.arange(p, dtype=self.df.dtype, device=self.df.device)
        half = (self.df.unsqueeze(-1) - steps) / 2
        chi2 = 2 * weft._standard_gamma(half.expand(shape[:-1]))
        noise = weft.diag_embed(chi2.sqrt()) + gaussian(self.df, shape).tril(-1)
        product = self._unbroadcasted_scale_tril @ noise
        return product @ product.mT

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._given(value)
        nu, p = self.df, self._event_shape[-1]
        factor = self._unbroadcasted_scale_tril
        batch = weft.broadcast_shapes(factor.shape[:-2], value.shape[:-2])
        wide = factor.expand((*batch, p, p))
        inverse = weft.linalg.solve(wide @ wide.mT, value.expand(wide.shape))
        trace = inverse.diagonal(dim1=-2, dim2=-1).sum(-1)
        return (
            -nu * (p * _log_2 / 2 + half_log_det(factor))
            - weft.special.multigammaln(nu / 2, p)
            + (nu - p - 1) * half_log_det(_factor(value))
            - trace / 2
        )

    def entropy(self) -> Tensor:
        nu, p = self.df, self._event_shape[-1]
        return (
            (p + 1) * (p * _log_2 / 2 + half_log_det(self._unbroadcasted_scale_tril))
            + weft.special.multigammaln(nu / 2, p)
            - (nu - p - 1) / 2 * _mvdigamma(nu / 2, p)
            + nu * p / 2
        )

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        nu, p = self.df, self._event_shape[-1]
        return -self.precision_matrix / 2, (nu - p - 1) / 2

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        p = self._event_shape[-1]
        size = y + (p + 1) / 2
        return size * (-weft.linalg.slogdet(-2 * x)[1] + _log_2 * p) + (
            weft.special.multigammaln(size, p)
        )
