"""Curves as an SVG picture: axes, ticks, a title and a legend."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from weft.errors import ArgumentError
from weft.graph.views.escape import markup
from weft.serialization import replacing

_MOST = 1e300  # beyond, and for NaN, there is no scale
_COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd")
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 58, 48  # margins: title and legend on top
_STYLE = (
    "text{font:13px sans-serif;fill:#333}.title{font-size:16px;font-weight:bold}"
    ".grid{stroke:#e4e4e4}.axis{stroke:#333;fill:none}"
    ".curve{fill:none;stroke-width:1.6;stroke-linejoin:round}"
)


def plot_curves(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    path: str | os.PathLike[str],
    width: int = 800,
    height: int = 480,
    *,
    title: str = "Training",
) -> None:
    """Draw curves of (step, value) points into an SVG picture, one colour each.

    Values that are not finite are left out. Where a curve has many points in a column
    of pixels, their least and their greatest are drawn.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "curve.svg"
    ...     weft.training.plot_curves({"loss": [(0, 1.0), (1, 0.5)]}, path)
    ...     path.read_text()[:4]
    '<svg'
    """
    points = {
        name: np.array([p for p in rows if all(abs(v) < _MOST for v in p)], float)
        for name, rows in curves.items()
    }
    points = {name: p for name, p in points.items() if len(p)}
    if not points:
        raise ArgumentError("plot_curves: there is no finite point to draw")
    every = np.concatenate(list(points.values()))
    across = _Axis(every[:, 0], _LEFT, width - _RIGHT)
    up = _Axis(every[:, 1], height - _BOTTOM, _TOP)
    picture = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}"><style>{_STYLE}</style>',
        '<rect width="100%" height="100%" fill="white"/>',
        _text(_LEFT, 24, title, "title"),
        *_frame(across, up),
        *_curves(points, across, up),
        "</svg>\n",
    ]
    with replacing(os.fspath(path)) as file:
        file.write("\n".join(picture).encode())


class _Axis:
    """A linear axis over all values, from one pixel to another."""

    def __init__(self, values: np.ndarray, start: float, end: float) -> None:
        low, high = float(values.min()), float(values.max())
        size = max(abs(low), abs(high))
        size = size if size > 1 / _MOST else 1.0
        if high - low < 1e-9 * size:  # flat: labels could not tell them apart
            low, high = low - size / 2, high + size / 2
        self.low, self.high, self.start, self.end = low, high, start, end

    def __call__(self, value: Any) -> Any:
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """A few round values: the multiples of 1, 2 or 5 times a power of ten."""
        least = (self.high - self.low) / 7
        power = 10.0 ** math.floor(math.log10(least))
        step = next(m * power for m in (1, 2, 5, 10) if m * power >= least)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [k * step for k in range(first, last + 1)]


def _frame(across: _Axis, up: _Axis) -> Iterator[str]:
    for tick in across.ticks():
        x = across(tick)
        yield f'<path class="grid" d="M{x:.1f},{up.start}V{up.end}"/>'
        yield _text(x, up.start + 20, f"{tick:g}", anchor="middle")
    for tick in up.ticks():
        y = up(tick)
        yield f'<path class="grid" d="M{across.start},{y:.1f}H{across.end}"/>'
        yield _text(across.start - 8, y + 4, f"{tick:g}", anchor="end")
    corner = f"M{across.start},{up.end}V{up.start}H{across.end}"
    yield f'<path class="axis" d="{corner}"/>'
    yield _text((across.start + across.end) / 2, up.start + 40, "step", anchor="middle")


def _curves(points: dict[str, np.ndarray], across: _Axis, up: _Axis) -> Iterator[str]:
    """Each curve, and its line in the legend."""
    x = across.start
    for name, colour in zip(points, itertools.cycle(_COLOURS), strict=False):
        rows = _thinned(points[name], across)
        drawn = " ".join(f"{across(a):.1f},{up(b):.1f}" for a, b in rows)
        yield (
            f'<polyline class="curve" stroke="{colour}" points="{drawn}"/>'
            f'<path class="curve" stroke="{colour}" d="M{x:.1f},42h18"/>'
            + _text(x + 24, 46, name)
        )
        x += 48 + 7.5 * len(name)


def _thinned(rows: np.ndarray, across: _Axis) -> np.ndarray:
    """The least and the greatest point in each column of pixels, in their order."""
    columns = across(rows[:, 0]).astype(int)
    order = np.lexsort((rows[:, 1], columns))
    ends = np.flatnonzero(np.diff(columns[order], append=columns.max() + 1))
    starts = np.concatenate([[0], ends[:-1] + 1])
    return rows[np.unique(order[np.concatenate([starts, ends])])]


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "") -> str:
    css = f' class="{kind}"' * bool(kind) + f' text-anchor="{anchor}"' * bool(anchor)
    return f'<text x="{x:.1f}" y="{y:.1f}"{css}>{markup(text)}</text>'
