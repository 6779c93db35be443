"""``weft.return_types``: the named tuples that functions return.

>>> x = weft.tensor([3.0, 1.0])
>>> type(x.max(dim=0)) is weft.return_types.max
True
>>> x.max(dim=0)
weft.return_types.max(
values=tensor(3.),
indices=tensor(0))
"""

from __future__ import annotations

from typing import Any

from weft.core.results import TYPES


def __getattr__(name: str) -> Any:
    if name not in TYPES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return TYPES[name]


def __dir__() -> list[str]:
    return sorted(TYPES)
