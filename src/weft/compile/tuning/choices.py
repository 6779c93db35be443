"""The numbers that decide how kernels are cut, what they are by default, and why.

The target's cost model sets them (``targets.cpu.cost_model``): what stays in a cache,
what is worth handing to another thread, what fills a register. It knows neither the
machine's other work nor its cache's neighbours, so measuring may find better ones
(``tuning.search``). They are looked up here, by what the kernel is:

    chosen(key, default)          the choice in force: being tried, stored, or default

None of them changes a bit of any result. Numbers that would (the length of sums, the
algorithm of a convolution) are not choices, so that a program gives the same bits
whether choices are stored or not.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from weft.compile.program.compiler_version import sources
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.object_code import host_isa
from weft.runtime.cpu import kernel_cache, pool

C = TypeVar("C", bound=tuple)
MOST = 4096  # choices that are stored
_LENGTH = 24  # of a key's digest, in characters


class Loops(NamedTuple):
    """How the loops of a kernel are cut; ``cost_model.Loops`` says what each is."""

    chunk: int = COST.loops.chunk
    square: int = COST.loops.square
    block: int = COST.loops.block
    wide: int = COST.loops.wide
    grain: int = COST.loops.grain


class Cut(NamedTuple):
    """The split of a product among threads, and its register tile.

    The default split is the fastest by a model of packing and of threads that take one
    task after the other (``matmul.tasks.best_split``).
    """

    across: int = 0  # blocks of columns; 0: by the model
    down: int = 0  # blocks of rows
    shape: int = 0  # of a register tile: an index into ``matmul.tiling.SHAPES``


class Columns(NamedTuple):
    """The columns that a task of a convolution computes at a time."""

    columns: int = COST.convolution.columns
    tiles: int = COST.winograd.tiles


class Measured(NamedTuple):
    """A measured choice, and the seconds of all that were tried, by their texts."""

    choice: tuple[int, ...]
    times: dict[str, float]


class Table:
    """Choices by kernel, kept on disk beside the code.

    >>> from weft.compile.tuning.choices import Measured, Table
    >>> table = Table()
    >>> table.keep({"some kernel": Measured((1024, 16, 64, 1024, 32768), {})})
    >>> table.find("some kernel").choice[0]
    1024
    """

    def __init__(self) -> None:
        self._known: dict[str, Measured] = {}
        self._lock = threading.Lock()

    def find(self, key: str) -> Measured | None:
        """The stored choice for a kernel, or None."""
        return self._known.get(_digest(key)) if self._known else None

    def keep(self, found: Mapping[str, Measured]) -> None:
        """Add choices; they replace others for the same kernels."""
        with self._lock:
            self._known |= {_digest(key): one for key, one in found.items()}

    def load(self) -> None:
        """Add choices that other processes have stored; damaged data is ignored."""
        data = kernel_cache.default().find(_cache_key()) or b""
        with self._lock:
            self._known = {**_parsed(data), **self._known}

    def save(self) -> None:
        """Store all choices for other processes, with those that these have stored."""
        self.load()
        with self._lock:
            last = dict(list(self._known.items())[-MOST:])
        text = json.dumps({key: [one.choice, one.times] for key, one in last.items()})
        kernel_cache.default().put(_cache_key(), text.encode())

    def stamp(self) -> str:
        """The cache stamp of the choices."""
        chosen = sorted((key, one.choice) for key, one in self._known.items())
        return hashlib.sha256(repr(chosen).encode()).hexdigest() if chosen else ""


def _parsed(data: bytes) -> dict[str, Measured]:
    """The choices in a stored text; anything else is left out."""
    try:
        entries = json.loads(data).items() if data else ()
    except (ValueError, AttributeError):
        return {}
    return {key: Measured(*one) for key, one in map(_checked, entries) if one}


def _checked(entry: tuple[str, Any]) -> tuple[str, Any]:
    key, value = entry
    if not isinstance(value, list) or len(value) != 2:
        return key, None
    numbers, times = value
    if not isinstance(numbers, list) or not isinstance(times, dict):
        return key, None
    right = all(type(n) is int and 0 <= n < 1 << 40 for n in numbers)
    named = all(type(t) is float for t in times.values())
    return key, ((tuple(numbers), times) if right and named else None)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:_LENGTH]


def _cache_key() -> str:
    return kernel_cache.key_of(f"choices {sources()}", host_isa().key)


class _State(threading.local):
    def __init__(self) -> None:
        self.trying: dict[str, tuple[int, ...]] = {}
        self.asked: set[str] | None = None


_state = _State()
_table: list[Table] = []


def table() -> Table:
    """The table of stored choices, loaded once."""
    if not _table:
        stored = Table()
        stored.load()
        _table.append(stored)
    return _table[0]


def threaded(key: str) -> str:
    """A kernel's key for the present number of threads."""
    return f"{pool.get_num_threads()} threads, {key}"


def chosen(key: str, default: C) -> C:
    """The choice for a kernel that is being tried, or is stored, or the default.

    A stored choice that does not fit the default's fields is ignored.
    """
    if _state.asked is not None:
        _state.asked.add(key)
    choice = _state.trying.get(key)
    if choice is None:
        stored = table().find(key)
        choice = None if stored is None else stored.choice
    if choice is None or len(choice) != len(default) or not _sensible(choice, default):
        return default
    kind: Any = type(default)
    return kind(*choice)


def _sensible(choice: tuple[int, ...], default: tuple[int, ...]) -> bool:
    """Whether numbers are positive where the default's are."""
    return all(n > 0 or not d for n, d in zip(choice, default, strict=True))


@contextmanager
def trying(choices: Mapping[str, tuple[int, ...]]) -> Iterator[None]:
    """Use these choices instead of stored ones, in this thread."""
    before = _state.trying
    _state.trying = {**before, **choices}
    try:
        yield
    finally:
        _state.trying = before


@contextmanager
def asked() -> Iterator[set[str]]:
    """Collect the keys that are looked up."""
    before, _state.asked = _state.asked, set()
    try:
        yield _state.asked
    finally:
        _state.asked = before
