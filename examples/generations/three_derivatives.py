"""Three ways to a derivative: by differences, by formula, by automatic traces.

    python examples/generations/three_derivatives.py [--x1 2] [--x2 5]

y = ln(x2² + x2 x1) - sin(x1), and z = x y + sin(x) in the tables. Differences are only
approximate; the formula is exact, but formulas of programs explode (the iterated map at
the end); the traces are exact and grow with the program.
"""

from __future__ import annotations

import argparse

import weft
from weft import symbolic


def f(x1: weft.Tensor, x2: weft.Tensor) -> weft.Tensor:
    return weft.log(x2**2 + x2 * x1) - weft.sin(x1)


def by_differences(x1: float, x2: float, step: float = 1e-5) -> list[float]:
    def value(a: float, b: float) -> float:
        return f(*weft.tensor([a, b], dtype=weft.float64)).item()

    along_x1 = value(x1 + step, x2) - value(x1 - step, x2)
    along_x2 = value(x1, x2 + step) - value(x1, x2 - step)
    return [along_x1 / (2 * step), along_x2 / (2 * step)]


def by_tape(x1: float, x2: float) -> list[float]:
    leaves = [weft.tensor(v, dtype=weft.float64, requires_grad=True) for v in (x1, x2)]
    f(*leaves).backward()
    return [leaf.grad.item() for leaf in leaves]


def iterated(times: int):
    def fn(x: weft.Tensor) -> weft.Tensor:
        for _ in range(times):
            x = 4 * x * (1 - x)
        return x

    return fn


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--x1", type=float, default=2.0)
    parser.add_argument("--x2", type=float, default=5.0)
    at = vars(parser.parse_args(arguments))

    formulas = symbolic.gradient(f, ["x1", "x2"])
    for name, formula in zip(at, formulas, strict=True):
        print(f"d/d{name} = {formula}")
    exact = [formula(**at) for formula in formulas]
    tape, rough = by_tape(**at), by_differences(**at)
    print("formula    ", exact, "\ntape       ", tape, "\ndifferences", rough)

    print("\nz = x y + sin(x)")
    print(symbolic.traces(lambda x, y: x * y + weft.sin(x), x=2.0, y=3.0))
    print("\ny = ln(x2² + x2 x1) - sin(x1)")
    print(symbolic.traces(f, **at))

    print("\nx <- 4 x (1 - x), repeated: nodes of the derivative")
    print("times    as a tree   shared   simplified, as a tree")
    for times in range(1, 9):
        raw = symbolic.diff(iterated(times), "x", simplify=False)
        tree, shared = raw.size()
        print(f"{times:5} {tree:12,} {shared:8} {raw.simplify().size().tree:12,}")

    def apart(found: list[float]) -> float:
        return max(abs(a - b) for a, b in zip(found, exact, strict=True))

    return apart(tape), apart(rough)


if __name__ == "__main__":
    main()
