"""The compiler's version: a digest of its sources, part of every key on disk."""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib
from typing import Any

_FOLDERS = "compile", "core", "graph", "ops", "runtime"  # of the package


@functools.cache
def sources() -> str:
    """A digest of the compiler's files: their names, sizes and modification times.

    Whoever patches the compiler in a running process must change this too: other
    processes would otherwise find its code in the cache.

    >>> from weft.compile.program.compiler_version import sources
    >>> len(sources())
    64
    """
    hashed = hashlib.sha256()
    package = pathlib.Path(__file__).parents[2]
    for folder in _FOLDERS:
        _add(hashed, os.path.join(package, folder), folder)
    return hashed.hexdigest()


def _add(hashed: Any, path: str, name: str) -> None:
    with os.scandir(path) as files:
        for file in sorted(files, key=lambda f: f.name):
            if file.name.endswith(".py"):
                known = file.stat()
                text = f"{name}/{file.name} {known.st_size} {known.st_mtime_ns}"
                hashed.update(text.encode())
            elif "." not in file.name and not file.name.startswith("__"):
                _add(hashed, file.path, f"{name}/{file.name}")
