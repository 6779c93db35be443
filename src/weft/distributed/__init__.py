"""``weft.distributed``: Weft runs in one process, and says so.

Questions are answered (``is_available()`` is False, there is no process group); what
needs a group can be imported, and raises an error when it is called.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NoReturn


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise ValueError(
            f"{name}: Weft runs in one process and has no process group; "
            "torch.distributed.is_available() is False, so guard the call with it, or "
            "with is_initialized()"
        )

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Raise an error: {name} needs a process group."
    return refuse


def needing_group(*names: str) -> dict[str, Callable[..., Any]]:
    """Functions that need a process group, and therefore raise an error, by name.

    >>> weft.distributed.get_rank()
    Traceback (most recent call last):
        ...
    ValueError: get_rank: Weft runs in one process ...
    """
    return {name: _refusing(name) for name in names}


globals().update(
    needing_group(
        "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce",
        "all_to_all", "all_to_all_single", "barrier", "broadcast",
        "broadcast_object_list", "destroy_process_group", "gather", "gather_object",
        "get_backend", "get_rank", "get_world_size", "init_process_group", "irecv",
        "isend", "monitored_barrier", "new_group", "recv", "reduce", "reduce_scatter",
        "reduce_scatter_tensor", "scatter", "scatter_object_list", "send",
    )
)  # fmt: skip


class ReduceOp(enum.Enum):
    """Ways to combine what processes have."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)


class ProcessGroup:
    """A group of processes; none can be made here."""

    def __init__(self, *args: Any) -> None:
        _refusing("ProcessGroup")()


class group:
    """The group of all processes, which is None here."""

    WORLD: ProcessGroup | None = None


GroupMember = group


def is_available() -> bool:
    """Whether processes can train together: not yet.

    >>> weft.distributed.is_available()
    False
    """
    return False


def is_initialized() -> bool:
    """Whether there is a process group.

    >>> weft.distributed.is_initialized()
    False
    """
    return False


def is_torchelastic_launched() -> bool:
    """Whether a launcher of several processes started this one.

    >>> weft.distributed.is_torchelastic_launched()
    False
    """
    return False


is_nccl_available = is_gloo_available = is_mpi_available = is_available
