"""The Loop IR: one kernel as loops over elements.

    kernel  = name, buffers, parallel loop variables with their extents, body
    body    = statement …
    stmt    = for var < extent: body        a loop; innermost ones are vectorised
            | local = value                 a scalar of this iteration
            | buffer[index, …] = value
    value   = number : dtype
            | index expression              as an int64
            | buffer[index, …]
            | local
            | function(value, …) : dtype    a scalar function, by name
    index   = polynomial over loop variables and sizes, with // and %

A buffer is row-major memory of a shape; ``scratch`` ones belong to one iteration of
the parallel loops. Loops run from 0. ``local = f(local, …)`` in a loop accumulates;
where the order of a sum may be changed, the statement says so.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.core.size import Scope, Size
from weft.dtype import DType


class Buffer(NamedTuple):
    """Memory that a kernel reads or writes."""

    name: str
    shape: tuple[Any, ...]
    dtype: DType
    scratch: bool = False

    def __str__(self) -> str:
        sizes = ", ".join(map(str, self.shape))
        return f"{self.name}: {self.dtype.name}[{sizes}]"


class Const(NamedTuple):
    """A number."""

    value: Any
    dtype: DType


class Position(NamedTuple):
    """An index expression as a value."""

    at: Any
    dtype: DType


class Load(NamedTuple):
    """A buffer's element."""

    buffer: Buffer
    at: tuple[Any, ...]

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype


class Local(NamedTuple):
    """A scalar of this iteration."""

    name: str
    dtype: DType


class Call:
    """A scalar function of values; the same object is computed once."""

    __slots__ = ("args", "dtype", "name")

    def __init__(self, name: str, args: tuple[Any, ...], dtype: DType) -> None:
        self.name = name
        self.args = args
        self.dtype = dtype


class For(NamedTuple):
    """A loop from 0 to an extent."""

    var: str
    extent: Any
    body: list[Any]


class Set(NamedTuple):
    """A local gets a value."""

    local: Local
    value: Any
    reorder: bool = False  # of an accumulation whose order does not matter


class Store(NamedTuple):
    """A buffer's element gets a value."""

    buffer: Buffer
    at: tuple[Any, ...]
    value: Any


class Kernel(NamedTuple):
    """Loops to run for every combination of the parallel variables."""

    name: str
    buffers: tuple[Buffer, ...]  # in the order of the native function's pointers
    scratch: tuple[Buffer, ...]
    parallel: tuple[tuple[str, Any], ...]
    body: list[Any]
    scope: Scope
    given: tuple[tuple[str, Any], ...] = ()  # symbols that each launch gives a size

    @property
    def sizes(self) -> list[str]:
        """The symbolic sizes it depends on, in the order of its size arguments."""
        variables = {var for var, _ in self.parallel} | _loop_vars(self.body)
        found: set[str] = set()
        for buffer in (*self.buffers, *self.scratch):
            for n in buffer.shape:
                found |= n.symbols if isinstance(n, Size) else set()
        for _, extent in self.parallel:
            found |= extent.symbols if isinstance(extent, Size) else set()
        return sorted(found - variables)

    def __str__(self) -> str:
        from weft.compile.loop.text import print_kernel

        return print_kernel(self)


def _loop_vars(body: list[Any]) -> set[str]:
    found = set()
    for stmt in body:
        if isinstance(stmt, For):
            found |= {stmt.var} | _loop_vars(stmt.body)
    return found
