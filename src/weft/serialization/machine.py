"""Pickles from untrusted files, read by a machine of our own.

A pickle is a program for a stack machine. Python's own machine imports and calls
whatever the program names. This one has the same instructions (protocols 0 to 5), but
a name means only what ``names`` says, and nothing is called but the rules found there:

    GLOBAL            names.find(path)          a value, and rules for it
    REDUCE INST OBJ   rule.call(machine, …)
    NEWOBJ            rule.new(machine, …)
    BUILD             names.build(machine, object, state)
    BINPERSID         persistent(id)            a storage

It does not recurse, however deep the nesting. Memory for the objects is limited to
``GROWTH`` bytes for each byte of the pickle that was read, and an allowance. Keys are
hashed only if they are small, since Python hashes a tuple of tuples anew each time.
"""

from __future__ import annotations

import struct
import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from weft.core.device import Device
from weft.core.tensor import Tensor
from weft.dtype import DType
from weft.errors import DeviceError, FileFormatError
from weft.serialization.text import ALLOWANCE, Complain

GROWTH = 32  # bytes of objects for a byte of a pickle
SLOT = 16  # bytes for an entry of the stack or of a list
ENTRY = 104  # bytes for an entry of a dictionary, a set or the memo
OBJECT = 1000  # bytes for an object that a rule makes
LINE = 1 << 16  # the longest line of text
KEY = 1000  # objects in a key, at most
_SIMPLE = (str, int, bool, float, bytes, complex, type(None))
_DICTS = (dict, OrderedDict, Counter, defaultdict)
_OURS = (FileFormatError, DeviceError, MemoryError)  # errors that say enough


class Known(NamedTuple):
    """A name's value, and what a file may do with it: call it, or make an object."""

    value: Any
    call: Callable[..., Any] | None = None
    new: Callable[..., Any] | None = None


class Source:
    """Bytes of a file from where it stands, up to a given count."""

    def __init__(self, file: Any, size: int, bad: Complain) -> None:
        self.file = file
        self.left = size
        self.bad = bad

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise self.bad(f"ends in the middle of {count:,} bytes")
        data = self.file.read(count)
        if len(data) != count:
            raise self.bad(f"ends in the middle of {count:,} bytes")
        self.left -= count
        return data

    def line(self) -> bytes:
        """A line of text, without its end."""
        found = bytearray()
        while (byte := self.take(1)) != b"\n":
            found += byte
            if len(found) > LINE:
                raise self.bad("a line of text in the pickle is too long")
        return bytes(found)


class Machine:
    """One pickle, read to its end by ``run``."""

    def __init__(
        self,
        source: Source,
        names: Any,
        persistent: Callable[[Any], Any],
        encoding: str = "utf-8",
    ) -> None:
        self.source = source
        self.names = names
        self.persistent = persistent
        self.encoding = encoding
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.known: dict[int, Known] = {}  # by the id of the value
        self.start = source.left
        self.spent = 0

    def run(self) -> Any:
        """The object that the pickle describes."""
        take = self.source.take
        while (code := take(1)) != b".":
            step = _STEPS.get(code)
            if step is None:
                raise self.bad(f"the pickle has an unknown instruction, {code!r}")
            step(self)
        return self.pop()

    def bad(self, reason: str) -> FileFormatError:
        error = self.source.bad(reason)
        assert isinstance(error, FileFormatError)
        return error

    def spend(self, count: int) -> None:
        self.spent += count
        if self.spent > ALLOWANCE + GROWTH * (self.start - self.source.left):
            raise self.bad(
                f"reading it would take more than {GROWTH} times the memory of its "
                f"pickle and {ALLOWANCE >> 20} MB"
            )

    # -- the stack

    def push(self, value: Any) -> None:
        self.spend(SLOT + sys.getsizeof(value))
        self.stack.append(value)

    def pop(self) -> Any:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise self.bad("the pickle takes more from its stack than there is")
        return self.stack.pop()

    def top(self) -> Any:
        value = self.pop()
        self.stack.append(value)
        return value

    def mark(self) -> None:
        self.spend(5 * SLOT)
        self.marks.append(len(self.stack))

    def pop_mark(self) -> list[Any]:
        if not self.marks:
            raise self.bad("the pickle goes back to a mark that it never set")
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def pop_args(self) -> tuple[Any, ...]:
        args = self.pop()
        if type(args) is not tuple:
            raise self.bad("expected the arguments of a call to be a tuple")
        return args

    # -- the memo

    def remember(self, number: int) -> None:
        self.spend(ENTRY)
        self.memo[number] = self.top()

    def recall(self, number: int) -> None:
        if number not in self.memo:
            raise self.bad(f"the pickle refers to object {number}, which it lacks")
        self.spend(SLOT)
        self.stack.append(self.memo[number])

    # -- values

    def integer(self, count: int) -> int:
        return int.from_bytes(self.source.take(count), "little")

    def sized(self, width: int) -> bytes:
        """Bytes that follow their count."""
        return self.source.take(self.integer(width))

    def text(self, data: bytes, how: str = "utf-8") -> str:
        errors = "surrogatepass" if how == "utf-8" else "strict"
        try:
            return data.decode(how, errors)
        except (ValueError, LookupError) as error:
            raise self.bad(f"a text in the pickle is no {how}: {error}") from None

    def old_text(self, data: bytes) -> str | bytes:
        """A string of Python 2, which knew no difference from bytes."""
        return data if self.encoding == "bytes" else self.text(data, self.encoding)

    def number(self, kind: Callable[[str], Any]) -> Any:
        """A number that is written as a line."""
        line = self.source.line()
        if kind is int and line in (b"00", b"01"):
            return line == b"01"
        try:
            return kind(self.text(line.removesuffix(b"L"), "ascii"))
        except ValueError:
            raise self.bad("the pickle has a number that is none") from None

    def escaped(self) -> bytes:
        """A string of protocol 0: quoted, with escapes."""
        line = self.source.line().strip()
        if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"'):
            raise self.bad("the pickle has a string without quotes")
        body = self.text(line[1:-1], "ascii")
        try:
            return body.encode().decode("unicode_escape").encode("latin-1")
        except ValueError as error:
            raise self.bad(f"the pickle has a wrong escape: {error}") from None

    # -- containers

    def key(self, value: Any) -> Any:
        """A value that may be hashed, in little time and by no code of a file's."""
        if type(value) in _SIMPLE:
            return value
        todo, count = [value], 0
        while todo:
            item = todo.pop()
            count += 1
            if type(item) in (tuple, frozenset):
                todo += item if len(item) + count <= KEY else [{}]
            elif not isinstance(item, (*_SIMPLE, DType, Device, Tensor, Enum, type)):
                raise self.bad(
                    "expected keys of numbers, strings and small tuples of them, got "
                    f"a {type(value).__name__}"
                )
        return value

    def fill(self, target: Any, items: list[Any]) -> None:
        """Enter keys and values, which alternate, in a dictionary."""
        if type(target) not in _DICTS:
            raise self.bad(
                f"expected a dictionary to set items of, got a {type(target).__name__}"
            )
        if len(items) % 2:
            raise self.bad("the pickle has a key without a value")
        self.spend(ENTRY * (len(items) // 2))
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[self.key(key)] = value

    def extend(self, target: Any, items: list[Any]) -> None:
        if type(target) is not list:
            raise self.bad(
                f"expected a list to append to, got a {type(target).__name__}"
            )
        self.spend(SLOT * len(items))
        target.extend(items)

    def members(self, items: Any) -> Any:
        """Values that may be in a set."""
        self.spend(ENTRY * len(items))
        return map(self.key, items)

    # -- names and rules

    def name(self, module: str, name: str) -> Any:
        """Look up what a name means, and its rules."""
        found = self.names.find(module, name)
        self.spend(ENTRY)
        self.known[id(found.value)] = found
        return found.value

    def apply(self, value: Any, kind: str, args: tuple[Any, ...]) -> Any:
        """What a rule makes of arguments."""
        known = self.known.get(id(value))
        rule = None if known is None else getattr(known, kind)
        if known is None or known.value is not value or rule is None:
            raise self.bad(
                f"the pickle calls a {type(value).__name__}, which is not a name that "
                "files may call"
            )
        self.spend(OBJECT)
        try:
            return rule(self, *args)
        except _OURS:
            raise
        except Exception as error:
            who = getattr(value, "__qualname__", type(value).__name__)
            raise self.bad(f"{who} has wrong arguments: {error}") from error

    def call(self, kind: str = "call") -> None:
        args = self.pop_args()
        self.push(self.apply(self.pop(), kind, args))

    def instance(self, value: Any, args: list[Any]) -> None:
        """An object of Python 2: a class and its arguments."""
        known = self.known.get(id(value))
        kind = "new" if known is not None and known.call is None else "call"
        self.push(self.apply(value, kind, tuple(args)))

    def build(self) -> None:
        state = self.pop()
        self.spend(OBJECT)
        try:
            self.names.build(self, self.top(), state)
        except _OURS:
            raise
        except Exception as error:
            who = type(self.top()).__name__
            raise self.bad(f"a {who} has a wrong state: {error}") from error


# -- instructions


def _put_text(m: Machine) -> None:
    m.remember(m.number(int))


def _global(m: Machine) -> None:
    module, name = m.text(m.source.line()), m.text(m.source.line())
    m.push(m.name(module, name))


def _stack_global(m: Machine) -> None:
    name, module = m.pop(), m.pop()
    if type(name) is not str or type(module) is not str:
        raise m.bad("expected a name to be a string")
    m.push(m.name(module, name))


def _inst(m: Machine) -> None:
    module, name = m.text(m.source.line()), m.text(m.source.line())
    m.instance(m.name(module, name), m.pop_mark())


def _obj(m: Machine) -> None:
    kind, *args = m.pop_mark() or [None]
    m.instance(kind, args)


def _new_keywords(m: Machine) -> None:
    keywords = m.pop()
    if type(keywords) is not dict or keywords:
        raise m.bad("the pickle makes an object with keywords, which is not supported")
    m.call("new")


def _append(m: Machine) -> None:
    item = m.pop()
    m.extend(m.top(), [item])


def _appends(m: Machine) -> None:
    items = m.pop_mark()
    m.extend(m.top(), items)


def _setitem(m: Machine) -> None:
    value, key = m.pop(), m.pop()
    m.fill(m.top(), [key, value])


def _setitems(m: Machine) -> None:
    items = m.pop_mark()
    m.fill(m.top(), items)


def _additems(m: Machine) -> None:
    items = m.pop_mark()
    if type(m.top()) is not set:
        raise m.bad(f"expected a set to add to, got a {type(m.top()).__name__}")
    m.top().update(m.members(items))


def _dict(m: Machine) -> None:
    items = m.pop_mark()
    m.push({})
    m.fill(m.top(), items)


def _tuple_of(count: int) -> Callable[[Machine], None]:
    def step(m: Machine) -> None:
        items = [m.pop() for _ in range(count)]
        m.push(tuple(items[::-1]))

    return step


def _persistent(m: Machine) -> None:
    found = m.persistent(m.pop())
    m.spend(OBJECT)
    m.push(found)


def _refuse(what: str) -> Callable[[Machine], None]:
    def step(m: Machine) -> None:
        raise m.bad(f"the pickle has {what}, which no file of tensors needs")

    return step


def _int4(m: Machine) -> int:
    return struct.unpack("<i", m.source.take(4))[0]


def _long(m: Machine, width: int) -> int:
    return int.from_bytes(m.sized(width), "little", signed=True)


def _raw_unicode(m: Machine) -> str:
    return m.text(m.source.line(), "raw_unicode_escape")


_STEPS: dict[bytes, Callable[[Machine], Any]] = {
    # the stack and the memo
    b"\x80": lambda m: m.source.take(1),  # the protocol
    b"\x95": lambda m: m.source.take(8),  # a frame
    b"(": Machine.mark,
    b"0": Machine.pop,
    b"1": Machine.pop_mark,
    b"2": lambda m: m.push(m.top()),
    b"p": _put_text,
    b"q": lambda m: m.remember(m.integer(1)),
    b"r": lambda m: m.remember(m.integer(4)),
    b"\x94": lambda m: m.remember(len(m.memo)),
    b"g": lambda m: m.recall(m.number(int)),
    b"h": lambda m: m.recall(m.integer(1)),
    b"j": lambda m: m.recall(m.integer(4)),
    # numbers
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"I": lambda m: m.push(m.number(int)),
    b"L": lambda m: m.push(m.number(int)),
    b"F": lambda m: m.push(m.number(float)),
    b"J": lambda m: m.push(_int4(m)),
    b"K": lambda m: m.push(m.integer(1)),
    b"M": lambda m: m.push(m.integer(2)),
    b"\x8a": lambda m: m.push(_long(m, 1)),
    b"\x8b": lambda m: m.push(_long(m, 4)),
    b"G": lambda m: m.push(struct.unpack(">d", m.source.take(8))[0]),
    # texts and bytes
    b"S": lambda m: m.push(m.old_text(m.escaped())),
    b"T": lambda m: m.push(m.old_text(m.sized(4))),
    b"U": lambda m: m.push(m.old_text(m.sized(1))),
    b"V": lambda m: m.push(_raw_unicode(m)),
    b"X": lambda m: m.push(m.text(m.sized(4))),
    b"\x8c": lambda m: m.push(m.text(m.sized(1))),
    b"\x8d": lambda m: m.push(m.text(m.sized(8))),
    b"C": lambda m: m.push(m.sized(1)),
    b"B": lambda m: m.push(m.sized(4)),
    b"\x8e": lambda m: m.push(m.sized(8)),
    b"\x96": lambda m: m.push(bytearray(m.sized(8))),
    # containers
    b")": lambda m: m.push(()),
    b"]": lambda m: m.push([]),
    b"}": lambda m: m.push({}),
    b"\x8f": lambda m: m.push(set()),
    b"t": lambda m: m.push(tuple(m.pop_mark())),
    b"\x85": _tuple_of(1),
    b"\x86": _tuple_of(2),
    b"\x87": _tuple_of(3),
    b"l": lambda m: m.push(m.pop_mark()),
    b"d": _dict,
    b"\x91": lambda m: m.push(frozenset(m.members(m.pop_mark()))),
    b"a": _append,
    b"e": _appends,
    b"s": _setitem,
    b"u": _setitems,
    b"\x90": _additems,
    # names and rules
    b"c": _global,
    b"\x93": _stack_global,
    b"R": Machine.call,
    b"\x81": lambda m: m.call("new"),
    b"\x92": _new_keywords,
    b"b": Machine.build,
    b"i": _inst,
    b"o": _obj,
    b"Q": _persistent,
    b"P": _refuse("a persistent name"),
    b"\x82": _refuse("an extension"),
    b"\x83": _refuse("an extension"),
    b"\x84": _refuse("an extension"),
    b"\x97": _refuse("a buffer outside of it"),
    b"\x98": _refuse("a buffer outside of it"),
}


# -- reading without making anything


class _Opaque:
    """An object that a pickle would make."""


class _AnyName:
    """Every name is known, and means nothing but itself."""

    def __init__(self) -> None:
        self.seen: dict[str, None] = {}

    def find(self, module: str, name: str) -> Known:
        path = plain_path(module, name)
        self.seen[path] = None
        return Known(_Path(path))

    def build(self, machine: Machine, target: Any, state: Any) -> None:
        """Leave the object as it is."""


class _Path:
    """A name in a pickle that is only scanned."""

    def __init__(self, path: str) -> None:
        self.path = path


class Scan(Machine):
    """A pickle whose names and storages are listed, and of which nothing is made."""

    def __init__(self, source: Source, encoding: str = "utf-8") -> None:
        self.storages: list[Any] = []
        super().__init__(source, _AnyName(), self._note, encoding)

    def _note(self, saved: Any) -> Any:
        self.storages.append(saved)
        return _Opaque()

    def apply(self, value: Any, kind: str, args: tuple[Any, ...]) -> Any:
        self.spend(OBJECT)
        return _Opaque()

    def key(self, value: Any) -> Any:
        return value if type(value) in _SIMPLE else len(self.memo)

    def fill(self, target: Any, items: list[Any]) -> None:
        if not isinstance(target, _Opaque):
            super().fill(target, items)

    def extend(self, target: Any, items: list[Any]) -> None:
        if not isinstance(target, _Opaque):
            super().extend(target, items)


_RENAMED = {
    "__builtin__": "builtins", "copy_reg": "copyreg", "UserDict": "collections",
    "torch.tensor": "torch._tensor",
}  # fmt: skip


def plain_path(module: str, name: str) -> str:
    """The whole name, as Python 3 has it."""
    return f"{_RENAMED.get(module, module)}.{name}"
