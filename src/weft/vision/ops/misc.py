"""``weft.vision.ops.misc``: batch norm whose statistics are fixed."""

from __future__ import annotations

from weft import nn
from weft.core.tensor import Tensor
from weft.ops.creation import ones, zeros


class FrozenBatchNorm2d(nn.Module):
    """Batch norm with statistics and scales that are never changed.

    >>> weft.vision.ops.FrozenBatchNorm2d(3)(weft.ones(1, 3, 1, 1)).shape
    (1, 3, 1, 1)
    """

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", ones(num_features))
        self.register_buffer("bias", zeros(num_features))
        self.register_buffer("running_mean", zeros(num_features))
        self.register_buffer("running_var", ones(num_features))

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        shift = self.bias - self.running_mean * scale
        return x * scale.reshape(1, -1, 1, 1) + shift.reshape(1, -1, 1, 1)
