"""``weft.distributed``: several processes that train together, under PyTorch's names.

    weft run -n 4 train.py

>>> weft.distributed.is_available(), weft.distributed.is_initialized()
(True, False)
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NoReturn

from weft.distributed import checkpoint, groups
from weft.distributed.backends import has_mpi as is_mpi_available
from weft.distributed.collectives import (
    ReduceOp,
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    monitored_barrier,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    refuse_capture,
    scatter,
)
from weft.distributed.device_mesh import DeviceMesh, init_device_mesh
from weft.distributed.environment import place
from weft.distributed.errors import (
    CheckpointError,
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    ParameterServerError,
    RecoveryError,
)
from weft.distributed.exchange import patience
from weft.distributed.groups import ProcessGroup, group_of
from weft.distributed.messages import (
    P2POp,
    batch_isend_irecv,
    irecv,
    isend,
    recv,
    send,
)
from weft.distributed.objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    scatter_object_list,
)
from weft.distributed.recovery import Recovery
from weft.distributed.work import Work, seconds
from weft.errors import ArgumentError

__all__ = [
    "CheckpointError", "DeviceMesh", "DistBackendError", "DistError",
    "DistNetworkError", "DistStoreError", "GroupMember", "P2POp",
    "ParameterServerError", "ProcessGroup", "Recovery", "RecoveryError", "ReduceOp",
    "Timeline", "Work", "all_gather", "all_gather_into_tensor", "all_gather_object",
    "all_reduce", "all_to_all", "all_to_all_single", "barrier", "batch_isend_irecv",
    "broadcast", "broadcast_object_list", "checkpoint", "default_pg_timeout",
    "destroy_process_group", "gather", "gather_object", "get_backend",
    "get_global_rank", "get_group_rank", "get_node_local_rank",
    "get_process_group_ranks", "get_rank", "get_world_size", "group",
    "init_device_mesh", "init_process_group", "irecv", "is_available",
    "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available",
    "is_torchelastic_launched", "isend", "monitored_barrier", "new_group",
    "patience", "recv", "reduce", "reduce_scatter", "reduce_scatter_tensor",
    "scatter", "scatter_object_list", "send",
]  # fmt: skip

default_pg_timeout = timedelta(seconds=groups.TIMEOUT)


def needing_group(*names: str) -> dict[str, Callable[..., Any]]:
    """Functions that Weft does not have yet: each raises an error, by name."""

    def refusing(name: str) -> Callable[..., Any]:
        def refuse(*args: Any, **kwargs: Any) -> NoReturn:
            raise ArgumentError(
                f"{name}: Weft has no such thing yet; DistributedDataParallel and the "
                "collectives of weft.distributed are there"
            )

        refuse.__name__ = refuse.__qualname__ = name
        refuse.__doc__ = f"Refused: {name} is not there yet."
        return refuse

    return {name: refusing(name) for name in names}


# Imported when used.
_LATER = (
    "fsdp", "full_state", "nn", "optim", "parameter_server", "pipelining", "planning",
    "tensor",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return importlib.import_module(f"weft.distributed.{name}")
    if name == "Timeline":
        return importlib.import_module("weft.distributed.timeline").Timeline
    raise AttributeError(f"module 'weft.distributed' has no attribute {name!r}")


class _Groups(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        """The group of all processes; None before there is one."""
        return groups.world().groups[""] if groups.initialized() else None


class group(metaclass=_Groups):
    """The group of all processes, as ``group.WORLD``."""


GroupMember = group


def is_available() -> bool:
    """Whether processes can train together.

    >>> weft.distributed.is_available()
    True
    """
    return True


def is_initialized() -> bool:
    """Whether there is a process group.

    >>> weft.distributed.is_initialized()
    False
    """
    return groups.initialized()


def is_gloo_available() -> bool:
    """Whether ``"gloo"`` is the name of a backend: of the one over sockets.

    >>> weft.distributed.is_gloo_available()
    True
    """
    return True


def is_nccl_available() -> bool:
    """Whether there are collectives on GPUs: not yet.

    >>> weft.distributed.is_nccl_available()
    False
    """
    return False


def is_torchelastic_launched() -> bool:
    """Whether ``torchrun`` started this process.

    >>> weft.distributed.is_torchelastic_launched()
    False
    """
    return "TORCHELASTIC_RUN_ID" in os.environ


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | float | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Find the other processes, which the launcher's environment tells of.

    ``timeout`` is how long a call waits for a process that is late.
    """
    if store is not None:
        raise ArgumentError(
            "init_process_group: expected no store; processes find together by "
            "init_method='env://' or 'tcp://host:port'"
        )
    groups.init(backend, init_method, seconds(timeout), world_size, rank)


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Leave a group; the group of all processes ends the connections to them."""
    groups.destroy(group)


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | float | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
) -> Any:
    """Make a group of some processes; all processes call this, in the same order.

    Those outside of it get ``GroupMember.NON_GROUP_MEMBER``.
    """
    refuse_capture("new_group")
    found = groups.new_group(ranks, seconds(timeout), groups.line_here())
    return NON_GROUP_MEMBER if found is None else found


class _Outside:
    """What processes outside of a group have in its place."""

    def __bool__(self) -> bool:
        return False


NON_GROUP_MEMBER = _Outside()
group.NON_GROUP_MEMBER = NON_GROUP_MEMBER  # type: ignore[attr-defined]


def get_rank(group: Any = None) -> int:
    """This process's number in a group; -1 outside of it.

    >>> weft.distributed.get_rank()
    Traceback (most recent call last):
        ...
    weft.distributed.errors.NotInitializedError: Default process group has not been ...
    """
    return -1 if group is NON_GROUP_MEMBER else group_of(group).rank()


def get_world_size(group: Any = None) -> int:
    """The number of processes in a group; -1 outside of it."""
    if group is NON_GROUP_MEMBER:
        return -1
    found = group_of(group)
    return found.size() if found.rank() >= 0 else -1


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """This process's number on its machine.

    >>> weft.distributed.get_node_local_rank(fallback_rank=0)
    0
    """
    found = place()
    if found is not None:
        return found.local
    if fallback_rank is None:
        raise RuntimeError(
            "LOCAL_RANK is not in the environment. Consider passing fallback_rank to "
            "allow `get_node_local_rank` to work, assuming you are not running in a "
            "multi-device context"
        )
    return fallback_rank


def get_backend(group: Any = None) -> str:
    """The name of a group's backend."""
    return group_of(group).name_of_backend()


def get_process_group_ranks(group: Any = None) -> list[int]:
    """The ranks of a group's processes."""
    return list(group_of(group).ranks)


def get_global_rank(group: Any, group_rank: int) -> int:
    """The rank of a process by its number in a group."""
    found = group_of(group)
    if not 0 <= group_rank < found.size():
        raise ArgumentError(f"there is no rank {group_rank} in {found!r}")
    return found.ranks[group_rank]


def get_group_rank(group: Any, global_rank: int) -> int:
    """The number of a process in a group by its rank."""
    found = group_of(group)
    if global_rank not in found.ranks:
        raise ArgumentError(f"rank {global_rank} is not in {found!r}")
    return found.ranks.index(global_rank)
