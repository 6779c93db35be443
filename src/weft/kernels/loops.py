"""The loops of a kernel: its source's statements, and the memory that they write.

A grid point owns the elements of a result that have its own indices: of ``out[i, j]``
in a grid over ``i``, row ``i``. It touches no other element of a result, so that grid
points never race. Results begin as zeros, and arrays that are changed in place as what
they were:

    for i in grid(n):                      parallel i < n:
        for j in range(k):          →        for j < m: out[i, j] = 0
            out[i, j] = x[i]                 for j < k: out[i, j] = x[i]

A result that a grid point has one element of is a local, which is stored at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from weft import dtype as dtypes
from weft.compile.loop.ir import (
    Buffer,
    Call,
    Const,
    For,
    Kernel,
    Load,
    Local,
    Set,
    Store,
    When,
    facts_of,
    statements,
    subvalues,
    values_of,
)
from weft.compile.loop.rewrite import mapped, mapped_value
from weft.core.op import TensorType
from weft.core.size import Scope, Size, same, same_shape
from weft.kernels.signature import Signature
from weft.kernels.source import Source
from weft.kernels.translate import Access, Translated, translate


class Built(NamedTuple):
    """A kernel in the Loop IR, and the source lines of the indices that it checks.

    Its buffers are those of the arguments, then those of the results.
    """

    kernel: Kernel
    places: dict[str, str]


def build(
    source: Source,
    signature: Signature,
    scope: Scope,
    types: Sequence[TensorType],
    constants: Mapping[str, Any],
) -> Built:
    """The loops of a kernel for arguments of some types."""
    found = signature.bound(types, constants)
    results = signature.results(found)
    given = [Buffer(a.name, tuple(t.shape), t.dtype)
             for a, t in zip(signature.given, types, strict=True)]  # fmt: skip
    made = {a.name: Buffer(a.name, tuple(t.shape), t.dtype)
            for a, t in zip(signature.made, results, strict=True)}  # fmt: skip
    numbers = {b.name: b for b, a in zip(given, signature.given, strict=True)
               if not a.sizes and a.name not in made}  # fmt: skip
    arrays = {b.name: b for b in given if b.name not in numbers} | made
    known = {name: constants[name] for name in signature.constants}
    loops = translate(source, arrays, numbers, known, set(made), scope)
    old = {b.name: b._replace(name=f"{b.name}.old") for b in given if b.name in made}
    body = loops.body
    for buffer in made.values():
        owned = _Owned(source, loops, buffer, old.get(buffer.name))
        body = owned.body(body, scope)
    buffers = (*[old.get(b.name, b) for b in given], *made.values())
    body = marked(body)
    positive = tuple(n for n in loops.positive)
    kernel = Kernel(source.name, buffers, (), loops.grid, body, scope, (), positive)
    return Built(kernel, loops.places)


class _Owned:
    """A result of a kernel: the axes that the grid runs over, and its first values."""

    def __init__(
        self, source: Source, loops: Translated, buffer: Buffer, old: Buffer | None
    ) -> None:
        self.source, self.loops, self.buffer, self.old = source, loops, buffer, old
        uses = [a for a in loops.accesses if a.buffer.name == buffer.name]
        self.uses: list[Access] = uses
        if not any(a.writes for a in uses):
            raise source.error(
                loops.tree, f"expected {buffer.name} to be written: it is a result"
            )
        self.axes: dict[int, str] = {}
        for name, extent in loops.grid:
            if not same(extent, 1):
                self.axes[self._axis(name, extent)] = name

    def _axis(self, name: str, extent: Any) -> int:
        """The axis of the result that a variable of the grid is the index of."""
        axes = set(range(len(self.buffer.shape)))
        for use in self.uses:
            own = {d for d, i in enumerate(use.at) if _is_symbol(i, name)}
            axes &= own
            if not axes:
                var = name.rstrip("_0123456789")
                raise self.source.error(
                    use.tree,
                    f"grid points may race for {self.buffer.name}: expected {var} as "
                    "an index of its own, at the same place everywhere, since a grid "
                    f"point owns the elements of {self.buffer.name} at its indices",
                )
        axis = min(axes)
        if not same(extent, self.buffer.shape[axis]):
            raise self.source.error(
                self.loops.tree,
                f"expected a grid of {self.buffer.shape[axis]}, the size of axis "
                f"{axis} of {self.buffer.name}, got {extent}",
            )
        return axis

    def body(self, body: list[Any], scope: Scope) -> list[Any]:
        """The statements, with the first values of the result before them."""
        first = self.uses[0].at
        rest = [d for d in range(len(self.buffer.shape)) if d not in self.axes]
        alone = all(same_shape(use.at, first) for use in self.uses)
        if alone and all(same(self.buffer.shape[d], 1) for d in rest):
            place = tuple(0 if d in rest else i for d, i in enumerate(first))
            return self._as_local(body, place)
        if self.old is None and self._is_covered(body, rest):
            return body
        at = [scope.symbol(self.axes[d]) if d in self.axes else 0 for d in
              range(len(self.buffer.shape))]  # fmt: skip
        names = {d: f"o{d}{self.buffer.name.lower()}_" for d in rest}
        names = {
            d: "".join(c for c in n if c.isalnum()) + "_" for d, n in names.items()
        }
        for d, name in names.items():
            scope.bounds[name] = self.buffer.shape[d]
            at[d] = scope.symbol(name)
        start: list[Any] = [Store(self.buffer, tuple(at), self._first(tuple(at)))]
        for d in reversed(rest):
            start = [For(names[d], self.buffer.shape[d], start)]
        return [*start, *body]

    def _first(self, at: tuple[Any, ...]) -> Any:
        if self.old is None:
            return Const(0, self.buffer.dtype)
        return Load(self.old, at)

    def _as_local(self, body: list[Any], at: tuple[Any, ...]) -> list[Any]:
        name = self.buffer.name
        local = Local(f"{name}.element", self.buffer.dtype)

        def read(value: Any) -> Any:
            mine = isinstance(value, Load) and value.buffer.name == name
            return local if mine else value

        def one(stmt: Any) -> Any:
            if isinstance(stmt, (For, When)):
                stmt = stmt._replace(body=[one(s) for s in stmt.body])
            if isinstance(stmt, Store) and stmt.buffer.name == name:
                return Set(local, mapped_value(stmt.value, read, memo))
            if isinstance(stmt, For):
                return stmt
            if isinstance(stmt, When):
                return stmt._replace(condition=mapped_value(stmt.condition, read, memo))
            return mapped(stmt, read, memo)

        memo: dict[int, Any] = {}
        start = Set(local, self._first(at))
        return [start, *[one(stmt) for stmt in body], Store(self.buffer, at, local)]

    def _is_covered(self, body: list[Any], rest: list[int]) -> bool:
        """Whether a grid point surely writes all its elements before it reads any."""
        name = self.buffer.name
        if any(not use.writes for use in self.uses):  # then the first loop writes all
            first = next(s for s in body if _touches([s], name))
            if _touches([first], name, reads=True) and not _writes_first(first, name):
                return False
            body = [first]
        stores = list(_stores(body, name, {}))
        for at, loops in stores:
            names = [i.symbol_name for i in (at[d] for d in rest) if type(i) is Size]
            full = len(names) == len(rest) == len(set(names)) and set(names) == {*loops}
            if full and all(
                same(loops[n], self.buffer.shape[d])
                for n, d in zip(names, rest, strict=True)
            ):
                return True
        if len(rest) != 1 or type(self.buffer.shape[rest[0]]) is not int:
            return False
        fixed = {at[rest[0]] for at, loops in stores
                 if not loops and type(at[rest[0]]) is int}  # fmt: skip
        return fixed == set(range(self.buffer.shape[rest[0]]))


def _touches(body: list[Any], name: str, *, reads: bool = False) -> bool:
    """Whether statements write or read a buffer, or read it."""
    stmts = list(statements(body))
    values = subvalues(v for s in stmts for v in values_of(s))
    if any(isinstance(v, Load) and v.buffer.name == name for v in values):
        return True
    stores = (s for s in stmts if isinstance(s, Store))
    return not reads and any(s.buffer.name == name for s in stores)


def _writes_first(stmt: Any, name: str) -> bool:
    """Whether a nest of loops reads a buffer only where it has just written it."""
    while isinstance(stmt, For) and len(stmt.body) == 1:
        (stmt,) = stmt.body
    body = stmt.body if isinstance(stmt, For) else [stmt]
    written: Any = None
    for one in body:
        if isinstance(one, (For, When)) and _touches([one], name):
            return False
        for value in subvalues(values_of(one)):
            mine = isinstance(value, Load) and value.buffer.name == name
            if mine and (written is None or not same_shape(value.at, written)):
                return False
        if isinstance(one, Store) and one.buffer.name == name:
            written = one.at
    return True


def _is_symbol(index: Any, name: str) -> bool:
    return type(index) is Size and index.symbol_name == name


def _stores(body: list[Any], name: str, loops: dict[str, Any]) -> Any:
    """The unconditional stores to a buffer, with the loops around each."""
    for stmt in body:
        if isinstance(stmt, Store) and stmt.buffer.name == name:
            yield stmt.at, loops
        elif isinstance(stmt, For):
            yield from _stores(stmt.body, name, {**loops, stmt.var: stmt.extent})


# -- sums and extremes


def marked(body: list[Any]) -> list[Any]:
    """Statements in which sums and extremes say that their order may be changed."""
    stmts = []
    for stmt in body:
        if isinstance(stmt, (For, When)):
            stmt = stmt._replace(body=marked(stmt.body))
        if isinstance(stmt, For):
            inner = [_accumulated(s, stmt) for s in stmt.body]
            stmt = stmt._replace(body=inner)
        stmts.append(stmt)
    return stmts


def _accumulated(stmt: Any, loop: For) -> Any:
    """A statement of a loop; an accumulation that nothing else there looks at."""
    value = stmt.value if isinstance(stmt, Set) else None
    if not isinstance(value, Call) or facts_of(value.name).identity is None:
        return stmt
    local = stmt.local
    if local.dtype is dtypes.bool_ or local.dtype.itemsize < 4:
        return stmt  # half types round each sum
    if not facts_of(value.name).commutes or len(value.args) != 2:
        return stmt
    others = [a for a in value.args if not (isinstance(a, Local) and a == local)]
    uses = [v for s in statements(loop.body) for v in subvalues(values_of(s))
            if isinstance(v, Local) and v == local]  # fmt: skip
    sets = [s for s in statements(loop.body) if isinstance(s, Set) and s.local == local]
    if len(others) != 1 or len(uses) != 1 or len(sets) != 1:
        return stmt
    return Set(local, Call(value.name, (local, others[0]), value.dtype), reorder=True)
