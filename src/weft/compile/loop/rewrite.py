"""Kernels with some of their indices changed.

``substitute`` works on an index, ``replaced_value`` on a value and ``replaced`` on a
statement; what values share stays shared.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

from weft.compile.loop.ir import (
    Buffer,
    Call,
    Choice,
    For,
    Kernel,
    Let,
    Load,
    Position,
    Store,
    When,
    statements,
    subvalues,
    values_of,
)
from weft.core.size import Size, larger, smaller


def replaced(stmt: Any, name: str, index: Any, memo: dict[int, Any]) -> Any:
    """A statement with a loop variable replaced by an expression."""
    swap: Callable[[Any], Any] = functools.partial(substitute, name=name, by=index)
    if isinstance(stmt, (For, When)):
        body = [replaced(s, name, index, memo) for s in stmt.body]
        stmt = stmt._replace(body=body)
    if isinstance(stmt, For):
        return stmt._replace(extent=swap(stmt.extent))
    if isinstance(stmt, When):
        condition = replaced_value(stmt.condition, name, index, memo)
        return stmt._replace(condition=condition)
    if isinstance(stmt, Store):
        stmt = stmt._replace(at=tuple(map(swap, stmt.at)))
    return stmt._replace(value=replaced_value(stmt.value, name, index, memo))


def replaced_value(value: Any, name: str, index: Any, memo: dict[int, Any]) -> Any:
    """A value with a loop variable replaced by an expression."""
    swap: Callable[[Any], Any] = functools.partial(substitute, name=name, by=index)

    def recurse(v: Any) -> Any:
        return replaced_value(v, name, index, memo)

    if isinstance(value, Load):
        return Load(value.buffer, tuple(map(swap, value.at)))
    if isinstance(value, Position):
        return Position(swap(value.at), value.dtype)
    if isinstance(value, Choice):
        at, bound = swap(value.at), swap(value.bound)
        return Choice(at, bound, recurse(value.low), recurse(value.high))
    if isinstance(value, Call):
        found = memo.get(id(value))
        if found is None:
            args = tuple(map(recurse, value.args))
            found = memo[id(value)] = Call(value.name, args, value.dtype)
        return found
    return value


_APPLIED: dict[str, Callable[[Any, Any], Any]] = {
    "//": operator.floordiv,
    "%": operator.mod,
    "/": operator.truediv,
    "max": larger,
    "min": smaller,
}


def substitute(size: Any, *, name: str, by: Any) -> Any:
    """An index with a symbol replaced."""
    if not isinstance(size, Size) or name not in size.symbols:
        return size
    total: Any = 0
    for atoms, factor in size.terms:
        term: Any = factor
        for atom in atoms:
            if atom.a is None:
                one: Any = (
                    by if atom.kind == name else Size(((atom,), 1), scope=size.scope)
                )
            else:
                a, b = (substitute(p, name=name, by=by) for p in (atom.a, atom.b))
                one = _APPLIED[atom.kind](a, b)
            term = term * one
        total = total + term
    return total


# -- loops and buffers


def changed(
    body: list[Any], var: str, change: Callable[[For], list[Any]]
) -> list[Any] | None:
    """Statements with every loop over a variable changed; None if there is none."""
    stmts: list[Any] = []
    any_changed = False
    for stmt in body:
        if isinstance(stmt, For) and stmt.var == var:
            stmts += change(stmt)
            any_changed = True
            continue
        if isinstance(stmt, (For, When)):
            inner = changed(stmt.body, var, change)
            if inner is not None:
                stmt = stmt._replace(body=inner)
                any_changed = True
        stmts.append(stmt)
    return stmts if any_changed else None


def indices_of(kernel: Kernel) -> Iterator[Any]:
    """All index expressions of a kernel's body."""
    stmts = list(statements(kernel.body))
    for stmt in stmts:
        if isinstance(stmt, For):
            yield stmt.extent
        elif isinstance(stmt, Let):
            yield stmt.limit
        elif isinstance(stmt, Store):
            yield from stmt.at
    for value in subvalues(v for stmt in stmts for v in values_of(stmt)):
        if isinstance(value, Load):
            yield from value.at
        elif isinstance(value, Position):
            yield value.at
        elif isinstance(value, Choice):
            yield from (value.at, value.bound)


def with_accesses(
    body: list[Any], change: Callable[[Buffer, tuple[Any, ...]], Any]
) -> list[Any]:
    """Statements with other buffers and indices, as ``change(buffer, index)`` says."""
    memo: dict[int, Any] = {}

    def loaded(value: Any) -> Any:
        if not isinstance(value, Load):
            return value
        return Load(*change(value.buffer, value.at))

    def one(stmt: Any) -> Any:
        if isinstance(stmt, (For, When)):
            stmt = stmt._replace(body=[one(s) for s in stmt.body])
        if isinstance(stmt, For):
            return stmt
        if isinstance(stmt, When):
            return stmt._replace(condition=mapped_value(stmt.condition, loaded, memo))
        stmt = stmt._replace(value=mapped_value(stmt.value, loaded, memo))
        if isinstance(stmt, Store):
            buffer, at = change(stmt.buffer, stmt.at)
            stmt = stmt._replace(buffer=buffer, at=at)
        return stmt

    return [one(stmt) for stmt in body]


def merged_axes(kernel: Kernel, outer: str, inner: str) -> Kernel:
    """Buffers in which the axes that two variables run over are one axis.

    x: float32[4, 8], x[i, j]   →   x: float32[32], x[8*i + j]
    """
    spans: dict[str, tuple[int, int]] = {}
    for buffer, at in uses(kernel.body):
        axes = [d for d, index in enumerate(at) if _mentions(index, outer, inner)]
        if axes:
            first, last = spans.get(buffer.name, (axes[0], axes[-1]))
            spans[buffer.name] = min(first, axes[0]), max(last, axes[-1])

    def one(parts: tuple[Any, ...], shape: Any, span: tuple[int, int]) -> Any:
        first, last = span
        total: Any = 0
        for d in range(first, last + 1):
            total = total * shape[d] + parts[d]
        return (*parts[:first], total, *parts[last + 1 :])

    def merged(buffer: Buffer) -> Buffer:
        first, last = spans.get(buffer.name, (0, 0))
        if first == last:
            return buffer
        size = math.prod(buffer.shape[first : last + 1])
        shape = (*buffer.shape[:first], size, *buffer.shape[last + 1 :])
        return buffer._replace(shape=shape)

    def change(buffer: Buffer, at: tuple[Any, ...]) -> Any:
        span = spans.get(buffer.name, (0, 0))
        if span[0] == span[1]:
            return buffer, at
        return merged(buffer), one(at, buffer.shape, span)

    return kernel._replace(
        buffers=tuple(map(merged, kernel.buffers)),
        scratch=tuple(map(merged, kernel.scratch)),
        body=with_accesses(kernel.body, change),
    )


def _mentions(index: Any, *names: str) -> bool:
    return isinstance(index, Size) and bool(index.symbols & set(names))


def uses(body: list[Any]) -> Iterator[tuple[Buffer, tuple[Any, ...]]]:
    """The buffers and indices of all loads and stores."""
    found = list(statements(body))
    for stmt in found:
        if isinstance(stmt, Store):
            yield stmt.buffer, stmt.at
    for value in subvalues(v for stmt in found for v in values_of(stmt)):
        if isinstance(value, Load):
            yield value.buffer, value.at


# -- values inside statements


def mapped(stmt: Any, change: Callable[[Any], Any], memo: dict[int, Any]) -> Any:
    """A statement with every value changed, from the outside in."""
    if isinstance(stmt, (For, When)):
        body = [mapped(s, change, memo) for s in stmt.body]
        stmt = stmt._replace(body=body)
    if isinstance(stmt, When):
        return stmt._replace(condition=mapped_value(stmt.condition, change, memo))
    if isinstance(stmt, For):
        return stmt
    return stmt._replace(value=mapped_value(stmt.value, change, memo))


def mapped_value(value: Any, change: Callable[[Any], Any], memo: dict[int, Any]) -> Any:
    """A value changed, and then its operands; shared values stay shared."""
    original = value
    found = memo.get(id(original))
    if found is not None:
        return found[1]
    new = change(value)
    while isinstance(new, Choice) and new is not value:
        value, new = new, change(new)
    if isinstance(new, Choice):
        parts = [mapped_value(v, change, memo) for v in (new.low, new.high)]
        new = new._replace(low=parts[0], high=parts[1])
    elif isinstance(new, Call):
        args = tuple(mapped_value(a, change, memo) for a in new.args)
        if any(a is not b for a, b in zip(args, new.args, strict=True)):
            new = Call(new.name, args, new.dtype)
    memo[id(original)] = (original, new)  # what was given is held: its id stays its own
    return new
