"""The source of a function as a syntax tree, and a tree as code for the function."""

from __future__ import annotations
import __future__ as future

import ast
import functools
import inspect
import linecache
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from weft.core import heap
from weft.core.mode import mode
from weft.errors import INTERNAL, is_library
from weft.graph.python_control.rewrite import HELPERS, Impossible, rewritten
from weft.graph.symbol import CaptureError, Refused

# Code objects of different files may be equal, so they are told apart by identity.
_ORIGINALS: dict[int, tuple[CodeType, CodeType]] = {}  # made here, and the original
_KNOWN: dict[
    int, tuple[CodeType, CodeType | None]
] = {}  # original, rewritten if it can
_FUTURE = functools.reduce(
    int.__or__, [getattr(future, n).compiler_flag for n in future.all_feature_names]
)
_LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Rewrite(CaptureError):
    """A refusal after which a capture may begin again, with a function's other code."""

    code: CodeType


def truth_refusal(error: CaptureError, captured_call: CodeType) -> BaseException:
    """The error to raise where Python asks for the truth of a symbol, or its rows."""
    found: CaptureError = error
    code = _function_to_rewrite(sys._getframe(3), captured_call)
    if code is not None:
        found = Rewrite(str(error))
        found.code = code
    assert mode.refusals is not None
    mode.refusals.append(found)
    return Refused(found)


def _function_to_rewrite(frame: Any, captured_call: CodeType) -> CodeType | None:
    """The user's function that asks, or the one that makes it; None if it cannot be."""
    code = frame.f_code
    if INTERNAL[code.co_filename] or is_library(code.co_filename):
        return None
    while frame is not None and frame.f_code is not captured_call:
        if any(inner is code for inner in _inner(frame.f_code)):
            code = frame.f_code  # which makes the function anew in each call
        frame = frame.f_back
    if frame is None or id(code) in _ORIGINALS:
        return None
    return code if _rewritten(code) is not None else None


def _inner(code: CodeType) -> Iterator[CodeType]:
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield value
            yield from _inner(value)


@contextmanager
def in_place_of(codes: Sequence[CodeType]) -> Iterator[None]:
    """Let functions run their rewritten code."""
    swapped: list[tuple[FunctionType, CodeType]] = []
    try:
        for function in heap.functions_of(codes):
            code = function.__code__
            swapped.append((function, code))
            function.__code__ = _rewritten(code)  # type: ignore[assignment]
        yield
    finally:
        for function, code in swapped:
            function.__code__ = code


def _rewritten(code: CodeType) -> CodeType | None:
    if id(code) not in _KNOWN:
        made = _made(code)
        _KNOWN[id(code)] = code, made
        for new in () if made is None else (made, *_inner(made)):
            _ORIGINALS[id(new)] = new, code
    return _KNOWN[id(code)][1]


def original(code: CodeType) -> CodeType:
    """The code that a function has when it is not captured."""
    return _ORIGINALS[id(code)][1] if id(code) in _ORIGINALS else code


def _made(code: CodeType) -> CodeType | None:
    if code.co_flags & _LATER or code.co_name == "<lambda>":
        return None
    text = "".join(linecache.getlines(code.co_filename))
    tree = _tree(code.co_filename, text) if text else None
    place = None if tree is None else _definition(tree, code)
    if tree is None or place is None or not _alike(_compiled(tree, code), code):
        return (
            None  # the file is another one by now, or something made other code of it
        )
    siblings, index = place
    function = siblings[index]
    try:
        siblings[index] = rewritten(function)
        made = _compiled(tree, code)
    except (Impossible, SyntaxError, ValueError, RecursionError):
        return None
    finally:
        siblings[index] = function
    if made is None or made.co_freevars != code.co_freevars:
        return None
    return _with_helpers(made)


@functools.lru_cache(maxsize=64)
def _tree(filename: str, text: str) -> ast.Module | None:
    try:
        return ast.parse(text, filename)
    except (SyntaxError, ValueError):
        return None


def _definition(tree: ast.Module, code: CodeType) -> tuple[list[Any], int] | None:
    """The list of statements and the index in it at which a function is defined."""
    for node in ast.walk(tree):
        for _, siblings in ast.iter_fields(node):
            for index, child in enumerate(siblings if type(siblings) is list else ()):
                if isinstance(child, ast.FunctionDef) and child.name == code.co_name:
                    lines = [child.lineno, *[d.lineno for d in child.decorator_list]]
                    first = min(lines)
                    if first == code.co_firstlineno:
                        return siblings, index
    return None


def _compiled(tree: ast.Module, code: CodeType) -> CodeType | None:
    """The code of a function in a file: that of its name and first line."""
    flags = code.co_flags & _FUTURE
    whole = compile(
        ast.fix_missing_locations(tree), code.co_filename, "exec", flags,
        dont_inherit=True,
    )  # fmt: skip
    key = code.co_name, code.co_firstlineno
    return next(
        (c for c in _inner(whole) if (c.co_name, c.co_firstlineno) == key), None
    )


def _alike(mine: CodeType | None, code: CodeType) -> bool:
    if mine is None:
        return False
    names = ("co_names", "co_varnames", "co_freevars", "co_cellvars", "co_argcount")
    return mine.co_code == code.co_code and all(
        getattr(mine, name) == getattr(code, name) for name in names
    )


def _with_helpers(code: CodeType) -> CodeType:
    """The code with the functions of ``run_time`` where their mark is."""
    from weft.graph.python_control import run_time

    def constant(value: Any) -> Any:
        if isinstance(value, CodeType):
            return _with_helpers(value)
        return run_time if type(value) is str and value == HELPERS else value

    return code.replace(co_consts=tuple(map(constant, code.co_consts)))
