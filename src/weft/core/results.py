"""Named tuples that functions return, printed as PyTorch prints them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import naming

# The type of each function's result, by the function's name.
TYPES: dict[str, Any] = {}


def results(*functions: str) -> Callable[[Any], Any]:
    """Declare a named tuple as the result of functions.

    Each of several functions gets a subclass, as the text begins with its name.
    """

    def declare(base: Any) -> Any:
        for name in functions:
            kind = base
            if len(functions) > 1:
                doc = f"The result of ``{name}``."
                kind = type(name, (base,), {"__slots__": (), "__doc__": doc})
                kind.__module__ = "weft.return_types"
            kind.__repr__ = _writer(name)
            TYPES[name] = kind
        return base

    return declare


def _writer(name: str) -> Callable[[Any], str]:
    def __repr__(self: Any) -> str:
        pairs = zip(self._fields, self, strict=True)
        fields = ",\n".join(f"{field}={value!r}" for field, value in pairs)
        return f"{naming.library()}.return_types.{name}(\n{fields})"

    return __repr__
