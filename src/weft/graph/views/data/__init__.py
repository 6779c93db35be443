"""Files that pages are made of."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def read(name: str) -> str:
    """The text of one of the files."""
    return files(__name__).joinpath(name).read_text("utf-8")
