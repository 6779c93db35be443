"""Optimizer steps alone, over 10 million parameters in 16 tensors."""

from __future__ import annotations

from typing import Any

from benchmarks.suite import data, flops
from benchmarks.suite.case import Case, Lib, Run

OPTIONS: dict[str, dict[str, float]] = {
    "sgd": {"lr": 1e-3},
    "momentum": {"lr": 1e-3, "momentum": 0.9},
    "adam": {"lr": 1e-3},
    "adamw": {"lr": 1e-3, "weight_decay": 0.01},
}
TENSORS = 16


def case(kind: str, parameters: int) -> Case:
    def build(lib: Lib) -> Run:
        size = parameters // TENSORS
        p = {f"p{k}": data.normal(f"p{k}", size) for k in range(TENSORS)}
        g = {f"p{k}": data.normal(f"g{k}", size) for k in range(TENSORS)}
        call, values = lib.update(p, g, kind, **OPTIONS[kind])

        def outputs(results: list[Any]) -> list[Any]:
            return [lib.numpy(value).copy() for value in values]

        return Run(call, outputs)

    gradients = flops.BYTES * parameters
    return Case(
        name=kind,
        build=build,
        moved=flops.update_bytes(parameters, kind) + gradients,
        tolerance=1e-4,
        calls=3,
        eager=True,
    )


def cases(small: bool) -> list[Case]:
    return [case(kind, 1600 if small else 10_000_000) for kind in OPTIONS]
