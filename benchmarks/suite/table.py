"""Rows as tables: text for a terminal, Markdown for a file."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.suite.results import Measured, Row, geometric_mean, growth

Table = list[list[str]]  # the first row is the heading

SHOWN = {
    "weft": "Weft", "weft-eager": "Weft eager", "torch": "PyTorch",
    "torch-compile": "torch.compile", "jax": "jax.jit", "tinygrad": "tinygrad",
}  # fmt: skip


def seconds(value: float) -> str:
    """
    >>> seconds(0.00123), seconds(12.3), seconds(4.56e-6)
    ('1.23 ms', '12.3 s', '4.56 µs')
    """
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= scale:
            return f"{value / scale:#.3g}".removesuffix(".") + f" {unit}"
    return f"{value * 1e9:.0f} ns"


def amount(value: float, unit: str) -> str:
    """A number with its unit; seconds and bytes are scaled."""
    if unit == "s":
        return seconds(value)
    return f"{value / 1e6:,.1f} MB"


def spread(m: Measured) -> str:
    """Half the range of the middle half of the rounds, of the median.

    >>> spread(Measured([0.9, 1.0, 1.1]))
    '±5 %'
    """
    low, high = m.quartiles
    return f"±{50 * (high - low) / m.median:.0f} %"


def cell(m: Measured | None, unit: str = "s") -> str:
    """What a table says of a framework: a measurement, or that there is none."""
    if m is None:
        return ""
    if m.error:
        return "failed"
    if not m.times:
        return "not measured"
    text = amount(m.median, unit)
    if len(m.times) > 1:
        text += f" {spread(m)}"
    return text if m.agrees else f"({text}) differs"


def ratio(row: Row) -> str:
    if row.ratio is None:
        return ""
    return f"{row.ratio:.2f} ({SHOWN.get(str(row.fastest_peer), '')})"


def share(row: Row) -> str:
    """The limit, and how much of Weft's time it is."""
    if row.limit is None:
        return ""
    text = seconds(row.limit)
    if row.own is not None:
        text += f", {100 * row.limit / row.measured[row.own].median:.0f} %"
    return text


def frameworks(rows: list[Row]) -> list[str]:
    """Those that were asked, in the order of the report."""
    asked = {name for row in rows for name in row.measured}
    return [name for name in SHOWN if name in asked]


def times(rows: list[Row]) -> Table:
    """One line for each case: medians, spread, ratio, limit."""
    names = frameworks(rows)
    limits = any(row.limit is not None for row in rows)
    heading = ["", *(SHOWN[n] for n in names), "fastest peer / Weft"]
    table = [heading + ["limit, its share"] * limits]
    for row in rows:
        line = [row.case, *(cell(row.measured.get(n), row.unit) for n in names)]
        table.append([*line, ratio(row), *[share(row)] * limits])
    return table


def compared(rows: list[Row]) -> str:
    """With what tolerance all of them agreed, or which did not."""
    checked = [row for row in rows if row.tolerance is not None and row.reference]
    if not checked:
        return ""
    found = [
        (m.difference, SHOWN[name], row)
        for row in checked
        for name, m in row.measured.items()
        if m.difference is not None
    ]
    if not found:
        return "Nothing to compare the results with."
    bad = [(d, who, row) for d, who, row in found if d > (row.tolerance or 0)]
    if bad:
        return " ".join(
            f"{who} differs in {row.case!r} by {d:.1g} (allowed: {row.tolerance:g})."
            for d, who, row in bad
        )
    allowed = sorted({row.tolerance for row in checked if row.tolerance})
    most = max(d for d, _, _ in found)
    return (
        f"All results agree: the largest difference is {most:.1g} "
        f"(allowed: {' or '.join(f'{t:g}' for t in allowed)})."
    )


def memory(rows: list[Row]) -> Table:
    """Peak memory of training steps beyond what the process held before."""
    return _beside(rows, "peak memory of a step", lambda m: m.memory, "B")


def process(rows: list[Row]) -> Table:
    """Peak memory of their processes, with all that importing a framework loads."""
    return _beside(rows, "peak memory of the process", lambda m: m.process, "B")


def first_calls(rows: list[Row]) -> Table:
    """First calls, which trace and compile."""
    return _beside(rows, "first call", lambda m: m.first, "s")


def _beside(
    rows: list[Row], title: str, value: Callable[[Measured], float | None], unit: str
) -> Table:
    names = frameworks(rows)
    table = [[title, *(SHOWN[n] for n in names)]]
    for row in rows:
        found = {n: value(row.measured[n]) for n in names if n in row.measured}
        if any(v is not None for v in found.values()):
            cells = [(found.get(n), n) for n in names]
            line = ["" if v is None else amount(v, unit) for v, _ in cells]
            table.append([row.case, *line])
    return table


def series(rows: list[Row]) -> list[Table]:
    """How time grows: a table for each series, sizes across."""
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        if row.series:
            by_name.setdefault(row.series[0], []).append(row)
    return [_series(name, found) for name, found in by_name.items() if len(found) > 1]


def _series(name: str, rows: list[Row]) -> Table:
    sizes = [row.series[1] for row in rows if row.series]
    table = [[name, *(f"{size:g}" for size in sizes), "grows as n to the"]]
    for framework in frameworks(rows):
        found = [row.measured.get(framework) for row in rows]
        line = [seconds(m.median) if m and m.counts else "" for m in found]
        last = [m.median for m in found[-2:] if m and m.counts]
        power = f"{growth(sizes, last):.1f}" if len(last) == 2 else ""
        table.append([SHOWN[framework], *line, power])
    return table


def summary(rows: list[Row], titles: dict[str, str]) -> Table:
    """For each workload: geometric mean, least and largest ratio."""
    table = [["workload", "cases", "fastest peer / Weft", "from", "to"]]
    for workload in dict.fromkeys(row.workload for row in rows):
        own = [row for row in rows if row.workload == workload]
        found = [row.ratio for row in own if row.ratio is not None]
        line = [titles.get(workload, workload), str(len(found))]
        if found:
            figures = geometric_mean(found), min(found), max(found)
            line += [f"{value:.2f}" for value in figures]
        table.append(line + [""] * (5 - len(line)))
    return table


def failures(rows: list[Row], missing: dict[str, str]) -> list[str]:
    """What could not be measured, and why."""
    lines = [f"{SHOWN[name]}: {reason}" for name, reason in missing.items()]
    for row in rows:
        for name, m in row.measured.items():
            if m.error and name not in missing:
                lines.append(f"{SHOWN[name]}, {row.workload}, {row.case}: {m.error}")
    return lines


# -- writing


def text(table: Table) -> str:
    """
    >>> print(text([["", "a"], ["row", "1"]]))
           a
    row    1
    """
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        cells = [
            c.rjust(w) if k else c.ljust(w)
            for k, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("   ".join(cells).rstrip())
    return "\n".join(lines)


def markdown(table: Table) -> str:
    """
    >>> print(markdown([["", "a"], ["row", "1"]]))
    |  | a |
    |---|---:|
    | row | 1 |
    """
    heading, *rows = [[c.replace("|", "\\|") for c in row] for row in table]
    rule = "|---" + "|---:" * (len(heading) - 1) + "|"
    return "\n".join([_line(heading), rule, *map(_line, rows)])


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
