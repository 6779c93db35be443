"""LeNet-5 (LeCun et al., 1998), with rectifiers and max pooling."""

from __future__ import annotations

from weft import nn
from weft.core.tensor import Tensor


class LeNet(nn.Module):
    """Two convolutions and three linear layers for 28x28 (or 32x32) images.

    >>> weft.models.LeNet()(weft.zeros(2, 1, 28, 28)).shape
    (2, 10)
    """

    def __init__(self, channels: int = 1, classes: int = 10, size: int = 28) -> None:
        super().__init__()
        padding = 2 if size == 28 else 0
        self.features = nn.Sequential(
            nn.Conv2d(channels, 6, 5, padding=padding),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )  # (N, 16, 5, 5)
        self.classifier = nn.Sequential(
            nn.Linear(16 * 5 * 5, 120, act="relu"),
            nn.Linear(120, 84, act="relu"),
            nn.Linear(84, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).flatten(1))
