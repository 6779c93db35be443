"""Kernels as text."""

from __future__ import annotations

from typing import Any

from weft.compile.loop.ir import (
    Const,
    For,
    Kernel,
    Load,
    Local,
    Position,
    Set,
    Store,
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
            lines.append(f"{indent}for {stmt.var} < {stmt.extent}:")
            _body(stmt.body, indent + "  ", lines)
        elif isinstance(stmt, Set):
            note = "  # in any order" if stmt.reorder else ""
            lines.append(f"{indent}{stmt.local.name} = {value_text(stmt.value)}{note}")
        elif isinstance(stmt, Store):
            place = _place(stmt.buffer.name, stmt.at)
            lines.append(f"{indent}{place} = {value_text(stmt.value)}")


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
    args = [value_text(a) for a in value.args]
    if value.name in _INFIX and len(args) == 2:
        return f"({args[0]} {_INFIX[value.name]} {args[1]})"
    if value.name == "cast":
        return f"{value.dtype.name}({args[0]})"
    return f"{value.name}({', '.join(args)})"
