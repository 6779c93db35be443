"""Fine-tuning: a network learns the digits 0 to 4; its features then serve 5 to 9.

    python examples/fine_tune.py [--epochs 12] [--few 20] [--seed 0]

The trunk is trained with one half of the classes and saved. It is loaded into a new
network and frozen, and only a new head learns, from a few examples of each of the
other digits. For comparison a head learns the same on a frozen trunk of random
features: it needs more steps, and stays a little behind.
"""

from __future__ import annotations

import argparse
import pathlib
import tempfile

import weft
from weft import nn, optim
from weft.datasets import Digits
from weft.utils.data import DataLoader, TensorDataset

Data = tuple[weft.Tensor, weft.Tensor]


class Network(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),  # (N, W, 4, 4)
            nn.Conv2d(width, 4 * width, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.head = nn.Linear(64 * width, 5)

    def forward(self, x: weft.Tensor) -> weft.Tensor:
        return self.head(self.trunk(x))  # (N, 5)


def half(train: bool, first: int, few: int | None = None) -> Data:
    """The digits from ``first`` to ``first + 4``, labelled 0 to 4; a few of each."""
    x, y = Digits(train=train).tensors()
    rows = [(y == first + k).nonzero().flatten()[:few] for k in range(5)]
    chosen = weft.cat(rows)
    return x[chosen], y[chosen] - first


def fit(model: Network, data: Data, epochs: int, rate: float = 3e-3) -> None:
    learning = [p for p in model.parameters() if p.requires_grad]
    optimizer = optim.Adam(learning, lr=rate)
    trainer = weft.Trainer(model, optimizer, nn.CrossEntropyLoss(), progress=False)
    trainer.fit(DataLoader(TensorDataset(*data), 20, shuffle=True), epochs)


@weft.no_grad()
def accuracy(model: Network, data: Data) -> float:
    x, y = data
    return (model(x).argmax(1) == y).float().mean().item()


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument(
        "--few", type=int, default=20, help="examples of each new digit"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    weft.manual_seed(options.seed)

    first = Network()
    fit(first, half(True, 0), options.epochs)
    print(f"digits 0 to 4: accuracy {accuracy(first, half(False, 0)):.1%}", flush=True)

    few, test = half(True, 5, options.few), half(False, 5)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trunk.safetensors"
        weft.save(first.trunk.state_dict(), path)
        tuned = Network()
        tuned.trunk.load_state_dict(weft.load(path))
    tuned.trunk.requires_grad_(False)
    before = {k: v.clone() for k, v in tuned.trunk.state_dict().items()}
    fit(tuned, few, options.epochs)
    same = all((before[k] == v).all() for k, v in tuned.trunk.state_dict().items())
    print(f"the frozen trunk is as it was: {same}")

    blank = Network()
    blank.trunk.requires_grad_(False)
    fit(blank, few, options.epochs)
    scores = accuracy(tuned, test), accuracy(blank, test)
    print(
        f"digits 5 to 9 from {options.few} of each: {scores[0]:.1%} on the trained "
        f"trunk, {scores[1]:.1%} on a random one"
    )
    return scores


if __name__ == "__main__":
    main()
