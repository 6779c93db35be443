"""``weft.distributed.optim``: classes that packages ask an optimizer for."""

from __future__ import annotations

from typing import Any

from weft.distributed import _refusing

__all__ = ["ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer:
    """An optimizer whose state several processes share out; here there is one.

    >>> from weft.distributed.optim import ZeroRedundancyOptimizer
    >>> ZeroRedundancyOptimizer([], weft.optim.Adam)
    Traceback (most recent call last):
        ...
    ValueError: ZeroRedundancyOptimizer: Weft runs in one process ...
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refusing("ZeroRedundancyOptimizer")()
