"""Effects of a side of a branch, which may change nothing in Python.

Both sides of a branch run once when they are captured, and the body of a loop runs once
for all its steps. A change of a list, a dictionary, an object or a variable of a
function around would happen for each, so it is found by comparison, undone and refused.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections import deque
from collections.abc import Callable, Iterator
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.errors import INTERNAL
from weft.graph.symbol import refusal

MOST_OBJECTS = 100_000  # that are compared
MOST_RUNS = 20_000  # of sides and bodies, in one capture
_OWN = ("weft.core", "weft.graph", "weft.compile", "weft.ops", "weft.runtime")
_PLAIN = (
    bool, int, float, complex, str, bytes, type(None), Tensor, ModuleType, CodeType,
    BuiltinFunctionType, FrameType,
)  # fmt: skip
_SEQUENCES = (list, tuple, set, frozenset, deque)
_ABSENT: Any = object()


class _State(bytes):
    """The contents of an array, or the position of an iterator."""


class Snapshot:
    """The variables, containers and objects that some frames and values lead to."""

    def __init__(self, frame: FrameType | None, last: CodeType, values: Any) -> None:
        self.held: dict[int, tuple[Any, str, list[Any]]] = {}
        self.variables: list[tuple[FrameType, dict[str, Any]]] = []
        waiting: list[tuple[Any, str]] = [(value, "a variable") for value in values]
        while frame is not None and frame.f_code is not last:
            if not INTERNAL[frame.f_code.co_filename]:
                waiting += self._enter_frame(frame)
            frame = frame.f_back
        while waiting:
            self._enter(*waiting.pop(), waiting)

    def _enter_frame(self, frame: FrameType) -> list[tuple[Any, str]]:
        own, names = dict(frame.f_locals), frame.f_globals
        self.variables.append((frame, own))
        self.held[id(names)] = names, "a global variable", list(_items(names))
        used = {n: names[n] for n in frame.f_code.co_names if n in names}
        return [(value, name) for name, value in {**used, **own}.items()]

    def _enter(self, value: Any, name: str, waiting: list[Any]) -> None:
        kind = type(value)
        if issubclass(kind, _PLAIN) or id(value) in self.held or _is_own(value):
            return
        if len(self.held) > MOST_OBJECTS:
            raise refusal(
                "a branch or loop over a tensor's value is in a function that can "
                f"reach more than {MOST_OBJECTS:,} objects, which it may change; move "
                "it into a function of its own, or use weft.cond or weft.while_loop"
            )
        items = list(_items(value))
        self.held[id(value)] = value, name, items
        waiting += [(item, name) for item in items]

    def changed(self) -> str | None:
        """The name of a variable that leads to something changed; it is put back."""
        found = None
        for value, name, items in self.held.values():
            now = list(_items(value))
            if len(now) != len(items) or any(map(_differ, now, items)):
                found = found or name
                _put_back(value, items)
        for frame, before in self.variables:
            after = frame.f_locals
            for name in {*before, *after}:
                if after.get(name, _ABSENT) is not before.get(name, _ABSENT):
                    found = found or name
        return found


def _is_own(value: Any) -> bool:
    """Whether an object is Weft's own, or a class that nobody changes."""
    home = str((value if isinstance(value, type) else type(value)).__module__)
    if isinstance(value, type):
        root = home.partition(".")[0]
        return root in ("weft", "numpy") or root in sys.stdlib_module_names - {
            "__main__"
        }
    return home.startswith(_OWN)


def _differ(a: Any, b: Any) -> bool:
    if isinstance(a, _State) and isinstance(b, _State):
        return a != b
    return a is not b


def _items(value: Any) -> Iterator[Any]:
    """The objects that a container or another object holds."""
    if isinstance(value, dict):
        yield from value
        yield from value.values()
    elif isinstance(value, _SEQUENCES):
        yield from value
    elif isinstance(value, (np.ndarray, bytearray)):
        yield _State(hashlib.blake2b(bytes(value)).digest())
    elif type(value) is FunctionType:
        yield from (_contents(cell) for cell in value.__closure__ or ())
    elif type(value) is MethodType:
        yield value.__self__
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif type(value) is GeneratorType:
        frame = value.gi_frame
        yield _State(repr(frame and (frame.f_lasti, frame.f_locals)).encode())
    elif hasattr(type(value), "__next__") and hasattr(value, "__length_hint__"):
        yield _State(repr(value.__length_hint__()).encode())
    for own in _fields(value):
        yield from own
        yield from own.values()


def _fields(value: Any) -> Iterator[Any]:
    """The dictionaries of an object's attributes, those in slots included."""
    if isinstance(value, type):
        yield dict(vars(value))
        return
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        own = None
    if type(own) is dict:
        yield own
    slots = [n for k in type(value).__mro__ for n in _names(vars(k).get("__slots__"))]
    if slots:
        known = ((n, _slot(value, n)) for n in slots)
        yield {name: held for name, held in known if held is not _ABSENT}


def _names(slots: Any) -> Any:
    return (slots,) if isinstance(slots, str) else tuple(slots or ())


def _slot(value: Any, name: str) -> Any:
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return _ABSENT


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _put_back(value: Any, items: list[Any]) -> None:
    """Undo a change of a container or of an object's attributes, as far as it goes."""
    if type(value) is list:
        value[:] = items
    elif type(value) is dict:
        _refill(value, items)
    elif type(value) in (set, deque):
        value.clear()
        value.update(items) if type(value) is set else value.extend(items)
    elif isinstance(value, type):
        half = len(items) // 2
        for name, held in zip(items[:half], items[half:], strict=True):
            if vars(value).get(name) is not held:
                type.__setattr__(value, name, held)
    elif not isinstance(value, (*_SEQUENCES, dict)):
        for own in _fields(value):
            if len(items) % 2 == 0:
                _refill(own, items)
            break


def _refill(held: dict[Any, Any], items: list[Any]) -> None:
    half = len(items) // 2
    before = dict(zip(items[:half], items[half:], strict=True))
    for key in set(held) - set(before):
        del held[key]
    held.update(before)


def without_effects(
    run: Any, what: str, fn: Callable[..., Any], values: Any, frame: Any, last: CodeType
) -> Any:
    """The result of a side or body; errors and effects of it are refused."""
    run.branch_runs += 1
    if run.branch_runs > MOST_RUNS:
        raise refusal(
            "branches over tensors' values are nested too deeply: each side is "
            "captured for each way that leads there. Use weft.cond, or weft.where"
        )
    before = Snapshot(frame, last, values)
    run.branching += 1
    try:
        out = fn(*values)
    except Exception as error:
        raise refusal(
            f"{what} cannot be part of a graph: run with values that are not known "
            f"yet, it raises {type(error).__name__}: {error}"
        ) from error
    finally:
        run.branching -= 1
    name = before.changed()
    if name is not None:
        raise refusal(
            f"{what} changes what {name!r} leads to. Both sides of a branch are "
            "captured, and a loop's body once for all steps, so that would happen "
            "whatever the value is; set a variable instead"
        )
    return out
