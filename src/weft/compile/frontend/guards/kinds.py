"""The kinds of Python objects that are watched, compared and shown."""

from __future__ import annotations

import sys
import threading
from array import array
from collections import OrderedDict, deque
from enum import Enum
from types import FunctionType, MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from weft.errors import INTERNAL, is_library

PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic, Enum)
CONTAINERS = (list, dict, set, deque)
MAPPINGS = (dict, MappingProxyType)
_MAPS: tuple[Any, ...] = ({}, OrderedDict())
VIEWS: tuple[type, ...] = tuple(
    type(v()) for d in _MAPS for v in (d.keys, d.values, d.items)
)
FIXED = (*CONTAINERS, *VIEWS, MappingProxyType, tuple)  # classes that are not patched
ARRAYS = (np.ndarray, array, bytearray, memoryview)  # numbers in memory
_FIXED = 1 << 8  # a type that cannot be changed
_HEAP = 1 << 9  # a class that Python code made
_OTHERS = {"weft", "numpy", *sys.stdlib_module_names}


def plain(value: Any) -> bool:
    """Whether a value can be compared cheaply and safely."""
    kind = type(value)  # an object of a watched class would be asked by isinstance
    if issubclass(kind, tuple):
        return all(map(plain, value))
    return issubclass(kind, PLAIN)


def same(a: Any, b: Any) -> bool:
    """Whether a program that read ``a`` would do the same with ``b``."""
    if a is b:
        return True
    if type(a) is not type(b) or not plain(a):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return (bool(a == b) and _sign(a) == _sign(b)) or bool(a != a and b != b)


def _sign(value: Any) -> Any:
    """A text that tells 0.0 from -0.0."""
    return repr(value) if isinstance(value, (float, complex, np.inexact)) else None


def shown(value: Any) -> str:
    """A value as text for a message."""
    if plain(value) or type(value) in CONTAINERS:
        return f"{value!r:.60}"
    name = getattr(value, "__name__", None)
    return f"{type(value).__name__} {name!r}" if name else f"a {type(value).__name__}"


class _Users(dict[str, bool]):
    """Remembers, file by file, whether code is the user's."""

    def __missing__(self, filename: str) -> bool:
        self[filename] = users = not (is_library(filename) or INTERNAL[filename])
        return users


USERS = _Users()


def of_user(owner: Any) -> bool:
    """Whether a class, function or module was written by the user."""
    if isinstance(owner, ModuleType):
        file = getattr(owner, "__file__", None)
        return not is_standard(owner) if file is None else USERS[file]
    if type(owner) is FunctionType:
        return USERS[owner.__code__.co_filename]
    root = str(getattr(owner, "__module__", "")).partition(".")[0]
    return root == "__main__" or root not in _OTHERS


def keeps_values(kind: type) -> bool:
    """Whether runs of a program leave values in the attributes of such objects."""
    return getattr(kind, "_keeps", False)


def nbytes_of(value: Any) -> int:
    """The bytes of an array."""
    return value.nbytes if isinstance(value, np.ndarray) else memoryview(value).nbytes


def is_standard(module: ModuleType) -> bool:
    """Whether a module is part of Python's standard library."""
    root = module.__name__.partition(".")[0]
    return root in sys.stdlib_module_names and root != "__main__"


def changeable(kind: type) -> bool:
    """Whether a class can be patched: Python code made it, and it is mutable."""
    flags = kind.__flags__
    return bool(flags & _HEAP) and not flags & _FIXED


def fields(value: Any) -> Any:
    """An object's own dictionary, or None."""
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return own if isinstance(own, dict) else None


def is_namespace(value: Any) -> bool:
    """Whether an object is nothing but its attributes, of a class of Python's own."""
    return type(value) in (SimpleNamespace, threading.local)
