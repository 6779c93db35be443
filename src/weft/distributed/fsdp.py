"""``weft.distributed.fsdp``: no module's parameters are shared out to processes."""

from __future__ import annotations

from typing import Any

from weft.distributed import needing_group
from weft.nn import Module

__all__ = ["FSDPModule", "FullyShardedDataParallel", "fully_shard"]


class FSDPModule:
    """A module whose parameters several processes share; none can be made here.

    >>> isinstance(weft.nn.Linear(1, 1), weft.distributed.fsdp.FSDPModule)
    False
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        needing_group("FSDPModule")["FSDPModule"]()


class FullyShardedDataParallel(Module):
    """The same as a wrapper around a module."""

    def __init__(self, *args: Any, **options: Any) -> None:
        needing_group("FullyShardedDataParallel")["FullyShardedDataParallel"]()


fully_shard = needing_group("fully_shard")["fully_shard"]
