"""VGG (Simonyan and Zisserman, 2014): stacks of 3x3 convolutions."""

from __future__ import annotations

from typing import Any

from weft import nn
from weft.core.tensor import Tensor

# Channels of each convolution; "M" is a max pooling.
PLANS: dict[int, list[Any]] = {
    11: [64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"],
    13: [64, 64, "M", 128, 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"],
    16: [64, 64, "M", 128, 128, "M", *[256] * 3, "M", *[512] * 3, "M", *[512] * 3, "M"],
    19: [64, 64, "M", 128, 128, "M", *[256] * 4, "M", *[512] * 4, "M", *[512] * 4, "M"],
}


class VGG(nn.Module):
    """VGG-11 to VGG-19 for images of at least 32x32.

    ``width`` scales the channels, so that small ones fit a small machine.

    >>> weft.models.VGG(11, classes=10, width=1 / 16)(weft.zeros(1, 3, 32, 32)).shape
    (1, 10)
    """

    def __init__(
        self,
        depth: int = 16,
        classes: int = 1000,
        batch_norm: bool = True,
        width: float = 1.0,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        if depth not in PLANS:
            raise ValueError(f"VGG: depth must be one of {list(PLANS)}, got {depth}")
        layers: list[nn.Module] = []
        channels = 3
        for step in PLANS[depth]:
            if step == "M":
                layers.append(nn.MaxPool2d(2))
                continue
            wide = int(step * width)
            layers.append(nn.Conv2d(channels, wide, 3, padding=1))
            if batch_norm:
                layers.append(nn.BatchNorm2d(wide))
            layers.append(nn.ReLU())
            channels = wide
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(channels, channels, act="relu"),
            nn.Dropout(dropout),
            nn.Linear(channels, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.pool(self.features(x)).flatten(1))
