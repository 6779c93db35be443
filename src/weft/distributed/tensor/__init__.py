"""``weft.distributed.tensor``: tensors of which every process has a part."""

from weft.distributed.tensor.dtensor import (
    DTensor,
    distribute_tensor,
    implicit_replication,
)
from weft.distributed.tensor.placements import Partial, Placement, Replicate, Shard

__all__ = [
    "DTensor", "Partial", "Placement", "Replicate", "Shard", "distribute_tensor",
    "implicit_replication",
]  # fmt: skip
