"""Checks that the values read at a capture are still the same.

In most calls every value is the very object it was: that takes one pass of C loops
over all dictionaries, without a Python step for each value. Only when an identity
differs are values compared one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from operator import attrgetter, call, eq, is_, itemgetter
from types import CodeType, FunctionType
from typing import Any

from weft import late
from weft.compile.frontend.guards.kinds import MAPPINGS, same, shown
from weft.graph.capture import layout_of
from weft.graph.python_control.source import original
from weft.graph.state_cells import Cell
from weft.graph.symbol import Symbol

_data, _node = attrgetter("_data"), attrgetter("_node")
MISSING: Any = type("Missing", (), {"__repr__": lambda self: "nothing"})()

INSIDE = (Symbol,)  # the types that tensors have in a capture alone


FIELDS: dict[type, tuple[str, ...]] = {
    FunctionType: ("__code__", "__defaults__", "__kwdefaults__", "__name__", "__doc__"),
    type: ("__mro__",),
}


class Watch:
    """Some values of one object at the time of a capture, and how to read them."""

    def __init__(
        self,
        source: Any,
        get: Callable[[Any], Iterable[Any]],
        names: list[str],
        values: list[Any],
    ) -> None:
        self.source = source
        self.get = get
        self.names = names
        self.values = values

    def now(self) -> list[Any]:
        try:
            return list(self.get(self.source))
        except (LookupError, AttributeError, ValueError):
            return [self._one(k) for k in range(len(self.names))]

    def _one(self, k: int) -> Any:
        try:
            return list(self.get(self.source))[k]
        except (LookupError, AttributeError, ValueError):
            return MISSING

    def changed(self) -> str | None:
        """The difference in words, or None; equal values replace the old ones."""
        now = self.now()
        if len(now) != len(self.values):
            return f"{self.names[0] if self.names else '?'} has another length"
        for name, a, b in zip(self.names, self.values, now, strict=True):
            if not same(a, b):
                return difference(name, a, b)
        self.values = now
        return None


class ItemsWatch(Watch):
    """Attributes in an object's dictionary, or items of a container."""

    def __init__(self, source: Any, path: dict[Any, str], values: dict[Any, Any]):
        keys = list(values)
        self.keys = keys
        get = itemgetter(*(keys * 2 if len(keys) == 1 else keys))
        many = [*values.values()] * (2 if len(keys) == 1 else 1)
        names = [path[k] for k in (keys * 2 if len(keys) == 1 else keys)]
        super().__init__(source, get, names, many)

    def _one(self, k: int) -> Any:
        try:
            return self.source[self.keys[k % len(self.keys)]]
        except LookupError:
            return MISSING


class WholeWatch(Watch):
    """All items of a container; its length is checked separately."""

    def __init__(self, source: Any, path: str) -> None:
        self.path = path
        self.pairs = isinstance(source, MAPPINGS)
        get: Any = _keys_and_values if self.pairs else iter
        super().__init__(source, get, [], list(get(source)))

    def changed(self) -> str | None:
        now = list(self.get(self.source))
        if len(now) != len(self.values):
            return f"{self.path} has {self._count(now)} items, had " + self._count(
                self.values
            )
        if isinstance(self.source, set):
            return None if set(now) == set(self.values) else f"{self.path} changed"
        for k, (a, b) in enumerate(zip(self.values, now, strict=True)):
            if not same(a, b):
                return difference(self._name(k), a, b)
        self.values = now
        return None

    def _count(self, values: list[Any]) -> str:
        return str(len(values) // (2 if self.pairs else 1))

    def _name(self, k: int) -> str:
        if not self.pairs:
            return f"{self.path}[{k}]"
        n = len(self.values) // 2
        return f"{self.path}[{self.values[k % n]!r}]"


class AttributesWatch(WholeWatch):
    """All attributes of a function."""

    def _name(self, k: int) -> str:
        return f"{self.path}.{self.values[k % (len(self.values) // 2)]}"


def _keys_and_values(source: dict[Any, Any]) -> Iterable[Any]:
    """The items, but for those under the types that tensors have in a capture alone.

    A table of what to do for which type of tensor has them; no eager call meets them.
    """
    if not any(kind in source for kind in INSIDE):
        return chain(source, source.values())
    seen = {k: v for k, v in source.items() if k not in INSIDE}
    return chain(seen, seen.values())


class CellWatch(Watch):
    """A closure's variable."""

    def __init__(self, cell: Any, name: str, value: Any) -> None:
        super().__init__(cell, lambda c: (c.cell_contents,), [name], [value])


class SlotWatch(Watch):
    """An attribute in a slot."""

    def __init__(self, source: Any, key: str, name: str, value: Any) -> None:
        get = attrgetter(key)
        super().__init__(source, lambda obj: (get(obj),), [name], [value])


class CallWatch(Watch):
    """The value of a context variable."""

    def __init__(self, source: Any, name: str) -> None:
        value = source.get(MISSING)
        super().__init__(source, lambda obj: (obj.get(MISSING),), [name], [value])


class KindWatch(Watch):
    """The class of an object, because it can be assigned."""

    def __init__(self, source: Any, path: str) -> None:
        name = f"{path}.__class__"
        super().__init__(source, lambda obj: (type(obj),), [name], [type(source)])


class FieldsWatch(Watch):
    """Fields of a function or class that are not in its dictionary."""

    def __init__(self, source: Any, path: str) -> None:
        self.fields = FIELDS[type if isinstance(source, type) else FunctionType]
        names = [f"{path}.{field}" for field in self.fields]
        super().__init__(source, self._all, names, self._all(source))

    def _all(self, obj: Any) -> list[Any]:
        """The fields; a function may have other code while it is captured."""
        found = [getattr(obj, field) for field in self.fields]
        return [original(x) if type(x) is CodeType else x for x in found]


class ArrayWatch(Watch):
    """The values of an array of which elements were read."""

    def __init__(self, source: Any, name: str) -> None:
        self.name = name
        super().__init__(source, lambda a: (_bytes(a),), [name], [_bytes(source)])

    def changed(self) -> str | None:
        now = _bytes(self.source)
        return None if now == self.values[0] else f"{self.name} has other elements"


def _bytes(array: Any) -> bytes:
    return bytes(array) if type(array) is bytearray else array.tobytes()


def difference(name: str, was: Any, now: Any) -> str:
    """A change in words."""
    if now is MISSING:
        return f"{name} is gone, was {shown(was)}"
    if was is MISSING:
        return f"{name} is now {shown(now)}, was not there"
    before, after = shown(was), shown(now)
    if before == after and before.startswith("a "):
        return f"{name} is another {before[2:]}"
    return f"{name} changed from {before} to {after}"


class Sized:
    """The length of a dictionary in which a new name could hide another one."""

    def __init__(self, source: Any, names: Callable[[], Any]) -> None:
        self.source, self.names = source, names
        self.had = names()

    def changed(self) -> str | None:
        return None if self.names() == self.had else _new(self.had, self.names())


def _new(had: dict[str, str], now: dict[str, str]) -> str:
    added = [now[k] for k in now if k not in had]
    gone = [had[k] for k in had if k not in now]
    return f"{added[0]} is new" if added else f"{gone[0]} is gone"


class Guards:
    """All values that a program read, to be checked before each run."""

    def __init__(
        self, watches: list[Watch], sized: list[Sized], hooks: list[WholeWatch],
        seen: dict[str, Any],
    ) -> None:  # fmt: skip
        self.handles = late.find(
            "RemovableHandle"
        )  # it counts the changes of all hooks
        self.hooks = hooks
        self.seen = seen  # tensors, by the paths that led to them
        self.watches = [w for w in watches if w.values]
        self.arrays = [w for w in self.watches if isinstance(w, ArrayWatch)]
        self.watches = [w for w in self.watches if not isinstance(w, ArrayWatch)]
        wholes = [w for w in watches if isinstance(w, WholeWatch)]
        self.sized: list[Any] = [*sized, *wholes]
        self._prepare()

    def _prepare(self) -> None:
        self._changes = self.handles._next
        self._gets = [w.get for w in self.watches]
        self._sources = [w.source for w in self.watches]
        self._values = list(chain.from_iterable(w.values for w in self.watches))
        self._dicts = [s.source for s in self.sized]
        self._lengths = list(map(len, self._dicts))

    def holds(self) -> bool:
        """Whether the program may run."""
        return self._identical() or self.changed() is None

    def _identical(self) -> bool:
        try:
            now = chain.from_iterable(map(call, self._gets, self._sources))
            return (
                self._changes == self.handles._next
                and all(map(eq, map(len, self._dicts), self._lengths))
                and all(map(is_, now, self._values))
                and not any(w.changed() for w in self.arrays)
            )
        except (LookupError, AttributeError, ValueError):
            return False

    def changed(self) -> str | None:
        """The first difference in words; None if there is none."""
        for one in (*self.sized, *self.watches, *self.arrays, *self.hooks):
            change = one.changed()
            if change is not None:
                return change
        self._prepare()
        return None

    def plain(self) -> dict[str, str]:
        """The plain values as text, by name."""
        from weft.compile.frontend.guards.kinds import plain

        return {
            name: shown(value)
            for watch in self.watches
            for name, value in zip(watch.names, watch.values, strict=False)
            if plain(value)
        }


class TensorGuards:
    """Shapes, dtypes and ``requires_grad`` of tensors that a function has seen."""

    def __init__(self, cells: dict[str, Cell], seen: dict[str, Any]) -> None:
        own = {id(c.tensor): c for c in cells.values() if type(c) is Cell}
        more = {name: t for name, t in seen.items() if id(t) not in own}
        self.names = [c.variable.name for c in own.values()] + list(more)
        self.tensors = [c.tensor for c in own.values()] + list(more.values())
        self.kinds = [_tensor_kind(t) for t in self.tensors]
        self._prepare()

    def _prepare(self) -> None:
        self.arrays = list(map(_data, self.tensors))
        self.nodes = list(map(_node, self.tensors))

    def holds(self) -> bool:
        tensors = self.tensors
        return (
            all(map(is_, map(_data, tensors), self.arrays))
            and all(map(is_, map(_node, tensors), self.nodes))
        ) or self.changed() is None

    def changed(self) -> str | None:
        """Name a tensor that is of another kind now, in words."""
        for name, tensor, was in zip(self.names, self.tensors, self.kinds, strict=True):
            now = _tensor_kind(tensor)
            if now != was:
                return f"{name} is {_kind_text(now)}, was {_kind_text(was)}"
        self._prepare()
        return None


def _tensor_kind(tensor: Any) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape, tensor._node is not None, layout_of(tensor._data)


def _kind_text(kind: tuple[Any, ...]) -> str:
    dtype, shape, recorded, layout = kind
    text = f"{dtype.name}{list(shape)}" + (" with a gradient" if recorded else "")
    return text if layout is None else f"{text} with the layout {layout}"
