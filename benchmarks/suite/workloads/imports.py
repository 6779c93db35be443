"""Importing each framework, and the space that it takes on disk."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

from benchmarks.import_time import seconds
from benchmarks.suite.results import Measured, Row

MODULES = {"weft": "weft", "torch": "torch", "jax": "jax.numpy", "tinygrad": "tinygrad"}


def measure(options: Any) -> Iterator[Row]:
    """The time beyond a bare interpreter's, and bytes with all that is required."""
    pythons = {name: p for name, p in options.pythons.items() if name in MODULES}
    names = list(pythons)
    row = Row("imports", "import", {name: Measured() for name in names})
    for _ in range(options.rounds):
        for name, python in pythons.items():
            _import(row.measured[name], MODULES[name], python)
    yield row
    size = Row("imports", "on disk, with what it requires", unit="B")
    for name, python in pythons.items():
        size.measured[name] = _size(name, python)
    yield size


def _import(measured: Measured, module: str, python: str) -> None:
    if measured.error:
        return
    try:
        bare, whole = seconds("sys", python), seconds(module, python)
    except (subprocess.CalledProcessError, OSError):
        measured.error, measured.times = f"cannot import {module}", []
    else:
        measured.times.append(whole - bare)


def _size(name: str, python: str) -> Measured:
    command = [python, "-m", "benchmarks.suite.installed", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except subprocess.CalledProcessError as error:
        return Measured(error=(error.stderr.strip().splitlines() or ["failed"])[-1])
    return Measured([float(done.stdout)])
