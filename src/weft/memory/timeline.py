"""Memory over time as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from weft.core.rows import nbytes
from weft.graph.views.html import Html, joined, tag

if TYPE_CHECKING:
    from weft.compile.explain.memory import Memory

WIDTH, HEIGHT = 1000, 240
LEFT, TOP, FOOT = 70, 10, 22  # space for the labels


def timeline(memory: Memory) -> Html:
    """Bytes live at each step: the arena's below, what a run allocates above it."""
    whole = [a + b for a, b in zip(memory.live, memory.outside, strict=True)]
    most = max([*whole, memory.layout.nbytes, 1])
    parts = [
        *grid(most, memory.steps),
        area("outside", whole, most),
        area("arena", memory.live, most),  # hides the lower part of the other
        *_peak(memory, most),
        tag("line", id="cursor", y1=str(TOP), y2=str(HEIGHT - FOOT), x1="0", x2="0",
            visibility="hidden"),
    ]  # fmt: skip
    return tag("svg", *parts, kind="timeline", viewBox=f"0 0 {WIDTH} {HEIGHT}")


def y_of(count: float, most: int) -> float:
    """The vertical position of a number of bytes."""
    return HEIGHT - FOOT - (HEIGHT - FOOT - TOP) * count / most


def x_of(step: float, steps: int) -> float:
    """The horizontal position of a step."""
    return LEFT + (WIDTH - LEFT) * step / max(steps, 1)


def area(kind: str, bytes_live: list[int], most: int) -> Html:
    """A step of the program is as wide as every other one."""
    base = y_of(0, most)
    path = f"M{LEFT},{base:.1f}"
    for step, count in enumerate(bytes_live):
        y = y_of(count, most)
        for at in (step, step + 1):
            path += f"L{x_of(at, len(bytes_live)):.2f},{y:.1f}"
    return tag("path", d=f"{path}L{WIDTH},{base:.1f}z", kind=kind)


def grid(most: int, steps: int, unit: str = "step") -> Iterator[Html]:
    """Lines for a quarter of the bytes each, and numbers of steps."""
    for k in range(5):
        count = most * k / 4
        y = y_of(count, most)
        yield tag("line", x1=str(LEFT), x2=str(WIDTH), y1=f"{y:.1f}", y2=f"{y:.1f}",
                  kind="grid")  # fmt: skip
        yield _label(LEFT - 6, y + 4, nbytes(count), "end")
    for k in range(5):
        step = (steps - 1) * k // 4
        anchor = "end" if k == 4 else "middle"
        yield _label(x_of(step + 0.5, steps), HEIGHT - 6, f"{unit} {step}", anchor)


def _peak(memory: Memory, most: int) -> Iterator[Html]:
    if not memory.values:
        return
    x, y = x_of(memory.peak_step + 0.5, memory.steps), y_of(memory.peak, most)
    yield tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="4", kind="peak")


def _label(x: float, y: float, text: str, anchor: str) -> Html:
    return tag(
        "text", text, **{"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}
    )


def legend() -> Html:
    """The legend of the colours."""
    arena = tag("span", "arena", kind="arena")
    return joined([arena, tag("span", "calls and outputs", kind="outside")])
