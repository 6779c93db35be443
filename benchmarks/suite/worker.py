"""A process with one framework, asked by lines of JSON for one thing at a time.

    {"do": "start", "framework": ...}               -> {"version": ...}
    {"do": "build", "workload": ..., "case": ...,
     "small": ..., "outputs": FILE}                 -> {"first": s, "call": s, ...}
    {"do": "time", "calls": n}                      -> {"seconds": s of each call}
    {"do": "machine"}                               -> limits, as Weft measures them

An error is answered as ``{"error": text}``. Results of the first calls are written to
a NumPy file, so that they can be compared in full.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.suite import libs, resident, workloads
from benchmarks.suite.case import Case, Run

GUESSED = 0.05  # seconds of calls from which the time of one is guessed


class Worker:
    """The framework and the case that is built in it."""

    def __init__(self) -> None:
        self.lib: Any = None
        self.run: Run | None = None

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        kinds: dict[str, Callable[..., dict[str, Any]]] = {
            "start": self.start, "build": self.build, "time": self.time,
            "machine": self.machine,
        }  # fmt: skip
        return kinds[asked.pop("do")](**asked)

    def start(self, framework: str) -> dict[str, Any]:
        self.lib = libs.load(framework)
        return {"version": self.lib.version, "python": sys.version.split()[0]}

    def build(
        self, workload: str, case: str, small: bool, outputs: str
    ) -> dict[str, Any]:
        """Build, compile and run a case; what it computed goes into the file."""
        self.run = None
        found = _find(workload, case, small)
        before = resident.settled()
        self.run = run = found.build(self.lib)
        first, results = self._first_calls(run, found.calls)
        _save(outputs, self._arrays(run, results))
        del results
        said = {"first": first, "call": self._guess(run.call)}
        if found.memory:
            said["process"] = self._peak(run.call)
            said["memory"] = said["process"] - before
        return said

    def _first_calls(self, run: Run, calls: int) -> tuple[float, list[Any]]:
        """Seconds of the first, which compiles, and the results of all."""
        start = time.perf_counter()
        results = [self.lib.keep(run.call())]
        self.lib.wait(results)
        first = time.perf_counter() - start
        for _ in range(calls - 1):
            results.append(self.lib.keep(run.call()))
        return first, results

    def _arrays(self, run: Run, results: list[Any]) -> list[np.ndarray]:
        if run.outputs:
            return run.outputs(results)
        flat = [
            part
            for result in results
            for part in (result if isinstance(result, tuple | list) else [result])
        ]
        return [self.lib.numpy(part) for part in flat]

    def _guess(self, call: Callable[[], Any]) -> float:
        calls, start = 0, time.perf_counter()
        while (passed := time.perf_counter() - start) < GUESSED:
            self.lib.wait(call())
            calls += 1
        return passed / calls

    def _peak(self, call: Callable[[], Any]) -> int:
        resident.settled()
        resident.forget_peak()
        for _ in range(2):
            self.lib.wait(call())
        return resident.peak()

    def time(self, calls: int) -> dict[str, Any]:
        """One timed round."""
        assert self.run is not None
        call, result = self.run.call, None
        gc.collect()
        gc.disable()
        start = time.perf_counter()
        for _ in range(calls):
            result = call()
        self.lib.wait(result)
        passed = time.perf_counter() - start
        gc.enable()
        return {"seconds": passed / calls}

    def machine(self) -> dict[str, Any]:
        found = self.lib.machine()
        return {
            "threads": found.threads, "bandwidth": found.bandwidth, "peak": found.peak
        }  # fmt: skip


def _find(workload: str, name: str, small: bool) -> Case:
    (found,) = [c for c in workloads.cases(workload, small) if c.name == name]
    return found


def _save(path: str, arrays: list[np.ndarray]) -> None:
    np.savez(path, *arrays)


def _reason(error: Exception) -> str:
    """The kind and the first line, which is what a table has room for."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what frameworks print must not mix with the answers
    worker = Worker()
    for line in sys.stdin:
        try:
            said = worker.answer(json.loads(line))
        except Exception as error:
            said = {"error": _reason(error)}
        print(json.dumps(said), file=answers, flush=True)


if __name__ == "__main__":
    main()
