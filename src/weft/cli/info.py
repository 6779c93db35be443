"""``weft info``: the installation, the machine, and what limits it."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterator
from typing import Any

import weft
from weft.runtime.cpu.buffers import physical_memory
from weft.runtime.cpu.kernel_cache import default
from weft.runtime.cpu.threads import thread_limit

DEPENDENCIES = ("numpy", "ml_dtypes", "llvmlite", "tqdm")


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _threads() -> str:
    limit, used = thread_limit(), weft.get_num_threads()
    found = f"{limit.threads} (by {limit.reason})"
    return found if used == limit.threads else f"{used} (set; {found})"


def _kernels() -> str:
    found = default().report()
    size = f"{found.entries} of {found.nbytes / 2**20:.1f} MiB"
    return f"{size} in {found.folder} ({found.state})"


def run(options: Any) -> Iterator[str]:
    """``weft info``."""
    yield report()


def report() -> str:
    """Version, machine, devices, threads and dependencies, as text.

    >>> weft.cli.info.report().splitlines()[0].startswith("weft")
    True
    """
    rows = {
        "weft": weft.__version__,
        "python": f"{platform.python_version()} on {platform.system()}",
        "machine": platform.machine(),
        "devices": ", ".join(d.name for d in weft.devices()),
        "threads": _threads(),
        "memory": f"{physical_memory() / 2**30:.1f} GiB",
        "kernels": _kernels(),
        "operators": str(len(weft.core.op.all_ops())),
        **{name: _version(name) for name in DEPENDENCIES},
    }
    return "\n".join(f"{name:<12} {value}" for name, value in rows.items())
