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
    "DTensor", "Partial", "Placement", "Replicate", "Shard", "context_parallel",
    "context_parallel_unshard", "distribute_module", "distribute_tensor",
    "implicit_replication", "parallel", "ring_attention",
]  # fmt: skip


_LATER = {
    "distribute_module": "modules", "ring_attention": "sequence",
    "context_parallel": "sequence", "context_parallel_unshard": "sequence",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "parallel":
        return importlib.import_module("weft.distributed.tensor.parallel")
    if name in _LATER:
        module = importlib.import_module(f"weft.distributed.tensor.{_LATER[name]}")
        return getattr(module, name)
    raise AttributeError(f"module 'weft.distributed.tensor' has no attribute {name!r}")
