"""Kernels as text."""

from __future__ import annotations

import itertools
import re
import textwrap
from typing import Any

from weft.compile.loop.ir import (
    Buffer,
    Call,
    Choice,
    Const,
    For,
    Kernel,
    Load,
    Local,
    Position,
    Set,
    Store,
    When,
    facts_of,
    values_of,
)
from weft.dtype import DType

WIDTH = 88
_TOGETHER = re.compile(r"\[[^\]]*\]|: | in | of |  # .*")


def print_kernel(kernel: Kernel) -> str:
    """The kernel as text that reads as a program.

    A function's value that is used several times is computed once, and has a name.

    >>> from weft.compile.loop.schedule import example
    >>> print(example())
    kernel scale(x: float32[100], y: float32[100])
      for i < 100:
        y[i] = x[i] * 2
    """
    args = ", ".join(map(str, kernel.buffers))
    lines = wrapped(f"kernel {kernel.name}({args})")
    lines += [f"  scratch {buffer}" for buffer in kernel.scratch]
    lines += [f"  {made} in the place of {given}" for given, made in kernel.shared]
    indent = "  "
    if kernel.parallel:
        loops = ", ".join(f"{v} < {n}" for v, n in kernel.parallel)
        lines.append(f"  parallel {loops}:")
        indent = "    "
    _Printer(lines).body(kernel.body, indent)
    return "\n".join(lines)


def wrapped(text: str, indent: str = "") -> list[str]:
    """A line, broken between arguments if it is long."""
    kept = _TOGETHER.sub(lambda found: found[0].replace(" ", "\0"), text)
    whole: Any = {"break_long_words": False, "break_on_hyphens": False}
    later = f"{indent}    "
    lines = textwrap.wrap(
        kept, WIDTH, initial_indent=indent, subsequent_indent=later, **whole
    )
    return [line.replace("\0", " ") for line in lines]


class _Printer:
    """Prints bodies, with a name for each value that a body uses several times."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.number = itertools.count()
        self.names: dict[int, str] = {}  # of the values of the present body
        self.several: set[int] = set()

    def body(self, body: list[Any], indent: str) -> None:
        before = self.names, self.several
        self.names, self.several = {}, _used_again(body)
        for stmt in body:
            for value in values_of(stmt):
                self.define(value, indent)
            self.lines += wrapped(self.statement(stmt), indent)
            if isinstance(stmt, (For, When)):
                self.body(stmt.body, f"{indent}  ")
                self.names = {}  # it may have changed what they are made of
        self.names, self.several = before

    def define(self, value: Any, indent: str) -> None:
        """Lines that name the values that are used again, inner ones first."""
        if isinstance(value, Call) and id(value) not in self.names:
            for arg in value.args:
                self.define(arg, indent)
            if id(value) in self.several:
                name = f"v{next(self.number)}"
                self.lines += wrapped(f"{name} = {self.value(value)}", indent)
                self.names[id(value)] = name

    def statement(self, stmt: Any) -> str:
        """A statement, or the first line of one with a body."""
        if isinstance(stmt, For):
            return f"for {stmt.var} < {stmt.extent}{_how(stmt)}:"
        if isinstance(stmt, When):
            return f"when {self.value(stmt.condition)}:"
        text = self.value(stmt.value)
        if isinstance(stmt, Set):
            return f"{stmt.local.name} = {text}{'  # in any order' * stmt.reorder}"
        if isinstance(stmt, Store):
            return f"{_place(stmt.buffer.name, stmt.at)} = {text}"
        note = ", from the end if negative" if stmt.wrap else ""
        word = "below" if stmt.sure else "within"
        return f"{stmt.var} = {text} {word} {stmt.limit}{note}"

    def value(self, value: Any) -> str:
        """A value as text."""
        if id(value) in self.names:
            return self.names[id(value)]
        if isinstance(value, Const):
            return str(value.value)
        if isinstance(value, Position):
            text = str(value.at)
            return text if text.isidentifier() else f"({text})"
        if isinstance(value, Load):
            return _place(value.buffer.name, value.at)
        if isinstance(value, Local):
            return value.name
        if isinstance(value, Choice):
            low, high = self.value(value.low), self.value(value.high)
            return f"({value.at} < {value.bound} ? {low} : {high})"
        if _is_infix(value):
            left, right = map(self.operand, value.args)
            return f"{left} {facts_of(value.name).infix} {right}"
        args = ", ".join(map(self.value, value.args))
        name = value.dtype.name if value.name == "cast" else value.name
        return f"{name}({args})"

    def operand(self, value: Any) -> str:
        """A value beside an infix operator."""
        named = id(value) in self.names
        text = self.value(value)
        return f"({text})" if _is_infix(value) and not named else text


def _is_infix(value: Any) -> bool:
    return isinstance(value, Call) and bool(facts_of(value.name).infix)


def _used_again(body: list[Any]) -> set[int]:
    """The calls that the statements of a body use more than once.

    What only one side of a choice computes is computed there.
    """
    seen: set[int] = set()
    again: set[int] = set()
    waiting = [value for stmt in body for value in values_of(stmt)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Call):
            waiting += () if id(value) in seen else value.args
            (again if id(value) in seen else seen).add(id(value))
    return again


def _how(loop: For) -> str:
    """How a loop runs, as far as a schedule has said so."""
    notes = [f", {loop.vector} at once"] if loop.vector else []
    notes += [f", {loop.totals} totals"] if loop.totals else []
    notes += [f", streaming {', '.join(loop.streaming)}"] if loop.streaming else []
    notes += [", in registers"] if loop.in_registers else []
    notes += [f", on {loop.threads} threads"] if loop.threads else []
    notes += [f", {loop.times} times each"] if loop.times else []
    notes += [f", looking {loop.ahead} ahead"] if loop.ahead else []
    return "".join(notes)


def _place(name: str, index: tuple[Any, ...]) -> str:
    return f"{name}[{', '.join(map(str, index))}]"


# -- identity


def kernel_key(kernel: Kernel) -> str:
    """Text that is equal for kernels that are the same but for their name.

    Unlike the readable text it has every dtype, and names shared values once. It
    leaves out sizes that each launch gives.

    >>> from weft.compile.loop.schedule import example
    >>> from weft.compile.loop.text import kernel_key
    >>> kernel_key(example()) == kernel_key(example(99))
    False
    """
    keys = _Keys()
    parts = (kernel.buffers, kernel.scratch, kernel.shared, kernel.parallel,
             kernel.positive)  # fmt: skip
    lines = [" ".join(keys.of(part) for part in parts)]
    keys.body(kernel.body, "", lines)
    return "\n".join(lines)


class _Keys:
    """The keys of one kernel's values: those of functions by number."""

    def __init__(self) -> None:
        self.calls: dict[int, str] = {}

    def body(self, body: list[Any], indent: str, lines: list[str]) -> None:
        for stmt in body:
            if isinstance(stmt, (For, When)):
                head = stmt._replace(body=[])
                lines.append(f"{indent}{type(stmt).__name__}{self._fields(head)}")
                self.body(stmt.body, indent + " ", lines)
            else:
                lines.append(f"{indent}{type(stmt).__name__}{self._fields(stmt)}")

    def of(self, value: Any) -> str:
        if isinstance(value, Const):
            return f"{value.value!r}:{value.dtype.name}"
        if isinstance(value, Call):
            return self._call(value)
        if isinstance(value, Buffer):
            return str(value)
        if isinstance(value, tuple):
            return f"{type(value).__name__}{self._fields(value)}"
        return value.name if isinstance(value, DType) else str(value)

    def _fields(self, parts: tuple[Any, ...]) -> str:
        return f"({', '.join(map(self.of, parts))})"

    def _call(self, value: Call) -> str:
        found = self.calls.get(id(value))
        if found is not None:
            return found
        args = self._fields(value.args)
        name = self.calls[id(value)] = f"%{len(self.calls)}"
        return f"{name} = {value.name}:{value.dtype.name}{args}"
