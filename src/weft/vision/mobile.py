"""DenseNet and MobileNetV2 with torchvision's layers and parameter names."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.nn import functional as F

# (layers of each block, growth rate, first channels) of each DenseNet
DENSE = {
    121: ((6, 12, 24, 16), 32, 64),
    161: ((6, 12, 36, 24), 48, 96),
    169: ((6, 12, 32, 32), 32, 64),
    201: ((6, 12, 48, 32), 32, 64),
}
# (expansion, channels, repeats, stride) of each stage of MobileNetV2
INVERTED = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
    (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


class _DenseLayer(nn.Module):
    def __init__(self, channels: int, growth: int, size: int, drop: float) -> None:
        super().__init__()
        self.norm1, self.relu1 = nn.BatchNorm2d(channels), nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(channels, size * growth, 1, bias=False)
        self.norm2, self.relu2 = nn.BatchNorm2d(size * growth), nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(size * growth, growth, 3, padding=1, bias=False)
        self.drop_rate = float(drop)

    def forward(self, input: Tensor | list[Tensor]) -> Tensor:
        x = input if isinstance(input, Tensor) else weft.cat(list(input), 1)
        x = self.conv1(self.relu1(self.norm1(x)))
        x = self.conv2(self.relu2(self.norm2(x)))
        if self.drop_rate > 0:
            x = F.dropout(x, p=self.drop_rate, training=self.training)
        return x


class _DenseBlock(nn.ModuleDict):
    def __init__(
        self, layers: int, channels: int, size: int, growth: int, drop: float
    ) -> None:
        super().__init__()
        for k in range(layers):
            layer = _DenseLayer(channels + k * growth, growth, size, drop)
            self.add_module(f"denselayer{k + 1}", layer)

    def forward(self, init_features: Tensor) -> Tensor:
        features = [init_features]
        for layer in self.values():
            features.append(layer(features))
        return weft.cat(features, 1)


def _transition(channels: int) -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            norm=nn.BatchNorm2d(channels),
            relu=nn.ReLU(inplace=True),
            conv=nn.Conv2d(channels, channels // 2, 1, bias=False),
            pool=nn.AvgPool2d(2, stride=2),
        )
    )


class DenseNet(nn.Module):
    """A densely connected network (Huang et al., 2016).

    >>> net = weft.vision.models.DenseNet(8, (2, 2), 16, num_classes=10)
    >>> net(weft.ones(1, 3, 32, 32)).shape
    (1, 10)
    """

    def __init__(
        self,
        growth_rate: int = 32,
        block_config: tuple[int, ...] = (6, 12, 24, 16),
        num_init_features: int = 64,
        bn_size: int = 4,
        drop_rate: float = 0,
        num_classes: int = 1000,
        memory_efficient: bool = False,
    ) -> None:
        super().__init__()
        channels = num_init_features
        self.features = nn.Sequential(
            OrderedDict(
                conv0=nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False),
                norm0=nn.BatchNorm2d(channels),
                relu0=nn.ReLU(inplace=True),
                pool0=nn.MaxPool2d(3, stride=2, padding=1),
            )
        )
        for k, layers in enumerate(block_config):
            block = _DenseBlock(layers, channels, bn_size, growth_rate, drop_rate)
            self.features.add_module(f"denseblock{k + 1}", block)
            channels += layers * growth_rate
            if k < len(block_config) - 1:
                self.features.add_module(f"transition{k + 1}", _transition(channels))
                channels //= 2
        self.features.add_module("norm5", nn.BatchNorm2d(channels))
        self.classifier = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.features(x), inplace=True)
        return self.classifier(F.adaptive_avg_pool2d(x, (1, 1)).flatten(1))


def _conv_norm(
    channels: int, out: int, size: int = 3, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(
            channels, out, size, stride, (size - 1) // 2, groups=groups, bias=False
        ),
        nn.BatchNorm2d(out),
        nn.ReLU6(inplace=True),
    )


class InvertedResidual(nn.Module):
    """A narrow, wide, narrow block of MobileNetV2 with a shortcut around it."""

    def __init__(self, inp: int, oup: int, stride: int, expand_ratio: int) -> None:
        super().__init__()
        self.stride = stride
        hidden = round(inp * expand_ratio)
        self.use_res_connect = stride == 1 and inp == oup
        wide = [] if expand_ratio == 1 else [_conv_norm(inp, hidden, 1)]
        self.conv = nn.Sequential(
            *wide,
            _conv_norm(hidden, hidden, 3, stride, hidden),
            nn.Conv2d(hidden, oup, 1, bias=False),
            nn.BatchNorm2d(oup),
        )
        self.out_channels = oup

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


def _divisible(value: float, divisor: int) -> int:
    """The multiple of ``divisor`` near a number of channels, at least nine tenths."""
    found = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return found + divisor if found < 0.9 * value else found


class MobileNetV2(nn.Module):
    """MobileNetV2 (Sandler et al., 2018).

    >>> net = weft.vision.models.MobileNetV2(num_classes=10, width_mult=0.25).eval()
    >>> net(weft.ones(1, 3, 32, 32)).shape
    (1, 10)
    """

    def __init__(
        self,
        num_classes: int = 1000,
        width_mult: float = 1.0,
        inverted_residual_setting: Any = None,
        round_nearest: int = 8,
        block: Any = None,
        norm_layer: Any = None,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        if block is not None or norm_layer is not None:
            raise NotImplementedError(
                "MobileNetV2: block and norm_layer are those of the paper here"
            )
        channels = _divisible(32 * width_mult, round_nearest)
        self.last_channel = _divisible(1280 * max(1.0, width_mult), round_nearest)
        features: list[nn.Module] = [_conv_norm(3, channels, stride=2)]
        for expand, width, repeats, stride in inverted_residual_setting or INVERTED:
            out = _divisible(width * width_mult, round_nearest)
            for k in range(repeats):
                step = stride if k == 0 else 1
                features.append(InvertedResidual(channels, out, step, expand))
                channels = out
        features.append(_conv_norm(channels, self.last_channel, 1))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(self.last_channel, num_classes)
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = F.adaptive_avg_pool2d(self.features(x), (1, 1)).flatten(1)
        return self.classifier(x)
