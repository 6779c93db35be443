"""``weft bench``: how fast a saved program is on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import weft
from weft.core.size import Size
from weft.errors import ArgumentError
from weft.graph.interpret import resolve
from weft.serve.program import Field, Served, read_program

_LEAST = 5  # runs, however long they take


def run(options: Any) -> Iterator[str]:
    """Lines about a program: its inputs, the time to the first answer, and speed.

    ``sizes`` are ``rows=8`` or ``rows=1,8``; an open size that they leave out is 1.
    """
    began = time.perf_counter()
    program = read_program(options.path)
    for field in program.inputs:
        shape = ", ".join(str(n) for n in field.shape)
        yield f"{field.name}: {field.dtype.name}[{shape}]"
    first = True
    head = f"{'sizes':<20}{'median ms':>12}{'p99 ms':>10}{'runs/s':>10}"
    for known in _choices(program, options.sizes):
        arrays = [_array(field, known) for field in program.inputs]
        program(arrays)
        if first:
            took = time.perf_counter() - began
            yield f"first answer after {took:.2f} s; {weft.get_num_threads()} threads"
            yield head
            first = False
        times = _times(program, arrays, options.seconds)
        half, most = times[len(times) // 2], times[int(0.99 * (len(times) - 1))]
        text = " ".join(f"{name}={n}" for name, n in known.items()) or "fixed"
        rate = len(times) / sum(times)
        yield f"{text:<20}{half * 1e3:>12.3f}{most * 1e3:>10.3f}{rate:>10.1f}"


def _times(program: Served, arrays: list[np.ndarray], seconds: float) -> list[float]:
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < _LEAST or time.perf_counter() < end:
        start = time.perf_counter()
        program(arrays)
        times.append(time.perf_counter() - start)
    return sorted(times)


def _choices(program: Served, sizes: Sequence[str]) -> Iterator[dict[str, int]]:
    """Values for the open sizes, one choice after the other."""
    dims = [n for field in program.inputs for n in field.shape]
    open_ = dict.fromkeys(str(n) for n in dims if isinstance(n, Size))
    names = [name for name in open_ if name.isidentifier()]
    given: dict[str, list[int]] = {}
    for text in sizes:
        name, _, values = text.partition("=")
        if name not in names:
            raise ArgumentError(
                f"bench: {text!r} names no open size; there are {names or 'none'}"
            )
        try:
            given[name] = [int(value) for value in values.split(",")]
        except ValueError:
            raise ArgumentError(
                f"bench: expected numbers such as {name}=1,8, got {text!r}"
            ) from None
        if min(given[name]) < 1:
            raise ArgumentError(f"bench: sizes must be positive, got {text!r}")
    for k in range(max([len(values) for values in given.values()], default=1)):
        yield {n: given.get(n, [1])[min(k, len(given.get(n, [1])) - 1)] for n in names}


def _array(field: Field, known: dict[str, int]) -> np.ndarray:
    """Random floats, and zeros for what may be an index, in the chosen sizes."""
    shape = resolve(field.shape, known)
    if not field.dtype.is_floating_point:
        return np.zeros(shape, field.dtype.np)
    return np.random.default_rng(0).standard_normal(shape).astype(field.dtype.np)
