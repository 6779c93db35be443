"""The source of a kernel: its function as a syntax tree, with names and lines."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from weft.errors import ArgumentError


class KernelError(ArgumentError):
    """A kernel that is not in the language of kernels; the message has the line."""


class Source:
    """A Python function: its tree, and what the names in it mean outside of it."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        if not inspect.isfunction(fn):
            raise ArgumentError(
                f"kernel: expected a Python function, got {type(fn).__name__}"
            )
        self.fn, self.name = fn, fn.__name__
        try:
            lines, first = inspect.getsourcelines(fn)
        except (OSError, TypeError):
            raise ArgumentError(
                f"kernel: the source of {fn.__name__} was not found; a kernel is read "
                "from its file, so define it in one (or in a notebook's cell)"
            ) from None
        self.text = textwrap.dedent("".join(lines))
        self.lines, self.first = self.text.splitlines(), max(first, 1)
        try:
            (tree,) = ast.parse(self.text).body
        except (SyntaxError, ValueError):
            tree = ast.Pass()
        if not isinstance(tree, ast.FunctionDef):
            raise ArgumentError(
                f"kernel: expected a function that is written with def, got {fn}"
            )
        self.tree = tree
        self.outside = {**fn.__globals__, **_closed_over(fn)}
        self.arguments = self._arguments()

    def _arguments(self) -> tuple[str, ...]:
        args = self.tree.args
        extra = [*args.posonlyargs, *args.kwonlyargs, args.vararg, args.kwarg]
        if any(extra) or args.defaults:
            raise self.error(
                self.tree, "expected plain parameters, without defaults or stars"
            )
        return tuple(arg.arg for arg in args.args)

    def place(self, tree: Any) -> str:
        """The line of a part of the source, as ``file:line, in name`` and its text."""
        line = getattr(tree, "lineno", 1)
        file = self.fn.__code__.co_filename
        text = self.lines[line - 1].strip() if line <= len(self.lines) else ""
        return f"{file}:{self.first + line - 1}, in {self.name}\n    {text}"

    def error(self, tree: Any, what: str) -> KernelError:
        """An error at a part of the source."""
        return KernelError(f"kernel {self.name}: {what}\n  {self.place(tree)}")

    def meaning(self, tree: ast.expr) -> Any:
        """The object that a name, or an attribute of one, is outside of the kernel."""
        if isinstance(tree, ast.Name):
            if tree.id in self.outside:
                return self.outside[tree.id]
            builtins = self.outside.get("__builtins__", {})
            table = builtins if isinstance(builtins, dict) else vars(builtins)
            if tree.id in table:
                return table[tree.id]
            raise self.error(tree, f"{tree.id} is not set here")
        if isinstance(tree, ast.Attribute):
            owner = self.meaning(tree.value)
            if not hasattr(owner, tree.attr):
                raise self.error(tree, f"{ast.unparse(tree)} does not exist")
            return getattr(owner, tree.attr)
        raise self.error(tree, f"expected a name, got {ast.unparse(tree)}")


def _closed_over(fn: Any) -> dict[str, Any]:
    found = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # it gets its value later
            continue
    return found
