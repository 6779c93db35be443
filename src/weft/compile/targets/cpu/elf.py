"""Object code, put into memory and linked here: ELF for x86-64.

LLVM can do this too, but has to start for it, which takes longer than all that a
program which was compiled before has to do otherwise. Object code that holds anything
else than what LLVM makes of our modules is ``Unknown``, and left to LLVM's loader.

    text rodata … stubs | bss …

Code and constants are read and run, not written, once they are there; what follows on
pages of its own is written and not run. Calls of functions too far away lead to a stub
that jumps on.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.runtime import system
from weft.runtime.cpu.address import address

HEADER = "<4sBBBBB7xHHIQQQIHHHHHH"
_KIND, _MACHINE = 1, 62  # relocatable, for x86-64
SECTION = np.dtype([
    ("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("address", "<u8"),
    ("offset", "<u8"), ("size", "<u8"), ("link", "<u4"), ("info", "<u4"),
    ("alignment", "<u8"), ("entry", "<u8"),
])  # fmt: skip
SYMBOL = np.dtype([
    ("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"),
    ("value", "<u8"), ("size", "<u8"),
])  # fmt: skip
RELOCATION = np.dtype([
    ("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8"),
])  # fmt: skip
_PROGRAM, _SYMBOLS, _RELOCATIONS, _NO_BITS, _UNWINDING = 1, 2, 4, 8, 0x70000001
_WRITTEN, _LOADED = 1, 2  # flags of sections
_SPECIAL = 0xFF00  # sections from here on are none
_RELATIVE, _CALL, _TABLE = 2, 4, (9, 41, 42)  # kinds of relocations
_STUB = 16  # bytes: a jump, and the address that it leads to
_PAGE = mmap.PAGESIZE
_MOST = 1 << 28  # bytes of memory

given: dict[str, int] = {}  # functions and data of ours that code may name


class Unknown(Exception):
    """Object code of a kind that is left to LLVM's loader."""


class Loaded(NamedTuple):
    """Code in memory, for as long as this is there."""

    memory: Any  # what holds it
    functions: dict[str, int]


class _Object:
    """One file of object code, and where its sections go."""

    def __init__(self, code: bytes) -> None:
        self.code = code
        head = struct.unpack_from(HEADER, code)
        good = (b"\x7fELF", 2, 1), (_KIND, _MACHINE)
        if (head[:3], head[6:8]) != good:
            raise Unknown("not ELF for x86-64")
        where, count = head[11], head[17]
        self.sections = self._table(SECTION, where, count)
        self.start = np.zeros(count, np.int64)  # of each section, in memory
        (tables,) = np.flatnonzero(self.sections["type"] == _SYMBOLS)
        table = self.sections[tables]
        self.symbols = self._table(SYMBOL, table["offset"], table["size"] // 24)
        names = self.sections[table["link"]]
        self.names = code[names["offset"] : names["offset"] + names["size"]]

    def _table(self, kind: Any, where: Any, count: Any) -> np.ndarray:
        return np.frombuffer(self.code, kind, int(count), int(where))

    def name(self, symbol: Any) -> str:
        at = int(symbol["name"])
        return self.names[at : self.names.index(b"\0", at)].decode()

    def place(self, at: int, *, written: bool) -> int:
        """Lay out the sections that are ``written``, or the others, from ``at`` on."""
        for k, section in enumerate(self.sections):
            if not section["flags"] & _LOADED or section["type"] == _UNWINDING:
                continue
            if section["type"] not in (_PROGRAM, _NO_BITS):
                raise Unknown("a section of another kind")
            if bool(section["flags"] & _WRITTEN) == written:
                alignment = max(int(section["alignment"]), 1)
                if alignment > _PAGE:
                    raise Unknown("a section that wants more than a page")
                self.start[k] = at = -(-at // alignment) * alignment
                at += int(section["size"])
        return at

    def fill(self, memory: np.ndarray) -> None:
        for start, section in zip(self.start, self.sections, strict=True):
            if start and section["type"] == _PROGRAM:
                where, size = int(section["offset"]), int(section["size"])
                if where + size > len(self.code):
                    raise Unknown("a section beyond the end")
                memory[start : start + size] = self._table(np.uint8, where, size)

    def defined(self, base: int) -> dict[str, int]:
        """The addresses of symbols that others may name."""
        symbols = {}
        section = self.symbols["section"]
        inside = (section > 0) & (section < _SPECIAL)
        for symbol in self.symbols[self._shared() & inside]:
            start = int(self.start[symbol["section"]])
            symbols[self.name(symbol)] = base + start + int(symbol["value"])
        return symbols

    def _shared(self) -> np.ndarray:
        """Whether other files may name each symbol."""
        return self.symbols["info"] >> 4 != 0

    def _foreign(self) -> np.ndarray:
        """The indices of symbols that are defined elsewhere."""
        found = np.flatnonzero(self._shared() & (self.symbols["section"] == 0))
        return found[found > 0]

    def named(self) -> list[str]:
        """The names of symbols that are defined elsewhere."""
        return [self.name(symbol) for symbol in self.symbols[self._foreign()]]

    def addresses(self, base: int, known: dict[str, int]) -> np.ndarray:
        """The address of each symbol."""
        found = np.zeros(len(self.symbols), np.int64)
        inner = (self.symbols["section"] > 0) & (self.symbols["section"] < _SPECIAL)
        sections = self.symbols["section"][inner]
        values = self.symbols["value"][inner].astype(np.int64)
        found[inner] = base + self.start[sections] + values
        for k in self._foreign():
            found[k] = known[self.name(self.symbols[k])]
        return found

    def link(
        self, memory: np.ndarray, base: int, found: np.ndarray, stubs: Any
    ) -> None:
        """Put distances where the code has none yet."""
        for table in self.sections[self.sections["type"] == _RELOCATIONS]:
            start = int(self.start[table["info"]])
            if not start:
                continue  # of what is not loaded
            rows = self._table(RELOCATION, table["offset"], table["size"] // 24)
            size = int(self.sections[table["info"]]["size"])
            kinds = rows["type"]
            if not np.isin(kinds, (_RELATIVE, _CALL, *_TABLE)).all():
                raise Unknown("a relocation of another kind")
            if len(rows) and int(rows["offset"].max()) + 4 > size:
                raise Unknown("a relocation beyond its section")
            at = start + rows["offset"].astype(np.int64)
            to = found[rows["symbol"]]
            far = np.abs(to - (base + at)) >= 1 << 31
            for k in np.flatnonzero(far | np.isin(kinds, _TABLE)):
                to[k] = stubs.lead(int(to[k]), table=kinds[k] in _TABLE)
                if kinds[k] == _RELATIVE and far[k]:
                    raise Unknown("data that is too far away")
            distance = to + rows["addend"] - (base + at)
            words = distance.astype("<i4")
            if (words != distance).any():
                raise Unknown("a distance that is too long")
            memory[at[:, None] + np.arange(4)] = words.view(np.uint8).reshape(-1, 4)


class _Stubs:
    """Jumps to what is far away, and the addresses that they read."""

    def __init__(self, memory: np.ndarray, base: int, first: int, end: int) -> None:
        self.memory, self.base, self.next, self.end = memory, base, first, end
        self.made: dict[int, int] = {}

    def lead(self, to: int, *, table: bool) -> int:
        """The address of a stub that jumps on; with ``table``, of the word it reads."""
        at = self.made.get(to)
        if at is None:
            self.made[to] = at = self.next
            self.next += _STUB
            if self.next > self.end:
                raise Unknown("more stubs than symbols")
            # jmp *2(%rip); two bytes that nobody sees; the address
            stub = b"\xff\x25\x02\0\0\0\0\0" + struct.pack("<q", to)
            self.memory[at : at + _STUB] = np.frombuffer(stub, np.uint8)
        return self.base + at + 8 * table


def load(codes: Sequence[bytes]) -> Loaded:
    """Object code that may call one another, ready to run; ``Unknown`` if it cannot.

    >>> weft.compile.targets.cpu.elf.load([b"no code"])
    Traceback (most recent call last):
    weft.compile.targets.cpu.elf.Unknown: not whole
    """
    try:
        return _load([_Object(code) for code in codes])
    except (LookupError, OSError, OverflowError, ValueError, struct.error) as error:
        raise Unknown("not whole") from error


def _load(objects: list[_Object]) -> Loaded:
    at = _STUB  # nothing begins at 0
    for one in objects:
        at = one.place(at, written=False)
    first = -(-at // _STUB) * _STUB
    fixed = first + _STUB * sum(len(one.symbols) for one in objects)
    end = fixed = -(-fixed // _PAGE) * _PAGE
    for one in objects:
        end = one.place(end, written=True)
    if end > _MOST:
        raise Unknown("too much")
    pages = system.code_pages(max(end, fixed))
    memory = np.frombuffer(pages, np.uint8)
    base = address(memory)
    functions: dict[str, int] = {}
    for one in objects:
        one.fill(memory)
        functions |= one.defined(base)
    outside = {name for one in objects for name in one.named()} - set(functions)
    known = functions | {name: _outside(name) for name in outside}
    stubs = _Stubs(memory, base, first, fixed)
    for one in objects:
        one.link(memory, base, one.addresses(base, known), stubs)
    del memory
    if not system.make_runnable(base, fixed):
        raise Unknown("the system does not let it run")
    return Loaded(pages, functions)


def _outside(name: str) -> int:
    """A function of ours, or of the system's."""
    found = given.get(name) or system.address_of(name)
    if not found:
        raise Unknown(f"{name} is not known")
    return found
