"""Residual networks (He et al., 2015), for large images and for CIFAR's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from weft import nn
from weft.core.tensor import Tensor


def _conv(cin: int, cout: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(cin, cout, size, stride, size // 2, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    expansion: ClassVar[int] = 1

    def __init__(self, channels: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = _conv(channels, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = _conv(width, width, 3), nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.downsample = _shortcut(channels, width * self.expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions around a shortcut."""

    expansion: ClassVar[int] = 4

    def __init__(self, channels: int, width: int, stride: int = 1) -> None:
        super().__init__()
        out = width * self.expansion
        self.conv1, self.bn1 = _conv(channels, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = _conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = _conv(width, out, 1), nn.BatchNorm2d(out)
        self.relu = nn.ReLU()
        self.downsample = _shortcut(channels, out, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


def _shortcut(channels: int, out: int, stride: int) -> nn.Module | None:
    if stride == 1 and channels == out:
        return None
    return nn.Sequential(_conv(channels, out, 1, stride), nn.BatchNorm2d(out))


class ResNet(nn.Module):
    """A stem, groups of residual blocks (``layer1`` ...), and a linear classifier.

    ``cifar=True`` takes the stem for 32x32 images: one 3x3 convolution, no pooling.
    Parameters have torchvision's names, so that its weights load as they are.

    >>> net = weft.models.resnet18(classes=10, cifar=True, width=8)
    >>> net(weft.zeros(1, 3, 32, 32)).shape
    (1, 10)
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        layers: Sequence[int],
        classes: int = 1000,
        cifar: bool = False,
        width: int = 64,
    ) -> None:
        super().__init__()
        self.conv1 = _conv(3, width, 3) if cifar else _conv(3, width, 7, 2)
        self.bn1, self.relu = nn.BatchNorm2d(width), nn.ReLU()
        self.maxpool = nn.Identity() if cifar else nn.MaxPool2d(3, 2, 1)
        self.groups = [f"layer{k + 1}" for k in range(len(layers))]
        channels = width
        for k, count in enumerate(layers):
            wide, blocks = width * 2**k, []
            for i in range(count):
                blocks.append(block(channels, wide, 2 if k and i == 0 else 1))
                channels = wide * block.expansion
            self.add_module(self.groups[k], nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(
                    module.weight, mode="fan_out", nonlinearity="relu"
                )

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for group in self.groups:
            x = self.get_submodule(group)(x)
        return self.fc(self.avgpool(x).flatten(1))  # (N, classes)


def resnet18(**options: object) -> ResNet:
    """ResNet-18.

    >>> sum(p.numel() for p in weft.models.resnet18().parameters())
    11689512
    """
    return ResNet(BasicBlock, [2, 2, 2, 2], **options)  # type: ignore[arg-type]


def resnet34(**options: object) -> ResNet:
    """ResNet-34.

    >>> net = weft.models.resnet34(classes=2, cifar=True, width=2)
    >>> net(weft.zeros(2, 3, 16, 16)).shape
    (2, 2)
    """
    return ResNet(BasicBlock, [3, 4, 6, 3], **options)  # type: ignore[arg-type]


def resnet50(**options: object) -> ResNet:
    """ResNet-50.

    >>> sum(p.numel() for p in weft.models.resnet50().parameters())
    25557032
    """
    return ResNet(Bottleneck, [3, 4, 6, 3], **options)  # type: ignore[arg-type]
