"""A process's place among others, as the environment of its launcher says it.

``weft run -n`` and ``torchrun`` set ``RANK`` and ``WORLD_SIZE``; ``mpiexec`` and
``srun`` have names of their own. Where there are parameter servers, ``WEFT_ROLE`` says
what a process is, and ``RANK`` is its number among those of its role.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from weft.errors import ArgumentError


class Names(NamedTuple):
    """A launcher, and its variables: of the rank, the world's size, the local rank."""

    launcher: str
    rank: str
    size: str
    local: str


LAUNCHERS = (
    Names("env", "RANK", "WORLD_SIZE", "LOCAL_RANK"),
    Names("mpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
          "OMPI_COMM_WORLD_LOCAL_RANK"),
    Names("mpi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    Names("slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)  # fmt: skip


class Place(NamedTuple):
    """A process's number among all, how many there are, its number on this machine."""

    rank: int
    size: int
    local: int
    launcher: str


def place(environment: Mapping[str, str] = os.environ) -> Place | None:
    """The place that a launcher gave this process; None if none did.

    >>> from weft.distributed.environment import place
    >>> place({"RANK": "1", "WORLD_SIZE": "4"})
    Place(rank=1, size=4, local=1, launcher='env')
    >>> place({"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1"})
    Place(rank=5, size=8, local=1, launcher='slurm')
    """
    for names in LAUNCHERS:
        if names.rank in environment and names.size in environment:
            rank = _number(environment, names.rank)
            size = _number(environment, names.size)
            local = names.local if names.local in environment else names.rank
            if not 0 <= rank < size:
                raise ArgumentError(
                    f"{names.rank}={rank}: expected a rank from 0 to {size - 1}, as "
                    f"{names.size}={size}"
                )
            return Place(rank, size, _number(environment, local), names.launcher)
    return None


ROLES = ("worker", "server", "coordinator")


class Role(NamedTuple):
    """The part of a process in a run with parameter servers."""

    name: str  # one of ROLES
    rank: int  # among those of the role
    workers: int  # in the job
    servers: int
    coordinator: tuple[str, int]  # where it listens


def role(environment: Mapping[str, str] = os.environ) -> Role | None:
    """The role that a launcher gave this process; None if it gave none.

    >>> from weft.distributed.environment import role
    >>> role({"WEFT_ROLE": "server", "RANK": "1", "WEFT_WORKERS": "4",
    ...       "WEFT_SERVERS": "2", "WEFT_COORDINATOR": "node1:29400"})
    Role(name='server', rank=1, workers=4, servers=2, coordinator=('node1', 29400))
    """
    name = environment.get("WEFT_ROLE", "")
    if not name:
        return None
    if name not in ROLES:
        raise ArgumentError(
            f"WEFT_ROLE: expected one of {', '.join(ROLES)}, got {name!r}"
        )
    host, colon, port = environment.get("WEFT_COORDINATOR", "").rpartition(":")
    if not host or not port.isdecimal():
        raise ArgumentError(
            "WEFT_COORDINATOR: expected host:port, where the coordinator listens, got "
            f"{host}{colon}{port}"
        )
    counts = {
        "worker": _number(environment, "WEFT_WORKERS"),
        "server": _number(environment, "WEFT_SERVERS"),
        "coordinator": 1,
    }
    rank = 0 if name == "coordinator" else _number(environment, "RANK")
    if rank >= counts[name]:
        raise ArgumentError(
            f"RANK={rank}: expected a {name}'s number below {counts[name]}"
        )
    return Role(name, rank, counts["worker"], counts["server"], (host, int(port)))


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    if not text.isdecimal():
        raise ArgumentError(f"{name}: expected a whole number, got {text!r}")
    return int(text)


def address(environment: Mapping[str, str] = os.environ) -> tuple[str, int] | None:
    """Where rank 0 waits for the others; None if the environment does not say it.

    >>> from weft.distributed.environment import address
    >>> address({"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"})
    ('localhost', 29500)
    """
    if "MASTER_ADDR" in environment and "MASTER_PORT" in environment:
        port = _number(environment, "MASTER_PORT")
        if environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            port += 1  # the launcher itself listens at the other one
        return environment["MASTER_ADDR"], port
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_NODELIST")
    if nodes and "SLURM_JOB_ID" in environment:
        return first_node(nodes), 20000 + _number(environment, "SLURM_JOB_ID") % 20000
    return None


def first_node(nodes: str) -> str:
    """The first machine of a list as Slurm writes it.

    >>> from weft.distributed.environment import first_node
    >>> first_node("node[03-05,9],login"), first_node("a1,a2")
    ('node03', 'a1')
    """
    name, bracket, rest = nodes.partition("[")
    if not bracket or "," in name:
        return nodes.split(",")[0]
    return name + rest.split("]")[0].split(",")[0].split("-")[0]
