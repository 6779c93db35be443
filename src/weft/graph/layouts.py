"""Layouts that a capture cannot know, and programs that depend on them.

Eagerly, values computed from transposed ones may have the transposed layout too, so
that ``reshape`` and ``contiguous`` copy them. The values of a program are contiguous,
and the same calls make views. Nobody can tell the two apart, unless one of both
tensors is written to or both are results: such programs are refused.

    y = x.T + 1             y has the layout of x.T, or is contiguous
    z = y.reshape(-1)       a copy of y, or a view
    z.add_(1)               refused, if y is still there
    y.T.reshape(-1)         a view of y, or a copy: the same the other way round,
                            and for two such copies when y is gone
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping
from typing import Any

from weft.core.lowering import View
from weft.core.op import find_op
from weft.graph.effects import origin
from weft.graph.ir import Node
from weft.graph.symbol import refusal


class Layouts:
    """The pairs of tensors of one capture that may share memory or not."""

    def __init__(self) -> None:
        self.transposed: set[Node] = set()  # arguments and variables that are
        self.pairs: list[tuple[weakref.ref[Any], weakref.ref[Any]]] = []
        # Tensors apart here that may eagerly be one memory: a root and its copies.
        self.families: list[list[weakref.ref[Any]]] = []

    def note(self, base: Any, view: Any) -> None:
        """Note a reshape that is a view here, if it may be a copy eagerly."""
        if self.is_unknown(base):
            self.pairs.append((weakref.ref(base), weakref.ref(view)))

    def note_copy(self, base: Any, copy: Any) -> None:
        """Note a reshape that is a copy here, if it may be a view eagerly."""
        if not self.is_unknown(base):
            return
        root = origin(base)[0]
        for family in self.families:
            if any(ref() is root for ref in family):
                break
        else:
            family = [weakref.ref(root)]
            self.families.append(family)
        family.append(weakref.ref(copy))

    def is_unknown(self, symbol: Any) -> bool:
        """Whether a symbol's memory may eagerly have another layout."""
        root, _ = origin(symbol)
        computed = root.given is None and "_data" not in vars(root)
        return computed and self._may(root.node)

    def _may(self, node: Node) -> bool:
        """Whether a node's value may eagerly be non-contiguous."""
        todo, seen = [node], set()
        while todo:
            one = todo.pop()
            if one in seen or (type(one.type) is not tuple and len(one.type.shape) < 2):
                continue
            seen.add(one)
            if _is_row_major(one):
                continue
            if one in self.transposed or _moves_axes(one):
                return True
            todo += [i for i in one.inputs if type(i) is Node]
        return False

    def check_write(self, tensor: Any, name: str) -> None:
        """Refuse a write that the other tensor of a pair may see or not."""
        if self._relatives(origin(tensor)[0]):
            raise _unknown(name, f"before {name}()")
        self.pairs = [p for p in self.pairs if all(r() is not None for r in p)]
        for base_ref, view_ref in self.pairs:
            base, view = base_ref(), view_ref()
            root = origin(base)[0]
            del base  # references to the root are counted below
            if origin(tensor)[0] is not root:
                continue
            views = [v for v in root.storage_record.live_views() if v._base is root]
            inside = [v for v in views if _goes_through(v, view)]
            # The root is held by each view, and here twice: by a name and a question.
            held = sys.getrefcount(root) > len(inside) + 2
            if not _goes_through(tensor, view) or len(inside) < len(views) or held:
                raise _unknown(name, f"before {name}()")

    def _relatives(self, root: Any) -> list[Any]:
        """The tensors that have other memory than ``root`` here and perhaps its own
        eagerly."""
        for family in self.families:
            alive = [one for ref in family if (one := ref()) is not None]
            if any(one is root for one in alive):
                return [one for one in alive if one is not root]
        return []

    def check_results(self, root: Any, uses: Mapping[int, int]) -> None:
        """Refuse results that may share memory or not.

        ``uses`` has the number of results for the identity of each root.
        """
        if any(id(one) in uses for one in self._relatives(root)):
            raise _unknown("return", "of one of the results")
        for base_ref, view_ref in self.pairs:
            base, view = base_ref(), view_ref()
            if base is None or view is None or uses[id(root)] < 2:
                continue
            if origin(base)[0] is root:
                raise _unknown("return", "of one of the results")


def _is_row_major(node: Node) -> bool:
    """Whether a value is contiguous eagerly too: clones and matrix products are."""
    if node.op is find_op("clone"):
        return True
    return node.op is find_op("matmul") and len(node.type.shape) == 2


def _moves_axes(node: Node) -> bool:
    rule = node.op.lower
    if not node.op.view or (isinstance(rule, View) and rule.in_order):
        return False
    if node.op is not find_op("permute"):
        return True
    shape = node.inputs[0].type.shape
    # axes of size one do not count; an open size is not to be compared
    order = [
        d for d in node.params["dims"] if type(shape[d]) is not int or shape[d] != 1
    ]
    return order != sorted(order)


def _goes_through(tensor: Any, view: Any) -> bool:
    """Whether a tensor is a view or one of its views."""
    begins = tensor._chain[: len(view._chain)]
    same = zip(begins, view._chain, strict=False)
    return len(begins) == len(view._chain) and all(a is b for a, b in same)


def _unknown(what: str, where: str) -> BaseException:
    return refusal(
        f"compile: {what} depends on whether a reshaped or contiguous tensor shares "
        "memory with the one it was made of. Eagerly that is decided by how the memory "
        "of a transposed value lies, which a program does not know. Take a .clone() "
        f"{where}"
    )
