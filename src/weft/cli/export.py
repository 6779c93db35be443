"""``weft export``: a saved program as a file that runs without Python."""

from __future__ import annotations

import zipfile
from typing import Any

import weft
from weft.errors import ArgumentError
from weft.graph.captured_program import Captured


def run(
    program: str,
    path: str,
    weights: str,
    target: str | None = None,
    cpu: str | None = None,
    threads: int | None = None,
) -> str:
    """Write the program of a file as an artefact; gives the names of its files.

    ``cpu`` may be several, between commas.
    """
    cpus = cpu.split(",") if cpu and "," in cpu else cpu
    files = weft.export(
        _loaded(program), None, path, weights=weights, target=target, cpu=cpus,
        threads=threads,
    )  # fmt: skip
    return "\n".join(files)


def _loaded(path: str) -> Any:
    with open(path, "rb") as file:
        if zipfile.is_zipfile(file):
            file.seek(0)
            return weft.export.load(file)
    found = weft.load(path)
    if not isinstance(found, Captured):
        raise ArgumentError(
            f"export: expected a program in {path}, got a {type(found).__name__}; "
            "weft.save(weft.graph.capture(model, example), path) writes one"
        )
    return found
