"""What was measured, and what follows from it."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass, field
from typing import Any

OWN = ("weft", "weft-eager")  # the first that was measured stands for Weft


@dataclass
class Measured:
    """One case in one framework: seconds of each round, or why there are none."""

    times: list[float] = field(default_factory=list)
    error: str = ""
    difference: float | None = None  # from the reference, relative to its largest
    agrees: bool = True
    memory: float | None = None  # bytes at most, less those before it was built
    process: float | None = None  # bytes at most, of all that the process has
    first: float | None = None  # seconds of the first call, which compiles

    def note(self, said: dict[str, float]) -> None:
        """What a process said of a case: the first one's time, the most bytes."""
        self.first = self.first or said["first"]
        if "memory" in said:
            self.memory = max(said["memory"], self.memory or 0)
            self.process = max(said["process"], self.process or 0)

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Between these lies the middle half of the rounds.

        >>> Measured([1.0, 2.0, 3.0, 4.0, 5.0]).quartiles
        (2.0, 4.0)
        """
        if len(self.times) < 2:
            return self.median, self.median
        low, _, high = statistics.quantiles(self.times, n=4, method="inclusive")
        return low, high

    @property
    def counts(self) -> bool:
        """Whether it was measured and computed the same as the others."""
        return bool(self.times) and self.agrees


@dataclass
class Row:
    """A case in every framework that was asked."""

    workload: str
    case: str
    measured: dict[str, Measured] = field(default_factory=dict)
    reference: str = ""  # the framework with which results were compared
    tolerance: float | None = None
    flops: float = 0.0
    moved: float = 0.0
    limit: float | None = None  # seconds that no implementation can beat
    series: tuple[str, float] | None = None
    unit: str = "s"

    @property
    def own(self) -> str | None:
        """Weft's entry, if it counts."""
        for name in OWN:
            if name in self.measured:
                return name if self.measured[name].counts else None
        return None

    @property
    def fastest_peer(self) -> str | None:
        peers = {
            name: m.median
            for name, m in self.measured.items()
            if name not in OWN and m.counts
        }
        return min(peers, key=peers.__getitem__) if peers else None

    @property
    def ratio(self) -> float | None:
        """How many times Weft's the fastest peer's time is.

        >>> row = Row("w", "c", {"weft": Measured([1.0]), "torch": Measured([2.0])})
        >>> row.ratio
        2.0
        """
        own, peer = self.own, self.fastest_peer
        if own is None or peer is None:
            return None
        return self.measured[peer].median / self.measured[own].median


def geometric_mean(values: list[float]) -> float:
    """
    >>> geometric_mean([2.0, 8.0])
    4.0
    """
    return math.exp(statistics.fmean(map(math.log, values)))


def growth(sizes: list[float], times: list[float]) -> float:
    """The exponent with which time grows from the last size but one to the last.

    >>> growth([1, 10, 20], [9.0, 1.0, 4.0])
    2.0
    """
    return math.log(times[-1] / times[-2]) / math.log(sizes[-1] / sizes[-2])


def as_json(rows: list[Row]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]


def from_json(rows: list[dict[str, Any]]) -> list[Row]:
    """The rows that ``as_json`` wrote."""
    made = []
    for row in rows:
        measured = {name: Measured(**m) for name, m in row["measured"].items()}
        series = row["series"] and (row["series"][0], row["series"][1])
        made.append(Row(**{**row, "measured": measured, "series": series}))
    return made
