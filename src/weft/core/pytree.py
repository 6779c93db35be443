"""Nested containers of tensors: lists, tuples, named tuples, dicts, None.

``tree_flatten`` gives the leaves and the structure; anything that is not a
known container is a leaf.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

from weft.errors import ArgumentError


class Structure(NamedTuple):
    """The arrangement of leaves: a container type, its keys, its children."""

    kind: Any  # None for a leaf
    keys: tuple[Any, ...] | None
    children: tuple[Structure, ...]

    @property
    def num_leaves(self) -> int:
        if self.kind is None:
            return 1
        return sum(child.num_leaves for child in self.children)

    def __hash__(self) -> int:
        try:
            return tuple.__hash__(self)
        except TypeError:  # a registered class keeps a list, say
            return hash((self.kind, self.children))


LEAF = Structure(None, None, ())


class _Nothing:
    """The kind of ``None`` in a tree: a container without children."""


_CUSTOM: dict[type, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {}


def register_pytree_node(
    cls: type,
    flatten: Callable[[Any], tuple[Any, Any]],
    unflatten: Callable[[Any, Any], Any],
) -> None:
    """Make objects of a class containers: ``flatten(x)`` gives (children, rest)."""
    _CUSTOM[cls] = (flatten, unflatten)


def custom_node(kind: type) -> Any:
    """The functions that flatten and unflatten objects of a registered class."""
    return _CUSTOM.get(kind)


register_pytree_node(
    defaultdict,
    lambda d: (list(d.values()), (d.default_factory, tuple(d))),
    lambda items, rest: defaultdict(rest[0], zip(rest[1], items, strict=True)),
)


def children_of(tree: Any) -> list[Any] | None:
    """The direct children of a container; None for a leaf.

    >>> weft.core.pytree.children_of({"a": [1], "b": 2})
    [[1], 2]
    """
    if tree is None:
        return []
    if type(tree) in _CUSTOM:
        return list(_CUSTOM[type(tree)][0](tree)[0])
    if isinstance(tree, dict):
        return list(tree.values())
    return list(tree) if isinstance(tree, (list, tuple)) else None


def tree_flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves of a tree, and its structure.

    >>> leaves, structure = weft.core.pytree.tree_flatten({"a": 1, "b": [2, 3]})
    >>> leaves
    [1, 2, 3]
    """
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves)


def _flatten(tree: Any, leaves: list[Any]) -> Structure:
    kind = type(tree)
    if tree is None:
        return Structure(_Nothing, None, ())
    if kind in _CUSTOM:
        children, rest = _CUSTOM[kind][0](tree)
        return Structure(kind, (rest,), tuple(_flatten(c, leaves) for c in children))
    if isinstance(tree, dict):
        keys = tuple(tree)
        return Structure(kind, keys, tuple(_flatten(tree[k], leaves) for k in keys))
    if isinstance(tree, (list, tuple)):
        return Structure(kind, None, tuple(_flatten(c, leaves) for c in tree))
    leaves.append(tree)
    return LEAF


def tree_unflatten(leaves: Any, structure: Structure) -> Any:
    """The tree with these leaves.

    >>> leaves, structure = weft.core.pytree.tree_flatten((1, [2]))
    >>> weft.core.pytree.tree_unflatten([10, 20], structure)
    (10, [20])
    """
    return _unflatten(iter(leaves), structure)


def _unflatten(leaves: Any, structure: Structure) -> Any:
    kind, keys, children = structure
    if kind is None:
        return next(leaves)
    if kind is _Nothing:
        return None
    built = [_unflatten(leaves, child) for child in children]
    if kind in _CUSTOM:
        return _CUSTOM[kind][1](built, keys[0] if keys else None)
    if keys is not None:
        if kind is Counter:  # which would count the pairs
            return Counter(dict(zip(keys, built, strict=True)))
        return kind(zip(keys, built, strict=True))
    return kind(*built) if hasattr(kind, "_fields") else kind(built)  # a named tuple


def tree_map(fn: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Apply a function to each leaf (and the corresponding leaves of others).

    >>> weft.core.pytree.tree_map(lambda a, b: a + b, [1, 2], [10, 20])
    [11, 22]
    """
    leaves, structure = tree_flatten(tree)
    columns = [leaves]
    for other in others:
        more, shape = tree_flatten(other)
        if shape != structure:
            raise ArgumentError(
                "tree_map: expected trees of the same structure, got "
                f"{structure.num_leaves} and {shape.num_leaves} leaves"
            )
        columns.append(more)
    mapped = [fn(*row) for row in zip(*columns, strict=True)]
    return tree_unflatten(mapped, structure)


def broadcast_prefix(prefix: Any, tree: Any, name: str) -> list[Any]:
    """One value a leaf from a tree that may stop early (vmap's in_dims)."""
    out: list[Any] = []
    _spread(prefix, tree, out, name)
    return out


def _spread(prefix: Any, tree: Any, out: list[Any], name: str) -> None:
    if isinstance(prefix, (list, tuple, dict)):
        if type(prefix) is not type(tree) or len(prefix) != len(tree):
            raise ArgumentError(
                f"{name}: {prefix!r} does not match the structure of its argument"
            )
        keys = prefix if isinstance(prefix, dict) else range(len(prefix))
        for key in keys:
            _spread(prefix[key], tree[key], out, name)
        return
    out.extend([prefix] * len(tree_flatten(tree)[0]))
