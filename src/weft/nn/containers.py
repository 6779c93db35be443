"""Containers of modules and parameters.

Plain lists, tuples and dicts work too; these add PyTorch's names, calling in
order, and a readable repr. What a container holds is what the module holds: its
entries are the module's ``_modules`` (or ``_parameters``), however they got there.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any, ClassVar, Self

from weft.errors import DTypeError, OutOfRangeError
from weft.nn.module import Module
from weft.nn.parameter import Parameter


class _Holder(Module):
    """A module that gives access to its entries by index or key."""

    _held: ClassVar[str] = "_modules"  # the dictionary in which they are

    @property
    def _entries(self) -> dict[str, Any]:
        return self.__dict__[self._held]

    def _enter(self, name: str, value: Any) -> None:
        if self._held == "_parameters":
            value = value if isinstance(value, Parameter) else Parameter(value)
        elif value is not None and not isinstance(value, Module):
            raise DTypeError(
                f"{type(self).__name__}: expected a Module, got {type(value).__name__}"
            )
        self._register(self._held, type(self).__name__, name, value)

    def __len__(self) -> int:
        return len(self._entries)


class _Sequence(_Holder):
    """Entries in order, called by numbers from 0 unless they were given names."""

    def _name_at(self, index: int) -> str:
        n = len(self)
        if not -n <= index < n:
            raise OutOfRangeError(
                f"{type(self).__name__}: index {index} is out of range for {n} items"
            )
        return next(itertools.islice(self._entries, index % n, None))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._part(dict(list(self._entries.items())[index]))
        try:
            return list(self.__dict__[self._held].values())[index]
        except IndexError:
            return self._entries[self._name_at(index)]  # says what is wrong

    def _part(self, entries: dict[str, Any]) -> Any:
        return type(self)(list(entries.values()))

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            items = list(self)
            items[index] = value
            self._refill(items)
        else:
            self._enter(self._name_at(index), value)

    def __delitem__(self, index: Any) -> None:
        kept = list(self)
        if not isinstance(index, slice):
            self._name_at(index)
        del kept[index]
        self._refill(kept)

    def _refill(self, items: Iterable[Any]) -> None:
        self._entries.clear()
        self.extend(items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.__dict__[self._held].values())

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self._entries.values())

    def __contains__(self, value: Any) -> bool:
        return any(value is item for item in self)

    def append(self, value: Any) -> Self:
        """Add an item at the end."""
        numbers = itertools.count(len(self))  # the first that is no item's name
        name = next(str(n) for n in numbers if str(n) not in self._entries)
        self._enter(name, value)
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Add several items at the end."""
        for value in list(values):
            self.append(value)
        return self

    def insert(self, index: int, value: Any) -> Self:
        """Put an item in before another; the items are numbered anew."""
        items = list(self)
        items.insert(index, value)
        self._refill(items)
        return self

    def pop(self, index: Any = -1) -> Any:
        """Take an item out; the others are numbered anew."""
        value = self[index]
        del self[index]
        return value

    def __iadd__(self, values: Iterable[Any]) -> Self:
        return self.extend(values)

    def __add__(self, values: Iterable[Any]) -> Self:
        if not isinstance(values, Iterable):
            return NotImplemented
        return self._part(dict(enumerate([*self, *values])))  # type: ignore[arg-type]


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
                self._enter(str(name), module)
        else:
            self.extend(args)

    def _part(self, entries: dict[str, Any]) -> Any:
        return type(self)(entries)

    def forward(self, input: Any) -> Any:
        for module in self:
            input = module(input)
        return input

    def __mul__(self, times: int) -> Self:
        if not isinstance(times, int):
            return NotImplemented
        return self._part(dict(enumerate(list(self) * times)))  # type: ignore[arg-type]

    __rmul__ = __mul__

    def __imul__(self, times: int) -> Self:
        if not isinstance(times, int):
            return NotImplemented
        self._refill(list(self) * times)
        return self


class ModuleList(_Sequence):
    """A list of modules.

    >>> len(weft.nn.ModuleList([weft.nn.Linear(2, 2) for _ in range(3)]))
    3
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(() if modules is None else modules)

    def _shown_children(self) -> Iterator[tuple[str, Any]]:
        """Neighbours with the same text are shown once, with their count."""
        texts = [(name, repr(module)) for name, module in self._entries.items()]
        for text, group in itertools.groupby(texts, key=lambda pair: pair[1]):
            names = [name for name, _ in group]
            if len(names) == 1:
                yield names[0], Shown(text)
            else:
                yield f"{names[0]}-{names[-1]}", Shown(f"{len(names)} x {text}")


class Shown(str):
    """A text that shows itself."""

    def __repr__(self) -> str:
        return str(self)


def _parameter_texts(held: dict[str, Any]) -> str:
    lines = []
    for name, value in held.items():
        sizes = "x".join(map(str, value.shape))
        about = f"[{value.dtype} of size {sizes}]"
        lines.append(f"  ({name}): Parameter containing: {about}")
    return "\n".join(lines)


class Container(Module):
    """Modules by name: PyTorch's old base of containers."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        warnings.warn(
            "nn.Container is deprecated. All of it's functionality is now implemented "
            "in nn.Module. Subclass that instead.",
            stacklevel=2,
        )
        for name, module in kwargs.items():
            self.add_module(name, module)


class ParameterList(_Sequence):
    """A list of parameters; tensors that are put in become parameters.

    >>> list(weft.nn.ParameterList([weft.zeros(2)]).state_dict())
    ['0']
    """

    _held = "_parameters"

    def extra_repr(self) -> str:
        return _parameter_texts(self._entries)

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self.extend(() if values is None else values)


class _Dictionary(_Holder, MutableMapping[str, Any]):
    """Entries by key, in the order in which they came."""

    __eq__ = Module.__eq__
    __hash__ = Module.__hash__

    def __getitem__(self, key: str) -> Any:
        return self._entries[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str) or "." in key:
            raise DTypeError(
                f"{type(self).__name__}: expected string keys without dots, got {key!r}"
            )
        self._enter(key, value)

    def __delitem__(self, key: str) -> None:
        del self._entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._entries)

    def popitem(self) -> tuple[str, Any]:
        """Take the last item out."""
        return self._entries.popitem()

    def __or__(self, other: Mapping[str, Any]) -> Self:
        return type(self)({**self, **other})

    def __ior__(self, other: Mapping[str, Any]) -> Self:
        self.update(other)
        return self


class ModuleDict(_Dictionary):
    """Modules by name.

    >>> list(weft.nn.ModuleDict({"a": weft.nn.Linear(2, 2)}))
    ['a']
    """

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:  # a subclass's update may need what it sets later
            self.update(modules)


class ParameterDict(_Dictionary):
    """Parameters by name; tensors that are put in become parameters.

    >>> list(weft.nn.ParameterDict({"a": weft.zeros(2)}).state_dict())
    ['a']
    """

    _held = "_parameters"

    def extra_repr(self) -> str:
        return _parameter_texts(self._entries)

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self.update(() if parameters is None else parameters)

    def copy(self) -> Self:
        """Another dictionary with the same parameters."""
        return type(self)(self)

    @classmethod
    def fromkeys(cls, keys: Iterable[str], default: Any = None) -> Self:
        """One parameter, of one tensor, under several names."""
        return cls(dict.fromkeys(keys, default))
