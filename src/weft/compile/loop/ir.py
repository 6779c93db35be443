"""The Loop IR: one kernel as loops over elements.

    kernel  = name, buffers, parallel loop variables with their extents, body
    body    = statement …
    stmt    = for var < extent, …: body     a loop; innermost ones are vectorised
            | local = value                 a scalar of this iteration
            | buffer[index, …] = value
            | var = value within limit      an index; one outside is reported, and 0
            | var = value below limit       an index from a list that was looked at
            | when value: body
    value   = number : dtype
            | index expression              as an int64
            | buffer[index, …]
            | local
            | function(value, …) : dtype    a scalar function, by its opcode
            | index < bound ? value : value
    index   = polynomial over loop variables and sizes, with // and %

A buffer is row-major memory of a shape; ``scratch`` ones belong to one iteration of
the parallel loops. Loops run from 0. ``local = f(local, …)`` in a loop accumulates;
where the order of a sum may be changed, the statement says so. Opcodes are named as the
element-wise operators that they compute, whose facts are theirs (``facts_of``). A
target's schedule may add to a loop how it runs:

    n at once              as vectors of so many iterations
    n totals               each sum has n totals side by side, which are added by halves
    streaming buffer, …    stores to these buffers bypass the caches
    in registers           a square is transposed there
    on n threads           thread k of a block takes iterations k, k + n, … (or so many
                           neighbours at once); what they accumulate is combined by
                           halves, and all threads get it
    n times each           where each thread takes n times as many, this is written out:
                           what it has loaded stays in its registers for later loops
    looking n ahead        n threads compute the conditions of n iterations; those where
                           they hold are run by all threads, in order

A kernel with such a loop runs a block of threads for each iteration of its parallel
loops: statements around the loop give every thread the same, and one of them stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from weft.core.op import Facts, known_op
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
    """A loop from 0 to an extent.

    ``vector`` iterations are to be one vector (0: as LLVM likes). With ``totals``, the
    sums of the body are kept as so many totals: iteration k adds to the one at
    k % totals. Stores to the buffers ``streaming`` bypass the caches.
    """

    var: str
    extent: Any
    body: list[Any]
    vector: int = 0
    totals: int = 0
    streaming: tuple[str, ...] = ()
    in_registers: bool = False  # a square that is transposed
    threads: int = 0  # of a block, that share the iterations out
    ahead: int = 0  # iterations whose condition the threads look at together
    times: int = 0  # that each thread goes on, written out where it does


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


class Let(NamedTuple):
    """An index variable: a value that is clamped to 0 … limit - 1.

    A value outside sets the kernel's error flag. Negative ones count from the end
    where they ``wrap``. Those that are ``sure`` to be inside are not checked.
    """

    var: str
    value: Any
    limit: Any
    wrap: bool = False
    sure: bool = False


class When(NamedTuple):
    """Statements that run where a condition holds."""

    condition: Any
    body: list[Any]


class Choice(NamedTuple):
    """``low`` where an index is below a bound, else ``high``.

    The value that is not chosen need not exist: loops are split at the bound, or the
    indices of its loads are clamped (see ``index_choices``).
    """

    at: Any
    bound: Any
    low: Any
    high: Any

    @property
    def dtype(self) -> DType:
        return self.low.dtype


class Kernel(NamedTuple):
    """Loops to run for every combination of the parallel variables."""

    name: str
    buffers: tuple[Buffer, ...]  # in the order of the native function's pointers
    scratch: tuple[Buffer, ...]
    parallel: tuple[tuple[str, Any], ...]
    body: list[Any]
    scope: Scope
    given: tuple[tuple[str, Any], ...] = ()  # symbols that each launch gives a size
    positive: tuple[Any, ...] = ()  # sizes that must be at least 1 for it to run
    shared: tuple[tuple[str, str], ...] = ()  # (read, written in its memory)

    @property
    def checks(self) -> bool:
        """Whether it has an error flag: one more number after the sizes."""
        found = list(statements(self.body))
        if any(isinstance(stmt, Let) and not stmt.sure for stmt in found):
            return True
        return any(
            map(divides, subvalues(v for stmt in found for v in values_of(stmt)))
        )

    @property
    def takers(self) -> dict[str, str]:
        """The last buffers in the memory of those that others have taken over."""
        found: dict[str, str] = {}
        for given, made in reversed(self.shared):  # one may take and then give
            found[given] = found.get(made, made)
        return found

    @property
    def sizes(self) -> list[str]:
        """The symbolic sizes it depends on, in the order of its size arguments."""
        inner = (s for s in statements(self.body) if isinstance(s, (For, Let)))
        variables = {v for v, _ in self.parallel} | {s.var for s in inner}
        parts = (self.buffers, self.scratch, self.parallel, self.body)
        return sorted(_symbols(parts, {}) - variables)

    def __str__(self) -> str:
        from weft.compile.loop.text import print_kernel

        return print_kernel(self)


def _symbols(fragment: Any, seen: dict[int, Any]) -> set[str]:
    """The symbols of all sizes and indices in a fragment of a kernel."""
    if isinstance(fragment, Size):
        return set(fragment.symbols)
    if not isinstance(fragment, (tuple, list, Call)) or id(fragment) in seen:
        return set()
    seen[id(fragment)] = fragment
    inner = fragment.args if isinstance(fragment, Call) else fragment
    return {name for one in inner for name in _symbols(one, seen)}


def sums_of(stmt: For) -> list[Local]:
    """The floating-point sums that a loop without others in it adds to."""
    if any(isinstance(s, For) for s in stmt.body):
        return []
    found = [s for s in stmt.body if isinstance(s, Set) and s.reorder]
    return [s.local for s in found if _adds(s)]


def combined(stmt: For) -> list[Set]:
    """The statements with which iterations accumulate, in any order."""
    return [s for s in stmt.body if isinstance(s, Set) and s.reorder]


def thread_of(stmt: For, iteration: int) -> int:
    """The thread of a block that takes an iteration."""
    return iteration // max(stmt.vector, 1) % stmt.threads


def block_size(kernel: Kernel) -> int:
    """The threads that run each iteration of the parallel loops; 1 for one alone."""
    loops = (s for s in statements(kernel.body) if isinstance(s, For))
    return max((s.threads for s in loops), default=0) or 1


def _adds(stmt: Set) -> bool:
    value = stmt.value
    adds = isinstance(value, Call) and value.name == "add"
    return adds and value.args[0] == stmt.local and value.dtype.is_inexact


_NO_OPERATOR = Facts(exact=True)  # random words, sort keys


def facts_of(name: str) -> Facts:
    """The facts of a scalar function, which are those of the operator it is named as.

    >>> from weft.compile.loop.ir import facts_of
    >>> facts_of("add").infix, facts_of("sort_key").exact
    ('+', True)
    """
    op = known_op(name)
    return _NO_OPERATOR if op is None else op.facts


def divides(value: Any) -> bool:
    """Whether a value is an integer division, for which a divisor of 0 is an error."""
    return (
        isinstance(value, Call)
        and not value.dtype.is_inexact
        and (op := known_op(value.name)) is not None
        and bool(op.refuses)
    )


def statements(body: list[Any]) -> Iterator[Any]:
    """All statements, nested ones too."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, (For, When)):
            yield from statements(stmt.body)


def values_of(stmt: Any) -> list[Any]:
    """The values that a statement computes itself."""
    if isinstance(stmt, (Set, Store, Let)):
        return [stmt.value]
    return [stmt.condition] if isinstance(stmt, When) else []


def subvalues(values: Iterable[Any], known: set[int] | None = None) -> Iterator[Any]:
    """Values and all that they are computed from, each once.

    Calls in ``known`` are left out, and those that are met are added to it.
    """
    stack, seen = list(values), set()
    while stack:
        value = stack.pop()
        if id(value) in seen or (known is not None and id(value) in known):
            continue
        seen.add(id(value))
        if known is not None and isinstance(value, Call):
            known.add(id(value))
        yield value
        if isinstance(value, Call):
            stack.extend(value.args)
        elif isinstance(value, Choice):
            stack += [value.low, value.high]
