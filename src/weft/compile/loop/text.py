"""Kernels as text."""

from __future__ import annotations

from typing import Any

from weft.compile.loop.ir import (
    Buffer,
    Call,
    Choice,
    Const,
    For,
    Kernel,
    Let,
    Load,
    Local,
    Position,
    Set,
    Store,
    When,
    facts_of,
)
from weft.dtype import DType


def print_kernel(kernel: Kernel) -> str:
    """The kernel as text that reads as a program."""
    args = ", ".join(map(str, kernel.buffers))
    lines = [f"kernel {kernel.name}({args})"]
    lines += [f"  scratch {buffer}" for buffer in kernel.scratch]
    lines += [f"  {made} in the place of {given}" for given, made in kernel.shared]
    indent = "  "
    if kernel.parallel:
        loops = ", ".join(f"{v} < {n}" for v, n in kernel.parallel)
        lines.append(f"  parallel {loops}:")
        indent = "    "
    _body(kernel.body, indent, lines)
    return "\n".join(lines)


def _body(body: list[Any], indent: str, lines: list[str]) -> None:
    for stmt in body:
        if isinstance(stmt, For):
            lines.append(f"{indent}for {stmt.var} < {stmt.extent}{_how(stmt)}:")
            _body(stmt.body, indent + "  ", lines)
        elif isinstance(stmt, Set):
            note = "  # in any order" if stmt.reorder else ""
            lines.append(f"{indent}{stmt.local.name} = {value_text(stmt.value)}{note}")
        elif isinstance(stmt, Store):
            place = _place(stmt.buffer.name, stmt.at)
            lines.append(f"{indent}{place} = {value_text(stmt.value)}")
        elif isinstance(stmt, Let):
            note = ", from the end if negative" if stmt.wrap else ""
            value = value_text(stmt.value)
            word = "below" if stmt.sure else "within"
            lines.append(f"{indent}{stmt.var} = {value} {word} {stmt.limit}{note}")
        elif isinstance(stmt, When):
            lines.append(f"{indent}when {value_text(stmt.condition)}:")
            _body(stmt.body, indent + "  ", lines)


def _how(loop: For) -> str:
    """How a loop runs, as far as a schedule has said so."""
    notes = [f", {loop.vector} at once"] if loop.vector else []
    notes += [f", {loop.totals} totals"] if loop.totals else []
    notes += [f", streaming {', '.join(loop.streaming)}"] if loop.streaming else []
    notes += [", in registers"] if loop.in_registers else []
    return "".join(notes)


def _place(name: str, index: tuple[Any, ...]) -> str:
    return f"{name}[{', '.join(map(str, index))}]"


def value_text(value: Any) -> str:
    """A value as text."""
    if isinstance(value, Const):
        return str(value.value)
    if isinstance(value, Position):
        return f"({value.at})"
    if isinstance(value, Load):
        return _place(value.buffer.name, value.at)
    if isinstance(value, Local):
        return value.name
    if isinstance(value, Choice):
        low, high = value_text(value.low), value_text(value.high)
        return f"({value.at} < {value.bound} ? {low} : {high})"
    args = [value_text(a) for a in value.args]
    infix = facts_of(value.name).infix
    if infix:
        return f"({args[0]} {infix} {args[1]})"
    if value.name == "cast":
        return f"{value.dtype.name}({args[0]})"
    return f"{value.name}({', '.join(args)})"


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
