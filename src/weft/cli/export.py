"""``weft export``: a saved program as a file that runs without Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import weft
from weft.export.files import load_program


def run(options: Any) -> Iterator[str]:
    """Write the program of a file as an artefact; gives the names of its files."""
    cpu: Any = options.cpu
    if cpu and "," in cpu:
        cpu = cpu.split(",")
    yield from weft.export(
        load_program(options.program), None, options.path, weights=options.weights,
        target=options.target, cpu=cpu, threads=options.threads,
    )  # fmt: skip
