"""Numbers about a server, as text in Prometheus' format."""

from __future__ import annotations

import bisect
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

Labels = tuple[tuple[str, str], ...]
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
WINDOW = 1024  # observations that quantiles are taken of


class Metric:
    """A number for each set of labels: a counter, or a gauge that is read when asked.

    >>> hits = Metric("hits_total", "Requests that came.")
    >>> hits.add(path="/")
    >>> print(*hits.lines(), sep="\\n")
    # HELP hits_total Requests that came.
    # TYPE hits_total counter
    hits_total{path="/"} 1
    """

    kind = "counter"

    def __init__(
        self, name: str, about: str, read: Callable[[], float] | None = None
    ) -> None:
        self.name, self.about, self.read = name, about, read
        self.values: dict[Labels, float] = {}
        self.lock = threading.Lock()
        if read is not None:
            self.kind = "gauge"

    def add(self, amount: float = 1, **labels: str) -> None:
        key = tuple(sorted(labels.items()))
        with self.lock:
            self.values[key] = self.values.get(key, 0) + amount

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.about}"
        yield f"# TYPE {self.name} {self.kind}"
        yield from self.samples()

    def samples(self) -> Iterator[str]:
        if self.read is not None:
            yield _sample(self.name, (), self.read())
            return
        with self.lock:
            values = dict(self.values)
        for labels, value in values.items():
            yield _sample(self.name, labels, value)


class Distribution(Metric):
    """Counts of observations up to each bound, and recent quantiles."""

    kind = "histogram"

    def __init__(
        self,
        name: str,
        about: str,
        bounds: Sequence[float] = SECONDS,
        quantiles: Sequence[float] = (),
    ) -> None:
        super().__init__(name, about)
        self.bounds, self.quantiles = tuple(bounds), tuple(quantiles)
        self.counts: dict[Labels, list[int]] = {}
        self.recent: dict[Labels, deque[float]] = {}

    def observe(self, value: float, **labels: str) -> None:
        key = tuple(sorted(labels.items()))
        with self.lock:
            counts = self.counts.setdefault(key, [0] * (len(self.bounds) + 1))
            counts[bisect.bisect_left(self.bounds, value)] += 1
            self.values[key] = self.values.get(key, 0) + value
            if self.quantiles:
                self.recent.setdefault(key, deque(maxlen=WINDOW)).append(value)

    def samples(self) -> Iterator[str]:
        with self.lock:
            counts = {k: list(v) for k, v in self.counts.items()}
            sums = dict(self.values)
        for labels, found in counts.items():
            total = 0
            for bound, count in zip((*self.bounds, None), found, strict=True):
                total += count
                text = "+Inf" if bound is None else f"{bound:g}"
                yield _sample(f"{self.name}_bucket", (*labels, ("le", text)), total)
            yield _sample(f"{self.name}_sum", labels, sums[labels])
            yield _sample(f"{self.name}_count", labels, total)

    def lines(self) -> Iterator[str]:
        yield from super().lines()
        if not self.quantiles:
            return
        name = f"{self.name}_recent"
        yield f"# HELP {name} Quantiles of the last {WINDOW}: {self.about}"
        yield f"# TYPE {name} gauge"
        with self.lock:
            recent = {k: sorted(v) for k, v in self.recent.items()}
        for labels, values in recent.items():
            for q in self.quantiles:
                value = values[min(len(values) - 1, int(q * len(values)))]
                yield _sample(name, (*labels, ("quantile", f"{q:g}")), value)


def _sample(name: str, labels: Labels, value: float) -> str:
    inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    number = str(int(value)) if value == int(value) else repr(float(value))
    return f"{name}{{{inner}}} {number}" if inner else f"{name} {number}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Metrics:
    """All metrics of one server."""

    def __init__(self) -> None:
        self.all: list[Metric] = []

    def new(self, metric: Metric) -> Metric:
        self.all.append(metric)
        return metric

    def distribution(self, *arguments: object, **options: object) -> Distribution:
        made = Distribution(*arguments, **options)  # type: ignore[arg-type]
        self.all.append(made)
        return made

    def counter(self, name: str, about: str) -> Metric:
        return self.new(Metric(name, about))

    def gauge(self, name: str, about: str, read: Callable[[], float]) -> Metric:
        return self.new(Metric(name, about, read))

    def text(self) -> str:
        return "\n".join(line for one in self.all for line in one.lines()) + "\n"
