"""Replacing parts of an ``fx`` graph that look like a pattern."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from weft.fx.graph import Graph
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node, map_arg
from weft.fx.symbolic_trace import symbolic_trace

__all__ = ["Match", "ReplacedPatterns", "replace_pattern"]


class Match(NamedTuple):
    """A place of the pattern: the node of its result, and its nodes."""

    anchor: Node
    nodes_map: dict[Node, Node]


class ReplacedPatterns(NamedTuple):
    """A match, and the nodes that are there now."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


def _graph_of(pattern: Any) -> Graph:
    if isinstance(pattern, Graph):
        return pattern
    return (
        pattern.graph
        if isinstance(pattern, GraphModule)
        else symbolic_trace(pattern).graph
    )


def _matched(theirs: Any, ours: Any, found: dict[Node, Node]) -> bool:
    """Whether a value of the graph is one of the pattern; notes the nodes."""
    if isinstance(theirs, Node):
        if not isinstance(ours, Node):
            return False
        if theirs in found:
            return found[theirs] is ours
        if theirs.op != "placeholder":
            same = theirs.op == ours.op and theirs.target == ours.target
            if not same or len(theirs.args) != len(ours.args):
                return False
            if theirs.kwargs.keys() != ours.kwargs.keys():
                return False
        found[theirs] = ours
        if theirs.op == "placeholder":
            return True
        return _matched(theirs.args, ours.args, found) and all(
            _matched(v, ours.kwargs[k], found) for k, v in theirs.kwargs.items()
        )
    if isinstance(theirs, (list, tuple)):
        alike = isinstance(ours, (list, tuple)) and len(theirs) == len(ours)
        return alike and all(map(_matched, theirs, ours, [found] * len(theirs)))
    return type(theirs) is type(ours) and theirs == ours


def _is_whole(found: dict[Node, Node], result: Node) -> bool:
    """Whether nothing outside the match uses what is inside of it."""
    inside = {ours for theirs, ours in found.items() if theirs.op != "placeholder"}
    return all(
        user in inside for node in inside if node is not result for user in node.users
    )


def replace_pattern(
    gm: GraphModule,
    pattern: Callable[..., Any] | GraphModule,
    replacement: Callable[..., Any] | GraphModule,
) -> list[Match]:
    """Replace every place that computes ``pattern`` by ``replacement``.

    >>> gm = weft.fx.symbolic_trace(lambda x: weft.relu(x + x))
    >>> matches = weft.fx.replace_pattern(gm, lambda a: a + a, lambda a: 2 * a)
    >>> len(matches), gm(weft.ones(2))
    (1, tensor([2., 2.]))
    """
    replaced = _replaced(gm, _graph_of(pattern), _graph_of(replacement))
    return [Match(found.anchor, found.nodes_map) for found in replaced]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Any,
    replacement: Any = None,
    match_filters: list[Callable[..., bool]] | None = None,
    **_: Any,
) -> list[ReplacedPatterns]:
    """``replace_pattern`` at the places that every filter accepts.

    A filter takes the match, the graph and the pattern's graph.

    >>> from weft.fx.subgraph_rewriter import replace_pattern_with_filters
    >>> gm = weft.fx.symbolic_trace(lambda x: x + x)
    >>> never = [lambda match, graph, pattern: False]
    >>> replace_pattern_with_filters(gm, lambda a: a + a, lambda a: 2 * a, never)
    []
    """
    return _replaced(
        gm, _graph_of(pattern), _graph_of(replacement), match_filters or []
    )


def _replaced(
    gm: GraphModule, pattern: Graph, replacement: Graph, filters: Any = ()
) -> list[ReplacedPatterns]:
    results = pattern.output_node().args[0]
    if not isinstance(results, Node):
        raise ValueError("replace_pattern: expected a pattern with one result")
    done: list[ReplacedPatterns] = []
    moved: dict[Node, Any] = {}
    taken: set[Node] = set()
    for node in reversed(list(gm.graph.nodes)):
        found: dict[Node, Node] = {}
        if node.op == "output" or not _matched(results, node, found):
            continue
        inside = {ours for theirs, ours in found.items() if theirs.op != "placeholder"}
        if inside & taken or not inside or not _is_whole(found, node):
            continue
        match = Match(node, found)
        if not all(accept(match, gm.graph, pattern) for accept in filters):
            continue
        taken |= inside
        done.append(_put(gm.graph, match, pattern, replacement, moved))
        for old in [n for n in reversed(list(gm.graph.nodes)) if n in inside]:
            gm.graph.erase_node(old)
    done.reverse()
    gm.graph.lint()
    gm.recompile()
    return done


def _put(
    graph: Graph, match: Match, pattern: Graph, replacement: Graph, moved: Any
) -> ReplacedPatterns:
    inputs = [n for n in pattern.nodes if n.op == "placeholder"]
    values = {
        own: match.nodes_map[theirs]
        for own, theirs in zip(
            (n for n in replacement.nodes if n.op == "placeholder"), inputs, strict=True
        )
    }
    before = set(graph.nodes)
    with graph.inserting_before(match.anchor):
        result = graph.graph_copy(replacement, dict(values))
    match.anchor.replace_all_uses_with(map_arg(result, lambda n: n))
    made = [n for n in graph.nodes if n not in before]
    return ReplacedPatterns(match.anchor, match.nodes_map, made)
