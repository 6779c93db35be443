"""Bytes as people write them."""

from __future__ import annotations

import re
from typing import Any

from weft.errors import ArgumentError, DTypeError

_UNITS = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_NUMBER = re.compile(r"\s*(?P<number>[-+]?[\d_,.]+(?:e[-+]?\d+)?)\s*(?P<unit>\S*)\s*")


def parse_bytes(size: Any, name: str = "parse_bytes") -> int:
    """A number of bytes from a number, or from a text with a unit.

    kB, MB, GB and TB are powers of 1000; KiB, MiB, GiB and TiB of 1024.

    >>> from weft.memory import parse_bytes
    >>> parse_bytes("512MB"), parse_bytes("1.5 GiB"), parse_bytes(4096)
    (512000000, 1610612736, 4096)
    """
    if isinstance(size, str):
        return _whole(name, size, _from_text(name, size))
    if isinstance(size, bool) or not isinstance(size, (int, float)):
        raise DTypeError(
            f"{name}: expected a number of bytes or a text such as '8GB', got "
            f"{type(size).__name__}"
        )
    return _whole(name, size, size)


def _from_text(name: str, text: str) -> float:
    match = _NUMBER.fullmatch(text.lower())
    if match is None:
        raise ArgumentError(
            f"{name}: expected a size such as '512MB' or '1.5 GiB', got {text!r}"
        )
    unit = match["unit"] or "b"
    if unit not in _UNITS:
        raise ArgumentError(
            f"{name}: {match['unit']!r} in {text!r} is no unit of memory; expected one "
            "of B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"
        )
    try:
        number = float(match["number"].replace(",", "").replace("_", ""))
    except ValueError:
        raise ArgumentError(f"{name}: {text!r} does not begin with a number") from None
    return number * _UNITS[unit]


def _whole(name: str, given: Any, count: float) -> int:
    if not 0 < count < 2**63:  # not a NaN either
        raise ArgumentError(f"{name}: expected more than 0 bytes, got {given!r}")
    return round(count)
