"""The address of an array's memory, found quickly.

NumPy's own attributes make a dictionary or an object for each question. The pointer
stands behind the object's header; whether it does is tried once, else NumPy is asked.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

ALIGNMENT = 64  # bytes: a cache line, and the widest vector
_HEADER = object.__basicsize__


def _slow(array: Any) -> int:
    return array.__array_interface__["data"][0]


def _fast(array: Any, read: Any = ctypes.c_int64.from_address) -> int:
    return read(id(array) + _HEADER).value


def _choose() -> Any:
    samples = [np.zeros(3), np.zeros((4, 5))[1:, ::2], np.zeros((), np.int8)]
    return _fast if all(_fast(a) == _slow(a) for a in samples) else _slow


address = _choose()


def aligned_memory(nbytes: int) -> tuple[np.ndarray, int]:
    """New memory, and the aligned address at which ``nbytes`` bytes of it begin."""
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    return memory, round_up(address(memory))


def round_up(number: int, unit: int = ALIGNMENT) -> int:
    """The next multiple of ``unit``: a size or an address that is aligned."""
    return number + -number % unit
