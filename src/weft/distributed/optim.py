"""``weft.distributed.optim``: classes that packages ask an optimizer for."""

from __future__ import annotations

from typing import Any

from weft.distributed import needing_group

__all__ = ["ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer:
    """An optimizer whose state several processes share out; there is none yet."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        needing_group("ZeroRedundancyOptimizer")["ZeroRedundancyOptimizer"]()
