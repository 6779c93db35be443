"""Guards as rows of words that native code compares.

    WORD      at         expected                 compare eight bytes at an address
    VERSION   dict       version   rows to skip   skip rows of an unchanged dictionary
    ITEM      dict       key       expected       compare a dictionary's value
    ARGUMENT  number     kind      slot           store an argument's address
    GRADIENT  dict       kind      slot           store that of an unshared gradient

Objects are given by their addresses. The table keeps all objects alive that rows lead
to, or an object whose row comes before does: what a row says is then safe to read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.compile.frontend.fast_path.cpython_layout import (
    CELL_CONTENTS,
    DICT_USED,
    DICT_VERSION,
    LIST_ITEMS,
    LIST_SIZE,
    TYPE,
    field_of,
    mapping_of,
    word,
)
from weft.compile.frontend.guards.checks import MISSING
from weft.core.tensor import Tensor
from weft.runtime.cpu.address import address

WORD, VERSION, ITEM, ARGUMENT, GRADIENT = range(5)
FIELDS = 4
NEVER = 0  # no version: the rows are checked, and the version stored if they hold


_PLAIN = (dict.__getitem__, OrderedDict.__getitem__)


class Unfit(Exception):
    """A guard that rows cannot express."""


class Table:
    """Rows that hold for objects as they are now."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, ...]] = []
        self.alive: list[Any] = []  # objects that must live as long as the rows
        self._dicts: dict[int, tuple[Any, dict[Any, Any], list[int]]] = {}

    def item(self, source: Any, key: Any, value: Any) -> None:
        """Check that a dictionary has this value, or none if it is ``MISSING``."""
        if type(key) not in (str, int):
            raise Unfit
        self._dict(source)[0][key] = value

    def length(self, source: Any, count: int) -> None:
        """Check the length of a container."""
        if type(source) is list:
            self._word(id(source) + LIST_SIZE, count)
            self.alive.append(source)
        else:
            self._dict(source)[1].append(count)

    def _dict(self, source: Any) -> tuple[dict[Any, Any], list[int]]:
        source = mapping_of(source)
        if not isinstance(source, dict) or type(source).__getitem__ not in _PLAIN:
            raise Unfit
        return self._dicts.setdefault(id(source), (source, {}, []))[1:]

    def items(self, source: list[Any], values: dict[int, Any], count: int) -> None:
        """Check the length of a list, and its items at some indices."""
        self.length(source, count)
        start = word(id(source) + LIST_ITEMS)
        self._word(id(source) + LIST_ITEMS, start)
        for k, value in values.items():
            if not -count <= k < count:
                raise Unfit
            self._word(start + 8 * (k % count), id(value))
        self.alive += values.values()

    def contents(self, cell: Any, value: Any) -> None:
        """Check the value of a closure's variable."""
        self._word(id(cell) + CELL_CONTENTS, id(value))
        self.alive += [cell, value]

    def kind(self, source: Any, kind: type) -> None:
        """Check the class of an object."""
        self._word(id(source) + TYPE, id(kind))
        self.alive += [source, kind]

    def fields(self, source: Any, kind: type, values: dict[str, Any]) -> None:
        """Check fields of a function or class."""
        offsets = {name: field_of(kind, name) for name in values}
        if None in offsets.values():
            raise Unfit
        for name, value in values.items():
            at = id(source) + (offsets[name] or 0)
            if word(at) not in (id(value), 0):
                raise Unfit
            self._word(at, word(at))
        self.alive += [source, *values.values()]

    def argument(self, number: int, array: np.ndarray, slot: int) -> None:
        """Check that an argument is like this array, and store its address."""
        self.rows.append((ARGUMENT, number, self._kind(array), slot))

    def gradient(self, tensor: Tensor, shape: Any, dtype: Any, slot: int) -> None:
        """Check that a tensor has such a gradient, which nobody else holds."""
        own = vars(tensor)
        self.alive.append(own)
        kind = self._kind(np.empty(shape, dtype))
        self.rows.append((GRADIENT, id(own), kind, slot))

    def _kind(self, array: np.ndarray) -> int:
        """The address of a description of arrays like this."""
        numbers = array.ndim, array.nbytes, *array.shape, *array.strides
        described = np.array([id(array.dtype), *numbers], np.int64)
        self.alive += [described, array.dtype]
        return address(described)

    def _word(self, at: int, expected: int) -> None:
        self.rows.append((WORD, at, expected, 0))

    def same(self, source: Any, holds: Callable[[], bool]) -> None:
        """Check that a dictionary stays as it is now, when ``holds()`` is true."""
        source = mapping_of(source)
        if not isinstance(source, dict):
            raise Unfit
        now = word(id(source) + DICT_VERSION)
        if not holds():
            raise Unfit
        self._word(id(source) + DICT_VERSION, now)
        self.alive.append(source)

    def finished(self) -> tuple[np.ndarray, dict[tuple[int, Any], int]]:
        """All rows, and the row number of each item by dictionary and key."""
        rows, numbers = self.rows, {}
        for source, items, lengths in self._dicts.values():
            at = id(source)
            many = len(items) + len(lengths)
            rows.append((VERSION, at + DICT_VERSION, NEVER, many))
            for count in lengths:
                self._word(at + DICT_USED, count)
            for key, value in items.items():
                numbers[id(source), key] = len(rows)
                rows.append((ITEM, at, id(key), 0 if value is MISSING else id(value)))
            self.alive += [source, *items, *items.values()]
        return np.array(rows, np.int64).reshape(-1, FIELDS), numbers
