"""Resident memory of this process, as Linux counts it."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import pathlib
import re

STATUS = pathlib.Path("/proc/self/status")


def _kilobytes(field: str) -> int:
    found = re.search(rf"^{field}:\s*(\d+) kB", STATUS.read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{STATUS} has no {field}")
    return int(found[1])


def settled() -> int:
    """Bytes held once garbage is collected and free memory given back."""
    gc.collect()
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    return 1024 * _kilobytes("VmRSS")


def forget_peak() -> None:
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def peak() -> int:
    """The most bytes held since the peak was forgotten."""
    return 1024 * _kilobytes("VmHWM")
