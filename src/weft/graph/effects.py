"""Effects of a captured function besides the values it computes.

Every run of the program has them, as eager calls do:

- A result may be a tensor that was there before (an argument, a parameter, a gradient),
  or a view of one or of another result. ``Shared`` says of which.
- Lists and dictionaries in the arguments are copied for the capture (``Copies``). The
  caller's are changed after each run as the function has changed its own (``Change``).
- Objects that keep values for later, as layers do for their backward, have those of
  each run in their attributes (``Kept``).
- An argument has the gradient that ``backward`` adds, or that the function sets
  (``Gradient``).
- Printed text appears after each run, with that run's values (``Printed``).

A recipe is a Python value in which nodes, ``Shared`` and ``Given`` stand for whatever
differs from run to run; ``make`` gives the value for one run.
"""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from weft.autograd.engine import accumulate
from weft.autograd.modes import no_grad
from weft.core.pytree import custom_node
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.graph.interpret import resolve
from weft.graph.ir import Node

MUTABLE = (set, deque, bytearray, np.ndarray)  # made anew in each eager call
DETACHED: Any = object()  # a step of a chain of views
_DETACHED_ONLY: Any = ((DETACHED, {}),)


class Run(NamedTuple):
    """One run of a program: its arguments, and the values that it computed."""

    leaves: Sequence[Any]
    arguments: tuple[Any, Any]
    results: Mapping[Node, Tensor]
    sizes: Callable[[], Mapping[str, int]]
    built: dict[int, Any]  # containers, by their recipes' identities


class Argument(NamedTuple):
    """The tensor at an index among the leaves of the arguments."""

    position: int


class Outside(NamedTuple):
    """A tensor that the program changes or reads as a variable."""

    tensor: Tensor


class GradientOf(NamedTuple):
    """The gradient of a tensor from outside."""

    tensor: Tensor


class Shared(NamedTuple):
    """A tensor that shares memory with one that others can see, as a view of that."""

    root: Argument | Outside | GradientOf | Node
    chain: tuple[Any, ...]  # of views: (operator, parameters); ``at`` is [(axis, node)]
    recorded: bool  # whether derivatives flow through the views


class Given(NamedTuple):
    """The caller's list or dictionary at a path in the arguments."""

    path: tuple[Any, ...]


class Built(NamedTuple):
    """A container that the function has made."""

    kind: type
    keys: tuple[Any, ...] | None
    items: tuple[Any, ...]
    like: Any = None  # an object to copy, for a subclass of dict

    @classmethod
    def of(cls, value: Any, recipe: Callable[[Any], Any]) -> Built:
        if not isinstance(value, dict):
            return cls(type(value), None, tuple(map(recipe, value)))
        like = None
        if type(value) is not dict:
            like = copy.copy(value)
            _methods(like).clear(like)
        keys = tuple(map(settled, value))
        return cls(type(value), keys, tuple(map(recipe, value.values())), like)


def settled(key: Any) -> Any:
    """A key or member of a set; a size among them has been taken for a number."""
    if type(key) is tuple:
        return tuple(map(settled, key))
    return int(key) if type(key) is Size else key


class Copied(NamedTuple):
    """A value that every run makes anew."""

    value: Any


class Constant(NamedTuple):
    """The very same object in every run."""

    value: Any


class Text(NamedTuple):
    """A text that shows values of tensors."""

    parts: tuple[Any, ...]  # texts, and tensors: (node, format)


class Change(NamedTuple):
    """The new contents of a list or dictionary in the arguments."""

    path: tuple[Any, ...]
    contents: Built

    def happen(self, run: Run) -> None:
        put(at(run.arguments, self.path), make(self.contents, run))


class Kept(NamedTuple):
    """An attribute of an object that keeps values for later, as a layer does."""

    slots: dict[str, Any]
    name: str
    recipe: Any

    def happen(self, run: Run) -> None:
        self.slots[self.name] = make(self.recipe, run)


class Gradient(NamedTuple):
    """The gradient that an argument has after a run, or that is added to it."""

    position: int
    recipe: Any
    added: bool

    def happen(self, run: Run) -> None:
        leaf, value = run.leaves[self.position], make(self.recipe, run)
        if self.added:
            accumulate(leaf, value, create_graph=False)
        else:
            leaf.grad = value


class Later(NamedTuple):
    """A Python value that is computed after each run."""

    read: Callable[[], Any]


class Made(NamedTuple):
    """An object that the function has made, and that keeps values."""

    kind: type
    fields: Built

    def object(self, run: Run) -> Any:
        made: Any = object.__new__(self.kind)
        made.__dict__.update(make(self.fields, run))
        del made._made_inside
        return made


class Printed(NamedTuple):
    """A call of ``print`` or of a logger, with recipes for its arguments."""

    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def happen(self, run: Run) -> None:
        args = [make(a, run) for a in self.args]
        self.call(*args, **{k: make(v, run) for k, v in self.kwargs.items()})


def make(recipe: Any, run: Run) -> Any:
    """The value of a recipe for one run."""
    kind = type(recipe)
    if kind is Node:
        return run.results[recipe]
    if kind is Shared:
        return _shown(recipe, run)
    if kind is Given:
        return at(run.arguments, recipe.path)
    if kind is Copied:
        return copy.deepcopy(recipe.value)
    if kind is Constant:
        return recipe.value
    if kind is Built:
        if id(recipe) not in run.built:
            run.built[id(recipe)] = _built(recipe, run)
        return run.built[id(recipe)]
    if kind is Size or kind is slice:
        return resolve(recipe, run.sizes())
    if kind is Later:
        return recipe.read()
    if kind is Made:
        return recipe.object(run)
    if kind is Text:
        parts = [p if type(p) is str else (run.results[p[0]], p[1]) for p in recipe[0]]
        return "".join(p if type(p) is str else format(*p) for p in parts)
    return recipe


def _shown(shared: Shared, run: Run) -> Tensor:
    root = shared.root
    if isinstance(root, Node):
        out: Any = run.results[root]
    elif isinstance(root, Argument):
        out = run.leaves[root.position]
    else:
        out = root.tensor if isinstance(root, Outside) else root.tensor.grad
    if not shared.chain:
        return out
    if shared.chain == _DETACHED_ONLY:
        return out.detach()
    with nullcontext() if shared.recorded else no_grad():
        for op, params in shared.chain:
            if op is DETACHED:
                out = out.detach()
            elif "at" in params:  # indices that the run has computed
                at = {axis: int(run.results[node]) for axis, node in params["at"]}
                out = out[tuple([at.get(d, slice(None)) for d in range(out.ndim)])]
            else:
                out = op(out, **resolve(params, run.sizes()))
    return out


def _built(recipe: Built, run: Run) -> Any:
    kind, items = recipe.kind, [make(item, run) for item in recipe.items]
    if recipe.keys is None:
        return kind(*items) if hasattr(kind, "_fields") else kind(items)
    made = {} if recipe.like is None else copy.copy(recipe.like)
    _fill(made, zip(recipe.keys, items, strict=True))
    return made


def nodes_of(recipe: Any) -> Iterator[Node]:
    """The nodes whose values a recipe needs."""
    if isinstance(recipe, Node):
        yield recipe
    elif isinstance(recipe, Shared):
        if isinstance(recipe.root, Node):
            yield recipe.root
        for _, params in recipe.chain:
            yield from (node for _, node in params.get("at", ()))
    elif isinstance(recipe, Built):
        for item in recipe.items:
            yield from nodes_of(item)
    elif isinstance(recipe, Text):
        yield from (part[0] for part in recipe.parts if type(part) is not str)
    elif isinstance(recipe, Change):
        yield from nodes_of(recipe.contents)
    elif isinstance(recipe, (Kept, Gradient)):
        yield from nodes_of(recipe.recipe)
    elif isinstance(recipe, Made):
        yield from nodes_of(recipe.fields)
    elif isinstance(recipe, Printed):
        for item in (*recipe.args, *recipe.kwargs.values()):
            yield from nodes_of(item)


def origin(tensor: Any) -> tuple[Any, tuple[Any, ...]]:
    """The tensor whose memory a tensor shows, and the views that lead to it."""
    chain: tuple[Any, ...] = ()
    while True:
        if tensor._base is not None:
            tensor, chain = tensor._base, (*tensor._chain, *chain)
        elif getattr(tensor, "source", None) is not None:
            tensor, chain = tensor.source, ((DETACHED, {}), *chain)
        else:
            return tensor, chain


# -- containers


def at(arguments: Any, path: tuple[Any, ...]) -> Any:
    """The container at a path in the arguments."""
    for key in path:
        arguments = arguments[key]
    return arguments


def put(container: Any, contents: Any) -> None:
    """Give a list or dictionary other contents."""
    if isinstance(container, list):
        list.__setitem__(container, slice(None), contents)
    else:
        items = list(contents.items())
        _methods(container).clear(container)
        _fill(container, items)


def _methods(container: Any) -> Any:
    """The class whose methods do no more than change a dictionary."""
    return OrderedDict if isinstance(container, OrderedDict) else dict


def _fill(container: Any, items: Any) -> None:
    put_item = _methods(container).__setitem__
    for key, value in items:
        put_item(container, key, value)


class _Copy(NamedTuple):
    path: tuple[Any, ...] | None  # in the arguments, if there is one
    given: Any
    made: Any
    items: list[Any]  # its first contents


class Copies:
    """The arguments of a captured function: lists and dictionaries of its own.

    A container that occurs twice stays one, as in an eager call.
    """

    def __init__(self, tree: Any, leaves: Sequence[Any]) -> None:
        self._known: dict[int, _Copy] = {}
        self._made: dict[int, _Copy] = {}
        self.tree = self._copy(tree, (), iter(leaves))

    def _copy(self, tree: Any, path: Any, leaves: Iterator[Any]) -> Any:
        custom = custom_node(type(tree))
        if tree is None:
            return None
        if custom is not None and type(tree) is not defaultdict:
            children, rest = custom[0](tree)
            copy = custom[1]([self._copy(c, None, leaves) for c in children], rest)
            self._note(_Copy(None, tree, copy, items_of(copy)))
            return copy
        if not isinstance(tree, (list, tuple, dict)):
            return next(leaves)
        keys = list(tree) if isinstance(tree, dict) else range(len(tree))
        inner = [None if path is None else (*path, key) for key in keys]
        pairs = zip(keys, inner, strict=True)
        items = [self._copy(tree[k], p, leaves) for k, p in pairs]
        if isinstance(tree, tuple):
            return _like(tree, items)
        if id(tree) not in self._known:  # else the leaves here are passed by
            copy = _like(tree, items)
            self._note(_Copy(path, tree, copy, items_of(copy)))
        return self._known[id(tree)].made

    def _note(self, one: _Copy) -> None:
        self._known[id(one.given)] = self._made[id(one.made)] = one

    def changed(self) -> list[_Copy]:
        """The containers that the function has changed."""
        return [c for c in self._made.values() if not _same(c.items, items_of(c.made))]

    def given(self, made: Any) -> Given | None:
        """The path to the caller's container for one of the function's."""
        one = self._made.get(id(made))
        return Given(one.path) if one is not None and one.path is not None else None

    def change_given(self) -> None:
        """Change the caller's containers as the function did before it failed.

        Values that it had not computed yet are left out.
        """
        for one in self.changed():
            if not any(isinstance(x, Tensor) for x in items_of(one.made)):
                back = {id(c.made): c.given for c in self._made.values()}
                items = [back.get(id(item), item) for item in items_of(one.made)]
                if isinstance(one.given, dict):
                    half = len(items) // 2
                    put(one.given, dict(zip(items[:half], items[half:], strict=True)))
                elif isinstance(one.given, list):
                    put(one.given, items)


def _like(tree: Any, items: list[Any]) -> Any:
    """A container like another, with other items."""
    kind = type(tree)
    if kind is list:
        return items
    if isinstance(tree, tuple):
        return kind(*items) if hasattr(kind, "_fields") else kind(items)
    if kind is dict:
        return dict(zip(tree, items, strict=True))
    made = copy.copy(tree)
    if hasattr(tree, "__dict__"):
        made.__dict__ = tree.__dict__  # what is read and set there is noticed
    put(made, items if isinstance(tree, list) else dict(zip(tree, items, strict=True)))
    return made


def items_of(container: Any) -> list[Any]:
    """The items of a container, keys included."""
    if isinstance(container, dict):
        return [*container, *container.values()]
    custom = custom_node(type(container))
    if custom is not None:
        children, rest = custom[0](container)
        return [*children, *(rest if isinstance(rest, tuple) else (rest,))]
    return list(container)


def _same(before: list[Any], now: list[Any]) -> bool:
    if len(before) != len(now):
        return False
    return all(a is b for a, b in zip(before, now, strict=True))


def repeated(tree: Any) -> tuple[Any, ...]:
    """The positions of lists and dictionaries that occur more than once in arguments.

    >>> from weft.graph.effects import repeated
    >>> a = [1]
    >>> repeated((a, [1], {"k": a}))
    (0, 3)
    """
    seen: dict[int, int] = {}
    found: list[int] = []
    _count(tree, seen, found, [])
    return tuple(found)


def containers(tree: Any) -> Iterator[Any]:
    """The lists and dictionaries in arguments that have attributes of their own."""
    if isinstance(tree, (list, tuple, dict)):
        if hasattr(tree, "__dict__") and not isinstance(tree, tuple):
            yield tree
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from containers(item)


def _count(tree: Any, seen: dict[int, int], found: list[int], past: list[Any]) -> None:
    if not isinstance(tree, (list, tuple, dict)):
        return
    if not isinstance(tree, tuple):
        if id(tree) in seen:
            found += [seen[id(tree)], len(past)]
        seen.setdefault(id(tree), len(past))
        past.append(tree)
    for item in tree.values() if isinstance(tree, dict) else tree:
        _count(item, seen, found, past)
