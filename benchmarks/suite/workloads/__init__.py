"""The workloads, by name, in the order of the report."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from benchmarks.suite.case import Case
from benchmarks.suite.results import Row

NAMES = (
    "mlp", "tiny", "resnet", "gpt", "lstm", "growth", "inference", "gpt2", "generate",
    "memory", "matmul", "conv", "attention", "embedding", "optimizer", "eager",
)  # fmt: skip
PROCESSES = ("compile", "imports")  # measured by processes that start anew
ALL = NAMES + PROCESSES


def title(name: str) -> str:
    """What a workload is: the first line of its module."""
    return str(_module(name).__doc__).splitlines()[0].removesuffix(".")


def cases(name: str, small: bool) -> list[Case]:
    """Its cases; ``small`` ones to see that all of it works."""
    return _module(name).cases(small)


def measure(name: str, options: Any) -> Iterator[Row]:
    """Rows of a workload that starts processes of its own."""
    return _module(name).measure(options)


def _module(name: str) -> Any:
    return importlib.import_module(f"benchmarks.suite.workloads.{name}")
