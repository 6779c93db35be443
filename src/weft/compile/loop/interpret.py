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
    Buffer,
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
    combined,
    sums_of,
    thread_of,
)
from weft.compile.lower.values import identity
from weft.core.op import find_op
from weft.core.size import evaluate
from weft.dtype import DType
from weft.graph.ir import GraphError


def run_kernel(
    kernel: Kernel,
    arrays: list[np.ndarray],
    sizes: Mapping[str, int],
    places: Mapping[str, str] | None = None,
) -> None:
    """Run all iterations; arrays (in the order of the buffers) are changed in place.

    An index outside its limits raises IndexError; ``places`` are the source lines of
    index variables, for its message.
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
            here = {**symbols, **dict(zip(names, position, strict=True))}
            _Run(memory, here, places or {}).body(kernel.body)


def _memory(array: np.ndarray, shape: list[int]) -> np.ndarray:
    """An array in a buffer's shape; memory behind it is not the kernel's."""
    size = math.prod(shape)
    return (array if array.size == size else array.reshape(-1)[:size]).reshape(shape)


class _Run:
    """One iteration of the parallel loops."""

    def __init__(
        self,
        memory: dict[str, Any],
        symbols: dict[str, int],
        places: Mapping[str, str],
    ) -> None:
        self.memory = memory
        self.places = places
        self.symbols = symbols
        self.locals: dict[str, Any] = {}
        self.calls: dict[int, Any] = {}  # the values of functions in this body
        self.touched: _Touched | None = None  # in a loop that threads share

    def body(self, body: list[Any]) -> None:
        """Run statements; a function that several of them name is computed once."""
        before, self.calls = self.calls, {}
        for stmt in body:
            self.statement(stmt)
            if isinstance(stmt, (For, When)):
                self.calls.clear()
        self.calls = before

    def statement(self, stmt: Any) -> None:
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
            at, value = self.index(stmt.at), self.value(stmt.value)
            if self.touched is not None:
                self.touched.write(stmt.buffer, at)
            self.memory[stmt.buffer.name][at] = value

    def loop(self, stmt: For) -> None:
        if stmt.threads:
            self.threaded(stmt)
            return
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

    def threaded(self, stmt: For) -> None:
        """A loop whose iterations are shared out to the threads of a block.

        Threads of a block run at once: an element that one of them writes must not be
        another's.
        """
        sets = combined(stmt)
        starts = {s: self.locals[s.local.name] for s in sets}
        partial = {s: [self.value(_identity(s))] * stmt.threads for s in sets}
        before, self.touched = self.touched, _Touched()
        for i in range(evaluate(stmt.extent, self.symbols)):
            thread = thread_of(stmt, i)
            self.symbols[stmt.var] = i
            self.touched.thread = thread
            for s, each in partial.items():
                self.locals[s.local.name] = each[thread]
            self.body(stmt.body)
            for s, each in partial.items():
                each[thread] = self.locals[s.local.name]
        self.touched = before
        for s, each in partial.items():
            while len(each) > 1:
                half = len(each) // 2
                pairs = zip(each[:half], each[half:], strict=True)
                each = [self.call(s.value, pair) for pair in pairs]
            self.locals[s.local.name] = self.call(s.value, (starts[s], each[0]))

    def checked(self, stmt: Let) -> int:
        limit = evaluate(stmt.limit, self.symbols)
        value = int(self.value(stmt.value))
        found = value + limit if stmt.wrap and value < 0 else value
        if not 0 <= found < limit:
            where = f"\n  {self.places[stmt.var]}" if stmt.var in self.places else ""
            raise IndexError(
                f"index {value} is out of range for {limit} elements{where}"
            )
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
            at = self.index(value.at)
            if self.touched is not None:
                self.touched.read(value.buffer, at)
            return self.memory[value.buffer.name][at]
        if isinstance(value, Local):
            return self.locals[value.name]
        if isinstance(value, Choice):
            below = evaluate(value.at, self.symbols) < evaluate(
                value.bound, self.symbols
            )
            return self.value(value.low if below else value.high)
        if id(value) not in self.calls:
            self.calls[id(value)] = self.call(value, map(self.value, value.args))
        return self.calls[id(value)]

    def call(self, value: Any, given: Any) -> Any:
        """A scalar function's value for some arguments."""
        args = [np.asarray(a) for a in given]
        if value.name in _RANDOM:
            return _RANDOM[value.name](*map(int, args), dtype=value.dtype)
        if value.name in NUMBERS:
            return NUMBERS[value.name](*args, dtype=value.dtype)
        if value.name == "cast":
            return args[0].astype(value.dtype.np)[()]
        return np.asarray(find_op(value.name).eval(*args)).astype(value.dtype.np)[()]


class _Touched:
    """The thread that has read or written each element, since the last barrier."""

    def __init__(self) -> None:
        self.thread = 0
        self.writers: dict[Any, int] = {}
        self.readers: dict[Any, int] = {}

    def write(self, buffer: Buffer, at: tuple[int, ...]) -> None:
        key = buffer.name, at
        for table in (self.writers, self.readers):
            if table.setdefault(key, self.thread) != self.thread:
                raise GraphError(f"threads race for {buffer.name}{list(at)}")

    def read(self, buffer: Buffer, at: tuple[int, ...]) -> None:
        key = buffer.name, at
        if self.writers.get(key, self.thread) != self.thread:
            raise GraphError(f"a thread reads {buffer.name}{list(at)}, another writes")
        if self.readers.setdefault(key, self.thread) != self.thread:
            self.readers[key] = -1  # several


def _identity(stmt: Set) -> Const:
    return identity(stmt.value.name, stmt.local.dtype)


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
