"""Help around training: data loading, image transforms, activation checkpointing."""

import importlib as _importlib
from typing import Any as _Any

_LAZY = (
    "checkpoint",
    "data",
    "dlpack",
    "flop_counter",
    "hooks",
    "model_zoo",
    "tensorboard",
    "transforms",
)


def __getattr__(name: str) -> _Any:
    if name in _LAZY:
        return _importlib.import_module(f"weft.utils.{name}")
    raise AttributeError(f"module 'weft.utils' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
