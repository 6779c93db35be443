"""Kernels run one element at a time: slow, and obviously right.

The oracle that generated code is compared with. Scalar functions are the operators'
own evaluations.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.compile.loop.ir import (
    Const,
    For,
    Kernel,
    Load,
    Local,
    Position,
    Set,
)
from weft.core.op import find_op
from weft.core.size import evaluate


def run_kernel(
    kernel: Kernel, arrays: list[np.ndarray], sizes: Mapping[str, int]
) -> None:
    """Run all iterations; arrays (in the order of the buffers) are changed in place."""
    places: dict[str, Any] = dict(sizes)
    places.update((name, evaluate(n, sizes)) for name, n in kernel.given)
    memory = {
        b.name: a.reshape([evaluate(n, places) for n in b.shape])
        for b, a in zip(kernel.buffers, arrays, strict=True)
    }
    for buffer in kernel.scratch:
        shape = [evaluate(n, places) for n in buffer.shape]
        memory[buffer.name] = np.zeros(shape, buffer.dtype.np)
    extents = [range(evaluate(n, places)) for _, n in kernel.parallel]
    names = [name for name, _ in kernel.parallel]
    with np.errstate(all="ignore"):
        for position in itertools.product(*extents):
            _Run(memory, {**places, **dict(zip(names, position, strict=True))}).body(
                kernel.body
            )


class _Run:
    """One iteration of the parallel loops."""

    def __init__(self, memory: dict[str, Any], places: dict[str, int]) -> None:
        self.memory = memory
        self.places = places
        self.locals: dict[str, Any] = {}

    def body(self, body: list[Any]) -> None:
        for stmt in body:
            if isinstance(stmt, For):
                for i in range(evaluate(stmt.extent, self.places)):
                    self.places[stmt.var] = i
                    self.body(stmt.body)
            elif isinstance(stmt, Set):
                self.locals[stmt.local.name] = self.value(stmt.value)
            else:
                self.memory[stmt.buffer.name][self.index(stmt.at)] = self.value(
                    stmt.value
                )

    def index(self, at: tuple[Any, ...]) -> tuple[int, ...]:
        found = tuple(evaluate(i, self.places) for i in at)
        if any(i < 0 for i in found):
            raise IndexError(f"negative index {found}")
        return found

    def value(self, value: Any) -> Any:
        if isinstance(value, Const):
            return value.dtype.np.type(value.value)
        if isinstance(value, Position):
            return value.dtype.np.type(evaluate(value.at, self.places))
        if isinstance(value, Load):
            return self.memory[value.buffer.name][self.index(value.at)]
        if isinstance(value, Local):
            return self.locals[value.name]
        args = [np.asarray(self.value(a)) for a in value.args]
        if value.name == "cast":
            return args[0].astype(value.dtype.np)[()]
        return np.asarray(find_op(value.name).eval(*args)).astype(value.dtype.np)[()]
