"""An operator and its gradient, joined by the operator's name.

    python examples/generations/static_register.py

``negative`` is written here with a NumPy function and no derivative. Asking for a
gradient through it is an error that names it, until a gradient function is registered
under that name. Several paths to one variable are summed, also those of x - x.
"""

from __future__ import annotations

import numpy as np

import weft
from weft import static
from weft.core.op import define, unregister


def main(arguments: list[str] | None = None) -> tuple[str, list[float]]:
    negative = define("own_negative", inputs="x", eval=np.negative, type=lambda x: x)
    try:
        return run(negative)
    finally:
        unregister("own_negative")  # a program of its own would keep it


def run(negative) -> tuple[str, list[float]]:
    with static.Graph().as_default() as graph, static.Session(graph) as session:
        x = static.placeholder(weft.float64, [], name="x")
        y = x * x + negative(x)
        try:
            static.gradients(y, x)
        except weft.errors.AutogradError as error:
            missing = str(error).splitlines()[0]
            print(missing)

        @static.RegisterGradient("own_negative")
        def gradient(op, grad):
            return negative(grad)

        skip = x**2 + static.exp(static.exp(x))
        nodes = [static.gradients(v, x)[0] for v in (y, x - x, x / x, skip)]
        values = [v.item() for v in session.run(nodes, {x: 1.0})]
    print("gradients at 1 of x² - x, x - x, x / x, x² + exp(exp(x)):", values)
    return missing, values


if __name__ == "__main__":
    main()
