"""Two questions about one picture: a trunk with two heads, and one backward pass.

    python examples/multi_task.py [--epochs 15] [--width 64] [--seed 0]

A digit is turned by up to 40 degrees to either side. One head says which digit it
is (a classification), the other by how much it was turned (a regression). Their
losses are added, and a single ``backward`` brings both gradients to the shared trunk.
"""

from __future__ import annotations

import argparse
import math

import weft
from weft import nn, optim
from weft.datasets import Digits
from weft.nn import functional as F
from weft.utils.data import DataLoader, TensorDataset

LARGEST = math.radians(40)


def turned(images: weft.Tensor) -> tuple[weft.Tensor, weft.Tensor]:
    """Images (N, 1, 8, 8) turned by random angles, and the angles from -1 to 1."""
    share = 2 * weft.rand(len(images)) - 1
    c, s = (LARGEST * share).cos(), (LARGEST * share).sin()
    still = weft.zeros_like(c)
    rows = [weft.stack([c, -s, still], 1), weft.stack([s, c, still], 1)]
    maps = weft.stack(rows, 1)  # (N, 2, 3)
    grid = F.affine_grid(maps, images.shape, align_corners=False)
    return F.grid_sample(images, grid, align_corners=False), share


class Network(nn.Module):
    """What both tasks need is learnt once, in the trunk."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, 2 * width),
            nn.ReLU(),
            nn.Linear(2 * width, width),
            nn.ReLU(),
        )
        self.digit = nn.Linear(width, 10)
        self.angle = nn.Linear(width, 1)

    def forward(self, x: weft.Tensor) -> tuple[weft.Tensor, weft.Tensor]:
        h = self.trunk(x)  # (N, width)
        return self.digit(h), self.angle(h).squeeze(1)


def loss_of(
    model: Network, x: weft.Tensor, digit: weft.Tensor, angle: weft.Tensor
) -> weft.Tensor:
    scores, guess = model(x)
    return F.cross_entropy(scores, digit) + 2 * F.mse_loss(guess, angle)


@weft.no_grad()
def evaluate(
    model: Network, x: weft.Tensor, digit: weft.Tensor, angle: weft.Tensor
) -> tuple[float, float]:
    """The accuracy of the digit, and the mean error of the angle in degrees."""
    scores, guess = model(x)
    right = (scores.argmax(1) == digit).float().mean().item()
    return right, math.degrees(LARGEST * (guess - angle).abs().mean().item())


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    weft.manual_seed(options.seed)
    train, labels = Digits().tensors()
    images, unseen = Digits(train=False).tensors()
    test, angles = turned(images)
    model = Network(options.width)
    optimizer = optim.AdamW(model, lr=3e-3)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs)
    for epoch in range(options.epochs):
        x, angle = turned(train)  # new angles each time
        for batch in DataLoader(TensorDataset(x, labels, angle), 32, shuffle=True):
            optimizer.zero_grad()
            loss_of(model, *batch).backward()
            optimizer.step()
        schedule.step()
        right, error = evaluate(model, test, unseen, angles)
        print(f"epoch {epoch + 1:2}  digits {right:.1%}  angles off by {error:.1f}°")
    return right, error


if __name__ == "__main__":
    main()
