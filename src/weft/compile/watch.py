"""What Python values a compiled program depends on, and whether they still hold.

Capturing runs the Python once; what it read there is fixed in the program. Watched
are the plain attributes of every module and object the function refers to, and the
plain globals and closure variables it names. A change means another compilation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.core.tensor import Tensor
from weft.graph.capture import outer_values

PLAIN = (bool, int, float, complex, str, bytes, type(None))


def plain(value: Any) -> bool:
    """Whether a value can be compared cheaply and safely."""
    if isinstance(value, tuple):
        return all(plain(v) for v in value)
    return isinstance(value, PLAIN)


class Watch:
    """Values of an object's dictionary at the time of a capture."""

    __slots__ = ("keys", "name", "source", "values")

    def __init__(self, name: str, source: dict[str, Any], keys: list[str]) -> None:
        self.name = name
        self.source = source
        self.keys = keys
        self.values = [source.get(k) for k in keys]

    def changed(self) -> str | None:
        """What differs now, or None."""
        get = self.source.get
        for key, value in zip(self.keys, self.values, strict=True):
            now = get(key)
            if now is not value and not (plain(now) and _equal(now, value)):
                return f"{self.name}.{key} changed from {value!r:.60} to {now!r:.60}"
        return None


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and a == b


def watches(fn: Callable[..., Any]) -> list[Watch]:
    """What to look at before each run of a compiled function."""
    from weft.nn.module import Module

    found: list[Watch] = []
    named = outer_values(fn)
    owner = fn if isinstance(fn, Module) else getattr(fn, "__self__", None)
    if isinstance(owner, Module):
        named = {**named, "model": owner}
    code = getattr(fn, "__code__", None)
    if code is not None:
        held = [n for n in code.co_names if plain(fn.__globals__.get(n, fn))]
        if held:
            found.append(Watch("globals", fn.__globals__, held))
        found += [CellWatch(n, c) for n, c in _cells(fn) if plain(c.cell_contents)]  # type: ignore[misc]
    seen: set[int] = set()
    for name, value in named.items():
        if not isinstance(value, Module):
            continue
        for path, module in value.named_modules():
            if id(module) not in seen:
                seen.add(id(module))
                found += _of_module(f"{name}.{path}" if path else name, module)
    return found


class CellWatch:
    """A closure variable's value at the time of a capture."""

    __slots__ = ("cell", "name", "value")

    def __init__(self, name: str, cell: Any) -> None:
        self.name, self.cell, self.value = name, cell, cell.cell_contents

    def changed(self) -> str | None:
        now = self.cell.cell_contents
        if now is self.value or (plain(now) and _equal(now, self.value)):
            return None
        return f"{self.name} changed from {self.value!r:.60} to {now!r:.60}"


def _cells(fn: Any) -> list[tuple[str, Any]]:
    pairs = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
    found = []
    for name, cell in pairs:
        try:
            cell.cell_contents  # noqa: B018  an empty cell raises
        except ValueError:
            continue
        found.append((name, cell))
    return found


def _of_module(name: str, module: Any) -> list[Watch]:
    own = module.__dict__
    keys = [
        k
        for k, v in own.items()
        if not k.startswith("_") and (plain(v) or isinstance(v, Tensor) or _module(v))
    ]
    found = [Watch(name, own, keys)] if keys else []
    if own["_buffers"]:
        found.append(Watch(name, own["_buffers"], list(own["_buffers"])))
    return found


def _module(value: Any) -> bool:
    from weft.nn.module import Module

    return isinstance(value, Module)
