"""The backend over MPI (mpi4py), for programs that ``mpiexec`` or Slurm started.

What ranks call is compared over the world's own connections first, as with every
backend, so that a call that cannot succeed raises an error instead of waiting in MPI.
Then all ranks are there, and MPI moves the data. Sums are MPI's: their bits may differ
from those of other backends in the last place.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.distributed.errors import DistBackendError
from weft.distributed.groups import Call, World
from weft.distributed.sockets import Sockets, combined
from weft.errors import ArgumentError

SPIN = 0.02  # seconds of asking MPI before there are pauses between


def _mpi() -> Any:
    try:
        import mpi4py
    except ImportError:
        raise ArgumentError(
            "init_process_group: the backend 'mpi' needs mpi4py and an MPI library; "
            "install them with: pip install 'weft[mpi]'"
        ) from None
    mpi4py.rc.finalize = False  # which would wait for processes that are gone
    from mpi4py import MPI

    return MPI


def shared_address(launcher: str, rank: int) -> tuple[str, int]:
    """An address that rank 0 can listen at, told to all by MPI."""
    if launcher != "mpi":
        raise ArgumentError(
            "init_process_group: environment variable MASTER_ADDR expected, but not "
            "set. Start the program with 'weft run -n 4 train.py', or pass "
            "init_method='tcp://host:port'"
        )
    world = _mpi().COMM_WORLD
    mine = None
    if rank == 0:
        server = socket.create_server(("", 0), backlog=1024)
        os.environ["WEFT_LISTENER"] = str(server.detach())
        mine = [_own_name(), _port_of(os.environ["WEFT_LISTENER"])]
    names = world.allgather(socket.gethostname())
    name, port = world.bcast(mine)
    return ("127.0.0.1" if len(set(names)) == 1 else name), port


def _own_name() -> str:
    return socket.gethostname()


def _port_of(descriptor: str) -> int:
    with socket.socket(fileno=os.dup(int(descriptor))) as server:
        return int(server.getsockname()[1])
