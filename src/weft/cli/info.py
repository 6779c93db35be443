"""What this installation is and what limits it."""

from __future__ import annotations

import importlib.metadata
import platform

import weft
from weft.ops.creation import physical_memory
from weft.runtime.threads import thread_limit

DEPENDENCIES = ("numpy", "ml_dtypes", "llvmlite", "safetensors", "tqdm")


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def report() -> str:
    """Version, machine, devices, threads and dependencies, as text.

    >>> weft.cli.info.report().splitlines()[0].startswith("weft")
    True
    """
    limit = thread_limit()
    rows = {
        "weft": weft.__version__,
        "python": f"{platform.python_version()} on {platform.system()}",
        "machine": platform.machine(),
        "devices": ", ".join(d.name for d in weft.devices()),
        "threads": f"{limit.threads} (by {limit.reason})",
        "memory": f"{physical_memory() / 2**30:.1f} GiB",
        "caches": "in memory only, nothing on disk",
        "operators": str(len(weft.core.op.all_ops())),
        **{name: _version(name) for name in DEPENDENCIES},
    }
    return "\n".join(f"{name:<12} {value}" for name, value in rows.items())
