"""Backends by name.

sockets     Weft's own, over TCP: needs nothing else (also under the name "gloo",
            which PyTorch programs ask for on CPUs)
mpi         mpi4py, in programs that mpiexec or Slurm started
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from weft.errors import ArgumentError


def has_mpi() -> bool:
    """Whether mpi4py is installed."""
    return importlib.util.find_spec("mpi4py") is not None


def chosen(backend: str | None, launcher: str) -> tuple[str, Callable[[Any], Any]]:
    """The name of a backend, and what makes it for a world.

    Without a name, programs that MPI's launcher started use MPI.
    """
    name = _plain(backend) or ("mpi" if launcher == "mpi" and has_mpi() else "sockets")
    if name in ("sockets", "gloo"):
        from weft.distributed.sockets import Sockets

        return name, Sockets
    if name == "mpi":
        from weft.distributed.mpi import Mpi

        return name, Mpi
    why = {"nccl": ": Weft has no collectives on GPUs yet"}.get(name, "")
    raise ArgumentError(
        f"init_process_group: expected backend 'sockets' (or 'gloo') or 'mpi', got "
        f"{backend!r}{why}"
    )


def _plain(backend: str | None) -> str:
    """A backend's name; of a name for each kind of device, the CPU's."""
    name = (backend or "").lower()
    pairs = dict(one.split(":", 1) for one in name.split(",") if ":" in one)
    return pairs.get("cpu", name)
