"""Both at once: a step written eagerly, woven into a graph, run three hundred times.

    python examples/generations/compiled_linear.py [--steps 300] [--rate 0.05]

``capture`` runs the step once with symbols in place of tensors and keeps what it did:
forward, backward and update are one graph, with the weights as its variables. The
source is the eager one, and so are the numbers.
"""

from __future__ import annotations

import argparse

import weft
from weft import nn, optim


def training_step(model: nn.Module, rate: float):
    optimizer = optim.SGD(model.parameters(), lr=rate)

    def step(x: weft.Tensor, y: weft.Tensor) -> weft.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    weft.manual_seed(options.seed)
    x = weft.randn(64, 2)
    y = x @ weft.tensor([[2.0], [-3.0]])
    model, twin = nn.Linear(2, 1), nn.Linear(2, 1)
    twin.load_state_dict(model.state_dict())

    eager = training_step(twin, options.rate)
    woven = weft.graph.capture(
        training_step(model, options.rate), x, y,
        dynamic={"x": {0: "B"}, "y": {0: "B"}}, name="step",
    )  # fmt: skip
    print(woven)
    apart = 0.0
    for step in range(options.steps):
        loss = woven(x, y)
        apart = max(apart, abs(loss.item() - eager(x, y).item()))
        if step % 50 == 0:
            print(f"step {step:3}  loss {loss.item():.6f}")
    print(f"furthest from the eager loss: {apart:.1e}")
    return loss.item(), apart


if __name__ == "__main__":
    main()
