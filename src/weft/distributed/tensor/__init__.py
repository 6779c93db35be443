"""``weft.distributed.tensor``: tensors of which every process has a part."""

from __future__ import annotations

import importlib
from typing import Any

from weft.distributed.tensor.dtensor import (
    DTensor,
    distribute_tensor,
    implicit_replication,
)
from weft.distributed.tensor.placements import Partial, Placement, Replicate, Shard

__all__ = [
    "DTensor", "Partial", "Placement", "Replicate", "Shard", "distribute_module",
    "distribute_tensor", "implicit_replication", "parallel",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "parallel":
        return importlib.import_module("weft.distributed.tensor.parallel")
    if name == "distribute_module":
        from weft.distributed.tensor.modules import distribute_module

        return distribute_module
    raise AttributeError(f"module 'weft.distributed.tensor' has no attribute {name!r}")
