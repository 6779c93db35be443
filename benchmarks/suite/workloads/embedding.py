"""Embeddings: looking rows up in a table of 50257 x 768, and the table's gradient."""

from __future__ import annotations

from typing import Any

from benchmarks.suite import data, flops
from benchmarks.suite.case import Case, Lib, Run


def cases(small: bool) -> list[Case]:
    count, width, tokens = (100, 16, 32) if small else (50257, 768, 8192)
    table = data.normal("table", count, width)
    ids, rows = data.integers("ids", count, tokens), data.normal("rows", tokens, width)

    def lookup(lib: Lib) -> Run:
        run = lib.function(lambda ids, table: lib.embedding(ids, table))
        inputs = lib.array(ids), lib.array(table)
        return Run(lambda: run(*inputs))

    def gradient(lib: Lib) -> Run:
        def scattered(ids: Any, rows: Any) -> Any:
            return lib.scattered(ids, rows, count)

        run = lib.function(scattered)
        inputs = lib.array(ids), lib.array(rows)
        return Run(lambda: run(*inputs))

    looked, made = 2 * rows.size, count * width + 2 * rows.size
    return [
        Case(
            name=f"{tokens} rows, forward", build=lookup, eager=True,
            moved=float(flops.BYTES * looked),
        ),
        Case(
            name=f"{tokens} rows, gradient", build=gradient, eager=True,
            moved=float(flops.BYTES * made),
        ),
    ]  # fmt: skip
