"""A new graph for each of three hundred steps: the line again, eagerly.

    python examples/generations/eager_linear.py [--steps 300] [--rate 0.05]

Each step records what it does and uses the record up in ``backward`` (a second
``backward`` on it is refused). The weights are moved inside ``no_grad``, and their
gradient is cleared by hand, because gradients add up.
"""

from __future__ import annotations

import argparse

import weft


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    weft.manual_seed(options.seed)
    x = weft.randn(64, 2)
    y = x @ weft.tensor([[2.0], [-3.0]])
    w = weft.randn(2, 1, requires_grad=True)
    for step in range(options.steps):
        y_pred = x.mm(w)
        loss = ((y_pred - y) ** 2).mean()
        loss.backward()
        with weft.no_grad():
            w -= options.rate * w.grad
            w.grad.zero_()
        if step % 50 == 0:
            print(f"step {step:3}  loss {loss.item():.6f}")
    try:
        loss.backward()
    except weft.errors.AutogradError as error:
        print("once more?", str(error).splitlines()[0])
    print("w =", w.detach().reshape(-1))
    return loss.item()


if __name__ == "__main__":
    main()
