"""Containers of modules and parameters.

Plain lists, tuples and dicts work too; these add PyTorch's names, calling in
order, and a readable repr.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from weft.errors import DTypeError, OutOfRangeError
from weft.nn.module import Module
from weft.nn.parameter import Parameter


class _Holder(Module):
    """Items by name; their names are paths without a prefix."""

    kind: Any = Module

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["_items"] = {}

    def _own(self) -> Iterator[tuple[str, Any]]:
        yield from self._items.items()
        for name, value in super()._own():
            if not name.startswith("_items"):
                yield name, value

    def _check(self, value: Any) -> Any:
        if value is not None and not isinstance(value, self.kind):
            raise DTypeError(
                f"{type(self).__name__}: expected a {self.kind.__name__}, got "
                f"{type(value).__name__}"
            )
        return value

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items.values())

    def __contains__(self, key: Any) -> bool:
        return key in self._items


class _Sequence(_Holder):
    """Items numbered from 0."""

    def _place(self, index: int) -> str:
        n = len(self)
        if not -n <= index < n:
            raise OutOfRangeError(
                f"{type(self).__name__}: index {index} is out of range for {n} items"
            )
        return list(self._items)[index]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(*self._as_arguments(list(self._items.values())[index]))
        return self._items[self._place(index)]

    def _as_arguments(self, items: list[Any]) -> tuple[Any, ...]:
        return (items,)

    def __setitem__(self, index: int, value: Any) -> None:
        self._items[self._place(index)] = self._check(value)

    def __delitem__(self, index: Any) -> None:
        kept = list(self._items.values())
        del kept[index]
        self._renumber(kept)

    def _renumber(self, items: Iterable[Any]) -> None:
        self._items.clear()
        self.extend(items)

    def append(self, value: Any) -> Any:
        """Add an item at the end."""
        self._items[str(len(self))] = self._check(value)
        return self

    def extend(self, values: Iterable[Any]) -> Any:
        """Add several items at the end."""
        for value in values:
            self.append(value)
        return self

    def insert(self, index: int, value: Any) -> None:
        """Put an item in before another."""
        items = list(self._items.values())
        items.insert(index, self._check(value))
        self._renumber(items)

    def pop(self, index: int = -1) -> Any:
        """Take an item out."""
        value = self[index]
        del self[index]
        return value

    def __iadd__(self, values: Iterable[Any]) -> Any:
        return self.extend(values)

    def __contains__(self, value: Any) -> bool:
        return any(value is item for item in self)


class Sequential(_Sequence):
    """Modules called one after the other.

    >>> net = weft.nn.Sequential(weft.nn.Linear(3, 4), weft.nn.ReLU())
    >>> net(weft.zeros(2, 3)).shape
    (2, 4)
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            for name, module in args[0].items():
                self._items[name] = self._check(module)
        else:
            self.extend(args)

    def _as_arguments(self, items: list[Any]) -> tuple[Any, ...]:
        return tuple(items)

    def forward(self, input: Any) -> Any:
        for module in self:
            input = module(input)
        return input

    def __getattr__(self, name: str) -> Any:
        items = self.__dict__.get("_items", {})
        return items[name] if name in items else super().__getattr__(name)


class ModuleList(_Sequence):
    """A list of modules.

    >>> len(weft.nn.ModuleList([weft.nn.Linear(2, 2) for _ in range(3)]))
    3
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(() if modules is None else modules)


class ParameterList(_Sequence):
    """A list of parameters.

    >>> list(weft.nn.ParameterList([weft.zeros(2)]).state_dict())
    ['0']
    """

    kind = Parameter

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self.extend(() if values is None else values)

    def _check(self, value: Any) -> Any:
        return super()._check(
            value if isinstance(value, Parameter) else Parameter(value)
        )


class _Dictionary(_Holder):
    """Items by key."""

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str) or "." in key:
            raise DTypeError(
                f"{type(self).__name__}: expected string keys without dots, got {key!r}"
            )
        self._items[key] = self._check(value)

    def __delitem__(self, key: str) -> None:
        del self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def keys(self) -> Any:
        return self._items.keys()

    def values(self) -> Any:
        return self._items.values()

    def items(self) -> Any:
        return self._items.items()

    def pop(self, key: str) -> Any:
        """Take an item out."""
        return self._items.pop(key)

    def clear(self) -> None:
        """Take all items out."""
        self._items.clear()

    def update(self, items: Any) -> None:
        """Add items of a mapping, or pairs."""
        pairs = items.items() if hasattr(items, "items") else items
        for key, value in pairs:
            self[key] = value


class ModuleDict(_Dictionary):
    """Modules by name.

    >>> list(weft.nn.ModuleDict({"a": weft.nn.Linear(2, 2)}))
    ['a']
    """

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        self.update(() if modules is None else modules)


class ParameterDict(_Dictionary):
    """Parameters by name.

    >>> list(weft.nn.ParameterDict({"a": weft.zeros(2)}).state_dict())
    ['a']
    """

    kind = Parameter

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self.update(() if parameters is None else parameters)

    def _check(self, value: Any) -> Any:
        return super()._check(
            value if isinstance(value, Parameter) else Parameter(value)
        )
