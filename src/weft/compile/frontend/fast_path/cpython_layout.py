"""The layout of CPython's objects, for guards in native code.

Tensors have their attributes in an array of values beside the object, and dictionaries
a version number that differs after each change. Both are internals of CPython, which
differ from version to version, so they are tried on samples: where a sample is not as
expected, ``layout`` returns None, and there is no fast path.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from types import FunctionType, MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from weft.core.tensor import Tensor
from weft.runtime.cpu.address import address

TYPE = 8  # bytes from an object's beginning to its type
DICT = -24  # and to its dictionary, if it has one
DICT_USED, DICT_VERSION = 16, 24
LIST_SIZE, LIST_ITEMS = 16, 24
TUPLE_SIZE, TUPLE_ITEMS = 16, 24
CELL_CONTENTS = PROXY_MAPPING = 16
ARRAY_DATA, ARRAY_NDIM, ARRAY_SHAPE = 16, 24, 32
ARRAY_STRIDES, ARRAY_BASE, ARRAY_DTYPE, ARRAY_FLAGS = 40, 48, 56, 64
ATTRIBUTES = ("_data", "_node", "_interpreter")
# The offset of the pointer to an object's values, and its tag, by version.
_VALUES = {(3, 11): (-32, 0), (3, 12): (-24, 1)}
_MOST = 30  # values of an object
_ORDER = 5  # bytes before the values: prefix, count, and indices of the first three


class Layout(NamedTuple):
    """The offsets of a tensor's attributes."""

    values: int  # bytes from the object to the pointer to its values
    tag: int  # to be added to that pointer
    offsets: dict[str, int]  # bytes from there to each attribute


def word(at: int) -> int:
    """The eight bytes at an address that is known to be valid."""
    return ctypes.c_int64.from_address(at).value


@functools.cache
def layout() -> Layout | None:
    """The layout of tensors in this interpreter, if it is a known one."""
    known = _VALUES.get(sys.version_info[:2])
    if known is None or sys.implementation.name != "cpython":
        return None
    if ctypes.sizeof(ctypes.c_void_p) != 8 or not (_dicts() and _others()):
        return None
    sample = Tensor(np.zeros(1))
    if id(vars(sample)) != word(id(sample) + DICT):
        return None
    tried = {name: _offset(name, *known) for name in ATTRIBUTES}
    offsets = {name: at for name, at in tried.items() if at is not None}
    return Layout(*known, offsets) if len(offsets) == len(tried) else None


def _offset(name: str, values: int, tag: int) -> int | None:
    """The offset of an attribute among a tensor's values, tried on a tensor."""
    sample = Tensor(np.zeros(1))
    if name != "_data":
        setattr(sample, name, object())
    start = word(id(sample) + values) + tag
    if start % 8 or not 0 < start < 1 << 47:
        return None
    before = ctypes.string_at(start - _ORDER, _ORDER)[::-1]
    many, order = before[1], before[2:]  # how many there are, and the index of each
    wanted = {"_data": 0, "_node": 1}.get(name, 2)
    if not wanted < many < 4:
        return None
    index = order[wanted]
    is_there = index < _MOST and word(start + 8 * index) == id(getattr(sample, name))
    return 8 * index if is_there else None


@functools.cache
def field_of(kind: type, name: str) -> int | None:
    """The offset of a field in objects of a kind, tried on two samples."""
    offsets = []
    for sample in _SAMPLES[kind]():
        words = [word(id(sample) + at) for at in range(0, kind.__basicsize__, 8)]
        value = id(getattr(sample, name))
        offsets.append({8 * k for k, one in enumerate(words) if one == value})
    both = offsets[0] & offsets[1]
    return both.pop() if len(both) == 1 else None


def _functions() -> list[Any]:
    def first(a: Any = 1, *, b: Any = 2) -> None:
        """One."""

    def second(a: Any = 3, *, b: Any = 4) -> None:
        """Two."""

    first.__qualname__, second.__qualname__ = "a.first", "a.second"
    return [first, second]


_SAMPLES: dict[type, Any] = {
    FunctionType: _functions,
    type: lambda: [type("A", (), {}), type("B", (), {})],
}


def mapping_of(proxy: Any) -> Any:
    """The dictionary behind the read-only view that a class shows."""
    if type(proxy) is not MappingProxyType:
        return proxy
    return ctypes.cast(word(id(proxy) + PROXY_MAPPING), ctypes.py_object).value


def _dicts() -> bool:
    """Whether every change of a dictionary changes its version, and nothing else."""
    sample: dict[Any, Any] = {"a": 1}
    owner = type("Owner", (), {})()
    owner.a = 1
    ways: list[tuple[Any, Any]] = [
        (sample, lambda: sample.__setitem__("a", object())),
        (sample, lambda: sample.__setitem__("b", object())),
        (sample, lambda: sample.update(b=object())),
        (sample, lambda: sample.pop("b")),
        (sample, lambda: sample.setdefault("c", object())),
        (sample, sample.popitem),
        (sample, sample.clear),
        (vars(owner), lambda: setattr(owner, "a", object())),
        (vars(owner), lambda: setattr(owner, "b", object())),
        (vars(owner), lambda: delattr(owner, "b")),
        (mapping_of(vars(type(owner))), lambda: setattr(type(owner), "a", object())),
    ]
    for changed, change in ways:
        was = word(id(changed) + DICT_VERSION)
        if word(id(changed) + DICT_VERSION) != was:
            return False
        change()
        if word(id(changed) + DICT_VERSION) == was:
            return False
        if word(id(changed) + DICT_USED) != len(changed):
            return False
    return True


def _others() -> bool:
    """Whether lists, tuples, closures' variables and arrays are as expected."""
    a, b = object(), object()
    some, pair = [a, b], (a, b)
    cell = (lambda: a).__closure__[0]  # type: ignore[index]
    array = np.zeros((3, 5), np.float32)[:, ::2]
    shape, strides = (word(id(array) + at) for at in (ARRAY_SHAPE, ARRAY_STRIDES))
    items = word(id(some) + LIST_ITEMS)
    return (
        word(id(some) + LIST_SIZE) == word(id(pair) + TUPLE_SIZE) == 2
        and [word(items), word(items + 8)] == [id(a), id(b)]
        and word(id(pair) + TUPLE_ITEMS + 8) == id(b)
        and word(id(cell) + CELL_CONTENTS) == id(a)
        and word(id(a) + TYPE) == id(object)
        and word(id(array) + ARRAY_DATA) == address(array)
        and word(id(array) + ARRAY_NDIM) & 0xFFFFFFFF == 2
        and (word(shape), word(shape + 8)) == array.shape
        and (word(strides), word(strides + 8)) == array.strides
        and word(id(array) + ARRAY_BASE) == id(array.base)
        and word(id(array) + ARRAY_DTYPE) == id(array.dtype)
        and word(id(array) + ARRAY_FLAGS) & 0xFFFFFFFF == array.flags.num
    )
