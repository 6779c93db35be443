"""``weft.vision``: torchvision's names, for ``import torchvision`` under ``weft run``.

Pictures are NumPy arrays where torchvision has PIL images, and nothing is downloaded:
data sets and weights are read from files in torchvision's layout.
"""

import importlib as _importlib
from typing import Any as _Any

_LAZY = ("datasets", "io", "models", "ops", "transforms", "utils", "version")


def __getattr__(name: str) -> _Any:
    if name in _LAZY:
        return _importlib.import_module(f"weft.vision.{name}")
    raise AttributeError(f"module 'weft.vision' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


def set_image_backend(backend: str) -> None:
    """Choose how pictures are read; there is one way, see ``weft.datasets``.

    >>> weft.vision.set_image_backend("PIL")
    """
    if backend not in ("PIL", "accimage"):
        raise ValueError(f"set_image_backend: expected 'PIL', got {backend!r}")
