"""A graph in DOT, the language of Graphviz."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from weft.graph.views.escape import quoted
from weft.graph.views.outline import Outline, edge_label, graph_of
from weft.graph.views.palette import fill

_EDGES = {"data": "", "control": " style=dotted", "inner": " style=dashed"}


def to_dot(graph: Any, *, examples: Iterable[Any] = ()) -> str:
    """The graph as DOT text: a cluster for each module and scope.

    ``graph`` is a graph, a captured program, or a module with ``examples``.

    >>> step = weft.graph.capture(lambda x: x * 2, weft.ones(3), name="double")
    >>> print(weft.graph.to_dot(step))
    digraph "double" {
      node [shape=box style="rounded,filled" fontname="monospace"]
      n0 [label="x" tooltip="x" fillcolor="#e3f6e5" color="#3c9a4b"]
      n1 [label="mul" tooltip="mul" fillcolor="#e1edfd" color="#3b74c9" penwidth=3]
      n0 -> n1 [label="float32[3]"]
    }
    """
    outline = Outline(graph_of(graph, examples))
    head = f"digraph {quoted(outline.graph.name)} {{"
    shape = '  node [shape=box style="rounded,filled" fontname="monospace"]'
    body = [*_group(outline, 0, "  "), *_edges(outline)]
    return "\n".join([head, shape, *body, "}"])


def _group(outline: Outline, group: int, indent: str) -> Iterator[str]:
    boxes = len(outline.boxes)
    for item in outline.groups[group].items:
        if item < boxes:
            yield indent + _box(outline, item)
            continue
        inner = item - boxes
        yield f"{indent}subgraph cluster_{inner} {{"
        yield f"{indent}  label={quoted(outline.groups[inner].name)}"
        yield from _group(outline, inner, indent + "  ")
        yield f"{indent}}}"


def _box(outline: Outline, number: int) -> str:
    box = outline.boxes[number]
    inside, border = fill(box.kind)
    wide = " penwidth=3" if number in outline.outputs else ""
    return (
        f"n{number} [label={quoted(box.title)} tooltip={quoted(box.node.name)} "
        f'fillcolor="{inside}" color="{border}"{wide}]'
    )


def _edges(outline: Outline) -> Iterator[str]:
    for a, b, kind in outline.edges:
        label = quoted(edge_label(outline.boxes[a]) if kind == "data" else "")
        yield f"  n{a} -> n{b} [label={label}{_EDGES[kind]}]"
