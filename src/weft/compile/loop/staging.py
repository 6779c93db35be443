"""Schedules that keep values in scratch memory of the kernel.

    cache    a block of a buffer is copied to scratch memory before loops that use it,
             or from there afterwards
    sink     a loop is moved inside the loops it contains, so that they run over memory
             in order; locals become arrays

As in ``schedule``, a kernel of the same meaning comes out, or a GraphError.
"""

from __future__ import annotations

from typing import Any

from weft.compile.loop.depend import flat_position, independent, symbols_of
from weft.compile.loop.ir import (
    Buffer,
    Choice,
    For,
    Kernel,
    Let,
    Load,
    Local,
    Set,
    Store,
    When,
    statements,
    subvalues,
    values_of,
)
from weft.compile.loop.ranges import at_most, coefficient
from weft.compile.loop.rewrite import changed, mapped, replaced, uses, with_accesses
from weft.core.size import Size, same, same_shape
from weft.graph.ir import GraphError


def sink(kernel: Kernel, var: str) -> Kernel:
    """A loop, moved inside the loops that it contains.

    >>> from weft.compile.loop.staging import example
    >>> print(example())
    kernel columns(x: float32[50, 8], y: float32[8])
      for j < 8:
        sum = 0
        for i < 50:
          sum = sum + x[i, j]  # in any order
        y[j] = sum
    >>> print(sink(example(), "j"))
    kernel columns(x: float32[50, 8], y: float32[8])
      scratch sum: float32[8]
      for j < 8:
        sum[j] = 0
      for i < 50:
        for j < 8:
          sum[j] = sum[j] + x[i, j]
      for j < 8:
        y[j] = sum[j]
    """
    arrays: dict[str, Buffer] = {}

    def sunk(loop: For) -> list[Any]:
        why = independent(var, loop.body, loop.extent) or _bound(loop)
        if why:
            raise GraphError(f"{kernel.name}: {var} stays outside, for {why}")
        size = most(loop.extent)
        for stmt in statements(loop.body):
            if isinstance(stmt, Set):
                name, dtype = stmt.local
                arrays[name] = Buffer(name, (size,), dtype, scratch=True)
        place = kernel.scope.symbol(var)
        body = _with_arrays(loop.body, arrays, place)
        return _distributed(body, loop)

    body = changed(kernel.body, var, sunk)
    if body is None:
        raise GraphError(f"{kernel.name}: expected a loop over {var!r}")
    return kernel._replace(body=body, scratch=(*kernel.scratch, *arrays.values()))


def _bound(loop: For) -> str | None:
    """Why a loop cannot be moved into others."""
    if most(loop.extent) is None:
        return f"how far it goes is not known: {loop.extent}"
    for stmt in statements(loop.body):
        if isinstance(stmt, For) and loop.var in symbols_of(stmt.extent):
            return f"{stmt.var} ends at {stmt.extent}"
    return None


def most(extent: Any) -> int | None:
    """The largest number of iterations, if that is known.

    >>> from weft.core.size import Scope, smaller
    >>> n = Scope().symbol("n")
    >>> most(smaller(n, 8)), most(n)
    (8, None)
    """
    if not isinstance(extent, Size):
        return extent
    if len(extent.terms) == 1:
        ((atoms, factor),) = extent.terms
        if factor == 1 and len(atoms) == 1 and atoms[0].kind == "min":
            ends = [most(atoms[0].a), most(atoms[0].b)]
            known = [end for end in ends if end is not None]
            return min(known, default=None)
    constant = sum(factor for atoms, factor in extent.terms if not atoms)
    return constant if at_most(extent, constant) else None


def _with_arrays(body: list[Any], arrays: dict[str, Buffer], place: Any) -> list[Any]:
    """Statements with locals that are elements of arrays."""

    def loaded(value: Any) -> Any:
        array = arrays.get(value.name) if isinstance(value, Local) else None
        return value if array is None else Load(array, (place,))

    def stored(stmt: Any) -> Any:
        if isinstance(stmt, (For, When)):
            return stmt._replace(body=[stored(s) for s in stmt.body])
        if isinstance(stmt, Set):
            return Store(arrays[stmt.local.name], (place,), stmt.value)
        return stmt

    memo: dict[int, Any] = {}
    return [stored(mapped(stmt, loaded, memo)) for stmt in body]


def _distributed(body: list[Any], loop: For) -> list[Any]:
    """A loop around each stretch of statements, and inside the other loops."""
    loops: list[Any] = []
    for stmt in body:
        if isinstance(stmt, For):
            loops.append(stmt._replace(body=_distributed(stmt.body, loop)))
        elif loops and isinstance(loops[-1], For) and loops[-1].var == loop.var:
            loops[-1].body.append(stmt)
        else:
            loops.append(loop._replace(body=[stmt]))
    return loops


# -- blocks of buffers


def cache(kernel: Kernel, buffer: str, at: str | None = None) -> Kernel:
    """A block of a buffer in scratch memory, for the body of a loop.

    ``at`` names the loop; without, it is all that one parallel iteration does.

    >>> from weft.compile.loop.schedule import parallelise, tile
    >>> from weft.compile.loop.staging import example
    >>> print(cache(example(), "x", "j"))
    kernel columns(x: float32[50, 8], y: float32[8])
      scratch x_: float32[50]
      for j < 8:
        for ic < 50:
          x_[ic] = x[ic, j]
        sum = 0
        for i < 50:
          sum = sum + x_[i]  # in any order
        y[j] = sum
    """
    copies: list[Buffer] = []

    def staged(body: list[Any]) -> list[Any]:
        found = [(b, index) for b, index in uses(body) if b.name == buffer]
        if not found:
            raise GraphError(f"{kernel.name}: expected {buffer} to be used there")
        if any(_uses_value(v, buffer) for v in _choices(body)):
            raise GraphError(f"{kernel.name}: not all of {buffer} may be there")
        (whole, index), *others = found
        if not all(same_shape(index, other) for _, other in others):
            raise GraphError(f"{kernel.name}: {buffer} is used at several indices")
        writes = [s for s in statements(body) if isinstance(s, Store)
                  and s.buffer.name == buffer]  # fmt: skip
        if writes and len(found) > 1:
            raise GraphError(f"{kernel.name}: {buffer} is written and used otherwise")
        inner = _inner(kernel, buffer, _around(body, buffer, {}), _symbols(index))
        _check(kernel, inner, _symbols(index) & _lets(body))
        array = Buffer(
            _new_name(kernel, buffer), tuple(most(n) for n in inner.values()),
                      whole.dtype, scratch=True)  # fmt: skip
        copies.append(array)
        copy = _copied(kernel, whole, index, inner, array, out=bool(writes))

        def change(b: Buffer, place: tuple[Any, ...]) -> Any:
            if b.name != buffer:
                return b, place
            return array, tuple(kernel.scope.symbol(v) for v in inner)

        body = with_accesses(body, change)
        return [*body, copy] if writes else [copy, *body]

    if at is None:
        body: Any = staged(kernel.body)
    else:
        body = changed(kernel.body, at, lambda f: [f._replace(body=staged(f.body))])
    if body is None:
        raise GraphError(f"{kernel.name}: expected a loop over {at!r}")
    arrays = {array.name: array for array in copies}
    if any(not same_shape(array.shape, arrays[array.name].shape) for array in copies):
        raise GraphError(f"{kernel.name}: blocks of {buffer} have several shapes")
    return kernel._replace(body=body, scratch=(*kernel.scratch, *arrays.values()))


def _choices(body: list[Any]) -> list[Any]:
    """The values that are one or the other, as indices decide."""
    found = subvalues(v for stmt in statements(body) for v in values_of(stmt))
    return [v for v in found if isinstance(v, Choice)]


def _uses_value(value: Any, buffer: str) -> bool:
    loads = (v for v in subvalues([value]) if isinstance(v, Load))
    return any(load.buffer.name == buffer for load in loads)


def _new_name(kernel: Kernel, buffer: str) -> str:
    taken = {b.name for b in kernel.scratch}
    name = f"{buffer}_"
    while name in taken:
        name += "_"
    return name


def _symbols(index: tuple[Any, ...]) -> set[str]:
    return {name for one in index for name in symbols_of(one)}


def _lets(body: list[Any]) -> set[str]:
    return {stmt.var for stmt in statements(body) if isinstance(stmt, Let)}


def _around(body: list[Any], buffer: str, loops: dict[str, Any]) -> list[Any]:
    """The loops around each use of a buffer, from the outside in."""
    nests: list[Any] = []
    for stmt in body:
        if isinstance(stmt, For):
            nests += _around(stmt.body, buffer, {**loops, stmt.var: stmt.extent})
        elif isinstance(stmt, When) and _writes(stmt.body, buffer):
            raise GraphError(f"{buffer} is written under a condition")
        elif isinstance(stmt, When):
            nests += _around(stmt.body, buffer, loops)
            nests += [loops] * _uses([stmt._replace(body=[])], buffer)
        elif _uses([stmt], buffer):
            nests.append(loops)
    return nests


def _writes(body: list[Any], buffer: str) -> bool:
    stores = (s for s in statements(body) if isinstance(s, Store))
    return any(s.buffer.name == buffer for s in stores)


def _inner(kernel: Kernel, buffer: str, around: list[Any], names: set[str]) -> Any:
    """The loops that an index depends on, alike around all uses."""
    first, *others = [{v: n for v, n in a.items() if v in names} for a in around]
    for other in others:
        alike = list(other) == list(first)
        if not alike or not all(same(other[v], first[v]) for v in first):
            raise GraphError(
                f"{kernel.name}: {buffer} is used in loops of several kinds"
            )
    return first


def _uses(body: list[Any], buffer: str) -> bool:
    return any(b.name == buffer for b, _ in uses(body))


def _check(kernel: Kernel, inner: dict[str, Any], picked: set[str]) -> None:
    """Raise GraphError unless the block has a size that is known in advance."""
    for name, extent in inner.items():
        if most(extent) is None:
            raise GraphError(f"{kernel.name}: how far {name} goes is not known")
        if symbols_of(extent) & inner.keys():
            raise GraphError(f"{kernel.name}: {name} ends at {extent}")
    if picked:
        raise GraphError(f"{kernel.name}: {min(picked)} depends on values")


def _copied(
    kernel: Kernel, whole: Buffer, index: Any, inner: dict[str, Any], array: Buffer, *,
    out: bool,
) -> For:  # fmt: skip
    """The loops between a buffer and scratch memory, in the buffer's own order."""
    places = tuple(kernel.scope.symbol(f"{v}c") for v in inner)
    for v, place in zip(inner, places, strict=True):
        kernel.scope.bounds[f"{v}c"] = most(inner[v])
        index = replaced(Store(whole, index, None), v, place, {}).at
    one = (
        Store(whole, index, Load(array, places))
        if out
        else Store(array, places, Load(whole, index))
    )
    flat = flat_position(index, whole.shape)
    body: list[Any] = [one]
    for v in sorted(inner, key=lambda v: _stride(flat, f"{v}c")):
        body = [For(f"{v}c", inner[v], body)]
    (made,) = body
    return made


def _stride(flat: Any, name: str) -> tuple[int, Any]:
    """A sort key: small strides first."""
    found = coefficient(flat, name)
    if isinstance(found, Size):
        return 1, len(found.terms[0][0])
    return 0, found or 0


def example() -> Kernel:
    """A small kernel to show schedules on."""
    from weft import dtype as dtypes
    from weft.compile.loop.ir import Call, Const
    from weft.core.size import Scope

    scope = Scope()
    i, j = scope.symbol("i"), scope.symbol("j")
    x = Buffer("x", (50, 8), dtypes.float32)
    y = Buffer("y", (8,), dtypes.float32)
    total = Local("sum", dtypes.float32)
    step = Set(total, Call("add", (total, Load(x, (i, j))), dtypes.float32), True)
    body = [Set(total, Const(0, dtypes.float32)), For("i", 50, [step]),
            Store(y, (j,), total)]  # fmt: skip
    return Kernel("columns", (x, y), (), (), [For("j", 8, body)], scope)
