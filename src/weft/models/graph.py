"""A graph convolution network (Kipf and Welling, 2016)."""

from __future__ import annotations

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.nn import functional as F


def normalized_adjacency(edges: Tensor, nodes: int) -> Tensor:
    """``D^-1/2 (A + I) D^-1/2`` of an undirected graph given by (2, E) edges.

    >>> weft.models.normalized_adjacency(weft.tensor([[0], [1]]), 2)
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    a = weft.eye(nodes)
    a[edges[0], edges[1]] = 1.0
    a[edges[1], edges[0]] = 1.0
    scale = a.sum(1).rsqrt()
    return scale.unsqueeze(1) * a * scale


class GCN(nn.Module):
    """Two rounds of mixing each node's features with its neighbours'.

    >>> edges = weft.tensor([[0, 1], [1, 2]])
    >>> a = weft.models.normalized_adjacency(edges, 3)
    >>> weft.models.GCN(4, 8, 2)(weft.rand(3, 4), a).shape
    (3, 2)
    """

    def __init__(
        self, features: int, hidden: int, classes: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.first = nn.Linear(features, hidden)
        self.second = nn.Linear(hidden, classes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        x = F.relu(adjacency @ self.first(x))  # (nodes, hidden)
        return adjacency @ self.second(self.dropout(x))
