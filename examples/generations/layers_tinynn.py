"""Layers, tinynn's form: a net, a loss and an optimizer, joined in a model.

    python examples/generations/layers_tinynn.py [--epochs 5] [--batch 32] [--seed 0]

Handwritten digits, with an activation of one's own: ``func`` and ``derivative_func``
are all it takes. Training is three calls (``forward``, ``backward``, ``apply_grad``);
inference is the first of them.
"""

from __future__ import annotations

import argparse

import numpy as np

import weft
from weft.datasets import Digits
from weft.layers import (
    Activation,
    Adam,
    BatchNorm,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    MaxPool2D,
    Model,
    Net,
    SoftmaxCrossEntropy,
)


class Swish(Activation):
    def func(self, x: weft.Tensor) -> weft.Tensor:
        return x * x.sigmoid()

    def derivative_func(self, x: weft.Tensor) -> weft.Tensor:
        s = x.sigmoid()
        return s * (1 + x * (1 - s))


def arrays(train: bool) -> tuple[weft.Tensor, weft.Tensor]:
    images, labels = zip(*Digits(train=train), strict=True)
    return weft.stack(images), weft.tensor(np.array(labels))


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    weft.manual_seed(options.seed)
    train_x, train_y = arrays(train=True)
    test_x, test_y = arrays(train=False)

    layers = [
        Conv2D(1, 8, kernel=3, padding=1), BatchNorm(), Swish(), MaxPool2D(2),
        Flatten(), Dense(8 * 4 * 4, 32), Swish(), Dropout(0.1), Dense(32, 10),
    ]  # fmt: skip
    model = Model(Net(layers), SoftmaxCrossEntropy(), Adam(lr=3e-3))

    for epoch in range(options.epochs):
        model.set_phase("TRAIN")
        for rows in weft.randperm(len(train_x)).split(options.batch):
            pred = model.forward(train_x[rows])
            loss, grads = model.backward(pred, train_y[rows])
            model.apply_grad(grads)
        model.set_phase("TEST")
        test_pred = model.forward(test_x)
        right = (test_pred.argmax(1) == test_y).float().mean().item()
        print(f"epoch {epoch}  loss {loss:.4f}  right {right:.3f}")
    return right


if __name__ == "__main__":
    main()
