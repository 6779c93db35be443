"""Layer types by the names that descriptions use."""

from __future__ import annotations

import difflib
import re
from typing import Any, NamedTuple, TypeVar

from weft.errors import ArgumentError
from weft.layers.layer import Layer

T = TypeVar("T", bound=type)


class Entry(NamedTuple):
    """A type of layer: its class, and the block of its options in a prototxt."""

    name: str
    cls: type[Layer]
    block: str


_TYPES: dict[str, Entry] = {}


def register(name: Any = None, *, block: str | None = None) -> Any:
    """Make a layer class known to descriptions, under its own or another name.

    ``block`` names the options' block in a prototxt; by default it is the type's name
    in small letters with ``_param``.

    >>> @weft.layers.register
    ... class Halve(weft.layers.Activation):
    ...     def func(self, x):
    ...         return x / 2
    ...     def derivative_func(self, x):
    ...         return weft.full_like(x, 0.5)
    >>> weft.layers.find_type("Halve") is Halve
    True
    >>> weft.layers.unregister("Halve")
    """
    if isinstance(name, type):
        return register()(name)

    def add(cls: T) -> T:
        if not issubclass(cls, Layer):
            raise ArgumentError(f"register: expected a Layer class, got {cls.__name__}")
        known = name or cls.__name__
        if known in _TYPES:
            raise ArgumentError(
                f"register: a layer type named {known!r} exists; unregister it first "
                "or choose another name"
            )
        _TYPES[known] = Entry(known, cls, block or f"{_snake(known)}_param")
        return cls

    return add


def unregister(name: str) -> None:
    """Forget a type of layer.

    >>> weft.layers.unregister("NoSuchLayer")
    """
    _TYPES.pop(name, None)


def known_types() -> list[str]:
    """The names of all types of layer.

    >>> "InnerProduct" in weft.layers.known_types()
    True
    """
    return sorted(_TYPES)


def entry(name: str, where: str = "") -> Entry:
    """A type's entry; ``where`` says where the name was read."""
    if name not in _TYPES:
        by_case = {known.lower(): known for known in _TYPES}
        close = difflib.get_close_matches(name.lower(), by_case, 1, 0.7)
        hint = f"; {by_case[close[0]]!r} is meant?" if close else ""
        raise ArgumentError(
            f"{where}unknown layer type {name!r}{hint}\n  known: "
            f"{', '.join(known_types())}"
        )
    return _TYPES[name]


def find_type(name: str) -> type[Layer]:
    """The class of a type of layer.

    >>> weft.layers.find_type("Dense")
    <class 'weft.layers.linear.Dense'>
    """
    return entry(name).cls


def entry_of(layer: Layer) -> Entry:
    """The entry under which a layer's class is known."""
    for found in _TYPES.values():
        if found.cls is type(layer):
            return found
    raise ArgumentError(
        f"{layer._title}: its class {type(layer).__name__} is not registered; decorate "
        "it with @weft.layers.register"
    )


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
