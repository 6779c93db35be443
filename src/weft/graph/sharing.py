"""Recipes for what a captured function leaves behind: results, changed containers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from operator import is_
from typing import Any

from numpy import ndarray

from weft.core.number import Number
from weft.core.pytree import tree_flatten
from weft.core.size import Size
from weft.core.tape import Leaf
from weft.core.tensor import Tensor
from weft.graph.argument_gradients import HOOKED
from weft.graph.effects import (
    MUTABLE,
    Argument,
    Built,
    Change,
    Copied,
    Copies,
    Gradient,
    GradientOf,
    Kept,
    Made,
    Outside,
    Shared,
    origin,
    settled,
)
from weft.graph.ir import Node, sized
from weft.graph.outside_tensors import ABSENT, Attribute, Capture, is_outside
from weft.graph.symbol import Symbol, refusal
from weft.graph.value_texts import is_marked, text_recipe
from weft.ops.copies import clone


class Sharing:
    """Finds the memory that tensors and containers of one capture share with others."""

    def __init__(
        self, run: Capture, given: Sequence[Any], symbols: Sequence[Any], copies: Copies
    ) -> None:
        self.run, self.copies = run, copies
        self.changed = copies.changed()
        self.kept = list(run.attributes.values())
        self.wants: dict[Node, bool] = {}  # which values eagerly require grad
        self.positions = {
            id(x): k
            for k, (x, leaf) in enumerate(zip(symbols, given, strict=True))
            if isinstance(x, Symbol)
        }
        self.arrays = {k for k, leaf in enumerate(given) if isinstance(leaf, ndarray)}
        self.gradients = {
            id(held.tensor.__dict__.get("grad")): held.tensor
            for held in run.borrowed.values()
        }
        self.buffers = {
            id(slots[name]): before for slots, name, before in run.buffers.values()
        }
        self.roots: dict[Node, int] = {}  # the tensor whose memory a node's value is
        self.apart: dict[tuple[Node, int], Node] = {}  # copies for other tensors
        self.built: dict[int, Any] = {}  # recipes of containers
        self.uses: Counter[int] = Counter()  # results, by the memory that they show

    # -- results

    def returned(self, result: Any, leaves: list[Any]) -> Any:
        """The recipe of the result; None where all of it is made anew, of nodes."""
        self._count(leaves)
        for one in self.changed:
            self._count(tree_flatten(one.made)[0])
        for kept in self.kept:
            if kept.after is ABSENT:
                self._count(list(_tensors_in(kept.slots[kept.name])))
        self._count([grad for _, grad, _ in self.run.gradients.final()])
        if any(map(self._is_shared, leaves)) or self._holds_given(result):
            return self.recipe(result)
        return None

    def _count(self, leaves: list[Any]) -> None:
        self.uses.update(id(origin(x)[0]) for x in leaves if isinstance(x, Tensor))

    def _is_shared(self, leaf: Any) -> bool:
        if isinstance(leaf, Tensor):
            return type(self._tensor(leaf)) is Shared
        if type(leaf) is Number or sized(leaf):
            return True
        if isinstance(leaf, str):
            return is_marked(leaf)
        if type(leaf) is frozenset:
            return any(map(sized, leaf))
        return isinstance(leaf, MUTABLE) and self._is_new(leaf)

    def _holds_given(self, value: Any) -> bool:
        """Whether one of the caller's containers is part of a value, or sizes are."""
        if not isinstance(value, (list, tuple, dict)):
            return False
        if any(map(sized, value)):
            return True
        items = value.values() if isinstance(value, dict) else value
        return self.copies.given(value) is not None or any(
            map(self._holds_given, items)
        )

    # -- containers

    def changes(self) -> list[Change]:
        """The changes of the caller's containers."""
        for one in self.changed:
            if one.path is None:
                raise refusal(
                    f"compile: the function changes a {type(one.made).__name__} in its "
                    "arguments that cannot be found again in later calls (it is, or "
                    "lies in, an object of a registered class). Return the new value"
                )
        return [Change(c.path, Built.of(c.made, self.recipe)) for c in self.changed]  # type: ignore[arg-type]

    def kept_values(self) -> list[Kept]:
        """The attributes that the function set on objects that keep values."""
        for one in self.kept:
            self._check_unread(one)
        return [Kept(one.slots, one.name, self._kept(one)) for one in self.kept]

    def argument_gradients(self) -> list[Gradient]:
        """The gradients that the function leaves in its arguments."""
        return [
            Gradient(position, self.recipe(grad), added)
            for position, grad, added in self.run.gradients.final()
        ]

    def _check_unread(self, one: Attribute) -> None:
        """Refuse an attribute whose tensors were used before it was set."""
        for tensor in _tensors_in(one.before):
            if id(tensor) in self.run.borrowed and not tensor._parameter:
                raise refusal(
                    f"capture of {self.run.builder.name!r}: the attribute "
                    f"{one.name!r} is read, and then set to another value. Later runs "
                    "would need the value of the run before: keep it in a tensor that "
                    "is changed in place (register_buffer)"
                )

    def _kept(self, one: Attribute) -> Any:
        now = one.after is ABSENT
        return self.recipe(one.slots[one.name]) if now else one.after

    def recipe(self, value: Any) -> Any:
        """The recipe by which each run makes a value like this one."""
        if type(value) is Number:
            value._unknown()  # a float would be a tensor in the result
        if isinstance(value, Tensor):
            return self._tensor(value)
        given = self.copies.given(value)
        if given is not None:
            return given
        if isinstance(value, (list, tuple, dict)):
            return self._built(value)
        if getattr(value, "_made_inside", False):
            return Made(type(value), Built.of(vars(value), self.recipe))
        if type(value) in (set, frozenset):
            value = type(value)(map(settled, value))
        if isinstance(value, MUTABLE) and self._is_new(value):
            return Copied(value)
        if isinstance(value, str):
            return text_recipe(self.run, value)
        return value

    def _built(self, value: Any) -> Any:
        """The recipe of a container; one container has one recipe."""
        known = self.built.get(id(value))
        if known is None:
            known = Built.of(value, self.recipe)
            sized = any(isinstance(item, Size) for item in known.items)
            same = all(map(is_, known.items, value))
            if isinstance(value, tuple) and same and not sized:
                known = value  # nothing in it differs from run to run
            self.built[id(value)] = known
        return known

    def _is_new(self, value: Any) -> bool:
        """Whether the function has made a value, so that each call makes another."""
        return not self.run.existed(value)

    # -- tensors

    def _tensor(self, tensor: Tensor) -> Shared | Node:
        root, chain = origin(tensor)
        self.run.orders.check_results(root, self.uses)
        source: Any = None
        position = self.positions.get(id(root))
        if position in self.arrays and (chain or root.node is not root.given):
            return self._lift(tensor)  # NumPy has no tensors to share
        if position is not None:
            source = Argument(position)
        elif id(root) in self.buffers:
            source = Outside(self.buffers[id(root)])
        elif id(root) in self.gradients:
            source = GradientOf(self.gradients[id(root)])
        elif id(root) in self.run.borrowed or is_outside(root):
            source = Outside(root)
        elif self.uses[id(root)] > 1:
            source = self._lift(root)
        if source is None:
            return self._lift(tensor)
        chain = tuple([(op, self._link(params)) for op, params in chain])
        return Shared(source, chain, tensor._node is not None)

    def _link(self, params: dict[str, Any]) -> dict[str, Any]:
        """The parameters of a view, with nodes for indices that each run computes."""
        if "at" not in params:
            return params
        return {"at": [(axis, self._lift(index)) for axis, index in params["at"]]}

    def _lift(self, tensor: Tensor) -> Node:
        """The node of a tensor; memory of its own has a node of its own.

        ``y.copy_(x)`` gives two tensors one node, and each must get its own array.
        """
        node = self.run.lift(tensor)
        root = id(origin(tensor)[0])
        if self.roots.setdefault(node, root) != root:
            if (node, root) not in self.apart:
                self.apart[node, root] = self.run.lift(clone(tensor))
            node = self.apart[node, root]
        self.wants[node] = wants_grad(tensor)
        return node


def _tensors_in(value: Any) -> Iterator[Any]:
    """The tensors in a value that is kept."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors_in(item)
    elif getattr(value, "_made_inside", False):
        yield from _tensors_in(vars(value))


def wants_grad(leaf: Any) -> bool:
    """Whether a result could be differentiated: no backward has used it up."""
    return isinstance(leaf, Symbol) and leaf._node is not None and not leaf._node.spent


def check_hooks(leaves: list[Any], arguments: list[Any]) -> None:
    """Refuse results whose gradients would pass hooks that are no part of the program.

    A backward inside of the function runs them; one outside would not. Hooks of
    tensors from outside, as of parameters, are theirs and run.
    """
    own = {id(x._node) for x in arguments if isinstance(x, Symbol)}
    stack = [leaf._node for leaf in leaves if wants_grad(leaf)]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        inner = getattr(node, "node", node)  # of one of several outputs
        rule = inner.plan.op.vjp if hasattr(inner, "plan") else None
        outside = type(node) is Leaf and id(node) not in own
        hooked = node.hooks and not outside and HOOKED not in node.hooks
        if hooked or getattr(rule, "in_graphs", True) is False:
            raise refusal(
                "a hook on a gradient was registered in the captured function (on a "
                "tensor, or by register_full_backward_hook of a module), and the "
                "backward is outside of it, which would not run the hook. Compile the "
                "whole step with its backward, or register no hook"
            )
        stack += [inner] if inner is not node else getattr(node, "parents", ())
