"""The names that a code object reads and writes, from its instructions."""

from __future__ import annotations

import bisect
import dis
import functools
from collections import Counter
from collections.abc import Iterator
from types import CodeType
from typing import Any, NamedTuple

_SUBSCRIPTS = ("BINARY_SUBSCR", "BINARY_OP")
_SUBSCRIPT_CODES = {dis.opmap[name] for name in _SUBSCRIPTS if name in dis.opmap}
_CONSTANTS = ("LOAD_CONST", "LOAD_SMALL_INT")
CHANGING = ("append", "extend", "insert", "pop", "remove", "clear", "update", "add",
            "setdefault", "popitem", "discard", "sort", "reverse")  # fmt: skip


class Load(NamedTuple):
    """A name that is read, and the constant keys that index it immediately."""

    name: str
    keys: tuple[Any, ...]
    times: int  # in the text


@functools.lru_cache(maxsize=4096)
def instructions(code: CodeType) -> list[dis.Instruction]:
    """The instructions that do something."""
    idle = ("CACHE", "EXTENDED_ARG", "PRECALL", "NOP", "RESUME")
    return [one for one in dis.get_instructions(code) if one.opname not in idle]


@functools.lru_cache(maxsize=4096)
def _offsets(code: CodeType) -> list[int]:
    return [one.offset for one in instructions(code)]


@functools.lru_cache(maxsize=4096)
def _indexes(code: CodeType) -> bool:
    """Whether the code indexes anything, as its opcodes tell without disassembly."""
    return not _SUBSCRIPT_CODES.isdisjoint(code.co_code[::2])


@functools.lru_cache(maxsize=4096)
def loads(code: CodeType, kind: str = "LOAD_GLOBAL") -> tuple[Load, ...]:
    """The globals (or with LOAD_DEREF the closure's variables) that are read."""
    kinds = (kind, "LOAD_NAME") if kind == "LOAD_GLOBAL" else (kind, "LOAD_CLASSDEREF")
    found = instructions(code)
    rows = Counter(
        (one.argval, _keys(found, k + 1))
        for k, one in enumerate(found)
        if one.opname in kinds
    )
    return tuple(Load(*row, times) for row, times in rows.items())


def keys_after(code: CodeType, lasti: int, name: str) -> tuple[Any, ...]:
    """The constant keys that index the attribute which is being read."""
    if not _indexes(code):
        return ()
    at = bisect.bisect_right(_offsets(code), lasti) - 1
    found = instructions(code)
    if at < 0 or found[at].opname != "LOAD_ATTR" or found[at].argval != name:
        return ()
    return _keys(found, at + 1)


def _keys(found: list[dis.Instruction], at: int) -> tuple[Any, ...]:
    keys: list[Any] = []
    while at + 1 < len(found) and _subscripts(found[at + 1]):
        if found[at].opname not in _CONSTANTS:
            break
        key = found[at].argval
        if not isinstance(key, (str, int)):
            break
        keys.append(key)
        at += 2
    return tuple(keys)


def _subscripts(one: dis.Instruction) -> bool:
    if one.opname == "BINARY_OP":
        return one.argrepr == "[]"
    return one.opname in _SUBSCRIPTS


def inner(code: CodeType) -> Iterator[CodeType]:
    """The code objects of functions that this code makes."""
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield value
            yield from inner(value)


def imported(code: CodeType) -> set[str]:
    """The modules that a function imports itself."""
    return {o.argval for o in instructions(code) if o.opname == "IMPORT_NAME"}


def line_of_change(codes: Any, name: str) -> tuple[CodeType, int] | None:
    """The code and offset at which something of this name is probably changed."""
    second = None
    for code in codes:
        found = instructions(code)
        for k, one in enumerate(found):
            if one.argval != name:
                continue
            if one.opname.startswith(("STORE_", "DELETE_")):
                return code, one.offset
            if any(_changes(later) for later in found[k + 1 : k + 8]):
                second = second or (code, one.offset)
    return second


def line_of_use(codes: Any, name: str) -> tuple[CodeType, int] | None:
    """The code and offset at which something of this name is first used."""
    for code in codes:
        for one in instructions(code):
            if one.argval == name:
                return code, one.offset
    return None


def _changes(one: dis.Instruction) -> bool:
    if one.opname in ("STORE_SUBSCR", "DELETE_SUBSCR"):
        return True
    return one.opname in ("LOAD_METHOD", "LOAD_ATTR") and one.argval in CHANGING


class Chain(NamedTuple):
    """A variable and the attributes that are read of it, as in ``os.environ``."""

    scope: str  # of the variable: GLOBAL, DEREF (a closure's) or FAST (local)
    name: str
    path: tuple[str, ...]
    offset: int


_SCOPES = {"LOAD_GLOBAL": "GLOBAL", "LOAD_NAME": "GLOBAL", "LOAD_DEREF": "DEREF",
           "LOAD_CLASSDEREF": "DEREF", "LOAD_FAST": "FAST", "LOAD_FAST_BORROW": "FAST",
           "LOAD_FAST_CHECK": "FAST"}  # fmt: skip


def chains(code: CodeType) -> Iterator[Chain]:
    """The variables that are read, each with the attributes that follow it."""
    every = instructions(code)
    for k, one in enumerate(every):
        scope = _SCOPES.get(one.opname)
        if scope is None:
            continue
        path = []
        for later in every[k + 1 :]:
            if later.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                break
            path.append(later.argval)
        yield Chain(scope, one.argval, tuple(path), one.offset)


def local_imports(code: CodeType) -> dict[str, tuple[str, str | None]]:
    """The variables that a function's own imports set: a module, or a name of it."""
    variables: dict[str, tuple[str, str | None]] = {}
    module = attribute = None
    for one in instructions(code):
        if one.opname == "IMPORT_NAME":
            module, attribute = one.argval, None
        elif one.opname == "IMPORT_FROM":
            attribute = one.argval
        elif module is not None and one.opname in ("STORE_FAST", "STORE_DEREF"):
            root = module if attribute else module.partition(".")[0]
            variables[one.argval] = root, attribute
        elif one.opname not in ("SWAP", "POP_TOP"):  # of ``import a.b as c``
            module = None
    return variables
