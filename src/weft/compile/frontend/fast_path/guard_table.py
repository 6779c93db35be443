"""Guards as rows of words that native code compares.

    WORD      at         expected                   eight bytes at an address
    VERSION   dict       version    rows to skip    else these rows are looked at
    ITEM      dict       key        expected        a dictionary's value
    ARGUMENT  number     kind       place           an argument's memory, put in place
    ROOM      dict       kind       place           a gradient's that nobody else holds

Expected objects are given by their addresses. All objects that rows lead to are held
by the table, or by one whose row comes before: what the row says is then safe to read.
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

WORD, VERSION, ITEM, ARGUMENT, ROOM = range(5)
FIELDS = 4
NEVER = 0  # no version: the rows are looked at, and the version noted if they hold


_PLAIN = (dict.__getitem__, OrderedDict.__getitem__)


class Unfit(Exception):
    """Something that rows cannot tell about."""


class Table:
    """Rows about objects as they are now."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, ...]] = []
        self.held: list[Any] = []  # what must live as long as the rows
        self._dicts: dict[int, tuple[Any, dict[Any, Any], list[int]]] = {}

    def item(self, source: Any, key: Any, value: Any) -> None:
        """A dictionary has this value, or none if that is ``MISSING``."""
        if type(key) not in (str, int):
            raise Unfit
        self._dict(source)[0][key] = value

    def length(self, source: Any, count: int) -> None:
        """A container has so many items."""
        if type(source) is list:
            self._word(id(source) + LIST_SIZE, count)
            self.held.append(source)
        else:
            self._dict(source)[1].append(count)

    def _dict(self, source: Any) -> tuple[dict[Any, Any], list[int]]:
        source = mapping_of(source)
        if not isinstance(source, dict) or type(source).__getitem__ not in _PLAIN:
            raise Unfit
        found = self._dicts.setdefault(id(source), (source, {}, []))
        return found[1:]

    def items(self, source: list[Any], values: dict[int, Any], count: int) -> None:
        """A list has so many items, and these at these places."""
        self.length(source, count)
        start = word(id(source) + LIST_ITEMS)
        self._word(id(source) + LIST_ITEMS, start)
        for k, value in values.items():
            if not -count <= k < count:
                raise Unfit
            self._word(start + 8 * (k % count), id(value))
        self.held += values.values()

    def contents(self, cell: Any, value: Any) -> None:
        """A closure's variable has this value."""
        self._word(id(cell) + CELL_CONTENTS, id(value))
        self.held += [cell, value]

    def kind(self, source: Any, kind: type) -> None:
        """An object is of this class."""
        self._word(id(source) + TYPE, id(kind))
        self.held += [source, kind]

    def fields(self, source: Any, kind: type, values: dict[str, Any]) -> None:
        """A function or class has these values in these fields."""
        places = {name: field_of(kind, name) for name in values}
        if None in places.values():
            raise Unfit
        for name, value in values.items():
            at = id(source) + (places[name] or 0)
            if word(at) not in (id(value), 0):
                raise Unfit
            self._word(at, word(at))
        self.held += [source, *values.values()]

    def argument(self, number: int, array: np.ndarray, place: int) -> None:
        """An argument is an array of this kind; its address is put in a place."""
        self.rows.append((ARGUMENT, number, self._kind(array), place))

    def room(self, tensor: Tensor, shape: Any, dtype: Any, place: int) -> None:
        """A tensor has a gradient of this kind, which nobody else holds."""
        own = vars(tensor)
        self.held.append(own)
        kind = self._kind(np.empty(shape, dtype))
        self.rows.append((ROOM, id(own), kind, place))

    def _kind(self, array: np.ndarray) -> int:
        """Where a description of arrays like this is."""
        numbers = array.ndim, array.nbytes, *array.shape, *array.strides
        made = np.array([id(array.dtype), *numbers], np.int64)
        self.held += [made, array.dtype]
        return address(made)

    def _word(self, at: int, expected: int) -> None:
        self.rows.append((WORD, at, expected, 0))

    def same(self, source: Any, holds: Callable[[], bool]) -> None:
        """A dictionary has not changed at all since now, when something holds."""
        source = mapping_of(source)
        if not isinstance(source, dict):
            raise Unfit
        now = word(id(source) + DICT_VERSION)
        if not holds():
            raise Unfit
        self._word(id(source) + DICT_VERSION, now)
        self.held.append(source)

    def finished(self) -> tuple[np.ndarray, dict[tuple[int, Any], int]]:
        """All rows, and the number of the row of each item by dictionary and key."""
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
            self.held += [source, *items, *items.values()]
        return np.array(rows, np.int64).reshape(-1, FIELDS), numbers
