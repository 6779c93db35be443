"""Files that pages are made of."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def read(name: str, package: str = __name__) -> str:
    """The text of one of the files, or of a file of another package."""
    return files(package).joinpath(name).read_text("utf-8")
