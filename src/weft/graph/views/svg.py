"""A graph as an SVG picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from weft.graph.ir import type_text
from weft.graph.views.escape import markup
from weft.graph.views.outline import KINDS, Outline, graph_of
from weft.graph.views.palette import style
from weft.graph.views.scene import BOX, HEAD, Line, Rect, Scene

LIMIT = 2000  # boxes and groups that a picture shows at most, as far as it can
LEGEND = 34
ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
    'markerHeight="7" orient="auto"><path d="M0,1 L8,4 L0,7 z"/></marker></defs>'
)


def to_svg(graph: Any, *, examples: Iterable[Any] = (), limit: int = LIMIT) -> str:
    """The graph as the text of an SVG picture.

    ``graph`` is a graph, a captured program, or a module with ``examples``. Groups
    (modules and scopes) are drawn closed where more than about ``limit`` boxes
    would be seen.

    >>> step = weft.graph.capture(lambda x: (x * 2).sum(), weft.ones(3))
    >>> weft.graph.to_svg(step)[:37]
    '<svg xmlns="http://www.w3.org/2000/sv'
    """
    outline = Outline(graph_of(graph, examples))
    scene = Scene(outline, outline.opened(limit))
    width = max(scene.width, 110 * len(KINDS))
    height = scene.height + LEGEND
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" '
            f'height="{height:.0f}" viewBox="0 {-LEGEND} {width:.0f} {height:.0f}">',
            f"<title>{markup(outline.graph.name)}</title>",
            f"<style>{style()}</style>",
            '<rect class="paper" x="0" y="-34" width="100%" height="100%"/>',
            ARROW,
            *_legend(),
            *_frames(scene),
            *map(_line, scene.lines),
            *_boxes(scene),
            *_labels(scene),
            "</svg>",
        ]
    )


def _legend() -> Iterator[str]:
    for k, kind in enumerate(KINDS):
        yield (
            f'<g class="{kind}"><rect x="{110 * k + 14}" y="-24" width="14" '
            f'height="14" rx="3"/><text x="{110 * k + 34}" y="-13">{kind}</text></g>'
        )


def _frames(scene: Scene) -> Iterator[str]:
    """The open groups, outer ones first."""
    outline = scene.outline
    for item, rect in scene.rects.items():
        group = item - len(outline.boxes)
        if group in scene.opened:
            name = markup(outline.groups[group].name)
            yield (
                f'<g class="frame {outline.groups[group].kind}">{_rect(rect, 8)}'
                f"<title>{markup(outline.full_name(group))}</title>"
                f'<text x="{rect.x + 10:.1f}" y="{rect.y + HEAD - 6:.1f}">{name}</text>'
                "</g>"
            )


def _boxes(scene: Scene) -> Iterator[str]:
    outline = scene.outline
    for item, rect in scene.rects.items():
        group = item - len(outline.boxes)
        if group in scene.opened:
            continue
        kind = outline.groups[group].kind if group >= 0 else outline.boxes[item].kind
        extra = " closed" if group >= 0 else " output" * (item in outline.outputs)
        yield (
            f'<g class="box {kind}{extra}">'
            f"<title>{markup(_hint(outline, item))}</title>{_rect(rect, 5)}"
            f'<text x="{rect.x + rect.width / 2:.1f}" y="{rect.y + BOX / 2 + 4:.1f}" '
            f'text-anchor="middle">{markup(scene.title(item))}</text></g>'
        )


def _hint(outline: Outline, item: int) -> str:
    group = item - len(outline.boxes)
    if group >= 0:
        return f"{outline.full_name(group)}: {outline.groups[group].count} nodes"
    node = outline.boxes[item].node
    return f"{node.name}: {type_text(node.type)}"


def _rect(rect: Rect, radius: int) -> str:
    return (
        f'<rect x="{rect.x:.1f}" y="{rect.y:.1f}" width="{rect.width:.1f}" '
        f'height="{rect.height:.1f}" rx="{radius}"/>'
    )


def _line(line: Line) -> str:
    points = line.points
    path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    for k in range(0, len(points) - 1, 2):
        (x, y), (to_x, to_y) = points[k], points[k + 1]
        middle = (y + to_y) / 2
        path += f"C{x:.1f},{middle:.1f} {to_x:.1f},{middle:.1f} {to_x:.1f},{to_y:.1f}"
        if k + 2 < len(points):
            path += f"L{points[k + 2][0]:.1f},{points[k + 2][1]:.1f}"
    return f'<path class="edge {line.kind}" d="{path}" marker-end="url(#arrow)"/>'


def _labels(scene: Scene) -> Iterator[str]:
    for item, text in scene.labels().items():
        rect = scene.rects[item]
        yield (
            f'<text class="label" x="{rect.x + rect.width / 2:.1f}" '
            f'y="{rect.y + rect.height + 12:.1f}" text-anchor="middle">'
            f"{markup(text)}</text>"
        )
