"""``weft export``: a saved program as a file that runs without Python."""

from __future__ import annotations

import weft
from weft.export.files import load_program


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
        load_program(program), None, path, weights=weights, target=target, cpu=cpus,
        threads=threads,
    )  # fmt: skip
    return "\n".join(files)
