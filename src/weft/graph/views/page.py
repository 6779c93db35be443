"""A graph as one HTML page that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from weft.errors import WeftError
from weft.graph.ir import Graph, Node, type_text
from weft.graph.text import GraphWriter
from weft.graph.views.data import read
from weft.graph.views.escape import embedded_json, markup, printable
from weft.graph.views.layout import Rows, rows_of_groups
from weft.graph.views.outline import KINDS, Box, Group, Outline, graph_of
from weft.graph.views.palette import style
from weft.graph.views.scene import cut
from weft.graph.views.svg import ARROW

FIRST = 60  # boxes and groups that are seen when the page opens, about
TEXT = 400  # a parameter's text is cut here


def to_html(
    graph: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    examples: Iterable[Any] = (),
) -> str:
    """The graph as an HTML page; also written to ``path`` where one is given.

    ``graph`` is a graph, a captured program, or a module with ``examples``. Modules
    and scopes open and close, nodes are found by name, and a click shows a node's
    operator, parameters, inputs, users and source line. The page holds all it needs.

    >>> step = weft.graph.capture(lambda x: (x * 2).sum(), weft.ones(3))
    >>> weft.graph.to_html(step).splitlines()[0]
    '<!DOCTYPE html>'
    """
    outline = Outline(graph_of(graph, examples))
    fields = {
        "policy": policy(script()),
        "title": markup(outline.graph.name),
        "summary": f"{len(outline.boxes):,} nodes",
        "style": style() + read("page.css"),
        "legend": _legend(outline),
        "arrow": ARROW,
        "data": embedded_json(_Data(outline).page()),
        "script": script(),
    }
    page = filled(read("page.html"), fields)
    if path is not None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(page)
    return page


def filled(template: str, fields: dict[str, str]) -> str:
    """A template with its fields filled in.

    One pass does it, so that a brace in one field is never taken for another field.
    """
    return re.sub(r"\{(\w+)\}", lambda found: fields[found[1]], template)


def script() -> str:
    """The script of a graph's page."""
    return "\n" + read("layout.js") + read("page.js")


def policy(*scripts: str) -> str:
    """The content security policy: run these scripts, load nothing."""
    digests = [hashlib.sha256(text.encode()).digest() for text in scripts]
    allowed = " ".join(
        f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests
    )
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}"


def _legend(outline: Outline) -> str:
    counts = Counter(box.kind for box in outline.boxes)
    return "".join(
        f'<span class="{kind}">{kind} {counts[kind]:,}</span>'
        for kind in KINDS
        if counts[kind]
    )


class _Data:
    """The data of the page's script: boxes, groups in rows, edges, shared texts."""

    def __init__(self, outline: Outline) -> None:
        self.outline = outline
        self.numbers: dict[str, int] = {}
        self.writer = GraphWriter()
        self.lines: dict[Any, str] = {}

    def page(self) -> dict[str, Any]:
        outline = self.outline
        found: dict[Node, int] = {b.node: k for k, b in enumerate(outline.boxes)}
        boxes = [self.box(k, b, found) for k, b in enumerate(outline.boxes)]
        rows = rows_of_groups(outline)
        return {
            "kinds": KINDS,
            "boxes": boxes,
            "groups": [_group(g, r) for g, r in zip(outline.groups, rows, strict=True)],
            "edges": outline.edges,
            "outputs": sorted(outline.outputs),
            "opened": sorted(outline.opened(FIRST)),
            "strings": list(self.numbers),
        }

    def text(self, text: str) -> int:
        """The number of a text in the page's table."""
        return self.numbers.setdefault(printable(text), len(self.numbers))

    def box(self, number: int, box: Box, numbers: dict[Node, int]) -> dict[str, Any]:
        node = box.node
        inputs = [numbers[i] if type(i) is Node else self.shown(i) for i in node.inputs]
        params = "\n".join(f"{k} = {self.shown(v)}" for k, v in node.params.items())
        return {
            "name": printable(node.name),
            "title": printable(box.title),
            "kind": KINDS.index(box.kind),
            "home": self.outline.home[number],
            "op": self.text(node.op.name),
            "type": self.text(type_text(node.type)),
            "module": self.text(node.module),
            "params": self.text(params),
            "line": self.text(self.line(node)),
            "inputs": inputs,
            "after": [numbers[n] for n in node.after],
        }

    def shown(self, value: Any) -> str:
        if isinstance(value, Graph):
            return repr(value)
        try:
            text = self.writer.value(value)
        except WeftError:
            text = repr(value)
        return cut(printable(text), TEXT)

    def line(self, node: Node) -> str:
        key = (node.code, node.lasti)
        if key not in self.lines:
            self.lines[key] = node.line
        return self.lines[key]


def _group(group: Group, rows: Rows) -> dict[str, Any]:
    bends = [[f"{a}>{b}", way] for (a, b), way in rows.bends.items()]
    return {
        "name": printable(group.name),
        "parent": group.parent,
        "kind": KINDS.index(group.kind),
        "count": group.count,
        "items": group.items,
        "rows": rows.rows,
        "links": rows.links,
        "bends": bends,
    }
