"""The command: what to run, and where results go."""

from __future__ import annotations

import argparse
import datetime
import os
import pathlib
import sys
from collections.abc import Iterator

from benchmarks.suite import machine, report, workloads
from benchmarks.suite.client import environment, pin
from benchmarks.suite.libs import FRAMEWORKS
from benchmarks.suite.results import Row
from benchmarks.suite.roof import Roof
from benchmarks.suite.run import Options, run_workload

FOLDER = pathlib.Path(__file__).parents[1]
BUSY = 0.5  # load from which times say little


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.suite", description=str(report.__doc__)
    )
    add = parser.add_argument
    add("--only", help=f"some of {', '.join(workloads.ALL)}")
    add("--cases", default="", help="only cases whose name contains this")
    add("--frameworks", default=",".join(FRAMEWORKS), help="which of them, and in turn")
    add("--rounds", type=int, default=7, help="timed rounds of each")
    add("--threads", type=int, default=2)
    add("--seconds", type=float, default=0.1, help="that a round takes at least")
    add("--timeout", type=float, default=600.0, help="seconds to build a case")
    add("--small", action="store_true", help="small sizes, to see that all of it works")
    other = "the interpreter that has torch, jax or tinygrad, if not this one"
    add("--python", action="append", default=[], metavar="LIBRARY=PATH", help=other)
    add("--out", type=pathlib.Path, help="folder for RESULTS.md; a full run has one")
    return parser.parse_args(arguments)


def names(given: str | None, known: tuple[str, ...]) -> list[str]:
    """A list with commas, in the order of those known."""
    if not given:
        return list(known)
    asked = given.split(",")
    for name in asked:
        if name not in known:
            raise SystemExit(f"expected some of {', '.join(known)}, got {name!r}")
    return [name for name in known if name in asked]


def options_of(given: argparse.Namespace) -> Options:
    pythons = dict.fromkeys(("weft", "torch", "jax", "tinygrad"), sys.executable)
    for pair in given.python:
        library, _, path = pair.partition("=")
        if library not in pythons or not path:
            raise SystemExit(f"--python: expected torch=PATH or alike, got {pair!r}")
        pythons[library] = path
    chosen = names(given.frameworks, FRAMEWORKS)
    return Options(
        pythons={name: pythons[name.partition("-")[0]] for name in chosen},
        rounds=given.rounds, threads=given.threads, small=given.small,
        seconds=given.seconds, timeout=given.timeout,
    )  # fmt: skip


def facts(options: Options) -> dict[str, str]:
    """The machine and the run."""
    found = machine.facts()
    found["run"] = (
        f"{options.threads} threads, float32, {options.rounds} rounds of at least "
        f"{options.seconds:g} s"
    )
    found["load before"] = f"{machine.load():.1f}"
    return found


def rows_of(
    name: str, options: Options, made: report.Report, part: str
) -> Iterator[Row]:
    if name in workloads.PROCESSES:
        return workloads.measure(name, options)
    told = {"missing": made.missing, "versions": made.versions}
    return run_workload(name, options, told, lambda case: part in case)


def run(
    name: str, options: Options, made: report.Report, roof: Roof, part: str
) -> None:
    """A workload: its rows go into the report and its table to the terminal."""
    roof.measure()
    rows: list[Row] = []
    for row in rows_of(name, options, made, part):
        rows.append(row)
        print(f"  {row.case}", file=sys.stderr, flush=True)
    made.rows += rows
    roof.limit(made.rows)
    if rows:
        print(report.section(made.titles[name], rows), flush=True)


def main(arguments: list[str] | None = None) -> None:
    given = parsed(arguments)
    chosen = names(given.only, workloads.ALL)
    options = options_of(given)
    pin(options.threads)
    os.environ.update(environment(options.threads, sys.executable))
    found, roof = facts(options), Roof(options)
    print("\n".join(f"{name:12} {value}" for name, value in found.items()) + "\n")
    if machine.load() > BUSY:
        print("Others use this machine too: run it again when it is quiet.\n")
    date = f"{datetime.datetime.now():%Y-%m-%d %H:%M}"
    titles = {name: workloads.title(name) for name in chosen}
    made = report.Report(date, found, titles)
    full = not (given.only or given.cases or given.small)
    folder = given.out or (FOLDER if full else None)
    for done, name in enumerate(chosen, 1):
        run(name, options, made, roof, given.cases)
        found |= {"load after": f"{machine.load():.1f}", "limits": str(roof)}
        found["workloads"] = f"{done} of {len(chosen)}"
        if folder:  # so that a run which is cut short leaves what it has measured
            made.write(folder)
    print(made.text(), f"\n\nlimits: {roof}")
    if folder:
        print("\nwritten:", *made.write(folder))


if __name__ == "__main__":
    main()
