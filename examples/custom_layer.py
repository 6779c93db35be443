"""A layer of your own, with a derivative written by hand.

    python examples/custom_layer.py [--steps 300] [--seed 0]

``Swish`` computes x * sigmoid(slope * x), with a slope that it learns for each
feature. Its ``Function`` keeps only the inputs, and states both derivatives itself.
``gradcheck`` compares them with differences in float64; a wrong derivative is shown
to be caught; then the layer takes its place in an ordinary network.
"""

from __future__ import annotations

import argparse
from typing import Any

import weft
from weft import nn, optim
from weft.autograd import Function, gradcheck, gradgradcheck


class SwishFunction(Function):
    """y = x s, where s = sigmoid(slope x)."""

    @staticmethod
    def forward(ctx: Any, x: weft.Tensor, slope: weft.Tensor) -> weft.Tensor:
        ctx.save_for_backward(x, slope)
        return x * (slope * x).sigmoid()

    @staticmethod
    def backward(ctx: Any, g: weft.Tensor) -> tuple[weft.Tensor, weft.Tensor]:
        x, slope = ctx.saved_tensors  # (N, C), (C,)
        s = (slope * x).sigmoid()
        bend = s * (1 - s)
        by_x = g * (s + slope * x * bend)
        by_slope = (g * x * x * bend).sum(0)  # one slope served all rows
        return by_x, by_slope


class Forgetful(SwishFunction):
    """The same with a slip: the term of the inner derivative is missing."""

    @staticmethod
    def backward(ctx: Any, g: weft.Tensor) -> tuple[weft.Tensor, weft.Tensor]:
        x, slope = ctx.saved_tensors
        return g * (slope * x).sigmoid(), SwishFunction.backward(ctx, g)[1]


class Swish(nn.Module):
    """The function as a layer with a learnt slope for each feature."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.slope = nn.Parameter(weft.ones(features))

    def forward(self, x: weft.Tensor) -> weft.Tensor:
        return SwishFunction.apply(x, self.slope)


def check() -> bool:
    """Whether the right derivative passes, and the wrong one does not."""
    x = weft.randn(5, 3, dtype=weft.float64, requires_grad=True)
    slope = weft.rand(3, dtype=weft.float64, requires_grad=True)
    first = gradcheck(SwishFunction.apply, (x, slope))
    second = gradgradcheck(SwishFunction.apply, (x, slope))
    wrong = gradcheck(Forgetful.apply, (x, slope), raise_exception=False)
    print(f"first derivatives agree with differences: {first}")
    print(f"second derivatives agree with differences: {second}")
    print(f"the one with a slip agrees: {wrong}")
    return first and second and not wrong


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    weft.manual_seed(options.seed)
    assert check()
    x = weft.linspace(-3, 3, 128).unsqueeze(1)
    y = (2 * x).sin() * (-0.2 * x * x).exp()
    model = nn.Sequential(
        nn.Linear(1, 32), Swish(32), nn.Linear(32, 32), Swish(32), nn.Linear(32, 1)
    )
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    for step in range(options.steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:4}  loss {loss.item():.5f}")
    slopes = model[1].slope
    print(f"loss {loss.item():.5f}, slopes {slopes.min():.2f} to {slopes.max():.2f}")
    return loss.item()


if __name__ == "__main__":
    main()
