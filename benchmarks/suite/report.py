"""A whole run as text and as a file."""

from __future__ import annotations

import json
import pathlib
from dataclasses import dataclass, field
from typing import Any

from benchmarks.suite import table
from benchmarks.suite.picture import picture
from benchmarks.suite.results import Row, as_json, from_json

HOW = """\
Each framework runs in a process of its own and is asked in turn for one timed round, on
the same data and from the same weights; training steps in three processes, one after
the other. A cell is the median over rounds and half the range of their middle half. The
last columns are how many times Weft's time the fastest peer takes (above 1: Weft is
faster), and the time below which no implementation can come: operations by formula over
the machine's multiply-add rate, or bytes that must be moved over its bandwidth,
whichever takes longer, with its share of Weft's time.
`docs/benchmarks.md` says more."""


@dataclass
class Report:
    """Everything that a run found."""

    date: str
    facts: dict[str, str]  # of the machine and the run
    titles: dict[str, str]
    rows: list[Row] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def sections(self) -> list[tuple[str, list[Row]]]:
        names = dict.fromkeys(row.workload for row in self.rows)
        return [
            (self.titles.get(name, name), [r for r in self.rows if r.workload == name])
            for name in names
        ]

    def text(self) -> str:
        """For a terminal: what is known at the end of a run."""
        parts = [table.text(t) for t in self._closing()]
        parts += (
            ["Not measured:\n  " + "\n  ".join(lost)] if (lost := self.lost) else []
        )
        return "\n\n".join(parts)

    @property
    def lost(self) -> list[str]:
        return table.failures(self.rows, self.missing)

    def _closing(self) -> list[table.Table]:
        """Tables over all workloads."""
        made = [
            *table.series(self.rows), table.memory(self.rows),
            table.process(self.rows), table.summary(self.rows, self.titles),
        ]  # fmt: skip
        return [one for one in made if len(one) > 1]

    def markdown(self, drawn: str) -> str:
        """The file; ``drawn`` is where the picture lies."""
        parts = ["# Results", f"{self.date}.", HOW, _list(self.facts)]
        shown = {table.SHOWN[n]: v for n, v in self.versions.items()}
        parts += ["Versions:", _list(shown)]
        if self.lost:
            parts += ["Not measured:", "\n".join(f"- {line}" for line in self.lost)]
        parts += [table.markdown(table.summary(self.rows, self.titles))]
        parts += [f"![Times in units of Weft's]({drawn})"]
        for title, rows in self.sections():
            parts += [f"## {title}", table.markdown(table.times(rows))]
            parts += [text] if (text := table.compared(rows)) else []
        parts += self._appendix()
        return "\n\n".join(parts) + "\n"

    def _appendix(self) -> list[str]:
        parts = ["## How time grows", *map(table.markdown, table.series(self.rows))]
        parts = parts if len(parts) > 1 else []
        for title, made, what in (
            ("Memory", table.memory(self.rows), table.memory.__doc__),
            ("Whole processes", table.process(self.rows), table.process.__doc__),
            ("First calls", table.first_calls(self.rows), table.first_calls.__doc__),
        ):
            if len(made) > 1:
                parts += [f"## {title}", str(what), table.markdown(made)]
        return parts

    # -- files

    def write(self, folder: pathlib.Path) -> list[pathlib.Path]:
        """``RESULTS.md``, its picture, and every number as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        names = [folder / n for n in ("RESULTS.md", "results.svg", "results.json")]
        contents = [
            self.markdown("results.svg"), picture(self.rows, self.titles), self.json()
        ]  # fmt: skip
        for path, content in zip(names, contents, strict=True):
            path.write_text(content)
        return names

    def json(self) -> str:
        fields = {**vars(self), "rows": as_json(self.rows)}
        return json.dumps(fields, indent=1) + "\n"

    @staticmethod
    def read(text: str) -> Report:
        """The report that ``json`` wrote."""
        fields: dict[str, Any] = json.loads(text)
        return Report(**{**fields, "rows": from_json(fields["rows"])})


def _list(facts: dict[str, str]) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in facts.items())


def section(title: str, rows: list[Row]) -> str:
    """A workload, for a terminal."""
    parts = [title, table.text(table.times(rows)), table.compared(rows)]
    return "\n".join(part for part in parts if part) + "\n"
