"""Distributions of transformed samples."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.distributions import constraints
from weft.distributions.distribution import Distribution
from weft.distributions.independent import Independent
from weft.distributions.transforms import ComposeTransform, Transform
from weft.distributions.utils import sum_rightmost
from weft.errors import ArgumentError

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """The distribution of ``t(x)``, where x is a sample of a base distribution.

    >>> D = weft.distributions
    >>> d = D.TransformedDistribution(D.Normal(0.0, 1.0), [D.ExpTransform()])
    >>> d.log_prob(weft.tensor(1.0))
    tensor(-0.9189, dtype=float32)
    """

    arg_constraints: Any = {}
    base_dist: Any
    _parameters = {}

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Any,
        validate_args: bool | None = None,
    ) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else (
            transforms
        )  # fmt: skip
        if not isinstance(self.transforms, list) or not all(
            isinstance(t, Transform) for t in self.transforms
        ):
            raise ArgumentError(
                "TransformedDistribution: expected a transform or a list of "
                f"transforms, got {transforms!r}"
            )
        whole = ComposeTransform(self.transforms)
        base_shape = base_distribution.batch_shape + base_distribution.event_shape
        if len(base_shape) < whole.domain.event_dim:
            raise ArgumentError(
                "TransformedDistribution: expected a base distribution of at least "
                f"{whole.domain.event_dim} dimensions, got {base_shape}"
            )
        shape = whole.forward_shape(base_shape)
        wide = whole.inverse_shape(shape)
        if base_shape != wide:
            batch = wide[: len(wide) - len(base_distribution.event_shape)]
            base_distribution = base_distribution.expand(batch)
        more = whole.domain.event_dim - len(base_distribution.event_shape)
        if more > 0:
            base_distribution = Independent(base_distribution, more)
        self.base_dist = base_distribution
        change = whole.codomain.event_dim - whole.domain.event_dim
        event = max(
            whole.codomain.event_dim, len(base_distribution.event_shape) + change
        )
        cut = len(shape) - event
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(self._owner(), _instance)
        shape = (*tuple(batch_shape), *self.event_shape)
        for t in reversed(self.transforms):
            shape = t.inverse_shape(shape)
        cut = len(shape) - len(self.base_dist.event_shape)
        new.base_dist = self.base_dist.expand(shape[:cut])
        new.transforms = self.transforms
        Distribution.__init__(new, batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    @property
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        found = self.transforms[-1].codomain
        more = len(self.event_shape) - found.event_dim
        return constraints.independent(found, more) if more > 0 else found

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with weft.no_grad():
            return self._through(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._through(self.base_dist.rsample(sample_shape))

    def _through(self, x: Tensor) -> Tensor:
        for t in self.transforms:
            x = t(x)
        return x

    def log_prob(self, value: Tensor) -> Tensor:
        y = self._given(value)
        event = len(self.event_shape)
        total: Any = 0.0
        for t in reversed(self.transforms):
            x = t.inv(y)
            event += t.domain.event_dim - t.codomain.event_dim
            change = t.log_abs_det_jacobian(x, y)
            total = total - sum_rightmost(change, event - t.domain.event_dim)
            y = x
        more = event - len(self.base_dist.event_shape)
        return total + sum_rightmost(self.base_dist.log_prob(y), more)

    def _turned(self, value: Tensor) -> Tensor:
        """A probability, seen from the other side where the transforms decrease."""
        sign: Any = 1
        for t in self.transforms:
            sign = sign * t.sign
        if isinstance(sign, int) and sign == 1:
            return value
        return sign * (value - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        value = self._given(value)
        for t in reversed(self.transforms):
            value = t.inv(value)
        return self._turned(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._through(self.base_dist.icdf(self._turned(value)))
