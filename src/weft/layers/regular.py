"""Layers that differ between training and testing: batch norm and dropout."""

from __future__ import annotations

from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, ShapeError
from weft.layers.layer import Layer
from weft.layers.registry import register
from weft.nn import functional as F


@register
class BatchNorm(Layer):
    """Each channel (dimension 1) with its mean taken off, divided by its deviation.

    Training uses the batch's own mean and variance and keeps running ones, which
    testing uses. ``affine`` adds a learnt scale and shift.

    >>> layer = weft.layers.BatchNorm()
    >>> layer.forward(weft.tensor([[1.0], [3.0]]))
    tensor([[-1.0000],
            [ 1.0000]])
    """

    def __init__(
        self, moving_average_fraction: float = 0.9, eps: float = 1e-5,
        affine: bool = True, *, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name)
        self.fraction, self.eps, self.affine = moving_average_fraction, eps, affine
        self.register_buffer("mean", None)
        self.register_buffer("variance", None)

    def setup(self, inputs: Tensor) -> None:
        if inputs.ndim < 2:
            raise ShapeError(
                f"{self._title}: expected a batch and channels, got {inputs.shape}"
            )
        size, dtype = inputs.shape[1], inputs.dtype
        self.mean = weft.zeros(size, dtype=dtype)
        self.variance = weft.ones(size, dtype=dtype)
        if self.affine:
            self.params["gamma"] = weft.ones(size, dtype=dtype)
            self.params["beta"] = weft.zeros(size, dtype=dtype)

    def forward(self, inputs: Tensor) -> Tensor:
        x = inputs
        if x.shape[1] != self.mean.shape[0]:
            raise ShapeError(
                f"{self._title}: expected {self.mean.shape[0]} channels, got shape "
                f"{x.shape}"
            )
        self.dims = (0, *range(2, x.ndim))
        mean, variance = self.mean, self.variance
        if self.training:
            mean, variance = x.mean(self.dims), x.var(self.dims, correction=0)
            self._update_statistics(mean, variance, x.numel() // x.shape[1])
        self.scale = 1 / (variance + self.eps).sqrt()
        self.normal = (x - self._wide(mean, x)) * self._wide(self.scale, x)
        self.used_batch = self.training
        if not self.affine:
            return self.normal
        gamma, beta = self.params["gamma"], self.params["beta"]
        return self.normal * self._wide(gamma, x) + self._wide(beta, x)

    def _update_statistics(self, mean: Tensor, variance: Tensor, count: int) -> None:
        """Move the running statistics; their variance is the unbiased one."""
        unbiased = variance * (count / max(count - 1, 1))
        share = 1 - self.fraction
        self.mean.copy_(self.mean + share * (mean.detach() - self.mean))
        self.variance.copy_(self.variance + share * (unbiased.detach() - self.variance))

    def _wide(self, each: Tensor, x: Tensor) -> Tensor:
        return each.reshape(-1, *(1,) * (x.ndim - 2))

    def backward(self, grad: Tensor, propagate_down: Any = (True,)) -> Tensor | None:
        g, y = grad, self.normal
        if self.affine:
            self.grads["gamma"] = (g * y).sum(self.dims)
            self.grads["beta"] = g.sum(self.dims)
            g = g * self._wide(self.params["gamma"], g)
        if not propagate_down[0]:
            return None
        if self.used_batch:  # the batch's mean and variance depend on x too
            along = (g * y).mean(self.dims)
            g = g - self._wide(g.mean(self.dims), g) - y * self._wide(along, g)
        return g * self._wide(self.scale, g)


@register
class Dropout(Layer):
    """Zeros with probability ``dropout_ratio`` in training, the rest scaled up.

    >>> layer = weft.layers.Dropout(0.5).eval()
    >>> layer.forward(weft.ones(2))
    tensor([1., 1.])
    """

    def __init__(self, dropout_ratio: float = 0.5, *, name: str | None = None) -> None:
        super().__init__(name)
        if not 0 <= dropout_ratio < 1:
            raise ArgumentError(
                f"Dropout: expected dropout_ratio in [0, 1), got {dropout_ratio}"
            )
        self.ratio = dropout_ratio

    def forward(self, inputs: Tensor) -> Tensor:
        self.mask = None
        if not self.training:
            return inputs
        self.mask = F.dropout(weft.ones_like(inputs), self.ratio)
        return inputs * self.mask

    def backward(self, grad: Tensor, propagate_down: Any = (True,)) -> Tensor | None:
        if not propagate_down[0]:
            return None
        return grad if self.mask is None else grad * self.mask
