"""Compiled training steps of layers beside the same networks as modules.

    python benchmarks/layers_compiled.py

An MLP such as tinynn's (784-200-100-70-30-10, Adam, batches of 128) and Caffe's LeNet
(momentum, batches of 64), each once as ``weft.layers`` with its hand-written backward
and once as ``weft.nn`` with the tape. Rounds alternate; the least time of each counts.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

import weft
from weft import layers, nn

SIZES = (784, 200, 100, 70, 30, 10)


def mlp_layers() -> Callable[..., Any]:
    """The MLP as a net, a loss and an optimizer."""
    parts: list[Any] = []
    for wide, narrow in itertools.pairwise(SIZES):
        parts += [layers.Dense(wide, narrow), layers.ReLU()]
    net = layers.Net(parts[:-1])
    model = layers.Model(net, layers.SoftmaxCrossEntropy(), layers.Adam(1e-3))

    @weft.compile
    def step(x: Any, y: Any) -> Any:
        loss, grads = model.backward(model.forward(x), y)
        model.apply_grad(grads)
        return loss

    return step


def mlp_modules() -> Callable[..., Any]:
    """The MLP as modules."""
    parts: list[nn.Module] = []
    for wide, narrow in itertools.pairwise(SIZES):
        parts += [nn.Linear(wide, narrow), nn.ReLU()]
    model = nn.Sequential(*parts[:-1])
    return module_step(model, weft.optim.Adam(model.parameters(), 1e-3))


def lenet_layers() -> Callable[..., Any]:
    """Caffe's LeNet with its solver."""
    net = layers.Net(
        [
            layers.Place(layers.Convolution(20, 5, name="c1"), ("data",), ("c1",)),
            layers.Place(layers.Pooling("MAX", 2, 2, name="p1"), ("c1",), ("p1",)),
            layers.Place(layers.Convolution(50, 5, name="c2"), ("p1",), ("c2",)),
            layers.Place(layers.Pooling("MAX", 2, 2, name="p2"), ("c2",), ("p2",)),
            layers.Place(layers.InnerProduct(500, name="i1"), ("p2",), ("i1",)),
            layers.Place(layers.ReLU(name="relu"), ("i1",), ("i1",)),
            layers.Place(layers.InnerProduct(10, name="i2"), ("i1",), ("i2",)),
            layers.Place(layers.SoftmaxWithLoss(name="l"), ("i2", "label"), ("l",)),
        ],
        inputs={"data": (1, 1, 28, 28), "label": (1,)},
    )
    solver = layers.Solver(
        net, base_lr=0.01, momentum=0.9, weight_decay=5e-4, lr_policy="inv",
        gamma=1e-4, power=0.75,
    )  # fmt: skip
    return weft.compile(solver.step)


def lenet_modules() -> Callable[..., Any]:
    """The same network as modules."""
    model = nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
    )  # fmt: skip
    optimizer = weft.optim.SGD(
        model.parameters(), 0.01, momentum=0.9, weight_decay=5e-4
    )
    return module_step(model, optimizer)


def module_step(model: nn.Module, optimizer: Any) -> Callable[..., Any]:
    """A training step by the tape."""

    @weft.compile
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


CASES = {
    "MLP": (mlp_layers, mlp_modules, (128, 784)),
    "LeNet": (lenet_layers, lenet_modules, (64, 1, 28, 28)),
}


def least(steps: list[Callable[..., Any]], data: Any, rounds: int) -> list[float]:
    """The least time of each step, in seconds."""
    best = [float("inf")] * len(steps)
    for _ in range(rounds):
        for k, step in enumerate(steps):
            start = time.perf_counter()
            step(*data)
            best[k] = min(best[k], time.perf_counter() - start)
    return best


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Print the table; return the ratios of layers' time to modules'."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args(argv).rounds
    ratios = {}
    print(f"{'':8}{'layers':>12}{'modules':>12}{'ratio':>8}")
    for name, (by_hand, by_tape, shape) in CASES.items():
        data = weft.rand(*shape), weft.randint(0, 10, (shape[0],))
        steps = [by_hand(), by_tape()]
        least(steps, data, 5)
        one, two = least(steps, data, rounds)
        ratios[name] = one / two
        print(f"{name:8}{one * 1e3:9.3f} ms{two * 1e3:9.3f} ms{one / two:8.2f}")
    return ratios


if __name__ == "__main__":
    main()
