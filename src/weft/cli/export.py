"""``weft export``: a saved program as a file that runs without Python."""

from __future__ import annotations

import weft
from weft.export.files import load_program


def run(program: str, path: str, weights: str) -> str:
    """Write the program of a file as an artefact; gives the names of its files."""
    return "\n".join(weft.export(load_program(program), None, path, weights=weights))
