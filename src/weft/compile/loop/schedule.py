"""Schedules: transformations of a kernel's loops that keep its meaning.

    tile          for i < n: …          → for io < ⌈n/8⌉: for ii < min(n - 8*io, 8): …
    reorder       for i: for j: …       → for j: for i: …
    fuse          for i < n: for j < m  → for f < n*m: …
    split         for i < n: …          → for i < 8: …   for i < n - 8: …
    unroll        for i < n: …          → for iq < n//4: … … … …   for it < n%4: …
    join          for i: a   for i: b   → for i: a b
    parallelise   for i: …              → parallel i: …
    serialise     parallel i, j: …      → parallel i: for j: …
    vectorise     for i: …              → for i, 16 at once: …

Each takes a kernel and gives another one of the same meaning, or raises a GraphError
that says why it cannot. All loops over a variable are changed. Results are
the same to the bit, except for sums that say that their order may be changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.compile.loop.depend import conflict, following, independent, symbols_of
from weft.compile.loop.ir import For, Kernel, Local, Set, Store, When, statements
from weft.compile.loop.ranges import coefficient
from weft.compile.loop.rewrite import changed, indices_of, mapped, merged_axes, replaced
from weft.core.size import Size, same, smaller
from weft.graph.ir import GraphError


def tile(
    kernel: Kernel, var: str, size: int, *, names: tuple[str, str] | None = None
) -> Kernel:
    """Loops over a variable as loops over blocks, and loops inside each block.

    >>> from weft.compile.loop.schedule import example
    >>> print(example())
    kernel scale(x: float32[100], y: float32[100])
      for i < 100:
        y[i] = x[i] * 2
    >>> print(tile(example(), "i", 8))
    kernel scale(x: float32[100], y: float32[100])
      for io < 13:
        for ii < min(-8*io + 100, 8):
          y[ii + 8*io] = x[ii + 8*io] * 2
    """
    outer, inner = names or (f"{var}o", f"{var}i")
    first = kernel.scope.symbol(outer) * size
    index = first + kernel.scope.symbol(inner)

    def blocks(extent: Any) -> Any:
        found = (extent + (size - 1)) // size
        kernel.scope.bounds |= {outer: found, inner: size}
        return found

    def inside(extent: Any, body: list[Any]) -> For:
        memo: dict[int, Any] = {}
        moved = [replaced(stmt, var, index, memo) for stmt in body]
        count = smaller(extent - first, size)
        if not isinstance(extent, Size):  # every block is whole, or there is but one
            count = size if extent % size == 0 else extent if extent < size else count
        return For(inner, count, moved)

    def tiled(loop: For) -> list[Any]:
        count = blocks(loop.extent)  # first: what is inside is simplified by it
        below = inside(loop.extent, loop.body)._replace(vector=loop.vector)
        return [For(outer, count, [below])]

    _expect(size > 0, kernel, f"a tile of at least 1, got {size}")
    extents = dict(kernel.parallel)
    if var not in extents:
        return _each(kernel, var, tiled)
    parallel = tuple((outer, blocks(n)) if v == var else (v, n) for v, n in
                     kernel.parallel)  # fmt: skip
    body = [inside(extents[var], kernel.body)]
    return kernel._replace(parallel=parallel, body=body)


def reorder(kernel: Kernel, vars: tuple[str, ...] | list[str]) -> Kernel:
    """Loops directly inside one another, in another order (outermost first).

    >>> from weft.compile.loop.schedule import example
    >>> tiled = tile(tile(example(), "i", 50), "ii", 10)
    >>> print(reorder(tiled, ["iii", "io", "iio"]))
    kernel scale(x: float32[100], y: float32[100])
      for iii < 10:
        for io < 2:
          for iio < 5:
            y[iii + 10*iio + 50*io] = x[iii + 10*iio + 50*io] * 2
    """
    wanted = list(vars)

    def exchanged(loop: For) -> list[Any]:
        chain, body = _chain(loop, set(wanted))
        have = [one.var for one in chain]
        if sorted(have) != sorted(wanted):
            raise GraphError(
                f"{kernel.name}: expected loops over {', '.join(wanted)} directly "
                f"inside one another, got {', '.join(have)}"
            )
        by_name = {one.var: one for one in chain}
        why = conflict(have, wanted, {v: by_name[v].extent for v in have}, body)
        _expect(not why, kernel, f"loops whose order is free, but {why}")
        for name in reversed(wanted):
            body = [by_name[name]._replace(body=body)]
        return body

    heads = [
        v for v in wanted if any(loop.var == v for loop in _outermost(kernel, wanted))
    ]
    _expect(bool(heads), kernel, f"loops over {', '.join(wanted)}")
    for head in heads[:1]:
        kernel = _each(kernel, head, exchanged)
    return kernel


def fuse(kernel: Kernel, outer: str, inner: str, *, name: str = "") -> Kernel:
    """Two loops as one, where only ``outer*extent + inner`` matters.

    Axes of buffers that the two run over become one axis.

    >>> from weft.compile.loop.schedule import example
    >>> print(fuse(tile(example(), "i", 10), "io", "ii", name="i"))
    kernel scale(x: float32[100], y: float32[100])
      for i < 100:
        y[i] = x[i] * 2
    """
    name = name or f"{outer}{inner}"
    extents = _extents(kernel, outer, inner)
    count = extents[inner]
    if not any(same(n, 1) for n in extents.values()):
        kernel = merged_axes(kernel, outer, inner)
        for index in indices_of(kernel):
            high, low = coefficient(index, outer), coefficient(index, inner)
            if high is None or low is None or not same(high, low * count):
                raise GraphError(
                    f"{kernel.name}: expected indices with {outer}*{count} + {inner} "
                    f"alone, got {index}"
                )
    zero, other = (outer, inner) if not same(count, 1) else (inner, outer)
    fused_index, total = kernel.scope.symbol(name), extents[outer] * count
    kernel.scope.bounds[name] = total
    memos: tuple[dict[int, Any], dict[int, Any]] = ({}, {})

    def moved(body: list[Any]) -> list[Any]:
        body = [replaced(stmt, zero, 0, memos[0]) for stmt in body]
        return [replaced(stmt, other, fused_index, memos[1]) for stmt in body]

    def fused(loop: For) -> list[Any]:
        (below,) = loop.body
        return [below._replace(var=name, extent=total, body=moved(below.body))]

    if outer not in dict(kernel.parallel):
        return _each(kernel, outer, fused)
    parallel = [(name, total) if v == outer else (v, n) for v, n in kernel.parallel]
    parallel.remove((inner, count))
    return kernel._replace(parallel=tuple(parallel), body=moved(kernel.body))


def split(kernel: Kernel, var: str, at: Any) -> Kernel:
    """Loops over a variable as two: the first iterations, and the others.

    >>> from weft.compile.loop.schedule import example
    >>> print(split(example(), "i", 96))
    kernel scale(x: float32[100], y: float32[100])
      for i < 96:
        y[i] = x[i] * 2
      for i < 4:
        y[i + 96] = x[i + 96] * 2
    """

    def parted(loop: For) -> list[Any]:
        bound = smaller(at, loop.extent)
        memo: dict[int, Any] = {}
        index = kernel.scope.symbol(var) + bound
        late = [replaced(stmt, var, index, memo) for stmt in loop.body]
        rest = loop._replace(extent=loop.extent - bound, body=late)
        return [loop._replace(extent=bound), rest]

    _expect(isinstance(at, Size) or at >= 0, kernel, f"a bound of at least 0, got {at}")
    return _each(kernel, var, parted)


def unroll(kernel: Kernel, var: str, factor: int) -> Kernel:
    """Several iterations of a loop written out: shared values are computed once.

    >>> from weft.compile.loop.schedule import example
    >>> print(unroll(example(7), "i", 3))
    kernel scale(x: float32[7], y: float32[7])
      for iq < 2:
        y[3*iq] = x[3*iq] * 2
        y[3*iq + 1] = x[3*iq + 1] * 2
        y[3*iq + 2] = x[3*iq + 2] * 2
      for it < 1:
        y[it + 6] = x[it + 6] * 2
    """
    scope = kernel.scope
    group, rest = scope.symbol(f"{var}q"), scope.symbol(f"{var}t")

    def unrolled(loop: For) -> list[Any]:
        def at(index: Any) -> list[Any]:
            memo: dict[int, Any] = {}
            return [replaced(stmt, var, index, memo) for stmt in loop.body]

        whole = loop.extent // factor
        left = loop.extent - whole * factor
        body = [stmt for k in range(factor) for stmt in at(group * factor + k)]
        found = [For(f"{var}q", whole, body)]
        if not same(left, 0):
            found.append(For(f"{var}t", left, at(whole * factor + rest)))
        return found

    _expect(factor > 0, kernel, f"a factor of at least 1, got {factor}")
    return _each(kernel, var, unrolled)


def jam(kernel: Kernel, var: str, count: int) -> Kernel:
    """Neighbouring iterations of a parallel loop as one: its loops do all of them.

    >>> from weft.compile.loop.schedule import example
    >>> tiled = parallelise(tile(example(32), "i", 16), "io")
    >>> print(jam(tiled, "io", 2))
    kernel scale(x: float32[32], y: float32[32])
      parallel ios < 1:
        for ii < 16:
          y[ii + 32*ios] = x[ii + 32*ios] * 2
          y[ii + 32*ios + 16] = x[ii + 32*ios + 16] * 2
    """
    extents, scope = dict(kernel.parallel), kernel.scope
    whole = isinstance(extents[var], int) and extents[var] % count == 0
    _expect(whole, kernel, f"a multiple of {count} iterations, got {extents[var]}")
    stmts = list(statements(kernel.body))
    plain = all(isinstance(s, (For, Set, Store)) for s in stmts)
    _expect(plain, kernel, "loops without conditions and indices from memory")
    name = f"{var}s"
    scope.bounds[name] = extents[var] // count
    copies = []
    for k in range(count):
        memo: dict[int, Any] = {}
        index = scope.symbol(name) * count + k
        body = [replaced(stmt, var, index, memo) for stmt in kernel.body]
        copies.append(_renamed(body, k))
    parallel = tuple(
        (name, extents[var] // count) if v == var else (v, n)
        for v, n in kernel.parallel
    )
    return kernel._replace(parallel=parallel, body=_side_by_side(copies))


def _renamed(body: list[Any], number: int) -> list[Any]:
    """Statements with locals of their own."""

    def own(value: Any) -> Any:
        if not isinstance(value, Local) or not number:
            return value
        return value._replace(name=f"{value.name}_{number}")

    def renamed(stmt: Any) -> Any:
        if isinstance(stmt, For):
            return stmt._replace(body=list(map(renamed, stmt.body)))
        return stmt._replace(local=own(stmt.local)) if isinstance(stmt, Set) else stmt

    memo: dict[int, Any] = {}
    return [renamed(mapped(stmt, own, memo)) for stmt in body]


def _side_by_side(copies: list[list[Any]]) -> list[Any]:
    found: list[Any] = []
    for together in zip(*copies, strict=True):
        first = together[0]
        if isinstance(first, For):
            found.append(first._replace(body=_side_by_side([s.body for s in together])))
        else:
            found += together
    return found


def join(kernel: Kernel, var: str) -> Kernel:
    """Consecutive loops over a variable, fused into one.

    >>> from weft.compile.loop.schedule import example
    >>> tiled = unroll(tile(example(32), "i", 8), "io", 2)
    >>> print(join(tiled, "ii"))
    kernel scale(x: float32[32], y: float32[32])
      for ioq < 2:
        for ii < 8:
          y[ii + 16*ioq] = x[ii + 16*ioq] * 2
          y[ii + 16*ioq + 8] = x[ii + 16*ioq + 8] * 2
    """

    def joined(body: list[Any]) -> list[Any]:
        found: list[Any] = []
        for stmt in body:
            if isinstance(stmt, (For, When)):
                stmt = stmt._replace(body=joined(stmt.body))
            last: Any = found[-1] if found else None
            if _alike(last, stmt, var):
                why = following(var, stmt.extent, last.body, stmt.body)
                _expect(not why, kernel, f"loops that may run at once, but {why}")
                found[-1] = last._replace(body=[*last.body, *stmt.body])
            else:
                found.append(stmt)
        return found

    return kernel._replace(body=joined(kernel.body))


def parallelise(kernel: Kernel, var: str) -> Kernel:
    """The loop that is the whole body, as the innermost of the parallel ones.

    >>> from weft.compile.loop.schedule import example
    >>> print(parallelise(tile(example(), "i", 10), "io"))
    kernel scale(x: float32[100], y: float32[100])
      parallel io < 10:
        for ii < 10:
          y[ii + 10*io] = x[ii + 10*io] * 2
    """
    loop = kernel.body[0] if len(kernel.body) == 1 else None
    if not isinstance(loop, For) or loop.var != var:
        raise GraphError(f"{kernel.name}: expected {var} to be the outermost loop")
    outer = symbols_of(loop.extent) & dict(kernel.parallel).keys()
    _expect(not outer, kernel, f"an extent of its own for {var}, got {loop.extent}")
    why = independent(var, loop.body, loop.extent)
    _expect(not why, kernel, f"iterations that do not depend on others, but {why}")
    parallel = (*kernel.parallel, (var, loop.extent))
    return kernel._replace(parallel=parallel, body=loop.body)


def serialise(kernel: Kernel, var: str) -> Kernel:
    """The innermost of the parallel loops, as a loop around the body.

    >>> from weft.compile.loop.schedule import example
    >>> print(serialise(parallelise(example(), "i"), "i"))
    kernel scale(x: float32[100], y: float32[100])
      for i < 100:
        y[i] = x[i] * 2
    """
    if not kernel.parallel or kernel.parallel[-1][0] != var:
        raise GraphError(f"{kernel.name}: expected {var} to be the last parallel loop")
    *outer, (_, extent) = kernel.parallel
    body = [For(var, extent, kernel.body)]
    return kernel._replace(parallel=tuple(outer), body=body)


def vectorise(kernel: Kernel, var: str, width: int) -> Kernel:
    """Iterations of an innermost loop, so many at once.

    >>> from weft.compile.loop.schedule import example
    >>> print(vectorise(example(), "i", 16))
    kernel scale(x: float32[100], y: float32[100])
      for i < 100, 16 at once:
        y[i] = x[i] * 2
    """

    def marked(loop: For) -> list[Any]:
        inner = any(isinstance(stmt, For) for stmt in statements(loop.body))
        _expect(not inner, kernel, f"{var} to be an innermost loop")
        why = conflict([var, ""], ["", var], {var: loop.extent}, loop.body)
        _expect(not why, kernel, f"iterations that may run at once, but {why}")
        return [loop._replace(vector=width)]

    _expect(width > 0, kernel, f"a width of at least 1, got {width}")
    return _each(kernel, var, marked)


# -- loops by name


def _expect(holds: bool, kernel: Kernel, what: str) -> None:
    if not holds:
        raise GraphError(f"{kernel.name}: expected {what}")


def _each(kernel: Kernel, var: str, change: Callable[[For], list[Any]]) -> Kernel:
    """Every loop over a variable changed."""
    body = changed(kernel.body, var, change)
    if body is None:
        there = sorted({s.var for s in statements(kernel.body) if isinstance(s, For)})
        names = ", ".join(there)
        raise GraphError(f"{kernel.name}: expected a loop over {names}, got {var!r}")
    return kernel._replace(body=body)


def _outermost(kernel: Kernel, names: list[str]) -> list[For]:
    """The loops over some variables that are in no other such loop."""
    outermost: list[For] = []
    stack = list(kernel.body)
    while stack:
        stmt = stack.pop()
        if isinstance(stmt, For) and stmt.var in names:
            outermost.append(stmt)
        elif isinstance(stmt, (For, When)):
            stack += stmt.body
    return outermost


def _chain(loop: For, names: set[str]) -> tuple[list[For], list[Any]]:
    """Loops directly inside one another, and the innermost body."""
    chain = [loop]
    while len(chain[-1].body) == 1:
        (below,) = chain[-1].body
        if not isinstance(below, For) or below.var not in names:
            break
        chain.append(below)
    return chain, chain[-1].body


def _extents(kernel: Kernel, outer: str, inner: str) -> dict[str, Any]:
    """The extents of two loops that are next to one another wherever they are."""
    names = [v for v, _ in kernel.parallel]
    if outer in names and inner in names[names.index(outer) + 1 :][:1]:
        extents = [dict(kernel.parallel)]
    else:
        extents = []
        for loop in statements(kernel.body):
            if isinstance(loop, For) and loop.var in (outer, inner):
                extents.append({loop.var: loop.extent})
        extents = _pairs(kernel.body, outer, inner, len(extents))
    if not extents:
        raise GraphError(f"{kernel.name}: expected {inner} directly inside {outer}")
    first = {name: extents[0][name] for name in (outer, inner)}
    alike = all(same(one[v], first[v]) for one in extents for v in first)
    own = not isinstance(first[inner], Size) or outer not in first[inner].symbols
    _expect(alike and own, kernel, f"one extent each of {outer} and {inner}")
    return first


def _pairs(body: list[Any], outer: str, inner: str, count: int) -> list[Any]:
    """The extents of all nests of two loops; none if one of them is not of both."""
    pairs = []
    for loop in statements(body):
        if isinstance(loop, For) and loop.var == outer and len(loop.body) == 1:
            (below,) = loop.body
            if isinstance(below, For) and below.var == inner:
                pairs.append({outer: loop.extent, inner: below.extent})
    return pairs if 2 * len(pairs) == count else []


def _alike(a: Any, b: Any, var: str) -> bool:
    return (
        isinstance(a, For)
        and isinstance(b, For)
        and a.var == b.var == var
        and same(a.extent, b.extent)
        and a.vector == b.vector
    )


def example(size: int = 100) -> Kernel:
    """A small kernel to show schedules on."""
    from weft import dtype as dtypes
    from weft.compile.loop.ir import Buffer, Call, Const, Load, Store
    from weft.core.size import Scope

    scope = Scope()
    x, y = (Buffer(name, (size,), dtypes.float32) for name in "xy")
    i = scope.symbol("i")
    two = Const(2, dtypes.float32)
    value = Call("mul", (Load(x, (i,)), two), dtypes.float32)
    body = [For("i", size, [Store(y, (i,), value)])]
    return Kernel("scale", (x, y), (), (), body, scope)
