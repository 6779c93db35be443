"""``weft.utils._pytree``: nested containers of tensors, as PyTorch takes them apart.

Lists, tuples, named tuples, dicts and registered classes are containers; everything
else is a leaf, ``None`` too. (``weft.tree_map`` and transforms take ``None`` for an
empty container.)
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from weft.core import pytree
from weft.errors import ArgumentError, DTypeError

__all__ = [
    "SUPPORTED_NODES", "Context", "KeyEntry", "KeyPath", "LeafSpec", "MappingKey",
    "NodeDef", "PyTree", "SequenceKey", "TreeSpec", "arg_tree_leaves",
    "register_pytree_node", "tree_all", "tree_all_only", "tree_any", "tree_any_only",
    "tree_flatten", "tree_flatten_with_path", "tree_is_leaf", "tree_iter",
    "tree_leaves", "tree_map", "tree_map_", "tree_map_only", "tree_map_with_path",
    "tree_structure", "tree_unflatten",
]  # fmt: skip

PyTree = Context = KeyEntry = Any
KeyPath = tuple[Any, ...]
Flatten = Callable[[Any], tuple[Any, Any]]
Unflatten = Callable[[Iterable[Any], Any], Any]


class NodeDef(NamedTuple):
    """How containers of a type are taken apart and put together."""

    type: Any
    flatten_fn: Flatten
    unflatten_fn: Unflatten
    flatten_with_keys_fn: Any = None


class MappingKey(NamedTuple):
    """The key of a value in a mapping."""

    key: Any


class SequenceKey(NamedTuple):
    """The position of a value in a sequence."""

    idx: int


class TreeSpec:
    """The structure of a tree: a container's type, what it keeps, and its children.

    >>> spec = weft.utils._pytree.tree_structure({"a": 1, "b": [2, None]})
    >>> spec.num_leaves, spec.num_children, spec.context
    (3, 2, ['a', 'b'])
    """

    def __init__(self, type: Any, context: Any, children_specs: Any) -> None:
        self.type, self.context = type, context
        self.children_specs = list(children_specs)
        self.num_children = len(self.children_specs)
        leaf = type is None
        self.num_leaves = 1 if leaf else sum(c.num_leaves for c in self.children_specs)
        self.num_nodes = 1 + sum(c.num_nodes for c in self.children_specs)

    def is_leaf(self) -> bool:
        return self.type is None

    def children(self) -> list[TreeSpec]:
        return list(self.children_specs)

    def child(self, index: int) -> TreeSpec:
        return self.children_specs[index]

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        return tree_unflatten(leaves, self)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The parts of a tree that are where this structure has its leaves."""
        if self.is_leaf():
            return [tree]
        if _get_node_type(tree) is not self.type:
            raise ArgumentError(
                f"expected a tree like {self}, got a {type(tree).__name__} where that "
                f"has a {self.type.__name__}"
            )
        children, context = SUPPORTED_NODES[self.type].flatten_fn(tree)
        children = list(children)
        if len(children) != self.num_children or context != self.context:
            raise ArgumentError(
                f"expected a {self.type.__name__} with {self.num_children} children "
                f"({self.context}), got {len(children)} ({context})"
            )
        pairs = zip(self.children_specs, children, strict=True)
        return [part for spec, child in pairs for part in spec.flatten_up_to(child)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return (self.type, self.context, self.children_specs) == (
            other.type, other.context, other.children_specs,
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash((self.type, self.num_leaves, self.num_children))

    def __repr__(self) -> str:
        if self.is_leaf():
            return "*"
        inner = ", ".join(map(repr, self.children_specs))
        return f"TreeSpec({self.type.__name__}, {self.context!r}, [{inner}])"


class LeafSpec(TreeSpec):
    """The structure of a single leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])


SUPPORTED_NODES: dict[Any, NodeDef] = {}


def register_pytree_node(
    cls: Any,
    flatten_fn: Flatten,
    unflatten_fn: Unflatten,
    *,
    flatten_with_keys_fn: Any = None,
    **names: Any,
) -> None:
    """Make objects of a class containers: ``flatten_fn(x)`` gives (children, rest).

    Weft's own transforms and ``weft.compile`` take them apart too. Names for files,
    which other arguments give, are not needed here.
    """
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
    pytree.register_pytree_node(cls, flatten_fn, unflatten_fn)


_register_pytree_node = register_pytree_node


def _dict_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d.values()), list(d)


def _dict_flatten_with_keys(d: Any) -> tuple[list[Any], Any]:
    return [(MappingKey(k), v) for k, v in d.items()], list(d)


def _dict_unflatten(values: Iterable[Any], context: Any) -> dict[Any, Any]:
    return dict(zip(context, values, strict=True))


def _is_namedtuple(kind: Any) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _built_in(kind: Any, flatten: Flatten, unflatten: Unflatten) -> None:
    SUPPORTED_NODES[kind] = NodeDef(kind, flatten, unflatten)


namedtuple = "namedtuple"  # the type under which every named tuple is found
_built_in(list, lambda x: (list(x), None), lambda items, _: list(items))
_built_in(tuple, lambda x: (list(x), None), lambda items, _: tuple(items))
_built_in(namedtuple, lambda x: (list(x), type(x)), lambda items, kind: kind(*items))
_built_in(dict, _dict_flatten, _dict_unflatten)
_built_in(OrderedDict, _dict_flatten, lambda v, k: OrderedDict(zip(k, v, strict=True)))
_built_in(
    defaultdict,
    lambda d: (list(d.values()), [d.default_factory, list(d)]),
    lambda v, rest: defaultdict(rest[0], zip(rest[1], v, strict=True)),
)
_built_in(
    deque, lambda d: (list(d), d.maxlen), lambda items, size: deque(items, maxlen=size)
)

# Libraries register classes of their own with these functions, by PyTorch's names.
_, _list_flatten, _list_unflatten, _ = SUPPORTED_NODES[list]
_, _tuple_flatten, _tuple_unflatten, _ = SUPPORTED_NODES[tuple]
_, _namedtuple_flatten, _namedtuple_unflatten, _ = SUPPORTED_NODES[namedtuple]
_, _ordereddict_flatten, _ordereddict_unflatten, _ = SUPPORTED_NODES[OrderedDict]


def _get_node_type(tree: Any) -> Any:
    kind = type(tree)
    if kind not in SUPPORTED_NODES and _is_namedtuple(kind):
        return namedtuple
    return kind


def _is_leaf(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    if is_leaf is not None and is_leaf(tree):
        return True
    return _get_node_type(tree) not in SUPPORTED_NODES


def tree_flatten(tree: Any, is_leaf: Any = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of a tree in order, and its structure.

    >>> weft.utils._pytree.tree_flatten([1, (None, 3)])
    ([1, None, 3], TreeSpec(list, None, [*, TreeSpec(tuple, None, [*, *])]))
    """
    leaves: list[Any] = []

    def walk(tree: Any) -> TreeSpec:
        if _is_leaf(tree, is_leaf):
            leaves.append(tree)
            return LeafSpec()
        kind = _get_node_type(tree)
        children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
        return TreeSpec(kind, context, [walk(child) for child in children])

    return leaves, walk(tree)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The tree of these leaves.

    >>> spec = weft.utils._pytree.tree_structure([1, (2, 3)])
    >>> weft.utils._pytree.tree_unflatten("abc", spec)
    ['a', ('b', 'c')]
    """
    if not isinstance(treespec, TreeSpec):
        kind = type(treespec).__name__
        raise DTypeError(f"tree_unflatten: expected a TreeSpec, got {kind}")
    given = list(leaves)
    if len(given) != treespec.num_leaves:
        raise ArgumentError(
            f"tree_unflatten: expected {treespec.num_leaves} leaves, got {len(given)}"
        )
    rest = iter(given)

    def build(spec: TreeSpec) -> Any:
        if spec.is_leaf():
            return next(rest)
        children = [build(child) for child in spec.children_specs]
        return SUPPORTED_NODES[spec.type].unflatten_fn(children, spec.context)

    return build(treespec)


def tree_leaves(tree: Any, is_leaf: Any = None) -> list[Any]:
    """The leaves in order; what ``is_leaf`` holds for is not taken apart.

    >>> weft.utils._pytree.tree_leaves([1, (2, 3)])
    [1, 2, 3]
    >>> weft.utils._pytree.tree_leaves([1, (2, 3)], lambda x: isinstance(x, tuple))
    [1, (2, 3)]
    """
    return tree_flatten(tree, is_leaf)[0]


def tree_is_leaf(tree: Any, is_leaf: Any = None) -> bool:
    """Whether a tree is a single leaf.

    >>> weft.utils._pytree.tree_is_leaf(None), weft.utils._pytree.tree_is_leaf([])
    (True, False)
    """
    return _is_leaf(tree, is_leaf)


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """The leaves of all arguments.

    >>> weft.utils._pytree.arg_tree_leaves([1, 2], a=3)
    [1, 2, 3]
    """
    return tree_leaves((args, kwargs))


def tree_iter(tree: Any, is_leaf: Any = None) -> Any:
    """An iterator over the leaves."""
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree: Any, is_leaf: Any = None) -> TreeSpec:
    """The arrangement of leaves.

    >>> weft.utils._pytree.tree_structure([1, 2]).num_leaves
    2
    """
    return tree_flatten(tree, is_leaf)[1]


def tree_map(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Any = None
) -> Any:
    """Apply a function to each leaf, and to what other trees have there.

    >>> weft.utils._pytree.tree_map(lambda a, b: a + b, [1, 2], [10, 20])
    [11, 22]
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves, *(spec.flatten_up_to(other) for other in rests)]
    return tree_unflatten(map(func, *columns), spec)


def tree_map_(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Any = None
) -> Any:
    """Call a function with each leaf, and give the tree back.

    >>> weft.utils._pytree.tree_map_(print, [1])
    1
    [1]
    """
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def _holds(kind: Any, leaf: Any) -> bool:
    is_predicate = callable(kind) and not isinstance(kind, type)
    return bool(kind(leaf)) if is_predicate else isinstance(leaf, kind)


def tree_map_only(
    type_or_types_or_pred: Any, func: Callable[[Any], Any], tree: Any,
    is_leaf: Any = None,
) -> Any:  # fmt: skip
    """Apply a function to the leaves of a type.

    >>> weft.utils._pytree.tree_map_only(int, lambda x: -x, [1, "a"])
    [-1, 'a']
    """

    def changed(leaf: Any) -> Any:
        return func(leaf) if _holds(type_or_types_or_pred, leaf) else leaf

    return tree_map(changed, tree, is_leaf=is_leaf)


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Whether something holds for a leaf.

    >>> weft.utils._pytree.tree_any(lambda x: x > 1, [1, 2])
    True
    """
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Whether something holds for all leaves.

    >>> weft.utils._pytree.tree_all(lambda x: x > 1, [1, 2])
    False
    """
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any_only(
    kind: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None
) -> bool:
    """Whether something holds for a leaf of a type."""
    return any(pred(x) for x in tree_leaves(tree, is_leaf) if _holds(kind, x))


def tree_all_only(
    kind: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None
) -> bool:
    """Whether something holds for all leaves of a type."""
    return all(pred(x) for x in tree_leaves(tree, is_leaf) if _holds(kind, x))


def tree_flatten_with_path(
    tree: Any, is_leaf: Any = None
) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """The leaves with the keys on the way to them, and the structure.

    >>> weft.utils._pytree.tree_flatten_with_path({"a": [5]})[0]
    [((MappingKey(key='a'), SequenceKey(idx=0)), 5)]
    """
    found: list[tuple[KeyPath, Any]] = []

    def walk(tree: Any, path: KeyPath) -> None:
        if _is_leaf(tree, is_leaf):
            found.append((path, tree))
            return
        for key, child in _keyed(tree):
            walk(child, (*path, key))

    walk(tree, ())
    return found, tree_structure(tree, is_leaf)


def _keyed(tree: Any) -> list[tuple[Any, Any]]:
    node = SUPPORTED_NODES[_get_node_type(tree)]
    if node.flatten_with_keys_fn is not None:
        return list(node.flatten_with_keys_fn(tree)[0])
    if isinstance(tree, dict):
        return _dict_flatten_with_keys(tree)[0]
    return [(SequenceKey(i), x) for i, x in enumerate(node.flatten_fn(tree)[0])]


def tree_map_with_path(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Any = None
) -> Any:
    """Apply a function to the path of each leaf and the leaf.

    >>> weft.utils._pytree.tree_map_with_path(lambda p, x: p[0].idx * x, [5, 6])
    [0, 6]
    """
    found, spec = tree_flatten_with_path(tree, is_leaf)
    columns = [spec.flatten_up_to(other) for other in rests]
    paths, leaves = [path for path, _ in found], [leaf for _, leaf in found]
    return tree_unflatten(map(func, paths, leaves, *columns), spec)
