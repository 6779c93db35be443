"""HTML from Python: whatever is not made here is text, and is escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft.core.rows import Column, Rows
from weft.graph.views.escape import markup


class Html(str):
    """Text that is markup already."""


def tag(name: str, *children: str, **attributes: str) -> Html:
    """An element; children that are not ``Html`` are escaped.

    >>> from weft.graph.views.html import tag
    >>> print(tag("p", "1 < 2", tag("b", "yes"), kind="note"))
    <p class="note">1 &lt; 2<b>yes</b></p>
    """
    given = {"class" if k == "kind" else k: v for k, v in attributes.items()}
    shown = "".join(f' {key}="{markup(value)}"' for key, value in given.items())
    return Html(f"<{name}{shown}>{joined(children)}</{name}>")


def joined(parts: Iterable[str]) -> Html:
    return Html("".join(p if isinstance(p, Html) else markup(p) for p in parts))


def folded(title: str, *children: str, kind: str = "more") -> Html:
    """An element whose contents show when its title is clicked."""
    return tag("details", tag("summary", title), *children, kind=kind)


def code(text: str) -> Html:
    return tag("pre", text)


# -- tables


def table(rows: Rows, items: Sequence[Any] | None = None) -> Html:
    """Rows as a table."""
    head = [_cell("th", c, c.title) for c in rows.columns]
    shown = rows if items is None else items
    body = [tag("tr", *_cells(rows, item)) for item in shown]
    return tag("table", tag("tr", *head), *body)


def _cells(rows: Rows, item: Any) -> list[Html]:
    pairs = zip(rows.columns, rows.cells(item), strict=True)
    return [_cell("td", column, text) for column, text in pairs]


def _cell(name: str, column: Column, text: str) -> Html:
    return tag(name, text, kind="number" if column.number else "text")


def unfolding(rows: Rows, inside: Callable[[Any], Html]) -> Html:
    """A table whose rows open and show their ``inside``."""
    widths = " ".join(map(_width, rows.columns))
    grid = f"grid-template-columns: {widths}"
    head = [_span(c, c.title) for c in rows.columns]
    shown = [tag("div", *head, kind="row head", style=grid)]
    for item in rows:
        pairs = zip(rows.columns, rows.cells(item), strict=True)
        cells = [_span(column, text) for column, text in pairs]
        summary = tag("summary", *cells, kind="row", style=grid)
        shown.append(tag("details", summary, inside(item), kind="item"))
    return tag("div", *shown, kind="rows")


def _width(column: Column) -> str:
    if column.number:
        return "80px"
    return "130px" if column.title in ("name", "pass") else "minmax(0, 1fr)"


def _span(column: Column, text: str) -> Html:
    if column.title == "of roof" and text.endswith(" %"):
        return tag("span", text, _bar(float(text[:-2])), kind="number")
    return tag("span", text, kind="number" if column.number else "text", title=text)


def _bar(percent: float) -> Html:
    return tag("i", tag("b", style=f"width: {min(percent, 100):.0f}%"), kind="bar")
