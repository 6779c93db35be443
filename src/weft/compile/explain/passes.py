"""The difference that each pass of the pipeline made to a graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cached_property

from weft.compile.pipeline import Step, run
from weft.compile.program.program import Program
from weft.core.rows import Column, Rows, seconds
from weft.graph.ir import Graph, Node
from weft.graph.text import node_text

Line = tuple[str, str]  # "-" or "+", and a node's text


class Pass:
    """One pass: its graphs before and after, and the nodes that it changed."""

    def __init__(self, step: Step, text: Callable[[Node], str]) -> None:
        self.name = step.name
        self.seconds = step.seconds
        self.before, self.after = step.before, step.after
        self._text = text

    @cached_property
    def lines(self) -> list[Line]:
        """The nodes that were removed (-) and added (+)."""
        return changes(self.before, self.after, self._text)

    @property
    def diff(self) -> str:
        """The difference between the graphs before and after, as text."""
        return "\n".join(f"{sign} {text}" for sign, text in self.lines)

    @property
    def gone(self) -> int:
        return sum(sign == "-" for sign, _ in self.lines)

    @property
    def new(self) -> int:
        return sum(sign == "+" for sign, _ in self.lines)

    def __str__(self) -> str:
        return f"{self.name}: {len(self.before)} → {len(self.after)} nodes"


def changes(
    before: Graph, after: Graph, text: Callable[[Node], str] = node_text
) -> list[Line]:
    """The nodes that differ, in the order of the graphs.

    A pass keeps the names of the values it replaces, so nodes are compared by name.

    >>> from weft.compile.explain.passes import changes
    >>> g = weft.graph.capture(lambda x: (x * 1).exp(), weft.ones(3)).graph
    >>> for sign, line in changes(g, weft.compile.passes.simplify(g)):
    ...     print(sign, line)
    - %mul: float32[3] = mul(%x, 1)
    - %exp: float32[3] = exp(%mul)
    + %exp: float32[3] = exp(%x)
    """
    if before is after:
        return []
    old = {node.name: node for node in before.nodes}
    gone = _gone(before, {node.name for node in after.nodes})
    lines: list[Line] = []
    for node in after.nodes:
        was = old.get(node.name)
        lines += [("-", text(other)) for other in gone[node.name]]
        if was is node or (was is not None and text(was) == text(node)):
            continue
        if was is not None:
            lines.append(("-", text(was)))
        lines.append(("+", text(node)))
    return lines + [("-", text(other)) for other in gone[None]]


def _gone(before: Graph, kept: set[str]) -> dict[str | None, list[Node]]:
    """The nodes that were removed, by the next one that was not."""
    gone: dict[str | None, list[Node]] = defaultdict(list)
    waiting: list[Node] = []
    for node in before.nodes:
        if node.name not in kept:
            waiting.append(node)
        elif waiting:
            gone[node.name], waiting = waiting, []
    gone[None] = waiting
    return gone


def passes_of(program: Program) -> Rows:
    """All passes, run once more on the graph that the pipeline started with."""
    texts: dict[Node, str] = {}

    def text(node: Node) -> str:
        found = texts.get(node)
        if found is None:
            found = texts[node] = node_text(node)
        return found

    steps: list[Step] = []
    run(program.graph, program.passes, steps.append, program.in_place)
    return Rows(
        [Pass(step, text) for step in steps],
        Column("pass", lambda p: p.name, number=False),
        Column("before", lambda p: f"{len(p.before):,}"),
        Column("after", lambda p: f"{len(p.after):,}"),
        Column("gone", lambda p: f"-{p.gone:,}" if p.gone else ""),
        Column("new", lambda p: f"+{p.new:,}" if p.new else ""),
        Column("time", lambda p: seconds(p.seconds)),
    )
