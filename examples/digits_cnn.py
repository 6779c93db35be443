"""Handwritten digits: a small convolutional network, from data set to accuracy.

    python examples/digits_cnn.py [--epochs 20] [--width 16] [--batch 32] [--seed 0]

1437 images of 8x8 pixels come with Weft. Each is moved by up to one pixel whenever
it is seen, so that the network meets more hands than there are; the learning rate
rises and falls once over the run. The program ends with the digits it mistook.
"""

from __future__ import annotations

import argparse
import time

import weft
from weft import nn, optim
from weft.datasets import Digits
from weft.utils import transforms
from weft.utils.data import DataLoader


def make_network(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1, bias=False),  # (N, W, 8, 8)
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.MaxPool2d(2),  # (N, 2W, 4, 4)
        nn.Conv2d(2 * width, 4 * width, 3, padding=1, bias=False),
        nn.BatchNorm2d(4 * width),
        nn.ReLU(),
        nn.MaxPool2d(2),  # (N, 4W, 2, 2)
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(16 * width, 10),
    )


def draw(image: weft.Tensor) -> str:
    """A picture (1, 8, 8) as text."""
    shades = " .:*#"
    level = (image[0] * (len(shades) - 0.01)).long().tolist()
    return "\n".join("".join(2 * shades[v] for v in row) for row in level)


@weft.no_grad()
def show_mistakes(model: nn.Module, x: weft.Tensor, y: weft.Tensor) -> None:
    model.eval()
    chosen = model(x).argmax(1)
    for i in (chosen != y).nonzero().flatten().tolist():
        print(f"\n{y[i].item()}, taken for {chosen[i].item()}:\n{draw(x[i])}")


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    weft.manual_seed(options.seed)

    moved = transforms.Compose(
        [transforms.RandomCrop(8, padding=1), transforms.ToTensor()]
    )
    train = DataLoader(Digits(transform=moved), options.batch, shuffle=True)
    test = Digits(train=False)
    model = make_network(options.width)
    optimizer = optim.AdamW(model, lr=1e-3, weight_decay=0.01)
    schedule = optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=1e-2, total_steps=options.epochs * len(train)
    )
    trainer = weft.Trainer(
        model,
        optimizer,
        nn.CrossEntropyLoss(label_smoothing=0.05),
        scheduler=schedule,
        metrics={"accuracy": weft.metrics.Accuracy()},
    )
    began = time.monotonic()
    trainer.fit(train, options.epochs)
    score = trainer.evaluate(DataLoader(test, 120))["accuracy"]
    seconds = time.monotonic() - began
    show_mistakes(model, *test.tensors())
    print(f"\naccuracy on {len(test)} unseen digits {score:.2%} in {seconds:.0f} s")
    return score


if __name__ == "__main__":
    main()
