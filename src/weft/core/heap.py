"""Searches among all objects of a process, as for the functions that have some code."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from types import CodeType, FunctionType
from typing import Any


def objects() -> list[Any]:
    """All objects that may refer to others, those that ``gc.freeze`` hides included.

    To see these they are thawed, and frozen again with what was made since then.
    """
    if not gc.get_freeze_count():
        return gc.get_objects()
    gc.unfreeze()
    try:
        return gc.get_objects()
    finally:
        gc.freeze()


def functions_of(codes: Iterable[CodeType]) -> list[FunctionType]:
    """The functions that have these code objects.

    One that a module or a class has by its name is found there at once. Looking for
    others takes time that grows with the number of objects.
    """
    named = {id(code): _named(code) for code in codes}
    found = [f for f in named.values() if f is not None]
    missing = {key for key, function in named.items() if function is None}
    if missing:
        functions = (f for f in objects() if type(f) is FunctionType)
        found += [f for f in functions if id(f.__code__) in missing]
    return found


def closures() -> dict[int, list[FunctionType]]:
    """All functions with variables of outer functions, by the ids of their codes."""
    found: dict[int, list[FunctionType]] = {}
    for one in objects():
        if type(one) is FunctionType and one.__closure__:
            found.setdefault(id(one.__code__), []).append(one)
    return found


def _named(code: CodeType) -> FunctionType | None:
    """The function that a module's import made of a code object, if it is still there.

    A function inside of another one may be made many times.
    """
    path = code.co_qualname.split(".")
    if "<locals>" in path:
        return None
    for module in list(sys.modules.values()):
        found: Any = module
        for name in path:
            found = _own(found, name)
            if found is None:
                break
        if isinstance(found, (staticmethod, classmethod)):
            found = found.__func__
        elif isinstance(found, property):
            found = found.fget
        found = _own(found, "__wrapped__") or found
        if type(found) is FunctionType and found.__code__ is code:
            return found
    return None


def _own(holder: Any, name: str) -> Any:
    """A module's or a class's own value by a name; no attribute is computed."""
    try:
        return vars(holder).get(name)
    except TypeError:
        return None
