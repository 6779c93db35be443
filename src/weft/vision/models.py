"""``weft.vision.models``: torchvision's models and parameter names."""

from __future__ import annotations

import enum
import os
from typing import Any

from weft import nn
from weft.core.tensor import Tensor
from weft.models.resnet import BasicBlock, Bottleneck, ResNet
from weft.models.vgg import PLANS
from weft.vision.mobile import DENSE, DenseNet, InvertedResidual, MobileNetV2

__all__ = [
    "VGG",
    "AlexNet",
    "DenseNet",
    "InvertedResidual",
    "MobileNetV2",
    "ResNet",
    "Weights",
    "alexnet",
    "densenet121",
    "densenet161",
    "densenet169",
    "densenet201",
    "make_layers",
    "mobilenet_v2",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "vgg11",
    "vgg11_bn",
    "vgg13",
    "vgg13_bn",
    "vgg16",
    "vgg16_bn",
    "vgg19",
    "vgg19_bn",
]


def _filled(net: Any, weights: Any, pretrained: bool) -> Any:
    """The model with weights of a file; others are downloads, which are refused."""
    if isinstance(weights, (str, os.PathLike)) and os.path.exists(weights):
        import weft

        net.load_state_dict(weft.load(weights))
    elif weights is not None or pretrained:
        raise RuntimeError(
            f"{type(net).__name__}: Weft downloads no weights; pass weights=None and "
            "load a file with model.load_state_dict(torch.load(path))"
        )
    return net


def _resnet(name: str, block: Any, layers: list[int]) -> Any:
    def make(
        *, weights: Any = None, pretrained: bool = False, progress: bool = True,
        num_classes: int = 1000,
    ) -> ResNet:  # fmt: skip
        return _filled(ResNet(block, layers, num_classes), weights, pretrained)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"""{name}, with torchvision's parameter names.

    >>> callable(weft.vision.models.{name})
    True
    """
    return make


resnet18 = _resnet("resnet18", BasicBlock, [2, 2, 2, 2])
resnet34 = _resnet("resnet34", BasicBlock, [3, 4, 6, 3])
resnet50 = _resnet("resnet50", Bottleneck, [3, 4, 6, 3])
resnet101 = _resnet("resnet101", Bottleneck, [3, 4, 23, 3])
resnet152 = _resnet("resnet152", Bottleneck, [3, 8, 36, 3])


class VGG(nn.Module):
    """VGG with torchvision's layers: pooled to 7x7, then three linear layers."""

    def __init__(
        self, features: nn.Module, num_classes: int = 1000, init_weights: bool = True,
        dropout: float = 0.5,
    ) -> None:  # fmt: skip
        super().__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096), nn.ReLU(True), nn.Dropout(dropout),
            nn.Linear(4096, 4096), nn.ReLU(True), nn.Dropout(dropout),
            nn.Linear(4096, num_classes),
        )  # fmt: skip
        if init_weights:
            self.apply(_vgg_weights)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def _vgg_weights(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, 0, 0.01)
    else:
        return
    nn.init.constant_(module.bias, 0)


def make_layers(cfg: list[Any], batch_norm: bool = False) -> nn.Sequential:
    """The convolutions of a VGG: channels in order, and "M" for pools.

    >>> len(weft.vision.models.make_layers([8, "M"]))
    3
    """
    layers: list[nn.Module] = []
    channels = 3
    for step in cfg:
        if step == "M":
            layers.append(nn.MaxPool2d(2, 2))
            continue
        layers.append(nn.Conv2d(channels, step, 3, padding=1))
        layers += [nn.BatchNorm2d(step)] if batch_norm else []
        layers.append(nn.ReLU(True))
        channels = step
    return nn.Sequential(*layers)


def _vgg(depth: int, norm: bool) -> Any:
    def make(
        *, weights: Any = None, pretrained: bool = False, progress: bool = True,
        **options: Any,
    ) -> VGG:  # fmt: skip
        return _filled(
            VGG(make_layers(PLANS[depth], norm), **options), weights, pretrained
        )

    make.__name__ = make.__qualname__ = f"vgg{depth}{'_bn' if norm else ''}"
    make.__doc__ = f"VGG-{depth}, with torchvision's parameter names."
    return make


vgg11, vgg13, vgg16, vgg19 = (_vgg(depth, False) for depth in PLANS)
vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn = (_vgg(depth, True) for depth in PLANS)


class Weights(enum.Enum):
    """Names of weights that torchvision downloads; Weft refuses to load them."""

    IMAGENET1K_V1 = "IMAGENET1K_V1"
    IMAGENET1K_V2 = "IMAGENET1K_V2"
    DEFAULT = IMAGENET1K_V1


def __getattr__(name: str) -> Any:
    model = name.removesuffix("_Weights")
    known = {made.lower() for made in __all__}
    if model != name and model.lower() in known:
        return Weights  # as VGG16_Weights.DEFAULT
    raise AttributeError(f"module 'weft.vision.models' has no attribute {name!r}")


class AlexNet(nn.Module):
    """AlexNet (Krizhevsky, 2014) with torchvision's layers."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(True), nn.MaxPool2d(3, 2),
            nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(True), nn.MaxPool2d(3, 2),
            nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(True),
            nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(True),
            nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(3, 2),
        )  # fmt: skip
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(256 * 6 * 6, 4096), nn.ReLU(True),
            nn.Dropout(dropout), nn.Linear(4096, 4096), nn.ReLU(True),
            nn.Linear(4096, num_classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def alexnet(
    *, weights: Any = None, pretrained: bool = False, progress: bool = True,
    **options: Any,
) -> AlexNet:  # fmt: skip
    """AlexNet, with torchvision's parameter names.

    >>> callable(weft.vision.models.alexnet)
    True
    """
    return _filled(AlexNet(**options), weights, pretrained)


def _densenet(depth: int) -> Any:
    blocks, growth, first = DENSE[depth]

    def make(
        *, weights: Any = None, pretrained: bool = False, progress: bool = True,
        **options: Any,
    ) -> DenseNet:  # fmt: skip
        net = DenseNet(growth, blocks, first, **options)
        return _filled(net, weights, pretrained)

    make.__name__ = make.__qualname__ = f"densenet{depth}"
    make.__doc__ = f"""DenseNet-{depth}, with torchvision's parameter names.

    >>> callable(weft.vision.models.densenet{depth})
    True
    """
    return make


densenet121, densenet161, densenet169, densenet201 = map(_densenet, DENSE)


def mobilenet_v2(
    *, weights: Any = None, pretrained: bool = False, progress: bool = True,
    **options: Any,
) -> MobileNetV2:  # fmt: skip
    """MobileNetV2, with torchvision's parameter names.

    >>> callable(weft.vision.models.mobilenet_v2)
    True
    """
    return _filled(MobileNetV2(**options), weights, pretrained)
