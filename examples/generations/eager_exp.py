"""The same small program run line by line, with Python deciding its branch.

    python examples/generations/eager_exp.py [--at 1.0]

Every value is there after its line, so an ``if`` may look at it. What ran is noted
while it runs: ``backward`` needs nothing more. The input says that it wants a gradient
(``requires_grad=True``); without that, ``backward`` refuses.
"""

from __future__ import annotations

import argparse

import weft


def program(v1: weft.Tensor) -> weft.Tensor:
    v2 = weft.exp(v1)
    v3 = v2 + 1
    v4 = v2 * v3
    if v4.item() > 0.5:
        v5 = v4 * 2
    else:
        v5 = v4
    return v5


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--at", type=float, default=1.0)
    options = parser.parse_args(arguments)
    v1 = weft.tensor([options.at], requires_grad=True)
    v5 = program(v1)
    print("v5 =", v5)
    v5.backward()
    print("dv5/dv1 =", v1.grad)
    return v5.item(), v1.grad.item()


if __name__ == "__main__":
    main()
