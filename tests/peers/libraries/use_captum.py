"""captum: attributions of a small classifier."""

import torch
from captum.attr import (
    DeepLift,
    FeatureAblation,
    GradientShap,
    GuidedBackprop,
    InputXGradient,
    IntegratedGradients,
    LayerConductance,
    LayerGradCam,
    NoiseTunnel,
    Occlusion,
    Saliency,
)  # fmt: skip
from common import case, fill, main, normal


def model():
    return fill(
        torch.nn.Sequential(
            torch.nn.Conv2d(1, 3, 3, padding=1), torch.nn.ReLU(),
            torch.nn.Flatten(), torch.nn.Linear(108, 4),
        ),
        scale=0.2,
    ).eval()  # fmt: skip


X = normal(2, 1, 6, 6)


@case
def by_gradients():
    net = model()
    return {
        "integrated": IntegratedGradients(net).attribute(X, target=1, n_steps=10),
        "saliency": Saliency(net).attribute(X.clone().requires_grad_(), target=2),
        "product": InputXGradient(net).attribute(X.clone().requires_grad_(), target=0),
        "deep lift": DeepLift(net).attribute(X, torch.zeros_like(X), target=1),
        "guided": GuidedBackprop(net).attribute(X.clone().requires_grad_(), target=1),
        "shap": GradientShap(net).attribute(
            X, torch.zeros_like(X), target=1, n_samples=2, stdevs=0.0
        ).abs().ge(0),
    }  # fmt: skip


@case
def by_change():
    net = model()
    return {
        "ablation": FeatureAblation(net).attribute(X, target=1),
        "occlusion": Occlusion(net).attribute(
            X, (1, 2, 2), target=1, strides=(1, 2, 2)
        ),
        "noise": list(
            NoiseTunnel(Saliency(net)).attribute(X, target=1, nt_samples=2).shape
        ),
    }


@case
def of_layers():
    net = model()
    return {
        "cam": LayerGradCam(net, net[0]).attribute(X, target=1),
        "conductance": LayerConductance(net, net[0]).attribute(X, target=1, n_steps=5),
    }


main()
