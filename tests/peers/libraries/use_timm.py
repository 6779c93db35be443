"""timm: image models of small sizes."""

import sys

if "torchvision" not in sys.modules:
    import standin

    standin.install()

import timm
import torch
from common import case, fill, integers, main, normal, plain, train
from timm.layers import DropPath
from timm.loss import LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler

SIZES: dict[str, dict] = {
    "resnet18": {"num_classes": 5},
    "vit_tiny_patch16_224": {"img_size": 32, "num_classes": 5, "depth": 2},
    "convnext_atto": {
        "num_classes": 5, "depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32),
    },
    "efficientnet_lite0": {"num_classes": 5},
    "gmixer_12_224": {"img_size": 32, "num_classes": 5},
    "mobilenetv3_small_050": {"num_classes": 5},
    "swin_tiny_patch4_window7_224": {
        "img_size": 32, "window_size": 4, "embed_dim": 12, "depths": (1, 1),
        "num_heads": (2, 2), "num_classes": 5, "drop_path_rate": 0.0,
    },
    "densenet121": {"num_classes": 5, "growth_rate": 4, "block_config": (2, 2, 2, 2)},
    "regnetx_002": {"num_classes": 5},
}  # fmt: skip


def trained(name, size=64):
    model = timm.create_model(name, pretrained=False, **SIZES[name])
    model = fill(model, scale=0.1).double()  # statistics of few values lose digits
    images, labels = normal(4, 3, size, size).double(), integers(5, 4)
    loss = torch.nn.functional.cross_entropy
    out = train(model, lambda m: loss(m(images), labels), steps=2, lr=1e-4)
    model.eval()
    with torch.no_grad():
        out["logits"] = model(images)
        out["features"] = model.float().forward_features(images.float())
    out["names"] = list(model.state_dict())
    return out


@case
def resnet():
    return trained("resnet18", 32)


@case
def vit():
    return trained("vit_tiny_patch16_224", 32)


@case
def convnext():
    return trained("convnext_atto")


@case
def efficientnet():
    return trained("efficientnet_lite0", 32)


@case
def mixer():
    return trained("gmixer_12_224", 32)


@case
def mobilenet():
    return trained("mobilenetv3_small_050", 32)


@case
def swin():
    return trained("swin_tiny_patch4_window7_224", 32)


@case
def densenet():
    return trained("densenet121")


@case
def regnet():
    return trained("regnetx_002")


@case
def features_of_stages():
    model = fill(timm.create_model("resnet18", features_only=True, out_indices=(1, 3)))
    with torch.no_grad():
        maps = model.eval()(normal(1, 3, 32, 32))
    return {"maps": list(maps), "channels": model.feature_info.channels()}


@case
def optimizers_schedules_and_losses():
    outcome = {}
    for name in ("adamw", "lamb", "lookahead_momentum", "nadamw", "adopt", "lion"):
        model = fill(torch.nn.Linear(4, 3))
        optimizer = create_optimizer_v2(model, opt=name, lr=0.01, weight_decay=0.1)
        schedule = CosineLRScheduler(
            optimizer, t_initial=5, warmup_t=2, warmup_lr_init=1e-4
        )
        for step in range(3):
            optimizer.zero_grad()
            loss = LabelSmoothingCrossEntropy(0.1)(model(normal(6, 4)), integers(3, 6))
            loss.backward()
            optimizer.step()
            schedule.step(step + 1)
        outcome[name] = plain(model.weight)
    soft = torch.softmax(normal(6, 3), -1)
    outcome["soft"] = SoftTargetCrossEntropy()(normal(6, 3, seed=1), soft)
    outcome["path"] = DropPath(0.5).eval()(normal(3, 2))
    return outcome


main()
