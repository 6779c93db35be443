"""What the machine can do at most: the best that was measured during a run."""

from __future__ import annotations

from benchmarks.suite.client import WorkerError
from benchmarks.suite.results import Row
from benchmarks.suite.run import Options, Workers

from weft.compile.cost.machine import Machine


class Roof:
    """Limits of the machine. Others may use it while one of them is measured, so they
    are measured again and again, and the best of each counts."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.best: Machine | None = None
        self.error = "" if "weft" in options.pythons else "Weft is not among those run"

    def measure(self) -> None:
        if self.error:
            return
        try:
            with Workers(self.options) as workers:
                said = workers.get("weft").ask(120, do="machine")
        except WorkerError as error:
            self.error = str(error)
            return
        bandwidth = tuple((size, rate) for size, rate in said["bandwidth"])
        found = Machine(said["threads"], bandwidth, said["peak"])
        self.best = found if self.best is None else better(self.best, found)

    def limit(self, rows: list[Row]) -> None:
        """Say of each row what it takes at least."""
        for row in rows:
            if self.best and (row.flops or row.moved):
                row.limit = self.best.least_seconds(row.moved, row.flops)

    def __str__(self) -> str:
        return str(self.best) if self.best else f"not measured: {self.error}"


def better(one: Machine, other: Machine) -> Machine:
    """The larger figures of two measurements.

    >>> better(Machine(2, ((8, 1.0),), 5.0), Machine(2, ((8, 3.0),), 4.0))
    Machine(threads=2, bandwidth=((8, 3.0),), peak=5.0)
    """
    pairs = zip(one.bandwidth, other.bandwidth, strict=True)
    bandwidth = tuple((size, max(a, b)) for (size, a), (_, b) in pairs)
    return Machine(one.threads, bandwidth, max(one.peak, other.peak))
