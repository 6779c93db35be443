"""A picture of all rows: how many times Weft's each framework's time is, as SVG."""

from __future__ import annotations

import math
from xml.sax.saxutils import escape

from benchmarks.suite.results import OWN, Measured, Row
from benchmarks.suite.table import SHOWN, frameworks

COLOURS = {
    "weft": "#0b7a75", "weft-eager": "#7fc8b8", "torch": "#d1495b",
    "torch-compile": "#edae49", "jax": "#30638e", "tinygrad": "#7a7a7a",
}  # fmt: skip
LEFT, WIDTH, LINE, TOP = 330, 620, 18, 64
STYLE = "text{font:12px sans-serif;fill:#222}.h{font-weight:bold}.g{stroke:#ddd}"


def picture(rows: list[Row], titles: dict[str, str]) -> str:
    """A line for each row with a mark for each framework; further left is faster."""
    shown = [row for row in rows if row.own is not None]
    scale = Scale([value for row in shown for value in _relative(row).values()])
    parts, y, last = [], TOP, ""
    for row in shown:
        if row.workload != last:
            y += LINE
            title = titles.get(row.workload, row.workload)
            parts.append(_text(8, y, title, "h"))
            y, last = y + LINE, row.workload
        parts.append(_row(row, scale, y))
        y += LINE
    height = y + LINE
    frame = [_grid(scale, height), _legend(frameworks(rows)), *parts]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 40}" '
        f'height="{height}"><style>{STYLE}</style>'
        f'<rect width="100%" height="100%" fill="white"/>{"".join(frame)}</svg>\n'
    )


class Scale:
    """A logarithmic axis that holds 1 and all values."""

    def __init__(self, values: list[float]) -> None:
        self.low = min([0.5, *values]) / 1.1
        self.high = max([2.0, *values]) * 1.1

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return LEFT + WIDTH * share

    def ticks(self) -> list[float]:
        powers = range(-10, 11)
        marks = [m * 10.0**p for p in powers for m in (1, 2, 5)]
        return [mark for mark in marks if self.low <= mark <= self.high]


def _relative(row: Row) -> dict[str, float]:
    """Medians of those that count, in units of Weft's."""
    own = row.measured[str(row.own)].median
    return {n: m.median / own for n, m in row.measured.items() if m.counts}


def _row(row: Row, scale: Scale, y: float) -> str:
    own = row.measured[str(row.own)].median
    parts = [_text(20, y, row.case)]
    for name in _relative(row):
        parts.append(_mark(row.measured[name], own, scale, y - 4, name))
    return "".join(parts)


def _mark(m: Measured, own: float, scale: Scale, y: float, name: str) -> str:
    """The median as a dot, the quartiles as a line through it."""
    low, high = (scale(max(q / own, scale.low)) for q in m.quartiles)
    colour, radius = COLOURS[name], 5 if name in OWN else 4
    return (
        f'<line x1="{low:.1f}" x2="{min(high, LEFT + WIDTH):.1f}" y1="{y}" y2="{y}" '
        f'stroke="{colour}" stroke-width="2"/><circle cx="{scale(m.median / own):.1f}" '
        f'cy="{y}" r="{radius}" fill="{colour}" fill-opacity="0.85"/>'
    )


def _grid(scale: Scale, height: float) -> str:
    parts = []
    for tick in scale.ticks():
        x, wide = scale(tick), 2 if tick == 1 else 1
        parts.append(
            f'<line class="g" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height}" '
            f'stroke-width="{wide}"/>' + _text(x - 6, TOP - 6, f"{tick:g}")
        )
    return "".join(parts)


def _legend(names: list[str]) -> str:
    parts = [_text(8, 22, "time, in units of Weft's (left is faster)", "h")]
    for k, name in enumerate(names):
        x = LEFT + 105 * k
        parts.append(f'<circle cx="{x}" cy="18" r="5" fill="{COLOURS[name]}"/>')
        parts.append(_text(x + 9, 22, SHOWN[name]))
    return "".join(parts)


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    css = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y}"{css}>{escape(text)}</text>'
