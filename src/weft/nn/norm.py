"""Normalisation layers."""

from __future__ import annotations

from typing import Any, ClassVar

import weft
from weft import Tensor, late
from weft.errors import ArgumentError, ShapeError
from weft.nn import functional as F
from weft.nn.lazy import LazyMixin
from weft.nn.module import Module
from weft.nn.parameter import Parameter
from weft.ops.require import known


class _Statistics(Module):
    """The base of batch and instance norm: channels, scale, running statistics."""

    ranks: ClassVar[tuple[int, ...]]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        options = {"device": device, "dtype": dtype}
        self.weight: Any = (
            Parameter(weft.ones(num_features, **options)) if affine else None
        )
        self.bias: Any = (
            Parameter(weft.zeros(num_features, **options)) if affine and bias else None
        )
        track = track_running_stats
        self.register_buffer(
            "running_mean", weft.zeros(num_features, **options) if track else None
        )
        self.register_buffer(
            "running_var", weft.ones(num_features, **options) if track else None
        )
        count = weft.tensor(0, device=device) if track else None
        self.register_buffer("num_batches_tracked", count)

    def reset_running_stats(self) -> None:
        """Forget the running statistics."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Initialise anew."""
        self.reset_running_stats()
        if self.affine:
            with weft.no_grad():
                self.weight.fill_(1)
                if self.bias is not None:
                    self.bias.zero_()

    def _check(self, input: Tensor) -> None:
        if input.ndim not in self.ranks:
            wanted = " or ".join(map(str, self.ranks))
            raise ShapeError(
                f"{type(self).__name__}: expected {wanted} dimensions, got shape "
                f"{input.shape}"
            )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_Statistics):
    _version = 2  # since 2 it counts the batches

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        key = f"{prefix}num_batches_tracked"
        old = (local_metadata.get("version") or 1) < 2
        if old and self.num_batches_tracked is not None and key not in state_dict:
            state_dict[key] = self.num_batches_tracked
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def _momentum(self) -> Any:
        """The momentum of running statistics; that of a plain mean if None is set."""
        if not (self.training and self.track_running_stats):
            return 0.0
        self.num_batches_tracked.add_(1)
        if self.momentum is not None:
            return self.momentum
        count = self.num_batches_tracked
        return 1.0 / (count.item() if known(count) else count.double())

    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        momentum = self._momentum()
        training = self.training or self.running_mean is None
        return F.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias,
            training, momentum, self.eps,
        )  # fmt: skip


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (N, C) or (N, C, L).

    >>> weft.nn.BatchNorm1d(3)(weft.rand(4, 3)).shape
    (4, 3)
    """

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (N, C, H, W).

    >>> weft.nn.BatchNorm2d(3)(weft.rand(4, 3, 5, 5)).shape
    (4, 3, 5, 5)
    """

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of (N, C, D, H, W)."""

    ranks = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation over the batches of all processes of a group.

    >>> net = weft.nn.Sequential(weft.nn.BatchNorm2d(3))
    >>> type(weft.nn.SyncBatchNorm.convert_sync_batchnorm(net)[0]).__name__
    'SyncBatchNorm'
    """

    ranks = (2, 3, 4, 5)

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype,
            bias=bias,
        )  # fmt: skip
        self.process_group = process_group

    def forward(self, input: Tensor) -> Tensor:
        dist = late.find("distributed")
        alone = not dist.is_initialized() or dist.get_world_size(self.process_group) < 2
        if alone or not (self.training or self.running_mean is None):
            return super().forward(input)
        self._check(input)
        momentum = self._momentum()
        dims = (0, *range(2, input.ndim))
        shape = (1, -1, *[1] * (input.ndim - 2))

        def summed(x: Tensor) -> Tensor:
            """The sum for each channel over all processes."""
            functions = late.find("collective_functions")
            out: Tensor = functions.all_reduce(x, group=self.process_group)
            return out

        rows = input.new_full((1,), input.numel() / input.shape[1])
        both = summed(weft.cat([input.sum(dims), rows]))
        count = both[-1]
        mean = both[:-1] / count
        off = input - mean.reshape(shape)
        var = summed((off * off).sum(dims)) / count
        if self.running_mean is not None:
            with weft.no_grad():
                self.running_mean.lerp_(mean, momentum)
                self.running_var.lerp_(var * (count / (count - 1)), momentum)
        out = off * weft.rsqrt(var + self.eps).reshape(shape)
        if self.weight is not None:
            out = out * self.weight.reshape(shape)
        return out if self.bias is None else out + self.bias.reshape(shape)

    @classmethod
    def convert_sync_batchnorm(cls, module: Any, process_group: Any = None) -> Any:
        """A module whose batch norms are synchronised ones, with their parameters."""
        made = module
        if isinstance(module, _BatchNorm):
            made = cls(
                module.num_features, module.eps, module.momentum, module.affine,
                module.track_running_stats, process_group,
            )  # fmt: skip
            made._parameters.update(module._parameters)
            made._buffers.update(module._buffers)
            made.training = module.training
        for name, child in list(module.named_children()):
            new = cls.convert_sync_batchnorm(child, process_group)
            if new is not child:
                made.set_submodule(name, new)
        return made


class _InstanceNorm(_Statistics):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype,
            bias=bias,
        )  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        single = input.ndim == self.ranks[0]
        x = input.unsqueeze(0) if single else input
        if x.shape[1] != self.num_features:
            raise ShapeError(
                f"{type(self).__name__}: expected {self.num_features} channels, got "
                f"input of shape {input.shape}"
            )
        own = self.training or not self.track_running_stats
        out = F.instance_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, own,
            self.momentum or 0.0, self.eps,
        )  # fmt: skip
        return out.squeeze(0) if single else out


class InstanceNorm1d(_InstanceNorm):
    """Instance normalisation of (N, C, L) or (C, L)."""

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation of (N, C, H, W) or (C, H, W).

    >>> weft.nn.InstanceNorm2d(3)(weft.rand(4, 3, 5, 5)).shape
    (4, 3, 5, 5)
    """

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance normalisation of (N, C, D, H, W) or (C, D, H, W)."""

    ranks = (4, 5)


_TRACKING = {"affine": True, "track_running_stats": True}  # as PyTorch's lazy ones


class _LazyStatistics(LazyMixin):
    missing = "num_features"

    def size(self, input: Tensor) -> int:
        single = isinstance(self, _InstanceNorm) and input.ndim == self.ranks[0]
        return input.shape[0 if single else 1]


class LazyBatchNorm1d(_LazyStatistics, BatchNorm1d):
    """A ``BatchNorm1d`` that learns its channels from its first input."""

    becomes = BatchNorm1d


class LazyBatchNorm2d(_LazyStatistics, BatchNorm2d):
    """A ``BatchNorm2d`` that learns its channels from its first input."""

    becomes = BatchNorm2d


class LazyBatchNorm3d(_LazyStatistics, BatchNorm3d):
    """A ``BatchNorm3d`` that learns its channels from its first input."""

    becomes = BatchNorm3d


class LazyInstanceNorm1d(_LazyStatistics, InstanceNorm1d):
    """An ``InstanceNorm1d`` that learns its channels from its first input."""

    becomes = InstanceNorm1d
    defaults = _TRACKING


class LazyInstanceNorm2d(_LazyStatistics, InstanceNorm2d):
    """An ``InstanceNorm2d`` that learns its channels from its first input.

    >>> weft.nn.LazyInstanceNorm2d(affine=True)(weft.rand(4, 3, 5, 5)).shape
    (4, 3, 5, 5)
    """

    becomes = InstanceNorm2d
    defaults = _TRACKING


class LazyInstanceNorm3d(_LazyStatistics, InstanceNorm3d):
    """An ``InstanceNorm3d`` that learns its channels from its first input."""

    becomes = InstanceNorm3d
    defaults = _TRACKING


class LayerNorm(Module):
    """Normalisation over the last dimensions.

    >>> weft.nn.LayerNorm(4)(weft.rand(2, 3, 4)).shape
    (2, 3, 4)
    """

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = (
            (normalized_shape,) if isinstance(normalized_shape, int)
            else tuple(normalized_shape)
        )  # fmt: skip
        self.normalized_shape, self.eps = shape, eps
        self.elementwise_affine = elementwise_affine
        options = {"device": device, "dtype": dtype}
        scale = elementwise_affine
        self.weight: Any = Parameter(weft.ones(shape, **options)) if scale else None
        self.bias: Any = (
            Parameter(weft.zeros(shape, **options)) if scale and bias else None
        )

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(
            input, self.normalized_shape, self.weight, self.bias, self.eps
        )

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Division by the root mean square of the last dimensions.

    >>> weft.nn.RMSNorm(4)(weft.rand(2, 3, 4)).shape
    (2, 3, 4)
    """

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = (
            (normalized_shape,) if isinstance(normalized_shape, int)
            else tuple(normalized_shape)
        )  # fmt: skip
        self.normalized_shape, self.eps = shape, eps
        self.weight: Any = None
        if elementwise_affine:
            self.weight = Parameter(weft.ones(shape, device=device, dtype=dtype))

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.weight is not None}"
        )


class GroupNorm(Module):
    """Normalisation over groups of channels.

    >>> weft.nn.GroupNorm(2, 6)(weft.rand(2, 6, 4)).shape
    (2, 6, 4)
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ArgumentError(
                f"GroupNorm: {num_groups} groups do not divide {num_channels} channels"
            )
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        options = {"device": device, "dtype": dtype}
        self.weight: Any = (
            Parameter(weft.ones(num_channels, **options)) if affine else None
        )
        self.bias: Any = (
            Parameter(weft.zeros(num_channels, **options)) if affine and bias else None
        )

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, "
            f"affine={self.weight is not None}, bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    """Division by a power of the mean square over neighbouring channels."""

    def __init__(
        self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
    ) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """Lua Torch's normalisation over channels of (N, C, H, W), as PyTorch keeps it.

    Unlike ``LocalResponseNorm``, every window but the first ones also has channel 0.
    """

    def __init__(
        self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1
    ) -> None:
        super().__init__(size, alpha, beta, k)

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim != 4:
            raise ShapeError(
                f"CrossMapLRN2d: expected input to be 4D, got shape {input.shape}"
            )
        reach = (self.size - 1) // 2 + 1
        at = weft.arange(input.shape[1])
        c, j = at.unsqueeze(1), at
        inside = (j < c + reach) & ((j > c - reach) | (j == 0))
        window = inside.to(input.dtype)  # (C, C)
        sums = (window @ (input * input).flatten(2)).reshape(input.shape)
        return input * (self.k + self.alpha / self.size * sums) ** -self.beta
