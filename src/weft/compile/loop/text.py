"""Kernels as text."""

from __future__ import annotations

from typing import Any

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
    Store,
    When,
)

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=", "eq": "==", "ne": "!=", "logical_and": "and", "logical_or": "or",
}  # fmt: skip


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
            note = f", {stmt.vector} at once" if stmt.vector else ""
            lines.append(f"{indent}for {stmt.var} < {stmt.extent}{note}:")
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
    if value.name in _INFIX and len(args) == 2:
        return f"({args[0]} {_INFIX[value.name]} {args[1]})"
    if value.name == "cast":
        return f"{value.dtype.name}({args[0]})"
    return f"{value.name}({', '.join(args)})"
