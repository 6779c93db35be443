"""``weft.utils._pytree``: nested containers of tensors, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.core import pytree

__all__ = ["tree_flatten", "tree_leaves", "tree_map", "tree_map_only", "tree_unflatten"]
tree_flatten, tree_map = pytree.tree_flatten, pytree.tree_map
tree_unflatten = pytree.tree_unflatten


def tree_leaves(tree: Any, is_leaf: Any = None) -> list[Any]:
    """The leaves in order.

    >>> weft.utils._pytree.tree_leaves([1, (2, 3)])
    [1, 2, 3]
    """
    return list(pytree.tree_flatten(tree)[0])


def tree_map_only(kind: Any, fn: Callable[[Any], Any], tree: Any) -> Any:
    """Apply a function to the leaves of a type.

    >>> weft.utils._pytree.tree_map_only(int, lambda x: -x, [1, "a"])
    [-1, 'a']
    """
    return pytree.tree_map(lambda x: fn(x) if isinstance(x, kind) else x, tree)
