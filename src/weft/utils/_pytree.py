"""``weft.utils._pytree``: nested containers of tensors, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from weft.core import pytree

__all__ = [
    "LeafSpec", "MappingKey", "TreeSpec", "register_pytree_node", "tree_all",
    "tree_any", "tree_flatten", "tree_leaves", "tree_map", "tree_map_",
    "tree_map_only", "tree_structure", "tree_unflatten",
]  # fmt: skip
tree_flatten, tree_map = pytree.tree_flatten, pytree.tree_map
tree_unflatten = pytree.tree_unflatten
TreeSpec = pytree.Structure


class MappingKey(NamedTuple):
    """The key of a value in a mapping."""

    key: Any


def LeafSpec() -> TreeSpec:
    """The structure of a single leaf."""
    return pytree.LEAF


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[Any, Any]],
    unflatten_fn: Callable[[Any, Any], Any],
    **others: Any,
) -> None:
    """Make objects of a class containers: ``flatten_fn(x)`` gives (children, rest).

    Names for files and keys, which other arguments give, are not needed here.
    """
    pytree.register_pytree_node(
        cls, flatten_fn, lambda items, rest: unflatten_fn(items, rest)
    )


_register_pytree_node = register_pytree_node


def tree_leaves(tree: Any, is_leaf: Any = None) -> list[Any]:
    """The leaves in order; what ``is_leaf`` holds for is not taken apart.

    >>> weft.utils._pytree.tree_leaves([1, (2, 3)])
    [1, 2, 3]
    >>> weft.utils._pytree.tree_leaves([1, (2, 3)], lambda x: isinstance(x, tuple))
    [1, (2, 3)]
    """
    if is_leaf is None:
        return list(pytree.tree_flatten(tree)[0])
    if is_leaf(tree):
        return [tree]
    children = pytree.children_of(tree)
    if children is None:
        return [tree]
    return [leaf for child in children for leaf in tree_leaves(child, is_leaf)]


def tree_structure(tree: Any) -> TreeSpec:
    """How leaves are arranged.

    >>> weft.utils._pytree.tree_structure([1, 2]).num_leaves
    2
    """
    return pytree.tree_flatten(tree)[1]


def tree_map_(fn: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Call a function with each leaf, and give the tree back.

    >>> weft.utils._pytree.tree_map_(print, [1])
    1
    [1]
    """
    pytree.tree_map(fn, tree, *others)
    return tree


def tree_map_only(kind: Any, fn: Callable[[Any], Any], tree: Any) -> Any:
    """Apply a function to the leaves of a type.

    >>> weft.utils._pytree.tree_map_only(int, lambda x: -x, [1, "a"])
    [-1, 'a']
    """
    return pytree.tree_map(lambda x: fn(x) if isinstance(x, kind) else x, tree)


def tree_any(pred: Callable[[Any], bool], tree: Any) -> bool:
    """Whether something holds for a leaf.

    >>> weft.utils._pytree.tree_any(lambda x: x > 1, [1, 2])
    True
    """
    return any(map(pred, tree_leaves(tree)))


def tree_all(pred: Callable[[Any], bool], tree: Any) -> bool:
    """Whether something holds for all leaves.

    >>> weft.utils._pytree.tree_all(lambda x: x > 1, [1, 2])
    False
    """
    return all(map(pred, tree_leaves(tree)))


# -- how PyTorch takes dicts apart, which packages do for classes of theirs


def _dict_flatten(d: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
    return list(d.values()), list(d)


def _dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
    return [(MappingKey(k), v) for k, v in d.items()], list(d)


def _dict_unflatten(values: Iterable[Any], context: list[Any]) -> dict[Any, Any]:
    return dict(zip(context, values, strict=True))
