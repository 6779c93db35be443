"""Tiny MLP 16-32-32-1, batch 8: a whole training step with SGD."""

from __future__ import annotations

from typing import Any

from benchmarks.suite import data, flops
from benchmarks.suite.case import Case, Lib, Run
from benchmarks.suite.workloads import mlp

SIZES, BATCH = (16, 32, 32, 1), 8


def build(lib: Lib) -> Run:
    def loss(lib: Lib, p: Any, s: Any, x: Any, y: Any) -> Any:
        return ((mlp.forward(lib, p, x, 3) - y) ** 2).mean()

    step = lib.step(loss, mlp.parameters(SIZES), {}, "sgd", lr=1e-2)
    x = lib.array(data.normal("x", BATCH, SIZES[0]))
    y = lib.array(data.normal("y", BATCH, 1))
    return Run(lambda: step(x, y))


def cases(small: bool) -> list[Case]:
    return [
        Case(
            name="tiny MLP, batch 8",
            build=build,
            flops=mlp.step_flops(SIZES, BATCH),
            moved=flops.update_bytes(data.size(mlp.parameters(SIZES)), "sgd"),
            tolerance=1e-4,
            calls=5,
            eager=True,
            tinygrad=True,
            memory=True,
            launches=1 if small else 3,
        )
    ]
