"""Gradients that a captured function leaves in its arguments, or reads there.

An argument is a symbol while the function runs. What ``backward`` adds to its
``.grad``, or the function sets there, each run adds or sets in the caller's tensor. A
gradient from before the call that the function reads is a tensor from outside, and the
program is for calls with this gradient. A ``backward`` that would go on into what
computed an argument is refused, and so is one that would run an argument's hooks.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from weft.core.tape import Leaf
from weft.core.tensor import Tensor
from weft.errors import AutogradError
from weft.graph.symbol import Symbol, refuse


class Needed(NamedTuple):
    """What a program needs of an argument: a leaf, and the gradient that it read."""

    position: int
    name: str
    read: bool
    before: Tensor | None
    others: Collection[int] = ()  # identities of the tensors from outside

    def holds(self, leaves: Sequence[Any]) -> bool:
        if self._complaint(leaves) is not None:
            return False
        return not self.read or vars(leaves[self.position]).get("grad") is self.before

    def check(self, leaves: Sequence[Any]) -> None:
        """Refuse a call whose gradients no program can pass on."""
        text = self._complaint(leaves)
        if text is not None:
            raise refuse(AutogradError(text))

    def _complaint(self, leaves: Sequence[Any]) -> str | None:
        leaf, node = leaves[self.position], leaves[self.position]._node
        if node is not None and type(node) is not Leaf:
            return (
                f"backward: it reaches the argument {self.name!r}, which was computed "
                "before the call, and would go on there, where a program cannot; "
                "compile what computes it as well, or call backward after the call"
            )
        if leaf._post_accumulate:
            return (
                f"backward: the argument {self.name!r} has a hook for accumulated "
                "gradients, which a program does not run; take it away, or call "
                "backward after the call"
            )
        if id(leaf) in self.others:
            return (
                f"backward: the argument {self.name!r} is used in the function from "
                "outside as well; use the argument alone"
            )
        if self.read and sum(other is leaf for other in leaves) > 1:
            return (
                f"the function reads .grad of the argument {self.name!r}, which is "
                "passed twice; read it after the call"
            )
        return None


class _Argument(NamedTuple):
    symbol: Symbol
    position: int
    name: str
    before: Tensor | None  # its gradient


HOOKED = -1  # the number of the hook that stands for an argument's own


def _refuse_hook(name: str, g: Any) -> Any:
    raise refuse(
        AutogradError(
            f"backward: the argument {name!r} has a hook, which a program does not "
            "run; take it away, or call backward after the call"
        )
    )


class ArgumentGradients:
    """Follows the gradients of the arguments of one capture."""

    def __init__(self) -> None:
        self.leaves: list[Any] = []
        self.known: dict[int, _Argument] = {}  # keys are symbols' ids
        self.added: dict[int, None] = {}  # what backward adds; nothing is read
        self.read: dict[int, None] = {}
        self.set: dict[int, None] = {}

    def enter(self, symbol: Symbol, position: int, name: str) -> None:
        leaf = self.leaves[position]
        before = vars(leaf).get("grad")
        self.known[id(symbol)] = _Argument(symbol, position, name, before)
        if before is not None:
            vars(symbol)["grad"] = before
        if getattr(leaf._node, "hooks", None):
            symbol._node.hooks = {HOOKED: functools.partial(_refuse_hook, name)}

    def accumulate(self, symbol: Any, g: Tensor, create_graph: bool) -> bool:
        """Add to the gradient of an argument; False if the tensor is none."""
        key = id(symbol)
        if key not in self.known:
            return False
        before = vars(symbol).get("grad")
        if before is None and key not in self.read and key not in self.set:
            self.added[key] = None
            self._needed(key).check(self.leaves)
        elif key not in self.added:
            self.look(symbol)
        if before is None:
            vars(symbol)["grad"] = g if create_graph else g.settled()
        elif create_graph:
            vars(symbol)["grad"] = before + g
        else:
            before.add_(g)
        return True

    def look(self, tensor: Tensor) -> bool:
        """Note that a gradient is read; False if the tensor is no argument."""
        key = id(tensor)
        if key not in self.known:
            return False
        if key not in self.set and key not in self.read:
            self.added.pop(key, None)
            self.read[key] = None
            self._needed(key).check(self.leaves)
        return True

    def assign(self, tensor: Tensor) -> None:
        """Note that a gradient is set."""
        if id(tensor) in self.known:
            self.added.pop(id(tensor), None)
            self.set[id(tensor)] = None

    def _needed(self, key: int, others: Collection[int] = ()) -> Needed:
        _, position, name, before = self.known[key]
        return Needed(position, name, key in self.read, before, others)

    def needed(self, others: Collection[int]) -> list[Needed]:
        """What the program needs; ``others`` are the tensors that it has as state."""
        found = [self._needed(key, others) for key in (*self.read, *self.added)]
        for one in found:
            one.check(self.leaves)
        return found

    def final(self) -> list[tuple[int, Tensor | None, bool]]:
        """The arguments' positions, new gradients, and whether these are added."""
        found = []
        for key in dict.fromkeys((*self.added, *self.set, *self.read)):
            symbol, position, _, before = self.known[key]
            grad = vars(symbol).get("grad")
            if grad is not before or key in self.set:
                found.append((position, grad, key in self.added))
        return found

    def clear(self) -> None:
        """Let go of the arguments."""
        self.leaves = []
        self.known.clear()
