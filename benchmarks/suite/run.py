"""Asking workers in turn, and comparing what they computed."""

from __future__ import annotations

import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from benchmarks.suite import workloads
from benchmarks.suite.case import Case
from benchmarks.suite.client import Client, WorkerError
from benchmarks.suite.results import Measured, Row

REFERENCES = ("torch", "jax", "torch-compile", "tinygrad", "weft-eager", "weft")
PAUSE = 0.02  # seconds after which the threads of the one before sleep


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to run, how often, and with which interpreters."""

    pythons: dict[str, str]  # of each framework
    rounds: int = 7
    threads: int = 2
    small: bool = False
    seconds: float = 0.1  # that a round takes at least
    timeout: float = 600.0  # for building and compiling a case


class Workers:
    """One process for each framework, started when first asked."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.versions: dict[str, str] = {}
        self.missing: dict[str, str] = {}
        self._clients: dict[str, Client] = {}

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes; whoever is asked next gets a new one."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def get(self, framework: str) -> Client:
        """A worker that runs; an error if the framework cannot be started."""
        if framework in self.missing:
            raise WorkerError(self.missing[framework])
        client = self._clients.get(framework)
        if client is None or not client.alive:
            client = self._start(framework)
        return client

    def _start(self, framework: str) -> Client:
        python = self.options.pythons[framework]
        client = Client(python, framework, self.options.threads)
        self._clients[framework] = client
        try:
            said = client.ask(120, do="start", framework=framework)
        except WorkerError as error:
            self.missing[framework] = str(error)
            raise
        self.versions[framework] = f"{said['version']} (Python {said['python']})"
        return client


def run_workload(
    name: str, options: Options, told: dict[str, dict[str, str]],
    chosen: Callable[[str], bool] = lambda case: True,
) -> Iterator[Row]:  # fmt: skip
    """Rows of a workload, as they are measured; versions and what is missing in told.

    Each workload has processes of its own, so none inherits another's memory.
    """
    with Workers(options) as workers:
        workers.missing = told["missing"]
        workers.versions = told["versions"]
        for case in workloads.cases(name, options.small):
            if chosen(case.name):
                yield _measure(name, case, workers)


def _measure(workload: str, case: Case, workers: Workers) -> Row:
    row = Row(
        workload, case.name, tolerance=case.tolerance, flops=case.flops,
        moved=case.moved, series=case.series,
    )  # fmt: skip
    for launch in range(case.launches):
        if launch:
            workers.close()
        _launch(workload, case, row, workers)
    return row


def _launch(workload: str, case: Case, row: Row, workers: Workers) -> None:
    """Build the case and time it, all rounds in the same processes."""
    with tempfile.TemporaryDirectory() as folder:
        calls = _build(workload, case, row, workers, pathlib.Path(folder))
        _compare(row, pathlib.Path(folder))
    for number in range(-1, workers.options.rounds):  # the first is not counted
        for framework in _rotated(list(calls), number):
            _round(row, framework, calls, workers, counted=number >= 0)


def _rotated(names: list[str], by: int) -> list[str]:
    """None of them always comes first."""
    by %= max(len(names), 1)
    return names[by:] + names[:by]


def _build(
    workload: str, case: Case, row: Row, workers: Workers, folder: pathlib.Path
) -> dict[str, int]:
    """Build the case everywhere: how many calls a round has in each framework."""
    options, calls = workers.options, {}
    for framework in filter(case.runs_in, options.pythons):
        measured = row.measured.setdefault(framework, Measured())
        if measured.error:
            continue
        try:
            said = workers.get(framework).ask(
                options.timeout, do="build", workload=workload, case=case.name,
                small=options.small, outputs=str(folder / f"{framework}.npz"),
            )  # fmt: skip
        except WorkerError as error:
            measured.error, measured.times = str(error), []
            continue
        measured.note(said)
        calls[framework] = max(1, round(options.seconds / said["call"]))
    return calls


def _round(
    row: Row, framework: str, calls: dict[str, int], workers: Workers, counted: bool
) -> None:
    measured = row.measured[framework]
    if measured.error:
        return
    time.sleep(PAUSE)
    try:
        said = workers.get(framework).ask(
            workers.options.timeout, do="time", calls=calls[framework]
        )
    except WorkerError as error:
        measured.error, measured.times = str(error), []
        return
    if counted:
        measured.times.append(said["seconds"])


# -- comparing


def _compare(row: Row, folder: pathlib.Path) -> None:
    """How far each framework's results are from those of one of them."""
    there = {name for name, m in row.measured.items() if not m.error}
    row.reference = next((name for name in REFERENCES if name in there), "")
    if not row.reference:
        return
    want = _arrays(folder / f"{row.reference}.npz")
    for name in there - {row.reference}:
        measured = row.measured[name]
        found = difference(_arrays(folder / f"{name}.npz"), want)
        measured.difference = max(found, measured.difference or 0.0)
        measured.agrees = measured.difference <= (row.tolerance or 0.0)


def _arrays(path: pathlib.Path) -> list[np.ndarray]:
    with np.load(path) as file:
        return [file[name] for name in file.files]


def difference(got: list[np.ndarray], want: list[np.ndarray]) -> float:
    """The largest difference, relative to the largest number of each array.

    >>> difference([np.array([1.0, 2.0])], [np.array([1.0, 4.0])])
    0.5
    >>> difference([np.array([1.0, float("nan")])], [np.array([1.0, 4.0])])
    inf
    """
    if [a.shape for a in got] != [a.shape for a in want]:
        return float("inf")
    worst = 0.0
    for a, b in zip(got, want, strict=True):
        scale = float(np.abs(b).max(initial=0.0)) or 1.0
        far = float(np.abs(a.astype(float) - b).max(initial=0.0)) / scale
        worst = max(worst, far if np.isfinite(far) else float("inf"))
    return worst
