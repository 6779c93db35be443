"""An interpreter of kernels, one element at a time: slow, and obviously right.

The oracle that generated code is compared with. Scalar functions are the operators'
own evaluations.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft.compile.emit.sort_keys import NUMBERS
from weft.compile.loop.ir import (
    Choice,
    Const,
    For,
    Kernel,
    Let,
    Load,
    Local,
    Position,
    Set,
    When,
    sums_of,
)
from weft.core.op import find_op
from weft.core.size import evaluate
from weft.dtype import DType


def run_kernel(
    kernel: Kernel, arrays: list[np.ndarray], sizes: Mapping[str, int]
) -> None:
    """Run all iterations; arrays (in the order of the buffers) are changed in place.

    An index outside its limits raises IndexError.
    """
    symbols: dict[str, Any] = dict(sizes)
    symbols.update((name, evaluate(n, sizes)) for name, n in kernel.given)
    memory = {
        b.name: _memory(a, [evaluate(n, symbols) for n in b.shape])
        for b, a in zip(kernel.buffers, arrays, strict=True)
    }
    for buffer in kernel.scratch:
        shape = [evaluate(n, symbols) for n in buffer.shape]
        memory[buffer.name] = np.zeros(shape, buffer.dtype.np)
    extents = [range(evaluate(n, symbols)) for _, n in kernel.parallel]
    names = [name for name, _ in kernel.parallel]
    with np.errstate(all="ignore"):
        for position in itertools.product(*extents):
            _Run(memory, {**symbols, **dict(zip(names, position, strict=True))}).body(
                kernel.body
            )


def _memory(array: np.ndarray, shape: list[int]) -> np.ndarray:
    """An array in a buffer's shape; memory behind it is not the kernel's."""
    size = math.prod(shape)
    return (array if array.size == size else array.reshape(-1)[:size]).reshape(shape)


class _Run:
    """One iteration of the parallel loops."""

    def __init__(self, memory: dict[str, Any], symbols: dict[str, int]) -> None:
        self.memory = memory
        self.symbols = symbols
        self.locals: dict[str, Any] = {}

    def body(self, body: list[Any]) -> None:
        for stmt in body:
            if isinstance(stmt, For):
                self.loop(stmt)
            elif isinstance(stmt, Set):
                self.locals[stmt.local.name] = self.value(stmt.value)
            elif isinstance(stmt, Let):
                self.symbols[stmt.var] = self.checked(stmt)
            elif isinstance(stmt, When):
                if self.value(stmt.condition):
                    self.body(stmt.body)
            else:
                self.memory[stmt.buffer.name][self.index(stmt.at)] = self.value(
                    stmt.value
                )

    def loop(self, stmt: For) -> None:
        sums = sums_of(stmt) if stmt.totals else []
        starts = {local: self.locals[local.name] for local in sums}
        totals = {local: [local.dtype.np.type(0)] * stmt.totals for local in sums}
        for i in range(evaluate(stmt.extent, self.symbols)):
            self.symbols[stmt.var] = i
            for local, each in totals.items():
                self.locals[local.name] = each[i % stmt.totals]
            self.body(stmt.body)
            for local, each in totals.items():
                each[i % stmt.totals] = self.locals[local.name]
        for local, each in totals.items():
            while len(each) > 1:
                half = len(each) // 2
                each = [a + b for a, b in zip(each[:half], each[half:], strict=True)]
            self.locals[local.name] = starts[local] + each[0]

    def checked(self, stmt: Let) -> int:
        limit = evaluate(stmt.limit, self.symbols)
        value = int(self.value(stmt.value))
        found = value + limit if stmt.wrap and value < 0 else value
        if not 0 <= found < limit:
            raise IndexError(f"index {value} is out of range for {limit} elements")
        return found

    def index(self, at: tuple[Any, ...]) -> tuple[int, ...]:
        found = tuple(evaluate(i, self.symbols) for i in at)
        if any(i < 0 for i in found):
            raise IndexError(f"negative index {found}")
        return found

    def value(self, value: Any) -> Any:
        if isinstance(value, Const):
            return value.dtype.np.type(value.value)
        if isinstance(value, Position):
            return value.dtype.np.type(evaluate(value.at, self.symbols))
        if isinstance(value, Load):
            return self.memory[value.buffer.name][self.index(value.at)]
        if isinstance(value, Local):
            return self.locals[value.name]
        if isinstance(value, Choice):
            below = evaluate(value.at, self.symbols) < evaluate(
                value.bound, self.symbols
            )
            return self.value(value.low if below else value.high)
        args = [np.asarray(self.value(a)) for a in value.args]
        if value.name in _RANDOM:
            return _RANDOM[value.name](*map(int, args), dtype=value.dtype)
        if value.name in NUMBERS:
            return NUMBERS[value.name](*args, dtype=value.dtype)
        if value.name == "cast":
            return args[0].astype(value.dtype.np)[()]
        return np.asarray(find_op(value.name).eval(*args)).astype(value.dtype.np)[()]


# -- functions that are no operators


def _words(seed: int, block: int) -> list[int]:
    from weft.ops.random import random_words

    return [int(w) for w in random_words(seed, block, 4)]


def _word(seed: int, block: int, lane: int, *, dtype: DType) -> Any:
    return np.int64(_words(seed, block)[lane])


def _unit(seed: int, block: int, lane: int, *, dtype: DType) -> Any:
    words = _words(seed, block)
    bits = {"float32": 24, "float16": 11, "bfloat16": 8}.get(dtype.name)
    if bits is not None:
        return dtype.np.type((words[lane] >> (32 - bits)) / 2**bits)
    return np.float64(((words[lane] >> 5) * 2**26 + (words[lane + 1] >> 6)) / 2**53)


def _below(seed: int, block: int, lane: int, span: int, *, dtype: DType) -> Any:
    words = _words(seed, block)
    span %= 1 << 64
    if span <= 1 << 32:
        return np.int64(words[lane] * span >> 32)
    return np.uint64((words[lane] << 32 | words[lane + 1]) % span).astype(np.int64)


_RANDOM: dict[str, Callable[..., Any]] = {
    "random_word": _word,
    "random_unit": _unit,
    "random_below": _below,
}
