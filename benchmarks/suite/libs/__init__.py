"""The building blocks of the workloads in each framework."""

from __future__ import annotations

from typing import Any

FRAMEWORKS = ("weft", "weft-eager", "torch", "torch-compile", "jax", "tinygrad")


def load(framework: str) -> Any:
    """The blocks of one framework; importing it is part of this."""
    library, _, variant = framework.partition("-")
    if library == "weft":
        from benchmarks.suite.libs.weft import Weft

        return Weft(compiled=variant != "eager")
    if library == "torch":
        from benchmarks.suite.libs.torch import Torch

        return Torch(compiled=variant == "compile")
    if library == "jax":
        from benchmarks.suite.libs.jax import Jax

        return Jax()
    if library == "tinygrad":
        from benchmarks.suite.libs.tinygrad import Tinygrad

        return Tinygrad()
    raise ValueError(f"framework: expected one of {FRAMEWORKS}, got {framework!r}")
