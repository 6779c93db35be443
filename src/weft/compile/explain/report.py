"""The report to read in a terminal: the shortest answers first."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from weft.compile.cost.machine import machine
from weft.compile.explain.program import Program
from weft.core.rows import Rows, counted, flop, nbytes, seconds

if TYPE_CHECKING:
    from weft.compile.explain import Explanation

FEW = 8  # rows of a table


def report(about: Explanation) -> str:
    """The report on all programs."""
    if not about.programs:
        return f"{about.name}: not compiled yet; call it once"
    parts = [
        f"{about.name}: {counted(len(about.compilations), 'compilation')}",
        about.compilations.table(FEW),
    ]
    if about.choices:
        parts.append(f"measured choices\n{about.choices.table(FEW)}")
    if about.measured:
        parts.append(f"this machine: {machine()}")
    parts += map(_program, about.programs)
    parts.append(
        "More: .kernels .calls .breaks .passes .stages .memory .traffic of a program "
        "(.programs), .kernels[0].assembly, .html(path)"
    )
    return "\n\n".join(parts)


def headline(program: Program) -> str:
    """A program in one line."""
    parts = [
        f"{counted(_runs(program.kernels), 'run')} of "
        f"{counted(len(program.kernels), 'kernel')}",
        counted(_runs(program.products), "product"),
        counted(_runs(program.calls), "call"),
        flop(program.flops),
        f"arena {nbytes(program.memory.layout.nbytes)}",
    ]
    text = ", ".join(parts)
    return text if program.seconds is None else f"{text}, {seconds(program.seconds)}"


def _runs(works: Rows) -> int:
    return sum(len(work.launches) for work in works)


def _program(program: Program) -> str:
    lines = [f"── {program.title}: {headline(program)}"]
    if program.sizes:
        sizes = ", ".join(f"{k} = {n}" for k, n in program.sizes.items())
        lines.append(f"sizes: {sizes}")
    if program.problem:
        lines.append(f"not measured: {program.problem}")
    lines += ["", program.traffic.table()]
    lines += _table("kernels", program.kernels)
    lines += _table("products and convolutions", program.products)
    lines += _table("calls", program.calls)
    lines += _table(_again(program), program.again)
    lines += _reasons(program)
    lines += ["", "memory: " + str(program.memory).replace("\n", "\n  ")]
    return "\n".join(lines)


def _again(program: Program) -> str:
    """The title of the table of recomputed values, with their share of the work."""
    more = sum(one.flops for one in program.again)
    share = more / max(program.flops - more, 1)
    return f"computed again for backward: {flop(more)}, {share:.0%} more"


def _table(title: str, rows: Rows) -> list[str]:
    return ["", title, rows.table(FEW)] if rows else []


def _reasons(program: Program) -> list[str]:
    """Why kernels end where they do, the most frequent reasons first."""
    counts = Counter(program.lowered.fusion.why.values())
    if not counts:
        return []
    lines = [f"{n:>6,} × {why}" for why, n in counts.most_common(FEW)]
    return ["", "why nodes began another kernel", *lines]
