"""A recording: live bytes over time, and what made the peak."""

from __future__ import annotations

import os
from typing import Any

from weft.core.rows import Column, Rows, nbytes
from weft.memory.ledger import Entry, ledger

_BARS = "▁▂▃▄▅▆▇█"
_STYLE = """
body { font: 14px system-ui, sans-serif; margin: 2em auto; max-width: 1040px }
svg { width: 100%; background: #8881 } path.forward { fill: #4a90d9 }
path.before { fill: #9aa5b1 } line.grid { stroke: #8884 } circle.peak { fill: #d33 }
text { font-size: 11px; fill: currentColor } table { border-collapse: collapse }
td, th { padding: 2px 10px; text-align: left } .number { text-align: right }
"""


class Recording:
    """The result of ``weft.memory.record()``: a timeline of all arrays."""

    def __init__(self) -> None:
        self.bytes: list[int] = []  # live, after each array that came or went
        self.entries: list[Entry] = []
        self.first = 0

    def __enter__(self) -> Recording:
        ledger.recordings.append(self)
        ledger.settle()
        ledger.survey()
        self.entries = list(ledger.entries.values())
        self.first, self.bytes = ledger.moment, [ledger.live]
        return self

    def __exit__(self, *error: object) -> None:
        ledger.survey()
        ledger.recordings.remove(self)
        ledger.settle()

    @property
    def start(self) -> int:
        """Bytes that were live at the beginning."""
        return self.bytes[0] if self.bytes else 0

    @property
    def peak(self) -> int:
        """The most bytes that were live."""
        return max(self.bytes, default=0)

    @property
    def peak_moment(self) -> int:
        return self.bytes.index(self.peak) if self.bytes else 0

    def at(self, moment: int) -> Rows:
        """The arrays live at a moment (an index of ``bytes``), largest first."""
        time = self.first + moment
        found = [
            e for e in self.entries
            if e.born < time and (e.died is None or e.died >= time)
        ]  # fmt: skip
        return Rows(
            sorted(found, key=lambda e: -e.nbytes),
            Column("bytes", lambda e: nbytes(e.nbytes)),
            Column("kind", lambda e: e.kind, number=False),
            Column("type", lambda e: f"{e.dtype}{list(e.shape)}", number=False),
            Column("made by", lambda e: e.name, number=False),
            Column("line", lambda e: _short(e.line), number=False),
        )

    @property
    def top(self) -> Rows:
        """The arrays that made up the peak."""
        return self.at(self.peak_moment)

    def __str__(self) -> str:
        head = (
            f"peak {nbytes(self.peak)} at {self.peak_moment} of {len(self.bytes) - 1} "
            f"changes; {nbytes(self.start)} at the beginning"
        )
        return f"{head}\n{_spark(self.bytes)}\n{self.top.table(12)}"

    __repr__ = __str__

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """The timeline as a page that needs nothing else; written to ``path`` if given.

        >>> with weft.memory.record() as memory:
        ...     _ = weft.ones(10) * 2
        >>> memory.to_html().splitlines()[0]
        '<!DOCTYPE html>'
        """
        from weft.graph.views.html import joined, table, tag

        what = str(self).partition("\n")[0]
        body = joined([
            tag("h1", "Memory over time"), tag("p", what), _picture(self),
            tag("h2", "What made the peak"), table(self.top, self.top[:40]),
        ])  # fmt: skip
        page = (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f"<title>Memory over time</title><style>{_STYLE}</style></head>"
            f"<body>{body}</body></html>\n"
        )
        if path is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(page)
        return page


def _picture(recording: Recording) -> Any:
    from weft.graph.views.html import tag
    from weft.memory import timeline as draw

    shown = thinned(recording.bytes, 1000)
    most = max(recording.peak, 1)
    at = shown.index(recording.peak) if shown else 0
    x, y = draw.x_of(at + 0.5, len(shown)), draw.y_of(recording.peak, most)
    return tag(
        "svg",
        *draw.grid(most, len(recording.bytes), "change"),
        draw.area("forward", shown, most),
        draw.area("before", [min(recording.start, n) for n in shown], most),
        tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="4", kind="peak"),
        viewBox=f"0 0 {draw.WIDTH} {draw.HEIGHT}",
    )


def thinned(values: list[int], most: int) -> list[int]:
    """At most so many values, each the largest of its part.

    >>> from weft.memory.recording import thinned
    >>> thinned([1, 5, 2, 3, 9, 4], 3)
    [5, 3, 9]
    """
    count = min(most, len(values))
    cuts = [len(values) * k // count for k in range(count + 1)] if count else [0]
    return [max(values[cuts[k] : cuts[k + 1]]) for k in range(count)]


def _spark(values: list[int]) -> str:
    top = max([*values, 1])
    shown = thinned(values, 72)
    return "".join(_BARS[round(n / top * (len(_BARS) - 1))] for n in shown)


def _short(line: str) -> str:
    return line.partition(", in ")[0].replace("\\", "/").rpartition("/")[2]
