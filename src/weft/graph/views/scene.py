"""The positions of items in a drawing, given the groups that are open."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from weft.graph.views.layout import Pair, Placed, Rows, lift, place, rows_of_groups
from weft.graph.views.outline import Edge, Outline, edge_label

BOX = 26  # a box's height
HEAD = 22  # an open group's title
PAD, FOOT = 14, 24  # around a group's items; the labels of the last row below them
LABEL, TITLE = 40, 32  # longer texts are cut
LETTER, SMALL_LETTER = 7.3, 5.6


Point = tuple[float, float]


class Rect(NamedTuple):
    """A box or a group, by its top left corner."""

    x: float
    y: float
    width: float
    height: float


class Line(NamedTuple):
    """An edge between two items that are seen: points, two and two vertical."""

    source: int
    target: int
    kind: str
    points: list[Point]
    sources: set[int]  # the boxes whose values it carries


def cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


class Scene:
    """The positions of visible items, and the lines between them."""

    def __init__(self, outline: Outline, opened: set[int]) -> None:
        self.outline = outline
        self.opened = opened
        self.rows: list[Rows] = rows_of_groups(outline)
        self.placed: dict[int, Placed] = {}
        self.sizes: dict[int, tuple[float, float]] = {}
        self.corner: dict[int, tuple[float, float]] = {0: (PAD, PAD)}
        self.rects: dict[int, Rect] = {}
        self.width, self.height = self._measure(0)
        self._spread(0)
        self.lines = self._lines()

    # -- sizes from the inside out, positions from the outside in

    def _measure(self, group: int) -> tuple[float, float]:
        name, items = self.outline.groups[group].name, self.outline.groups[group].items
        self.sizes.update({i: self._size(i) for i in items})
        found = self.placed[group] = place(self.rows[group], self.sizes)
        least = len(name) * LETTER + 2 * PAD
        top = PAD + HEAD if group else PAD
        return max(found.width + 2 * PAD, least), top + found.bottom + FOOT

    def _size(self, item: int) -> tuple[float, float]:
        group = item - len(self.outline.boxes)
        if group >= 0 and group in self.opened:
            return self._measure(group)
        letters = len(self.title(item)) * LETTER + 18
        if group >= 0:
            return max(letters, 60), BOX
        label = cut(edge_label(self.outline.boxes[item]), LABEL)
        return max(letters, len(label) * SMALL_LETTER + 8, 40), BOX

    def title(self, item: int) -> str:
        group = item - len(self.outline.boxes)
        if group < 0:
            return cut(self.outline.boxes[item].title, TITLE)
        found = self.outline.groups[group]
        return f"{cut(found.name, TITLE)} ({found.count})"

    def _spread(self, group: int) -> None:
        left, top = self.corner[group]
        found, boxes = self.placed[group], len(self.outline.boxes)
        for item in self.outline.groups[group].items:
            width, height = self.sizes[item]
            x, y = left + found.x[item] - width / 2, top + found.y[item] - height / 2
            self.rects[item] = Rect(x, y, width, height)
            if item - boxes in self.opened:
                self.corner[item - boxes] = (x + PAD, y + PAD + HEAD)
                self._spread(item - boxes)

    # -- lines

    def _seen(self, box: int) -> int:
        """The box itself, or the outermost closed group around it."""
        for item in reversed(self.outline.chain(box)[1:]):
            if item - len(self.outline.boxes) not in self.opened:
                return item
        return box

    def _lines(self) -> list[Line]:
        lines: dict[Pair, Line] = {}
        seen = [self._seen(k) for k in range(len(self.outline.boxes))]
        for edge in self.outline.edges:
            ends = seen[edge.source], seen[edge.target]
            if ends[0] == ends[1]:
                continue
            if ends not in lines:
                lines[ends] = Line(*ends, edge.kind, self._points(edge, *ends), set())
            if edge.kind == "data":
                lines[ends].sources.add(edge.source)
        return list(lines.values())

    def _points(self, edge: Edge, source: int, target: int) -> list[Point]:
        group, pair = lift(self.outline, edge)
        a, b = self.rects[source], self.rects[target]
        upwards = b.y < a.y
        points = [(a.x + a.width / 2, a.y + (0 if upwards else a.height))]
        placed, (left, top) = self.placed[group], self.corner[group]
        for bend in self.rows[group].bends.get(pair, ()):
            x, y = left + placed.x[bend], top + placed.y[bend]
            half = placed.height[bend] / (-2 if upwards else 2)
            points += [(x, y - half), (x, y + half)]
        points.append((b.x + b.width / 2, b.y + (b.height if upwards else 0)))
        return points

    def labels(self) -> dict[int, str]:
        """The label of the value that leaves each visible item."""
        carried: dict[int, set[int]] = defaultdict(set)
        for line in self.lines:
            carried[line.source] |= line.sources
        return {item: self._label(found) for item, found in carried.items() if found}

    def _label(self, sources: set[int]) -> str:
        if len(sources) > 1:
            return f"{len(sources)} tensors"
        return cut(edge_label(self.outline.boxes[next(iter(sources))]), LABEL)
