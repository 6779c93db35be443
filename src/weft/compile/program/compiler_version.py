"""The compiler's version: a digest of its sources, part of every key on disk."""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib
from collections.abc import Iterator

from weft.runtime.cpu import kernel_cache

_FOLDERS = "compile", "core", "graph", "ops", "runtime"  # of the package


@functools.cache
def sources() -> str:
    """A digest of the compiler's files: their names and contents.

    It is kept on disk by their sizes and modification times, which are quicker to ask
    for. Whoever patches the compiler in a running process must change this too: other
    processes would otherwise find its code in the cache.

    >>> from weft.compile.program.compiler_version import sources
    >>> len(sources())
    64
    """
    package = pathlib.Path(__file__).parents[2]
    files = [file for folder in _FOLDERS for file in _files(package / folder)]
    stats = [(place, os.stat(place)) for place in files]
    text = "\n".join(f"{p} {s.st_size} {s.st_mtime_ns}" for p, s in stats)

    def digest() -> bytes:
        hashed = hashlib.sha256()
        for place in files:
            content = pathlib.Path(place).read_bytes()
            hashed.update(f"{os.path.relpath(place, package)} {len(content)} ".encode())
            hashed.update(content)
        return hashed.hexdigest().encode()

    return kernel_cache.get(kernel_cache.key_of(text, "sources"), digest).decode()


def _files(folder: str | os.PathLike[str]) -> Iterator[str]:
    with os.scandir(folder) as found:
        for file in sorted(found, key=lambda f: f.name):
            if file.name.endswith(".py"):
                yield file.path
            elif "." not in file.name and not file.name.startswith("__"):
                yield from _files(file.path)
