"""MLP 784-512-512-10: a whole training step with Adam."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from benchmarks.suite import data, flops
from benchmarks.suite.case import Case, Lib, Run

SIZES = (784, 512, 512, 10)


def forward(lib: Lib, p: Any, x: Any, layers: int) -> Any:
    for k in range(layers):
        x = lib.linear(x, p, f"{k}")
        if k < layers - 1:
            x = lib.relu(x)
    return x


def parameters(sizes: tuple[int, ...]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for k, (n, m) in enumerate(pairwise(sizes)):
        made |= data.linear(f"{k}", n, m)
    return made


def step_flops(sizes: tuple[int, ...], batch: int) -> float:
    """Three products for each layer; the first needs no gradient of its input."""
    each = [flops.product(batch, m, n) for n, m in pairwise(sizes)]
    return 3 * sum(each) - each[0]


def case(sizes: tuple[int, ...], batch: int, **options: Any) -> Case:
    """Classification with Adam."""
    layers = len(sizes) - 1

    def build(lib: Lib) -> Run:
        def loss(lib: Lib, p: Any, s: Any, x: Any, y: Any) -> Any:
            return lib.cross_entropy(forward(lib, p, x, layers), y)

        step = lib.step(loss, parameters(sizes), {}, "adam", lr=1e-4)
        x = lib.array(data.normal("x", batch, sizes[0]))
        y = lib.array(data.integers("y", sizes[-1], batch))
        return Run(lambda: step(x, y))

    return Case(
        build=build,
        flops=step_flops(sizes, batch),
        moved=flops.update_bytes(data.size(parameters(sizes)), "adam"),
        tolerance=1e-4,
        calls=5,
        tinygrad=True,
        **options,
    )


def cases(small: bool) -> list[Case]:
    sizes, batch = ((32, 16, 16, 10), 8) if small else (SIZES, 64)
    name, launches = f"MLP, batch {batch}", 1 if small else 3
    return [case(sizes, batch, name=name, eager=True, memory=True, launches=launches)]
