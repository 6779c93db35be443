"""Layers, first form: each class holds its own forward and backward.

    python examples/generations/layers_two_linear.py [--epochs 100] [--seed 0]

A network 3-4-2 whose layers are written here, from the base class up. No tape is
involved: the loop calls every layer forward, then every layer backward in the reverse
order, then moves the parameters.
"""

from __future__ import annotations

import argparse

import weft
from weft.layers import Layer


class Linear(Layer):
    def __init__(self, in_features: int, out_features: int) -> None:
        w = weft.randn(in_features, out_features, dtype=weft.float64) * 0.5
        self.params = {"w": w, "b": weft.zeros(out_features, dtype=weft.float64)}

    def forward(self, inputs: weft.Tensor) -> weft.Tensor:
        self.inputs = inputs
        return inputs @ self.params["w"] + self.params["b"]

    def backward(self, grad: weft.Tensor) -> weft.Tensor:
        self.grads["w"] = self.inputs.T @ grad
        self.grads["b"] = grad.sum(0)
        return grad @ self.params["w"].T


class ReLU(Layer):
    def forward(self, inputs: weft.Tensor) -> weft.Tensor:
        self.mask = inputs > 0
        return inputs * self.mask

    def backward(self, grad: weft.Tensor) -> weft.Tensor:
        return grad * self.mask


class MSELoss(Layer):
    def forward(self, prediction: weft.Tensor, target: weft.Tensor) -> weft.Tensor:
        self.off = prediction - target
        return (self.off**2).mean()

    def backward(self) -> weft.Tensor:
        return 2 * self.off / self.off.numel()


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    weft.manual_seed(options.seed)
    layers = [Linear(3, 4), ReLU(), Linear(4, 2)]
    criterion = MSELoss()
    x, y = (weft.randn(5, n, dtype=weft.float64) for n in (3, 2))
    losses = []
    for epoch in range(options.epochs):
        out = x
        for layer in layers:
            out = layer.forward(out)
        losses.append(criterion.forward(out, y).item())
        grad = criterion.backward()
        for layer in reversed(layers):
            grad = layer.backward(grad)
        with weft.no_grad():
            for layer in layers:
                for key, p in layer.params.items():
                    p -= options.rate * layer.grads[key]
        if epoch % 10 == 0:
            print(f"epoch {epoch:3}  loss {losses[-1]:.4f}")
    return losses[-1] / losses[0]


if __name__ == "__main__":
    main()
