"""Compiled kernels on disk: what is there, and removing it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.runtime.cpu.kernel_cache import default


def run(options: Any) -> Iterator[str]:
    """Do what ``weft cache info`` or ``weft cache clear`` asks."""
    yield _clear() if options.action == "clear" else _info()


def _info() -> str:
    found = default().report()
    rows = {
        "folder": found.folder,
        "state": found.state,
        "kernels": str(found.entries),
        "size": f"{found.nbytes / 2**20:.1f} MiB of at most {found.limit >> 20} MiB",
    }
    return "\n".join(f"{name:<12} {value}" for name, value in rows.items())


def _clear() -> str:
    cache = default()
    return f"removed {cache.clear()} kernels from {cache.report().folder}"
