"""Compiled kernels on disk: what is there, and removing it."""

from __future__ import annotations

from weft.runtime.cpu.kernel_cache import default


def run(action: str) -> str:
    """Do what ``weft cache info`` or ``weft cache clear`` asks; gives what to print.

    >>> weft.cli.cache.run("info").splitlines()[0].startswith("folder")
    True
    """
    return _clear() if action == "clear" else _info()


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
