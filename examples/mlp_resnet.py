"""A residual network of dense layers, with every loss and optimizer of a grid.

    python examples/mlp_resnet.py [--epochs 15] [--width 64] [--blocks 3] [--seed 0]

Model, loss and optimizer know nothing of each other: a loss is a function of scores
and labels, an optimizer sees parameters and gradients. So the same network learns
digits with cross-entropy and with the distance to one-hot rows, by SGD and by Adam.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable

import weft
from weft import nn, optim
from weft.datasets import Digits
from weft.nn import functional as F
from weft.utils.data import DataLoader, TensorDataset

Loss = Callable[[weft.Tensor, weft.Tensor], weft.Tensor]


class Block(nn.Module):
    """Two dense layers beside a shortcut."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(width, width),
            nn.BatchNorm1d(width),
        )

    def forward(self, x: weft.Tensor) -> weft.Tensor:
        return F.relu(x + self.layers(x))  # (N, width)


def make_network(width: int, blocks: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, width),
        nn.ReLU(),
        *(Block(width, 0.1) for _ in range(blocks)),
        nn.Linear(width, 10),
    )


def one_hot_l1(scores: weft.Tensor, labels: weft.Tensor) -> weft.Tensor:
    """The distance of the scores to rows with a one at the label."""
    return F.l1_loss(scores, F.one_hot(labels, 10).to(scores.dtype))


LOSSES: dict[str, Loss] = {"cross entropy": F.cross_entropy, "L1": one_hot_l1}
OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.05, momentum=0.9),
    "Adam": lambda p: optim.Adam(p, lr=0.003),
}


def run(
    model: nn.Module, loss_fn: Loss, optimizer: optim.Optimizer, epochs: int
) -> float:
    """Train on the digits; the accuracy on unseen ones."""
    loader = DataLoader(TensorDataset(*Digits().tensors()), 64, shuffle=True)
    test = DataLoader(TensorDataset(*Digits(train=False).tensors()), 120)
    trainer = weft.Trainer(
        model,
        optimizer,
        loss_fn,
        metrics={"accuracy": weft.metrics.Accuracy()},
        progress=False,
    )
    trainer.fit(loader, epochs)
    return trainer.evaluate(test)["accuracy"]


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    scores = []
    for (loss, loss_fn), (name, make) in itertools.product(
        LOSSES.items(), OPTIMIZERS.items()
    ):
        weft.manual_seed(options.seed)
        model = make_network(options.width, options.blocks)
        score = run(model, loss_fn, make(model.parameters()), options.epochs)
        print(f"{loss:14} {name:5} accuracy on unseen digits {score:.2%}", flush=True)
        scores.append(score)
    return min(scores)


if __name__ == "__main__":
    main()
