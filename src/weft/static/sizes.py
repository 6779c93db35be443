"""The sizes that a run of a static graph decides."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import CodeType
from typing import TYPE_CHECKING, Any

from weft.core.size import OpenSizeError, Scope, Size, same
from weft.errors import INTERNAL
from weft.graph.ir import INPUT, READ, Node, subgraphs

if TYPE_CHECKING:
    from weft.static.graph import Graph

Origin = tuple[CodeType | str | None, int]


class OpenScope(Scope):
    """The sizes of a static graph: those left open are no Python numbers.

    A question about an open size is answered while the graph is built, and the answer
    must hold in the runs that depend on it: of an operator's question, those of its
    nodes; of the user's own, all.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        # the instructions of operators that asked, by answer; None: the user asked
        self.origins: dict[str, set[Origin] | None] = {}

    def answer(self, left: Size, relation: str, right: Any) -> bool:
        """Take sizes for equal that are compared with a number of two or more, as the
        operands of a product are: there is no example that would tell."""
        if relation != "==" or not isinstance(right, int):
            return super().answer(left, relation, right)
        for known in self.assumptions.values():
            fixed = known.relation == "==" and isinstance(known.right, int)
            if fixed and same(known.left, left):
                return bool(known.right == right)
        return right > 1

    def assume(self, left: Any, relation: str, right: Any) -> None:
        super().assume(left, relation, right)
        text, origin = f"{left} {relation} {right}", self._origin()
        known = self.origins.get(text, set())
        together = None if origin is None or known is None else {*known, origin}
        self.origins[text] = together

    def _origin(self) -> Origin | None:
        """The user's instruction that an operator asks for; None if the user asks."""
        frame: Any = sys._getframe(2)
        while frame.f_globals.get("__name__") == Size.__module__:
            frame = frame.f_back
        if not INTERNAL[frame.f_code.co_filename]:
            return None
        builder = self.graph.builder
        if builder.origin is not None:
            return builder.origin.code, builder.origin.lasti
        return builder.caller()

    def number(self, size: Any) -> int:
        raise OpenSizeError(
            f"the size {size} is known only when the graph runs, so it cannot be a "
            "Python number while the graph is built; give the placeholder this size, "
            "or use operators that take sizes as they are",
            self.graph,
        )

    def for_nodes(self, nodes: Iterable[Node]) -> RunScope:
        """The sizes of a run of these nodes: with the answers that they depend on."""
        scope = RunScope()
        scope.hints, scope.equal = dict(self.hints), dict(self.equal)
        if not self.assumptions:
            return scope
        mine, every = origins(nodes), origins(self.graph.builder.nodes)
        for text, assumption in self.assumptions.items():
            asked = self.origins.get(text)
            if asked is None or asked & mine or not asked <= every:
                scope.assumptions[text] = assumption
        return scope


class RunScope(Scope):
    """The sizes of a run, with the answers that must hold in it."""

    built = "run: the graph was built"
    advice = "feed such sizes, or give the placeholder the size it has"


def origins(nodes: Iterable[Node]) -> set[Origin]:
    """The user's instructions that made nodes, and those in graphs inside of them.

    What is read or fed depends on no answer: a variable is made where it is first used.
    """
    found = set()
    for node in nodes:
        if node.op not in (READ, INPUT):
            found.add((node.code, node.lasti))
        for _, graph in subgraphs(node):
            found |= origins(graph.nodes)
    return found
