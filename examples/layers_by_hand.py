"""Two layers by hand: the same network with its gradients written out, and taped.

    python examples/layers_by_hand.py [--epochs 100] [--rate 0.1] [--seed 0]

A network 3-4-2 (linear, ReLU, linear) is fitted to a few numbers twice, from the
same start and in float64: once with classes whose ``backward`` is the chain rule
written in NumPy, once with Weft's modules and tape. The two curves agree to the last
digits, which is what a tape is: this bookkeeping, done for you.
"""

from __future__ import annotations

import argparse

import numpy as np

import weft
from weft import nn, optim


class Linear:
    """y = x Wᵀ + b, and its derivatives."""

    def __init__(self, weight: np.ndarray, bias: np.ndarray) -> None:
        self.weight, self.bias = weight.copy(), bias.copy()

    def forward(self, x: np.ndarray) -> np.ndarray:
        self.x = x
        return x @ self.weight.T + self.bias  # (N, out)

    def backward(self, g: np.ndarray) -> np.ndarray:
        self.weight_grad = g.T @ self.x  # (out, in)
        self.bias_grad = g.sum(0)
        return g @ self.weight  # (N, in)

    def step(self, rate: float) -> None:
        self.weight -= rate * self.weight_grad
        self.bias -= rate * self.bias_grad


class ReLU:
    """The positive part; its slope is 1 there and 0 elsewhere."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        self.positive = x > 0
        return x * self.positive

    def backward(self, g: np.ndarray) -> np.ndarray:
        return g * self.positive

    def step(self, rate: float) -> None:
        """Nothing to learn."""


def by_hand(
    start: nn.Sequential, x: np.ndarray, y: np.ndarray, epochs: int, rate: float
) -> list[float]:
    """The losses of gradient descent with derivatives written by hand."""
    first, last = (
        Linear(start[i].weight.detach().numpy(), start[i].bias.detach().numpy())
        for i in (0, 2)
    )
    layers: list[Linear | ReLU] = [first, ReLU(), last]
    losses = []
    for _ in range(epochs):
        h = x
        for layer in layers:
            h = layer.forward(h)
        losses.append(float(((h - y) ** 2).mean()))
        g = 2 * (h - y) / y.size
        for layer in reversed(layers):
            g = layer.backward(g)
        for layer in layers:
            layer.step(rate)
    return losses


def with_tape(
    model: nn.Module, x: weft.Tensor, y: weft.Tensor, epochs: int, rate: float
) -> list[float]:
    """The losses of gradient descent with Weft's gradients."""
    optimizer = optim.SGD(model.parameters(), lr=rate)
    losses = []
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    weft.manual_seed(options.seed)
    x = weft.randn(16, 3, dtype=weft.float64)
    y = weft.stack([x[:, 0] * x[:, 1], x[:, 2].abs()], 1)  # (16, 2)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    model.double()
    hand = by_hand(model, x.numpy(), y.numpy(), options.epochs, options.rate)
    tape = with_tape(model, x, y, options.epochs, options.rate)
    print("epoch   by hand            with the tape")
    for epoch in range(0, options.epochs, max(1, options.epochs // 10)):
        print(f"{epoch:5}   {hand[epoch]:.15f}  {tape[epoch]:.15f}")
    difference = max(abs(a - b) for a, b in zip(hand, tape, strict=True))
    print(f"loss {tape[0]:.4f} -> {tape[-1]:.4f}; largest difference {difference:.1e}")
    assert difference < 1e-12
    return tape[-1] / tape[0]


if __name__ == "__main__":
    main()
