"""Lists that print as tables, and numbers as people read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

SHOWN = 40  # rows that a printed table has at most
WIDE = 64  # letters of a cell


class Column(NamedTuple):
    """A column: its title, the text of an item, and whether it holds numbers."""

    title: str
    text: Callable[[Any], str]
    number: bool = True


class Rows(list[Any]):
    """A list that prints as a table.

    >>> from weft.core.rows import Column, Rows
    >>> print(Rows([3, 400], Column("n", str), Column("half", lambda n: str(n / 2))))
      n   half
      3    1.5
    400  200.0
    """

    def __init__(self, items: Iterable[Any], *columns: Column) -> None:
        super().__init__(items)
        self.columns = columns

    def cells(self, item: Any) -> list[str]:
        """An item's row, as texts."""
        return [column.text(item) for column in self.columns]

    def __str__(self) -> str:
        return self.table()

    def table(self, most: int = SHOWN) -> str:
        """The table with ``most`` rows."""
        titles = [column.title for column in self.columns]
        texts = [[cut(c) for c in self.cells(item)] for item in self[:most]]
        widths = [max(map(len, column)) for column in zip(titles, *texts, strict=True)]
        lines = [self._line(row, widths) for row in (titles, *texts)]
        if len(self) > most:
            lines.append(f"… and {len(self) - most} more")
        return "\n".join(lines)

    def _line(self, row: list[str], widths: list[int]) -> str:
        parts = zip(row, widths, self.columns, strict=True)
        cells = [t.rjust(w) if c.number else t.ljust(w) for t, w, c in parts]
        return "  ".join(cells).rstrip()

    __repr__ = __str__


def cut(text: str, most: int = WIDE) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def scaled(value: float, unit: str, steps: str = " kMGTP", base: float = 1000) -> str:
    """A number with a prefix.

    >>> from weft.core.rows import scaled
    >>> scaled(1234, "FLOP"), scaled(0, "B"), scaled(2.5e9, "B/s")
    ('1.23 kFLOP', '0 B', '2.50 GB/s')
    """
    at = 0
    while abs(value) >= base and at < len(steps) - 1:
        value, at = value / base, at + 1
    digits = 0 if not at else max(2 - (abs(value) >= 10) - (abs(value) >= 100), 0)
    return f"{value:.{digits}f} {steps[at].strip()}{unit}"


def nbytes(count: float) -> str:
    return scaled(count, "B")


def flop(count: float | None) -> str:
    return "–" if count is None else scaled(count, "FLOP")


def seconds(value: float | None) -> str:
    """A time.

    >>> from weft.core.rows import seconds
    >>> seconds(0.0123), seconds(4.2e-6), seconds(None)
    ('12.3 ms', '4.20 µs', '–')
    """
    if value is None:
        return "–"
    if value >= 1:
        return f"{value:.2f} s"
    return scaled(value * 1e9, "s", "nµm")


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def counted(count: int, noun: str) -> str:
    """``1 kernel``, ``1,200 kernels``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
