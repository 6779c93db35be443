"""Origins of activations, as far as the tape knows.

Nobody notes modules and lines while tensors are made, unless memory is recorded. But a
node of the tape has its operator and the user's line, and the parameter nearest above
it on the tape says which module it belongs to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from weft.core.pytree import tree_flatten
from weft.core.tape import Leaf, Node, Pick
from weft.core.tensor import Tensor
from weft.errors import describe_line
from weft.runtime import allocation

NEAR = 16  # nodes above one that are looked at for a parameter


class Origin(NamedTuple):
    """The node that made a value, or that keeps it."""

    node: Node
    made: bool

    def name(self, names: Mapping[int, str]) -> str:
        """The operator, and the parameter it comes after."""
        what = self.node.name if self.made else f"for {self.node.name}"
        near = nearest(self.node, names)
        return f"{what} after {near}" if near else what

    @property
    def line(self) -> str:
        """``file:line, in function``, without the source."""
        if self.node.code is None:
            return ""
        return describe_line(self.node.code, self.node.lasti).partition("\n")[0]


def origins(nodes: Iterable[Node]) -> dict[int, Origin]:
    """The origins of saved values, by the memory that holds them."""
    origins: dict[int, Origin] = {}
    for node in nodes:
        for value in tree_flatten(node.saved)[0] if type(node.saved) is tuple else ():
            array = value.__dict__.get("_data") if isinstance(value, Tensor) else None
            if array is not None:
                maker = _node(value._node)
                origin = Origin(maker or node, maker is not None)
                key = id(allocation.owner(array))
                if origin.made or key not in origins:
                    origins[key] = origin
    return origins


def _node(made: Any) -> Node | None:
    made = made.node if type(made) is Pick else made
    return made if isinstance(made, Node) else None


def nearest(node: Node, names: Mapping[int, str]) -> str:
    """The name of the parameter nearest above a node, or nothing."""
    waiting, seen = deque([node]), 0
    while waiting and seen < NEAR:
        above = waiting.popleft()
        seen += 1
        for parent in above.parents:
            if type(parent) is Leaf:
                name = _name(parent.tensor(), names)
                if name:
                    return name
            elif (one := _node(parent)) is not None:
                waiting.append(one)
    return ""


def _name(tensor: Any, names: Mapping[int, str]) -> str:
    array = None if tensor is None else tensor.__dict__.get("_data")
    return "" if array is None else names.get(id(allocation.owner(array)), "")
