"""The version of PyTorch whose names Weft has, as a string that compares rightly."""

from __future__ import annotations

import re
from typing import Any

_PRE = {"dev": -4, "a": -3, "b": -2, "rc": -1}


def _key(version: Any) -> tuple[Any, ...]:
    """A sort key: the release, then pre-releases before it and local builds after."""
    if isinstance(version, (tuple, list)):
        version = ".".join(map(str, version))
    public, _, local = str(version).partition("+")
    found = re.match(r"v?(\d+(?:\.\d+)*)[._-]?([a-z]*)[._-]?(\d*)", public)
    if found is None:
        raise ValueError(f"expected a version such as '2.1.0', got {version!r}")
    release = [int(n) for n in found[1].split(".")]
    while release and release[-1] == 0:
        release.pop()
    return release, _PRE.get(found[2], 0), int(found[3] or 0), local


class TorchVersion(str):
    """A version that compares by its numbers with strings and tuples.

    >>> weft.torch.TorchVersion("2.13.0+weft") > "2.9"
    True
    >>> weft.torch.TorchVersion("2.13.0") >= (2, 13)
    True
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (str, tuple, list)):
            return NotImplemented
        try:
            return _key(self) == _key(other)
        except ValueError:
            return str.__eq__(self, str(other))

    def __lt__(self, other: Any) -> bool:
        return _key(self) < _key(other)

    def __le__(self, other: Any) -> bool:
        return _key(self) <= _key(other)

    def __gt__(self, other: Any) -> bool:
        return _key(self) > _key(other)

    def __ge__(self, other: Any) -> bool:
        return _key(self) >= _key(other)

    def __hash__(self) -> int:
        return str.__hash__(self)


VERSION = TorchVersion("2.13.0+weft")
VISION_VERSION = TorchVersion("0.28.0+weft")
