"""Compiling whole training steps, with empty caches and with filled ones."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

from benchmarks.compile_time import MODELS, run
from benchmarks.suite.results import Measured, Row

# The names of that script, which compiles with each of them.
NAMES = {"weft": "weft", "torch-compile": "torch", "jax": "jax"}
ROUNDS = 3  # at most: each is a process that compiles


def measure(options: Any) -> Iterator[Row]:
    """Seconds of the first call of a step, less those of a later one."""
    asked = [name for name in NAMES if name in options.pythons]
    for model in MODELS[: 1 if options.small else None]:
        rows = [
            Row("compile", f"{model}, {kind}", {name: Measured() for name in asked})
            for kind in ("cold", "warm")
        ]
        for _ in range(1 if options.small else min(options.rounds, ROUNDS)):
            for name in asked:
                _round(rows, model, name, options.pythons[name])
        yield from rows


def _round(rows: list[Row], model: str, name: str, python: str) -> None:
    """A process with an empty cache, then one that finds what it left there."""
    with tempfile.TemporaryDirectory() as cache:
        for row in rows:
            measured = row.measured[name]
            if measured.error:
                return
            try:
                found = run(python, NAMES[name], model, cache)
            except (RuntimeError, OSError) as error:
                measured.error = (str(error).strip().splitlines() or ["failed"])[-1]
                continue
            measured.times.append(found["first"] - found["later"])
