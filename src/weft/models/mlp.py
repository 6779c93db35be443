"""The multi-layer perceptron."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from weft import nn
from weft.core.tensor import Tensor


class MLP(nn.Module):
    """Linear layers with an activation between them.

    >>> weft.models.MLP([4, 8, 3])(weft.zeros(2, 4)).shape
    (2, 3)
    """

    def __init__(
        self, sizes: Sequence[int], act: str = "relu", dropout: float = 0.0
    ) -> None:
        super().__init__()
        last = len(sizes) - 2
        self.layers = nn.ModuleList(
            nn.Linear(n, m, act=None if k == last else act)
            for k, (n, m) in enumerate(pairwise(sizes))
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)  # (N, features)
        *hidden, last = self.layers
        for layer in hidden:
            x = self.dropout(layer(x))
        return last(x)
