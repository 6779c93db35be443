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
    """A text that is another one once a file of the compiler has changed.

    A compiler that is changed while it runs must change this too: code that it makes
    would be found by the others.

    >>> from weft.compile.program.compiler_version import sources
    >>> len(sources())
    64
    """
    found = hashlib.sha256()
    package = pathlib.Path(__file__).parents[2]
    for folder in _FOLDERS:
        _add(found, os.path.join(package, folder), folder)
    return found.hexdigest()


def _add(found: Any, path: str, name: str) -> None:
    """Add the names, sizes and times of a folder's files."""
    with os.scandir(path) as files:
        for file in sorted(files, key=lambda f: f.name):
            if file.name.endswith(".py"):
                known = file.stat()
                text = f"{name}/{file.name} {known.st_size} {known.st_mtime_ns}"
                found.update(text.encode())
            elif "." not in file.name and not file.name.startswith("__"):
                _add(found, file.path, f"{name}/{file.name}")
