"""The backend over MPI (mpi4py), for programs that ``mpiexec`` or Slurm started.

What ranks call is compared over the world's own connections first, as with every
backend, so that a call that cannot succeed raises an error instead of waiting in MPI.
Then all ranks are there, and MPI moves the data. Sums are MPI's: their bits may differ
from those of other backends in the last place. Types that MPI has not, such as half
precision, are combined as the sockets' backend does it, and so are pieces of different
sizes exchanged, on which ranks may disagree.
"""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any

import numpy as np

from weft.distributed.errors import DistBackendError
from weft.distributed.groups import Call, World
from weft.distributed.links import host
from weft.distributed.sockets import Sockets
from weft.errors import ArgumentError

LOOK = 0.25  # seconds after which a call of MPI's looks whether all ranks live
_WAYS = {
    "sum": "SUM", "avg": "SUM", "product": "PROD", "min": "MIN", "max": "MAX",
    "band": "BAND", "bor": "BOR", "bxor": "BXOR",
}  # fmt: skip
_LONGEST = 1024  # bytes of an address


def load() -> Any:
    """The module of MPI; an error that says what to install if there is none."""
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
    world = load().COMM_WORLD
    mine = np.frombuffer(host().encode()[:64].ljust(64), np.uint8).copy()
    every = np.empty((world.size, 64), np.uint8)
    world.Allgather(mine, every)
    together = bool((every == mine).all())
    words = np.zeros(_LONGEST, np.uint8)
    if rank == 0:
        name = "127.0.0.1" if together else socket.gethostname()
        server = socket.create_server((name if together else "", 0), backlog=1024)
        address = json.dumps([name, server.getsockname()[1]]).encode()
        words[: len(address)] = np.frombuffer(address, np.uint8)
        os.environ["WEFT_LISTENER"] = str(server.detach())
    world.Bcast(words, 0)
    found, port = json.loads(words.tobytes().rstrip(b"\0"))
    return str(found), int(port)


class Mpi(Sockets):
    """Collectives of arrays by MPI."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.mpi = load()
        ranks = self.mpi.COMM_WORLD.rank, self.mpi.COMM_WORLD.size
        if ranks != (world.links.rank, world.links.size):
            raise ArgumentError(
                f"init_process_group: this is rank {world.links.rank} of "
                f"{world.links.size}, but rank {ranks[0]} of {ranks[1]} for MPI; start "
                "the program with mpiexec or srun, or choose the backend 'sockets'"
            )
        self.known: dict[str, Any] = {"": self.mpi.COMM_WORLD}

    def _start(self, call: Call) -> Any:
        """The communicator of a call's group, once all ranks are there."""
        call.exchange()
        group = call.group
        if group.name not in self.known:
            world = self.mpi.COMM_WORLD
            members = world.Get_group().Incl(list(group.ranks))
            self.known[group.name] = world.Create_group(members)
        return self.known[group.name]

    def _end(self, call: Call, request: Any) -> None:
        """Wait for MPI; raise an error if a rank is gone meanwhile."""
        links, look = self.world.links, time.monotonic() + LOOK
        while not request.Test():
            os.sched_yield() if hasattr(os, "sched_yield") else time.sleep(0)
            if time.monotonic() > look:
                links.look()
                gone = [k for k in call.group.ranks if not links.lives(k)]
                if gone:
                    name = call.about["operator"]
                    raise DistBackendError(f"{name}: rank {gone[0]} is gone during it")
                look = time.monotonic() + LOOK

    def _combines(self, x: np.ndarray) -> bool:
        """Whether MPI can combine numbers of this type."""
        return x.dtype.kind in "iuc" or x.dtype in (np.float32, np.float64)

    def all_reduce(
        self, call: Call, x: np.ndarray, *, reduce: str, of: str
    ) -> np.ndarray:
        if not self._combines(x):
            return super().all_reduce(call, x, reduce=reduce, of=of)
        group, out = self._start(call), np.empty(x.shape, x.dtype)
        way = getattr(self.mpi, _WAYS[reduce])
        self._end(call, group.Iallreduce(np.ascontiguousarray(x), out, way))
        return _averaged(out, reduce, group.size)

    def broadcast(self, call: Call, x: np.ndarray, *, src: int) -> np.ndarray:
        group, out = self._start(call), np.array(x, order="C")
        self._end(call, group.Ibcast([_bytes(out), self.mpi.BYTE], src))
        return out

    def all_gather(self, call: Call, x: np.ndarray) -> np.ndarray:
        group = self._start(call)
        out = np.empty((group.size, *x.shape), x.dtype)
        kind = self.mpi.BYTE
        self._end(call, group.Iallgather([_bytes(x), kind], [_bytes(out), kind]))
        return out

    def reduce(self, call: Call, x: np.ndarray, *, dst: int, reduce: str) -> np.ndarray:
        if not self._combines(x):
            return super().reduce(call, x, dst=dst, reduce=reduce)
        group, out = self._start(call), np.zeros(x.shape, x.dtype)
        way = getattr(self.mpi, _WAYS[reduce])
        self._end(call, group.Ireduce(np.ascontiguousarray(x), out, way, dst))
        return _averaged(out, reduce, group.size)

    def gather(self, call: Call, x: np.ndarray, *, dst: int) -> np.ndarray:
        group = self._start(call)
        out = np.zeros((group.size, *x.shape), x.dtype)
        kind = self.mpi.BYTE
        there = [_bytes(out), kind] if group.rank == dst else None
        self._end(call, group.Igather([_bytes(x), kind], there, dst))
        return out

    def scatter(self, call: Call, x: np.ndarray, *, src: int) -> np.ndarray:
        group, out = self._start(call), np.empty(x.shape[1:], x.dtype)
        kind = self.mpi.BYTE
        there = [_bytes(x), kind] if group.rank == src else None
        self._end(call, group.Iscatter(there, [_bytes(out), kind], src))
        return out

    def reduce_scatter(self, call: Call, x: np.ndarray, *, reduce: str) -> np.ndarray:
        if not self._combines(x):
            return super().reduce_scatter(call, x, reduce=reduce)
        group, out = self._start(call), np.empty(x.shape[1:], x.dtype)
        way = getattr(self.mpi, _WAYS[reduce])
        one = group.Ireduce_scatter_block(np.ascontiguousarray(x), out, way)
        self._end(call, one)
        return _averaged(out, reduce, group.size)

    def close(self, orderly: bool) -> None:
        """End MPI, unless a rank may be missing in it."""
        if orderly and not self.mpi.Is_finalized():
            self.mpi.Finalize()


def _bytes(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


def _averaged(out: np.ndarray, reduce: str, size: int) -> np.ndarray:
    if reduce == "avg":
        out /= size
    return out
