"""The nesting of a program's arguments and results.

    node = ["leaf"] | ["none"] | ["list", [i, …]] | ["tuple", [i, …]]
         | ["dict", [key, …], [i, …]]              keys: strings or ints

Children come before parents, the root last. Named tuples become tuples, and
subclasses of dictionaries and lists plain ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft.core.pytree import _CUSTOM, LEAF, Structure, _Nothing
from weft.errors import ArgumentError

DEEPEST = 64
_NAMES: dict[Any, str] = {list: "list", tuple: "tuple", dict: "dict"}
_KINDS = {name: kind for kind, name in _NAMES.items()}


def plain(structure: Structure, depth: int = 0) -> Structure:
    """The same value with subclasses of lists, tuples and dictionaries made plain."""
    kind, keys, children = structure
    if kind is None or kind is _Nothing:
        return structure
    if kind in _CUSTOM or depth > DEEPEST:
        raise ArgumentError(
            f"a program in a file takes and gives lists, tuples and dictionaries at "
            f"most {DEEPEST} deep, got {kind.__name__}"
        )
    base = next(b for b in _NAMES if issubclass(kind, b))
    return Structure(base, keys, tuple(plain(c, depth + 1) for c in children))


def encode_structure(structure: Structure) -> list[Any]:
    """The nodes of a structure."""
    nodes: list[Any] = []
    _encode(plain(structure), nodes)
    return nodes


def _encode(structure: Structure, nodes: list[Any]) -> int:
    kind, keys, children = structure
    if kind is None:
        node: list[Any] = ["leaf"]
    elif kind is _Nothing:
        node = ["none"]
    else:
        positions = [_encode(child, nodes) for child in children]
        node = [_NAMES[kind], positions]
        if keys is not None:
            node.insert(1, _checked(keys))
    nodes.append(node)
    return len(nodes) - 1


def _checked(keys: tuple[Any, ...]) -> list[Any]:
    for key in keys:
        if type(key) not in (str, int) or (type(key) is int and abs(key) >= 1 << 63):
            raise ArgumentError(f"save: expected string or int keys, got {key!r}")
    return list(keys)


def decode_structure(items: Iterable[Any]) -> Structure:
    """The structure of nodes; a ValueError if they are none."""
    built: list[Structure] = []
    depths: list[int] = []
    free: list[bool] = []
    for item in items:
        structure, positions = _node(item)
        for position in positions:
            if (
                type(position) is not int
                or not 0 <= position < len(built)
                or not free[position]
            ):
                raise ValueError(f"{item!r} is no node of a structure")
            free[position] = False
        depth = 1 + max((depths[i] for i in positions), default=0)
        if depth > DEEPEST + 1:
            raise ValueError(f"the structure is more than {DEEPEST} deep")
        built.append(structure._replace(children=tuple(built[i] for i in positions)))
        depths.append(depth)
        free.append(True)
    if not free or free.count(True) != 1 or not free[-1]:
        raise ValueError("the structure is not one tree")
    return built[-1]


def _node(item: Any) -> tuple[Structure, list[Any]]:
    """A structure still without its children, and their indices."""
    match item:
        case ["leaf"]:
            return LEAF, []
        case ["none"]:
            return Structure(_Nothing, None, ()), []
        case ["list" | "tuple" as name, list(positions)]:
            return Structure(_KINDS[name], None, ()), positions
        case ["dict", list(keys), list(positions)] if len(keys) == len(positions):
            plain = all(type(key) in (str, int) for key in keys)
            if plain and len(set(keys)) == len(keys):
                return Structure(dict, tuple(keys), ()), positions
    raise ValueError(f"{item!r} is no node of a structure")
