"""``weft.cuda.amp``: the older names of ``weft.amp``, for GPUs."""

from __future__ import annotations

from typing import Any

from weft import amp
from weft.amp import custom_bwd, custom_fwd

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(amp.autocast):
    """``weft.amp.autocast("cuda", ...)``.

    >>> with weft.cuda.amp.autocast(enabled=False):
    ...     pass
    """

    def __init__(
        self, enabled: bool = True, dtype: Any = None, cache_enabled: bool = True
    ) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """``weft.amp.GradScaler("cuda", ...)``.

    >>> weft.cuda.amp.GradScaler(enabled=False).get_scale()
    1.0
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__("cuda", *args, **options)
