"""Which compiler this is: what kept code and proofs were made by."""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib

_FOLDERS = (".", "../core", "loop", "lower", "llvm", "llvm/conv", "llvm/gemm",
            "llvm/math", "tuning")  # fmt: skip


@functools.cache
def sources() -> str:
    """A text that is another one once a file of the compiler has changed.

    A compiler that is changed while it runs must change this too: code that it makes
    would be found by the others.

    >>> from weft.compile.sources import sources
    >>> len(sources())
    64
    """
    found = hashlib.sha256()
    here = pathlib.Path(__file__).parent
    for folder in _FOLDERS:
        with os.scandir(here / folder) as files:
            for file in sorted(files, key=lambda f: f.name):
                if file.name.endswith(".py"):
                    known = file.stat()
                    text = f"{folder}/{file.name} {known.st_size} {known.st_mtime_ns}"
                    found.update(text.encode())
    return found.hexdigest()
