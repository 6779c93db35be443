"""``weft.cuda.amp``: the older names of ``weft.amp``, for GPUs."""

from __future__ import annotations

import importlib
from typing import Any


def _amp() -> Any:
    return importlib.import_module("weft.amp")


def autocast(
    enabled: bool = True, dtype: Any = None, cache_enabled: bool = True
) -> Any:
    """``weft.amp.autocast("cuda", ...)``: disabled, with a warning, without a GPU."""
    options = {"enabled": enabled, "cache_enabled": cache_enabled}
    return _amp().autocast("cuda", dtype=dtype, **options)


def GradScaler(*args: Any, **options: Any) -> Any:
    """``weft.amp.GradScaler("cuda", ...)``: disabled, with a warning, without a GPU."""
    return _amp().GradScaler("cuda", *args, **options)


def custom_fwd(fwd: Any = None, *, cast_inputs: Any = None) -> Any:
    """``weft.amp.custom_fwd`` for GPUs."""
    return _amp().custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Any) -> Any:
    """``weft.amp.custom_bwd`` for GPUs."""
    return _amp().custom_bwd(bwd, device_type="cuda")
