"""NVIDIA's libraries of kernels, of the system or of the wheels that hold them."""

from __future__ import annotations

import ctypes
import importlib.util
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any


def from_system(names: Sequence[str]) -> Any:
    """The first of some libraries that the system's loader finds; None: it has none."""
    return _first(names)


def from_wheels(names: Sequence[str]) -> Any:
    """The first of some libraries that an installed wheel has; None: none has it."""
    return _first(str(path) for name in names for path in _in_wheels(name))


def _in_wheels(name: str) -> Iterator[pathlib.Path]:
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        yield from sorted(pathlib.Path(folder).glob(f"*/lib/{name}"))


def _first(names: Sequence[str] | Iterator[str]) -> Any:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None
